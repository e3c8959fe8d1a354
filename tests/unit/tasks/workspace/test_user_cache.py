"""The account's cache: what it did not write as it is there counts as missing."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.workspace.user_cache import FOLDER, KEY, UserCache


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "caches"


def cache_in(base: Path) -> UserCache | None:
    return UserCache.of({"XDG_CACHE_HOME": str(base)})


def test_an_entry_is_read_as_it_was_kept(base: Path):
    cache_in(base).keep("a", b"content")
    assert cache_in(base).read("a") == b"content"
    assert cache_in(base).read("b") is None


def test_nobody_else_can_read_or_write_anything_in_it(base: Path):
    cache_in(base).keep("a", b"content")
    assert (base / FOLDER).stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in (base / FOLDER).iterdir()} == {KEY: 0o600, "a": 0o600}


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def moved(path: Path) -> None:
    path.write_bytes(path.with_name("b").read_bytes())


def opened(path: Path) -> None:
    path.chmod(0o640)


def of_another_key(path: Path) -> None:
    path.with_name(KEY).unlink()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize("fault", [changed, cut, moved, opened, of_another_key, a_pipe])
def test_an_entry_that_this_account_did_not_write_under_that_name_counts_as_missing(base: Path, fault):
    cache_in(base).keep("a", b"content")
    cache_in(base).keep("b", b"other content")
    fault(base / FOLDER / "a")
    assert cache_in(base).read("a") is None
    assert cache_in(base).read("b") == (None if fault is of_another_key else b"other content")
    cache_in(base).keep("a", b"made again")
    assert cache_in(base).read("a") == b"made again"


def readable(folder: Path) -> None:
    folder.chmod(0o755)


def a_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def exchangeable(folder: Path) -> None:
    folder.parent.chmod(0o777)


def short_key(folder: Path) -> None:
    (folder / KEY).write_bytes(b"")


def open_key(folder: Path) -> None:
    (folder / KEY).chmod(0o644)


def a_file(folder: Path) -> None:
    (folder / KEY).unlink()
    folder.rmdir()
    folder.touch()


@pytest.mark.parametrize("fault", [readable, a_link, exchangeable, short_key, open_key, a_file])
def test_a_folder_that_may_be_somebody_elses_is_not_used(base: Path, fault):
    assert cache_in(base) is not None
    fault(base / FOLDER)
    assert cache_in(base) is None


def test_a_relative_path_counts_for_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert UserCache.of({"XDG_CACHE_HOME": "planted"}).folder == tmp_path / "home" / ".cache" / FOLDER
    assert not (tmp_path / "planted").exists()


def test_all_who_come_first_agree_on_one_key(base: Path):
    with ThreadPoolExecutor(8) as threads:
        keys = {cache.key for cache in threads.map(cache_in, [base] * 32)}
    assert len(keys) == 1
    assert [path.name for path in (base / FOLDER).iterdir()] == [KEY]


def test_a_cache_that_cannot_be_written_keeps_nothing_and_says_nothing(base: Path):
    cache = cache_in(base)
    (base / FOLDER / "a").mkdir()
    cache.keep("a", b"content")
    assert cache.read("a") is None
