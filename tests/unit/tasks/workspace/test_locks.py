"""Locks exclude other holders, shared ones admit each other, and all end with their file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tasks.workspace.locks import hold_folder_lock, hold_lock, lock, open_lock, try_lock, unlock


@pytest.mark.parametrize(
    ("shared", "wanted_shared", "free"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, True)],
)
def test_only_shared_locks_admit_each_other(tmp_path: Path, shared: bool, wanted_shared: bool, free: bool) -> None:
    path = tmp_path / "a.lock"
    other = open_lock(path)
    with hold_lock(path, shared=shared):
        assert try_lock(other, shared=wanted_shared) is free
    assert try_lock(other), "the lock ended with the block"
    os.close(other)


def test_a_lock_on_a_folder_excludes_others_and_creates_nothing(tmp_path: Path) -> None:
    with hold_folder_lock(tmp_path), (tmp_path / "a").open("w"):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        assert not try_lock(descriptor)
        os.close(descriptor)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_lock_can_be_released_while_its_file_stays_open(tmp_path: Path) -> None:
    one, other = open_lock(tmp_path / "a.lock"), open_lock(tmp_path / "a.lock")
    lock(one)
    assert not try_lock(other)
    unlock(one)
    assert try_lock(other)
    os.close(one)
    os.close(other)


def test_a_lock_file_is_its_owners_alone(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "a.lock"):
        assert stat.S_IMODE((tmp_path / "a.lock").stat().st_mode) == 0o600


def test_a_folder_that_is_missing_is_not_replaced_by_a_lock(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), hold_folder_lock(tmp_path / "vault"):
        pass
    assert not (tmp_path / "vault").exists()
