"""The folder that holds one steward's state, and the private scratch space in it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import RefusedError, WorkspaceError
from tasks.workspace.files import PRIVATE_FILE, PRIVATE_FOLDER, WRITABLE_BY_OTHERS, create_private
from tasks.workspace.locks import hold_folder_lock, hold_lock, lock, try_lock
from tasks.workspace.reading import read_text
from tasks.workspace.redaction import ErrorBoundary, reason_of

SPEC_NAME = "release.yaml"
ALIVE = ".alive"
SCRATCH, COMPARISONS, MONTHS = "run-", "comparisons", "months"
MARK_ENDING = ".RETRACTED.json"
"""What follows the name of a bundle's folder in that of the mark beside it, if the release was retracted."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders and files of one steward."""

    root: Path

    @property
    def spec_path(self) -> Path:
        """The specification."""
        return self.root / SPEC_NAME

    @property
    def landing(self) -> Path:
        """Incoming files: private."""
        return self.root / "landing"

    @property
    def vault(self) -> Path:
        """Private files: scratch, which is removed after each run; comparisons with raw rows and counts, which stay."""
        return self.root / "vault"

    @property
    def releases(self) -> Path:
        """Immutable bundles, by name and release id."""
        return self.root / "releases"

    @property
    def ledger_path(self) -> Path:
        """The ledger's SQLite file."""
        return self.root / "ledger.db"

    @property
    def lineage_path(self) -> Path:
        """All lineage events of the workspace."""
        return self.root / "lineage.ndjson"

    @property
    def schedule_path(self) -> Path:
        """The time since which the schedule has been in force."""
        return self.root / "schedule.json"

    @property
    def keys(self) -> Path:
        """Secret keys."""
        return self.root / "keys"

    @property
    def prefect_home(self) -> Path:
        """Home of the embedded orchestration server."""
        return self.root / "prefect"

    def bundle(self, name: str, release_id: str) -> Path:
        """Where a release's bundle is, or will be."""
        return self.releases / name / release_id

    def bundles(self) -> Iterator[Path]:
        """Every visible bundle."""
        for folder in sorted(self.releases.glob("*/*")):
            if folder.is_dir() and not folder.name.startswith("."):
                yield folder

    def marks(self) -> Iterator[Path]:
        """The mark of every retracted release, whether or not its bundle is there."""
        yield from sorted(self.releases.glob(f"*/*{MARK_ENDING}"))

    def create(self) -> None:
        """Make the folders and the fingerprint key.

        Raises: WorkspaceError if the folder cannot be written, or if a private one may hold files of somebody else.
        """
        with ErrorBoundary(OSError, refusal=_unwritable):
            self.make_folders()
            self._create_key("fingerprint.key")

    def make_folders(self) -> None:
        """Make the folders, the private ones for their owner alone.

        Raises: OSError; WorkspaceError if a private folder may hold files of somebody else.
        """
        for folder in (self.root, self.releases):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.landing, self.vault, self.keys, self.prefect_home):
            folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            if folder != self.landing:  # others may put files there; they are neither executed nor trusted
                _require_own(folder)
            folder.chmod(PRIVATE_FOLDER)
        (self.landing / "quarantine").mkdir(exist_ok=True)

    def _create_key(self, name: str) -> None:
        path = self.keys / name
        if not path.exists():
            with create_private(path) as file:
                file.write(secrets.token_hex(32).encode())

    def require(self) -> None:
        """Check that this is a workspace in which a release can be made.

        Raises: WorkspaceError.
        """
        if not self.root.is_dir():
            raise WorkspaceError(
                "the workspace folder does not exist",
                rule="workspace-missing",
                where="--workspace",
                hint="make one with `dprelease init DIR`",
            )
        if not self.spec_path.exists() or self.spec_path.is_dir():
            raise WorkspaceError(
                f"the folder has no {SPEC_NAME}",
                rule="workspace-without-spec",
                where=SPEC_NAME,
                hint="run this in a workspace, name one with -w, or make one with `dprelease init DIR`",
            )

    def require_writable(self) -> None:
        """Check, by writing, that every folder a release writes to can be written.

        Raises: WorkspaceError.
        """
        self.create()
        for folder in (self.root, self.vault, self.releases, self.prefect_home):
            _try_writing(folder)

    def has_keys(self) -> bool:
        """Whether the fingerprint key was made."""
        return (self.keys / "fingerprint.key").is_file()

    def fingerprint_key(self) -> bytes:
        """The key of the operator's input fingerprints.

        Raises: WorkspaceError if it cannot be read.
        """
        key = b""
        with suppress(OSError, ValueError):
            key = bytes.fromhex(read_text(self.keys / "fingerprint.key"))
        if not key:
            raise WorkspaceError(
                "the key of the fingerprints cannot be read",
                rule="fingerprint-key-unusable",
                where="keys/fingerprint.key",
                hint="restore it from a backup; without it, changes of landing data cannot be detected",
            )
        return key

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A private folder for one run, which is removed afterwards in any case.

        The folder is locked while its process lives, so that the next run can recognise and
        remove the folders of killed processes.
        """
        folder = self.vault / f"{SCRATCH}{secrets.token_hex(8)}"
        with ExitStack() as alive:
            with hold_folder_lock(self.vault):  # so that no process removes the folder before it is locked
                self._sweep()
                folder.mkdir(mode=PRIVATE_FOLDER)
                file = alive.enter_context((folder / ALIVE).open("w"))
                lock(file)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove the scratch folders of processes that have ended."""
        for folder in self.vault.glob(f"{SCRATCH}*"):
            if not _is_alive(folder):
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Wait until no other run in this workspace releases under that name.

        The operating system releases the lock when its process ends.
        """
        folder = self.releases / name
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / ".lock"):
            yield

    def keep_comparison(self, release_id: str, page: str) -> Path:
        """Store the comparison of a release with raw rows, for the operator only."""
        return self._keep(COMPARISONS, f"{release_id}.html", page)

    def keep_month_counts(self, release_id: str, period: str, counts: dict[str, int]) -> Path:
        """Store how many rows of the landing data belong to a release's month and to others, for the operator only."""
        content = json.dumps({"release_id": release_id, "period": period, "rows": counts}, indent=2)
        return self._keep(MONTHS, f"{release_id}.json", content)

    def _keep(self, part: str, name: str, content: str) -> Path:
        """Store a private file in a folder of the vault that stays."""
        folder = self.vault / part
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        path = folder / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "w") as file:
            file.write(content)
        return path

    def keep_verdicts(self, release_id: str, verdicts: list[dict[str, Any]]) -> Path:
        """Store the verdicts for the operator beside the private data that they concern."""
        folder = self.landing / "verdicts"
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        path = folder / f"{release_id}.json"
        path.write_text(json.dumps({"release_id": release_id, "verdicts": verdicts}, indent=2))
        path.chmod(PRIVATE_FILE)
        return path


