"""The operating system's locks on open files, by which processes exclude each other.

A lock belongs to the open file: it ends when the file is closed, and so with its process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tasks.workspace.files import PRIVATE_FILE

OpenFile = int | IO[Any]
"""A file descriptor, or a file object that has one."""


def lock(file: OpenFile, *, shared: bool = False) -> None:
    """Lock an open file, waiting until no other process holds a lock that excludes this one."""
    fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(file: OpenFile, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; return whether the lock was free."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: OpenFile) -> None:
    """Release the lock on a file that stays open."""
    fcntl.flock(file, fcntl.LOCK_UN)


def open_lock(path: Path) -> int:
    """Open a lock file, which is created for its owner alone, and return its descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)


@contextmanager
def hold_lock(path: Path, *, shared: bool = False) -> Iterator[int]:
    """Wait for the lock on a file, which is created if it is missing, and hold it during the block."""
    with _locked(open_lock(path), shared=shared) as descriptor:
        yield descriptor


@contextmanager
def hold_folder_lock(path: Path) -> Iterator[int]:
    """Wait for the lock on a folder, which must exist, and hold it during the block."""
    with _locked(os.open(path, os.O_RDONLY | os.O_DIRECTORY), shared=False) as descriptor:
        yield descriptor


@contextmanager
def _locked(descriptor: int, *, shared: bool) -> Iterator[int]:
    try:
        lock(descriptor, shared=shared)
        yield descriptor
    finally:
        os.close(descriptor)
