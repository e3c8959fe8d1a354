"""Bundles: sealed, revealed whole or not at all, and every damage named."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.bundle.staging import CHECKSUMS, Staging, faults, sha256_of

CONTENT = {"data.parquet": b"\x00rows", "record.json": b"{}\n", "report.html": b"<html>"}


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    """A started bundle with its files."""
    staging = Staging(tmp_path / "visits" / "visits-2026-01-1")
    staging.start()
    for name, content in CONTENT.items():
        (staging.folder / name).write_bytes(content)
    return staging


@pytest.fixture
def bundle(staging: Staging) -> tuple[Path, str]:
    """A revealed bundle and its digest."""
    digest = staging.seal()
    staging.reveal()
    return staging.final, digest


def test_checksums_are_those_of_the_tool_that_everybody_has(staging: Staging):
    digest = staging.seal()
    text = (staging.folder / CHECKSUMS).read_text()
    assert text == "".join(f"{hashlib.sha256(CONTENT[name]).hexdigest()}  {name}\n" for name in sorted(CONTENT))
    assert digest == hashlib.sha256(text.encode()).hexdigest() == sha256_of(staging.folder / CHECKSUMS)


def test_a_bundle_is_invisible_until_it_is_revealed(staging: Staging):
    assert not staging.final.exists()
    staging.seal()
    assert [path.name for path in staging.final.parent.iterdir()] == [".visits-2026-01-1.partial"]
    staging.reveal()
    assert [path.name for path in staging.final.parent.iterdir()] == ["visits-2026-01-1"]
    assert {path.name for path in staging.final.iterdir()} == {*CONTENT, CHECKSUMS}


def test_files_of_a_bundle_are_read_only(bundle: tuple[Path, str]):
    folder, _ = bundle
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o444}


def test_starting_again_forgets_what_an_earlier_run_left(staging: Staging):
    staging.seal()
    staging.start()
    assert list(staging.folder.iterdir()) == []


def test_sealing_twice_gives_the_same_digest(staging: Staging):
    assert staging.seal() == staging.seal()


def test_the_digest_is_that_of_names_and_contents_alone(staging: Staging, tmp_path: Path):
    other = Staging(tmp_path / "elsewhere" / "other")
    other.start()
    for name in reversed(CONTENT):
        (other.folder / name).write_bytes(CONTENT[name])
    assert other.seal() == staging.seal()


def test_a_bundle_is_never_revealed_over_another(bundle: tuple[Path, str]):
    folder, digest = bundle
    again = Staging(folder)
    again.start()
    (again.folder / "data.parquet").write_bytes(b"other rows")
    again.seal()
    with pytest.raises(OSError, match="not empty"):
        again.reveal()
    assert list(faults(folder, digest)) == []


def test_a_finished_folder_is_known_by_its_digest(staging: Staging):
    assert not staging.is_sealed_as("0" * 64), "not sealed yet"
    digest = staging.seal()
    assert staging.is_sealed_as(digest)
    assert not staging.is_sealed_as("0" * 64)
    (staging.folder / "record.json").unlink()
    assert not staging.is_sealed_as(digest), "sealed, and damaged since"
    shutil.rmtree(staging.folder)
    assert not staging.is_sealed_as(digest)


def test_an_untouched_bundle_has_no_faults(bundle: tuple[Path, str]):
    folder, digest = bundle
    assert list(faults(folder, digest)) == []


def _rewrite(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


def _rename(folder: Path) -> None:
    (folder / "data.parquet").rename(folder / "moved.parquet")


DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "changed": (lambda f: _rewrite(f / "data.parquet", b"\x01rows"), ["data.parquet was changed"]),
    "truncated": (lambda f: _rewrite(f / "data.parquet", b""), ["data.parquet was changed"]),
    "missing": (lambda f: (f / "record.json").unlink(), ["record.json is missing"]),
    "extra": (lambda f: (f / "note.txt").touch(), ["note.txt does not belong to the bundle"]),
    "extra-hidden": (lambda f: (f / ".note").touch(), [".note does not belong to the bundle"]),
    "extra-folder": (lambda f: (f / "more").mkdir(), ["more does not belong to the bundle"]),
    "renamed": (_rename, ["data.parquet is missing", "moved.parquet does not belong to the bundle"]),
    "several": (
        lambda f: ((f / "note.txt").touch(), _rewrite(f / "record.json", b"[]"), (f / "report.html").unlink()),
        ["note.txt does not belong to the bundle", "record.json was changed", "report.html is missing"],
    ),
    "checksums-missing": (lambda f: (f / CHECKSUMS).unlink(), ["SHA256SUMS is missing"]),
    "folder-missing": (shutil.rmtree, ["SHA256SUMS is missing"]),
    "checksums-with-comment": (
        lambda f: _rewrite(f / CHECKSUMS, (f / CHECKSUMS).read_bytes().replace(b"\n", b"\n\n", 1)),
        ["SHA256SUMS is not the one in the ledger"],
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_every_damage_is_named(bundle: tuple[Path, str], case: str):
    damage, expected = DAMAGES[case]
    folder, digest = bundle
    damage(folder)
    found = list(faults(folder, digest))
    assert found[: len(expected)] == expected


def test_a_change_with_its_checksum_is_still_found(bundle: tuple[Path, str]):
    folder, digest = bundle
    _rewrite(folder / "record.json", b'{"epsilon": 0.1}')
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in sorted(CONTENT)]
    _rewrite(folder / CHECKSUMS, "".join(lines).encode())
    assert list(faults(folder, digest)) == ["SHA256SUMS is not the one in the ledger"]


def test_checksums_that_are_no_text_are_a_fault_and_no_error(bundle: tuple[Path, str]):
    folder, digest = bundle
    _rewrite(folder / CHECKSUMS, b"\xff\xfe\x00" * 50)
    assert "SHA256SUMS is not the one in the ledger" in list(faults(folder, digest))


def test_files_of_a_bundle_do_not_tell_when_each_was_written(staging: Staging):
    for second, path in enumerate(sorted(staging.folder.iterdir())):
        os.utime(path, (1_770_000_000 + 7 * second,) * 2)
    staging.seal()
    staging.reveal()
    (time,) = {path.stat().st_mtime_ns for path in [staging.final, *staging.final.iterdir()]}
    assert time % 60_000_000_000 == 0
