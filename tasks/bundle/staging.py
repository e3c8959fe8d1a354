"""Release bundles: written beside, checked, renamed, and verified later.

A bundle becomes visible in one rename, after the ledger holds the digest of its
checksums: there is never half a bundle, nor one that the ledger does not know.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.workspace.clock import to_the_minute
from tasks.workspace.files import flush_to_disk
from tasks.workspace.reading import open_regular, read_text

DATA, PROJECTED = "data.parquet", "projected.parquet"
CHECKSUMS = "SHA256SUMS"
FILES = frozenset(
    {
        DATA,
        PROJECTED,
        "codebook.json",
        "model.json",
        "record.json",
        "report.html",
        "lineage.ndjson",
        "registry.yaml",
        "statement.intoto.json",
    }
)
"""What a bundle may hold, beside its checksums; those of the first version held less."""


def render_json(content: dict[str, Any]) -> str:
    """A document of a bundle as its file holds it."""
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Staging:
    """A bundle that is being written, beside the place where it will stand."""

    final: Path

    @property
    def folder(self) -> Path:
        """Where its files are written."""
        return self.final.parent / f".{self.final.name}.partial"

    def start(self) -> None:
        """An empty folder, whatever an earlier run left."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700)  # nobody else looks at what is not published

    def digests(self) -> dict[str, str]:
        """The digest of every file written so far."""
        return {path.name: sha256_of(path) for path in self.folder.iterdir()}

    def seal(self) -> str:
        """Write the checksums, bring everything to disk; returns the checksums' digest.

        All files get one time: when each was written would tell how long the stages took.
        """
        names = sorted(path.name for path in self.folder.iterdir() if path.name != CHECKSUMS)
        (self.folder / CHECKSUMS).write_text(_checksums({name: sha256_of(self.folder / name) for name in names}))
        minute = to_the_minute(datetime.now(UTC)).timestamp()
        for name in [*names, CHECKSUMS]:
            path = self.folder / name
            path.chmod(0o444)
            os.utime(path, (minute, minute))
            flush_to_disk(path)
        os.utime(self.folder, (minute, minute))
        flush_to_disk(self.folder)
        return sha256_of(self.folder / CHECKSUMS)

    def reveal(self) -> None:
        """Rename the finished folder into place, where everybody may read it."""
        self.folder.chmod(0o755)
        self.folder.rename(self.final)
        flush_to_disk(self.final.parent)

    def is_sealed_as(self, digest: str) -> bool:
        """Whether a finished folder with this digest waits to be revealed."""
        return (self.folder / CHECKSUMS).is_file() and not list(faults(self.folder, digest))


def _checksums(digests: dict[str, str]) -> str:
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def checksums_in(folder: Path) -> dict[str, str]:
    """The digest of each file, as the checksums of a bundle have it."""
    text = read_text(folder / CHECKSUMS, errors="replace")
    return {name: value for value, _, name in (line.partition("  ") for line in text.splitlines() if line)}


def faults(folder: Path, digest: str) -> Iterator[str]:
    """Everything in which a bundle differs from what was published, in words."""
    sums = folder / CHECKSUMS
    if not sums.is_file():
        yield f"{CHECKSUMS} is missing"
        return
    text = read_text(sums, errors="replace")
    expected = checksums_in(folder)
    if sha256_of(sums) != digest:
        yield f"{CHECKSUMS} is not the one in the ledger"
    elif text != _checksums(expected):
        yield f"{CHECKSUMS} holds more than checksums"
    present = {path.name for path in folder.iterdir()} - {CHECKSUMS}
    for name in sorted(expected.keys() | present):
        if name not in present:
            yield f"{name} is missing"
        elif name not in expected or name not in FILES:
            yield f"{name} does not belong to the bundle"
        elif sha256_of(folder / name) != expected[name]:
            yield f"{name} was changed"
