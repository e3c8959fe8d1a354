"""The identity of this program: one digest over its code and over the versions of its numeric libraries."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

PACKAGES = ("dpcore", "expectations", "tasks", "flows")
NUMERICS = ("numpy", "scipy", "opendp", "python-flint", "randomgen", "pyarrow")
"""The libraries that compute a measurement."""
SOFTWARE = ("dprelease", *NUMERICS, "scikit-learn", "prefect")
SOURCES = (".py", ".j2", ".css", ".json", ".yaml")

_OF_THE_WHEEL = re.compile(r"(?!\.\./)(?![^/]+\.dist-info/(?:INSTALLER|REQUESTED|uv_\w+\.json),).*,sha256=")
"""A line of an installed RECORD that is also in the RECORD of the wheel."""


@functools.cache
def code_digest() -> str:
    """The digest of the running program."""
    return source_digest(Path(__file__).parents[2])


def source_digest(root: Path) -> str:
    """SHA-256 over every source file of a program, Python's version and the numeric libraries'."""
    lines = [f"python {platform.python_version()}"]
    lines += [f"{name} {version_of(name)}" for name in NUMERICS]
    for package in PACKAGES:
        for path in sorted(path for path in (root / package).rglob("*") if path.suffix in SOURCES):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{path.relative_to(root).as_posix()} {digest}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def code_facts() -> dict[str, Any]:
    """The program, interpreter and libraries of a release, and one digest over all installed distributions."""
    installed = installed_distributions()
    return {
        "version": version_of("dprelease"),
        "digest": code_digest(),
        "python": platform.python_version(),
        "platform": platform_facts(),
        "dependencies": list(installed),
        "dependencies_digest": dependencies_digest(installed),
    }


@functools.cache
def version_of(name: str) -> str:
    """The version of an installed distribution; it is cached, because a lookup reads all metadata."""
    return importlib.metadata.version(name)


def software_versions() -> dict[str, str]:
    """The versions of this program and of the libraries that a release goes through."""
    return {name: version_of(name) for name in SOFTWARE}


@functools.cache
def platform_facts() -> str:
    """The facts besides versions that determine the last bits of a result: system, processor, C library and BLAS."""
    import scipy.linalg  # noqa: F401  loads its BLAS beside NumPy's
    from threadpoolctl import threadpool_info

    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    blas = {f"{each['internal_api']}-{each['version']}-{each.get('architecture')}" for each in libraries}
    return " ".join([platform.system(), platform.machine(), "-".join(platform.libc_ver()), *sorted(blas)])


def installed_distributions() -> tuple[str, ...]:
    """`name==version sha256:digest` of every installed distribution, sorted, each name once and in its normal spelling.

    Where a name is installed twice, the first on the path counts: it is the one that is imported.
    """
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        head = _metadata_head(distribution)
        name = re.sub(r"[-_.]+", "-", head["Name"] or "").lower()
        if name and name not in found:
            digest = installed_digest(distribution)
            found[name] = f"{name}=={head['Version']}" + (f" sha256:{digest}" if digest else "")
    return tuple(sorted(found.values()))


def _metadata_head(distribution: importlib.metadata.Distribution) -> Message:
    """The header fields of a distribution; `distribution.metadata` parses its long description as well."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    return HeaderParser().parsestr(text.partition("\n\n")[0])


def installed_digest(distribution: importlib.metadata.Distribution) -> str | None:
    """SHA-256 over the sorted lines of RECORD, the same on every machine that installed the same wheel.

    Lines that depend on the installer or the machine are left out: launchers and data beside the
    packages (`../`), compiled files (which have no hash) and the installer's notes. None without RECORD, and for
    what came from a folder or an address instead of an index, whose RECORD covers paths of the machine.
    """
    if distribution.read_text("direct_url.json") is not None:
        return None
    lines = [line for line in (distribution.read_text("RECORD") or "").splitlines() if _OF_THE_WHEEL.match(line)]
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest() if lines else None


def dependencies_digest(lines: Iterable[str]) -> str:
    """SHA-256 over the sorted lines, each ended by a newline."""
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()