def _is_alive(folder: Path) -> bool:
    """Whether the process that made a scratch folder still holds its lock."""
    try:
        with (folder / ALIVE).open("r+") as file:
            return not try_lock(file)
    except OSError:
        return False  # its owner is removing it, or another process removed the lock


def _require_own(folder: Path) -> None:
    """Refuse a folder, or a link to one, that another account created or can write to: its content may be theirs.

    Prefect's home configures its logging, for example, and can name any function there.
    Raises: WorkspaceError.
    """
    link, found = folder.lstat(), folder.stat()
    if {link.st_uid, found.st_uid} != {os.geteuid()} or found.st_mode & WRITABLE_BY_OTHERS:
        raise WorkspaceError(
            "a private folder of the workspace belongs to another account, or others can write to it",
            rule="folder-not-private",
            where=f"{folder.name}/",
            hint="inspect its contents; then make it yours with chown and chmod 700, and let nobody else write "
            "to the workspace",
        )


def _try_writing(folder: Path) -> None:
    probe = folder / f".probe-{secrets.token_hex(4)}"
    with ErrorBoundary(OSError, refusal=_unwritable):
        probe.touch()
        probe.unlink()


def _unwritable(error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"the workspace cannot be written: {reason_of(error)}",
        rule="workspace-unwritable",
        where="--workspace",
        hint="check the folder's owner, its permissions and the space on its disk",
    )


def mark_beside(bundle: Path) -> Path:
    """Where the mark of a retracted release is: beside the folder of its bundle, which never changes."""
    return bundle.with_name(f"{bundle.name}{MARK_ENDING}")


def unknown_release(message: str) -> RefusedError:
    """The refusal of a command about a release that is not where it looks."""
    return RefusedError(message, rule="release-unknown", where="RELEASE", hint="see `dprelease history`")
