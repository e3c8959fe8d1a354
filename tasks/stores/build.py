"""Which program this is: one digest over its code and over the versions of what its numbers rest on."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from pathlib import Path

PACKAGES = ("dpcore", "expectations", "tasks", "flows")
NUMERICS = ("numpy", "scipy", "opendp", "python-flint", "randomgen", "pyarrow")
"""Libraries that a measurement goes through."""


@functools.cache
def code_digest() -> str:
    """The digest of the program that is running."""
    return digest_of(Path(__file__).parents[2])


def digest_of(root: Path) -> str:
    """SHA-256 over every source file of a program, Python's version and the numeric libraries'."""
    lines = [f"python {platform.python_version()}"]
    lines += [f"{name} {importlib.metadata.version(name)}" for name in NUMERICS]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{path.relative_to(root).as_posix()} {digest}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
