"""Taking a backup's archive apart: the files that its manifest names, inside one folder, and nothing else.

Whoever made the archive is not trusted: names that lead elsewhere, links, devices, sparse files, files
that come twice and archives larger than the disk are refused before anything is written.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, StringConstraints

from dpcore.errors import WorkspaceError
from tasks.bundle.staging import sha256_of
from tasks.workspace.files import PRIVATE_FILE, flush_written
from tasks.workspace.folders import SPEC_NAME
from tasks.workspace.reading import open_regular
from tasks.workspace.redaction import ErrorBoundary, reason_of

VERSION = 1
MANIFEST = "backup.json"
LARGEST_MANIFEST = 1 << 26
NO_BACKUP = "it is not a complete backup of a version that this program knows"
LEDGER_FILE = "ledger.db"
PLACES = {
    (name,)
    for name in (SPEC_NAME, "lineage.ndjson", "schedule.json", "keys", "releases", LEDGER_FILE, "ledger", MANIFEST)
}
"""What of a workspace is in a backup."""


class Manifest(BaseModel):
    """What an archive says that it holds: files by their SHA-256 and, since they are told, by their sizes."""

    model_config = ConfigDict(frozen=True, strict=True)

    version: Literal[1]
    made_at: Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$")]
    entries: NonNegativeInt
    head: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")]
    files: dict[str, str]
    sizes: dict[str, NonNegativeInt] | None = None


def unpack(archive: Path, folder: Path) -> Manifest:
    """Write the archive's files, which are those that its manifest names, and nothing else; returns the manifest.

    Everything that headers and manifest tell is checked before the first file is written.
    """
    with (
        ErrorBoundary(
            tarfile.TarError, ValueError, EOFError, RecursionError, refusal=lambda _: unrestorable(NO_BACKUP)
        ),
        _open_archive(archive) as file,
        tarfile.open(fileobj=file, mode="r:") as source,
    ):
        members = _members(source)
        manifest = _manifest(source, members.pop(MANIFEST, None))
        sizes = {name: member.size for name, member in members.items()}
        if members.keys() != manifest.files.keys() or manifest.sizes not in (None, sizes):
            raise unrestorable("its files are not those that were archived")
        _require_room(folder, sum(sizes.values()))
        found = {name: _write_member(folder, name, source.extractfile(member)) for name, member in members.items()}
    if found != manifest.files:
        raise unrestorable("its files are not those that were archived")
    return manifest


def _open_archive(archive: Path) -> BufferedReader:
    with ErrorBoundary(OSError, refusal=_unreadable_archive):
        return open_regular(archive)


def _unreadable_archive(error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"the archive cannot be read: {reason_of(error)}",
        rule="backup-unreadable",
        where="ARCHIVE",
        hint="name the file that `dprelease backup` wrote",
    )


def _members(source: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """The archive's files by name: plain ones of a workspace, each once."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in source:
        name = PurePosixPath(member.name)
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse() or member.size < 0:
            raise unrestorable("it contains something other than plain files")
        if str(name) != member.name or ".." in name.parts or name.parts[:1] not in PLACES:
            raise unrestorable("it contains a name that is not one of a workspace's files")
        if member.name in members:
            raise unrestorable("a file is in it twice")
        members[member.name] = member
    return members


def _manifest(source: tarfile.TarFile, member: tarfile.TarInfo | None) -> Manifest:
    """The manifest of the archive.

    Raises: ValueError for one that is none.
    """
    content = source.extractfile(member) if member and member.size <= LARGEST_MANIFEST else None
    if content is None:
        raise unrestorable(NO_BACKUP)
    return Manifest.model_validate_json(content.read())


def _require_room(folder: Path, needed: int) -> None:
    if shutil.disk_usage(folder).free < needed:
        raise WorkspaceError(
            "the workspace cannot be restored: its disk has no room for the archive's files",
            rule="workspace-unwritable",
            where="--workspace",
            hint="free space, or restore into a folder on another disk; nothing was written",
        )


def _write_member(folder: Path, name: str, content: IO[bytes] | None) -> str:
    """Write one file, private while nothing is verified; returns its digest."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        shutil.copyfileobj(content or io.BytesIO(), file)
        flush_written(file)
    path.chmod(_mode(PurePosixPath(name)))
    return sha256_of(path)


def _mode(name: PurePosixPath) -> int:
    if name.parts[0] in ("keys", "ledger", LEDGER_FILE):
        return PRIVATE_FILE
    return 0o444 if name.parts[0] == "releases" else 0o644


def unrestorable(what: str) -> WorkspaceError:
    """The refusal of an archive."""
    return WorkspaceError(
        f"the archive cannot be restored: {what}",
        rule="backup-broken",
        where="ARCHIVE",
        hint="take another backup; nothing was written",
    )
