"""Which program this is: one digest over its code and over the versions of what its numbers rest on."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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


@functools.cache
def code_facts() -> dict[str, Any]:
    """Which program, interpreter and libraries made a release, and one digest over all that was installed."""
    installed = installed_distributions()
    return {
        "version": importlib.metadata.version("dprelease"),
        "digest": code_digest(),
        "python": platform.python_version(),
        "dependencies": list(installed),
        "dependencies_digest": dependencies_digest(installed),
    }


def installed_distributions() -> tuple[str, ...]:
    """`name==version` of every installed distribution, sorted, each name once and in its normal spelling."""
    found = ((d.metadata["Name"], d.version) for d in importlib.metadata.distributions())
    return tuple(sorted({f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}" for name, version in found if name}))


def dependencies_digest(lines: Iterable[str]) -> str:
    """SHA-256 over the sorted lines, each ended by a newline."""
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()
