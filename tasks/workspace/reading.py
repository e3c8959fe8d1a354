"""Reading of untrusted files and documents: regular files only, JSON of any shape."""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; a pipe, socket, device or folder is refused at once.

    Opening a named pipe would wait for a writer, and a device may be endless. The type is checked on the
    opened file, so that nobody can exchange the file between the check and the opening.
    Raises: OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path) -> bytes:
    """The content of a regular file.

    Raises: OSError.
    """
    with open_regular(path) as file:
        return file.read()


def read_text(path: Path, *, errors: str = "strict") -> str:
    """The UTF-8 text of a regular file.

    Raises: OSError, UnicodeDecodeError.
    """
    return read_bytes(path).decode("utf-8", errors=errors)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises: ValueError, also for a text that is nested too deeply to be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None
