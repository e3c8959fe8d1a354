"""Private and durable files: created for their owner alone, brought to disk, and put in place by a rename."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedWriter
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
WRITABLE_BY_OTHERS = 0o022


def create_private(path: Path) -> BufferedWriter:
    """Create a file that only its owner can read, and open it for writing.

    Raises: OSError, also if the file exists.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "wb")


@contextmanager
def private_file(path: Path, content: str) -> Iterator[Path]:
    """Keep a file that only its owner can read during the block."""
    path.unlink(missing_ok=True)  # a killed process may have left one
    with create_private(path) as file:
        file.write(content.encode())
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def flush_written(file: BufferedWriter) -> None:
    """Bring to disk what was written to an open file."""
    file.flush()
    os.fsync(file.fileno())


def flush_to_disk(path: Path, *, best_effort: bool = False) -> None:
    """Bring a file's content, or the names in a folder, to disk, so that they outlive a power cut.

    With `best_effort`, a file system that cannot do so is accepted.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if best_effort else nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_once(path: Path, content: bytes) -> None:
    """Put a private file in its place, whole, and never in the place of another.

    Raises: OSError, also if there is one.
    """
    part = path.with_name(f".part-{secrets.token_hex(8)}")
    try:
        with create_private(part) as file:
            file.write(content)
        os.link(part, path)  # unlike a rename, it refuses to replace
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes, *, draft: Path, mode: int = PRIVATE_FILE) -> None:
    """Write a file as a draft beside it, bring it to disk and rename it: readers find all of it or none.

    Raises: OSError, also if the draft exists.
    """
    with create_private(draft) as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
        flush_written(file)
    draft.replace(path)
