"""Private files are their owner's alone, and a file that is replaced is never seen in part."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tasks.workspace.files import create_once, create_private, flush_to_disk, private_file, write_atomically


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_file_is_never_made_of_one_that_exists(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("somebody else's")
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "a")


def test_a_file_is_on_disk_before_it_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, draft, steps = tmp_path / "a", tmp_path / ".a.new", list[str]()
    path.write_text("before")
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append(f"fsync, {path.read_text()}"), sync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("replace"), replace(*paths)))
    write_atomically(path, b"after", draft=draft)
    assert steps == ["fsync, before", "replace"]
    assert (path.read_text(), mode(path), draft.exists()) == ("after", 0o600, False)


def test_a_private_file_is_gone_after_its_block_and_replaces_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("left behind")
    with private_file(tmp_path / "a", "secret") as path:
        assert (path.read_text(), mode(path)) == ("secret", 0o600)
    assert not path.exists()


def test_a_file_system_that_cannot_flush_is_accepted_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EINVAL, "this file system cannot")

    monkeypatch.setattr(os, "fsync", refuse)
    flush_to_disk(tmp_path, best_effort=True)
    with pytest.raises(OSError, match="cannot"):
        flush_to_disk(tmp_path)


def test_a_file_that_is_created_once_is_whole_private_and_never_replaced(tmp_path: Path) -> None:
    create_once(tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        create_once(tmp_path / "a", b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "no part is left"
    assert (tmp_path / "a").read_bytes() == b"first"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
