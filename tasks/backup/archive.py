"""Backups: one archive of a workspace at one moment, and the way back.

In it: specification, ledger, bundles, lineage, keys. Not in it: landing data, scratch, the
orchestrator's history. A restored ledger says so in an entry of its own, and nothing is
released on it until somebody has answered for what happened after the backup.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
import sqlite3
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from dpcore.errors import LedgerError, WorkspaceError
from tasks.backup.restore import LEDGER_FILE, MANIFEST, VERSION, Manifest, unpack, unrestorable
from tasks.keys.signing import signing_key
from tasks.ledger.databases.schema import Row
from tasks.ledger.entries.entry import Entry
from tasks.ledger.export import export_lines, import_entries, write_new
from tasks.ledger.opening import ledger_address, trust_anchors, writable_ledger
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.files import PRIVATE_FILE
from tasks.workspace.folders import SPEC_NAME, Workspace
from tasks.workspace.reading import open_regular, parse_json, read_text
from tasks.workspace.redaction import ErrorBoundary

EVENTS, MEASUREMENTS, FINGERPRINTS = "ledger/events.ndjson", "ledger/measurements.ndjson", "ledger/fingerprints.ndjson"
KEY_FILES = ("signing.key", "signing.pub", "ledger.pub", "fingerprint.key")


@dataclass(frozen=True, slots=True)
class Backup:
    """What an archive holds: the ledger's head when it was made, and how many files."""

    made_at: str
    entries: int
    head: str
    files: int

    def as_json(self) -> dict[str, Any]:
        """For the command line."""
        return {"made_at": self.made_at, "entries": self.entries, "head": self.head, "files": self.files}


# ---------------------------------------------------------------- backup


def back_up(workspace: Workspace, out: Path, *, now: datetime) -> Backup:
    """Write the archive; no run of the workspace is under way meanwhile.

    Guarantee: ledger, bundles and lineage are of one moment, and hold against each other.
    Raises: WorkspaceError if the file exists or cannot be written, LedgerError if the ledger is broken.
    """
    spec = load_spec(workspace.spec_path)
    with ExitStack() as held:
        for name in sorted({spec.name, *_release_names(workspace)}):
            held.enter_context(workspace.exclusive(name))
        ledger = held.enter_context(closing(writable_ledger(workspace, spec)))
        for name in sorted({spec.name, *_release_names(workspace)}):
            held.enter_context(ledger.exclusive(name))
        head = ledger.state().head
        found = Backup(now.strftime("%Y-%m-%dT%H:%M:%SZ"), head.seq if head else 0, head.hash if head else "", 0)
        files: list[int] = []
        write_new(out, lambda draft: files.append(_write_archive(draft, workspace, spec, ledger, found)))
    return Backup(found.made_at, found.entries, found.head, files[0])


def _release_names(workspace: Workspace) -> Iterator[str]:
    return (folder.name for folder in workspace.releases.glob("*") if folder.is_dir())


def _write_archive(draft: Path, workspace: Workspace, spec: ReleaseSpec, ledger: Ledger, found: Backup) -> int:
    digests: dict[str, str] = {}
    sizes: dict[str, int] = {}
    with tarfile.open(draft, "w") as archive:
        for name, source in _files(workspace):
            with open_regular(source) as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
                sizes[name] = _add(archive, name, file)
        for name, content in _ledger_files(workspace, spec, ledger):
            digests[name] = hashlib.sha256(content).hexdigest()
            sizes[name] = _add(archive, name, io.BytesIO(content))
        manifest = {"version": VERSION, **found.as_json(), "files": digests, "sizes": sizes}
        _add(archive, MANIFEST, io.BytesIO(json.dumps(manifest, indent=2).encode()))
    return len(digests)


def _files(workspace: Workspace) -> Iterator[tuple[str, Path]]:
    yield SPEC_NAME, workspace.spec_path
    for path in (workspace.lineage_path, workspace.schedule_path):
        if path.is_file():
            yield path.name, path
    for name in KEY_FILES:
        if (workspace.keys / name).is_file():
            yield f"keys/{name}", workspace.keys / name
    for path in sorted(workspace.releases.rglob("*")):
        if path.is_file() and path.name != ".lock":
            yield path.relative_to(workspace.root).as_posix(), path


def _ledger_files(workspace: Workspace, spec: ReleaseSpec, ledger: Ledger) -> Iterator[tuple[str, bytes]]:
    address = ledger_address(workspace, spec)
    if isinstance(address, Path):
        yield LEDGER_FILE, _online_copy(address)
        return
    entries, measurements, fingerprints = ledger.contents()
    yield EVENTS, "".join(export_lines(entries)).encode()
    yield MEASUREMENTS, _lines(measurements)
    yield FINGERPRINTS, _lines(fingerprints)


def _lines(rows: Iterable[Row]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode()


def _online_copy(path: Path) -> bytes:
    """The database's content by SQLite's backup interface, whoever reads or writes meanwhile."""
    with (
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(":memory:")) as copy,
    ):
        source.backup(copy)
        return copy.serialize()


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> int:
    """Add a file; returns its size."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = content.seek(0, os.SEEK_END), PRIVATE_FILE
    content.seek(0)
    archive.addfile(member, content)
    return member.size


# ---------------------------------------------------------------- restore


def restore(archive: Path, root: Path, *, who: str, ledger_url: str | None = None) -> Backup:
    """Bring a workspace back into a new or empty folder, all of it or nothing.

    With `ledger_url` its ledger is restored there, and the specification names that from then on.

    Guarantee: every file is as it was archived, the ledger's chain holds, and the ledger says
    that it was restored, unless it is a shared one that is still there.
    Raises: WorkspaceError, LedgerError.
    """
    _require_empty(root)
    beside = root.parent / f".{root.name}.{secrets.token_hex(4)}"
    try:
        with ErrorBoundary(OSError, refusal=_unwritable_place):
            beside.mkdir(mode=0o700, parents=True)
            workspace = Workspace(beside)
            workspace.make_folders()  # before there are files for them: keys are private from the start
            manifest = unpack(archive, beside)
            workspace.create()
            if ledger_url is not None:
                _point_to(workspace, ledger_url)
            else:
                _require_inside(workspace)
            _restore_ledger(workspace, manifest, who)
            beside.chmod(0o755)
            os.rename(beside, root)  # over an empty folder, or where there is none
        return Backup(manifest.made_at, manifest.entries, manifest.head, len(manifest.files))
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _unwritable_place(error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"the workspace cannot be restored: {error.strerror or type(error).__name__}",
        rule="workspace-unwritable",
        where="--workspace",
        hint="check the folder's owner, its permissions and the space on its disk",
    )


def _require_empty(root: Path) -> None:
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise WorkspaceError(
            "the folder is not empty",
            rule="workspace-exists",
            where="--workspace",
            hint="restore into a new folder, and release from the restored workspace only: two copies count separately",
        )


def _require_inside(workspace: Workspace) -> None:
    """Refuse a ledger file outside of the folder: an archive does not say where else to write."""
    address = ledger_address(workspace, load_spec(workspace.spec_path))
    is_file = isinstance(address, Path) or address.startswith("sqlite")
    if is_file and not Path(os.path.normpath(address)).is_relative_to(workspace.root):
        raise WorkspaceError(
            "the archived specification places the ledger outside of the folder",
            rule="ledger-outside",
            where="ledger",
            hint="state where it goes: `--ledger-url sqlite:///ledger.db` puts it into the folder",
        )


def _restore_ledger(workspace: Workspace, manifest: Manifest, who: str) -> None:
    address = ledger_address(workspace, load_spec(workspace.spec_path))
    malformed = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
    mark = {"who": who, "made_at": manifest.made_at}
    with ErrorBoundary(*malformed, refusal=lambda _: unrestorable("its ledger cannot be read")):
        if isinstance(address, Path):
            _restore_file(workspace, address, manifest, mark)
        else:
            _restore_database(workspace, address, manifest, mark)


def _point_to(workspace: Workspace, url: str) -> None:
    """Name another ledger in the specification; its digest does not depend on that."""
    others = "".join(
        line for line in read_text(workspace.spec_path).splitlines(keepends=True) if not line.startswith("ledger:")
    )
    workspace.spec_path.write_text(f"{others.rstrip()}\nledger: {json.dumps(url)}\n", encoding="utf-8")
    if load_spec(workspace.spec_path).ledger != url:
        raise unrestorable("its specification does not allow another ledger to be named")


def _restore_file(workspace: Workspace, address: Path, manifest: Manifest, mark: dict[str, str]) -> None:
    """Verify and mark the file, and put it where the specification wants it."""
    copy = workspace.root / LEDGER_FILE
    found = None if copy.is_file() else _take_archived(workspace)
    with closing(Ledger.open(copy, signing_key(workspace.keys), anchors=trust_anchors(workspace))) as ledger:
        if found is None:
            _require_archived(ledger.entries(), manifest)
            ledger.mark_restored(**mark)
        else:
            _require_archived(found[0], manifest)
            ledger.adopt(*found, who=mark["who"], made_at=mark["made_at"])
    if address == copy:
        return
    if address.exists():
        raise WorkspaceError(
            "a ledger already exists where the specification places it",
            rule="ledger-exists",
            where="ledger",
            hint="move that one away first, and charge what it has spent since the backup with `dprelease ledger "
            "reconcile`; a ledger is never overwritten",
        )
    address.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(copy, address)


def _restore_database(workspace: Workspace, address: str, manifest: Manifest, mark: dict[str, str]) -> None:
    """Fill an empty database; one that has these entries already is the ledger itself, and is left alone."""
    found = _take_archived(workspace)
    _require_archived(found[0], manifest)
    with closing(Ledger.open(address, signing_key(workspace.keys), anchors=trust_anchors(workspace))) as ledger:
        present = ledger.entries()
        if not present:
            ledger.adopt(*found, who=mark["who"], made_at=mark["made_at"])
        elif present[: len(found[0])] != found[0]:
            raise LedgerError(
                "the database holds another ledger, or an older one",
                rule="ledger-differs",
                where="ledger",
                hint="name an empty database with --ledger-url, and charge what this one has spent on the same people "
                "with `dprelease ledger reconcile`; entries are never replaced",
            )


def _take_archived(workspace: Workspace) -> tuple[list[Entry], list[Row], list[Row]]:
    """The ledger's rows, from whichever database they were archived; their files go."""
    file, folder = workspace.root / LEDGER_FILE, workspace.root / "ledger"
    if file.is_file():
        with closing(Ledger.open_to_read(file)) as ledger:
            found = ledger.contents()
        file.unlink()
        return found
    events, *others = (read_text(workspace.root / name) for name in (EVENTS, MEASUREMENTS, FINGERPRINTS))
    rows = [[parse_json(line) for line in text.splitlines()] for text in others]
    shutil.rmtree(folder)
    return import_entries(iter(events.splitlines())), rows[0], rows[1]


def _require_archived(entries: Sequence[Entry], manifest: Manifest) -> None:
    """The entries hold, and end where the ledger ended when it was archived.

    Whether bundles and lineage know more is not asked here: a workspace that had lost
    entries before is restored as it was, and a run refuses it as before.
    """
    head = LedgerState.replay(entries).head
    if (head.seq if head else 0, head.hash if head else "") != (manifest.entries, manifest.head):
        raise unrestorable("its ledger is not the one that was archived")
