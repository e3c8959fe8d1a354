"""A site's folder: written beside its place with all evidence, and shown in one step.

A half-written site is never visible, and a folder that somebody else made is never replaced.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dpcore.errors import RefusedError, WorkspaceError
from tasks.stores.bundle import CHECKSUMS
from tasks.stores.ledger_state import Entry, Key
from tasks.stores.operations import export_lines
from tasks.stores.signing import PublicKey
from tasks.stores.survey import Bundle, Survey
from tasks.stores.workspace import Workspace

MARK = ".dprelease-site"
"""The file by which a folder is known as a site of ours."""

EVIDENCE, BUNDLES, KEYS, EXPORT, AUDIT = "evidence", "bundles", "keys", "ledger.ndjson", "audit.json"
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


def require_place(workspace: Workspace, out: Path) -> None:
    """Refuse a place that is not ours to write: another folder with content, or one the workspace uses.

    Raises: WorkspaceError.
    """
    taken = [workspace.landing, workspace.vault, workspace.releases, workspace.keys, workspace.prefect_home]
    if workspace.root.is_relative_to(out) or any(out.is_relative_to(folder) for folder in taken):
        raise _refused("the workspace itself is there", "site-in-workspace", "leave --out away, or name another folder")
    if out.is_symlink() or (out.exists() and not _is_ours(out)):
        hint = "name a new or empty folder; only a site that this command wrote is replaced"
        raise _refused("there is something else already", "site-foreign", hint)


def _is_ours(out: Path) -> bool:
    return out.is_dir() and ((out / MARK).is_file() or not any(out.iterdir()))


def _refused(what: str, rule: str, hint: str) -> WorkspaceError:
    return WorkspaceError(f"the site cannot be written: {what}", rule=rule, where="--out", hint=hint)


def write_site(out: Path, pages: Mapping[str, str], survey: Survey) -> None:
    """Write pages and evidence, and put them in the place of the site that was there.

    Raises: RefusedError; then the site of before is still there.
    """
    fault: RefusedError | None = None
    try:
        with _draft(out) as draft:
            for name, text in pages.items():
                _write(draft / name, text)
            _write_evidence(draft / EVIDENCE, survey)
            _write(draft / MARK, json.dumps({"program": "dprelease site", "pages": len(pages)}) + "\n")
            _show(draft, out)
    except OSError as error:
        hint = "check the folder's owner, its permissions and the space on its disk"
        fault = _refused(error.strerror or "unknown fault", "site-unwritable", hint)
    if fault is not None:
        raise fault


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """An empty folder beside the site's place, locked while it is written; gone in the end.

    Raises: WorkspaceError if another process writes the same site.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.draft")
    draft.mkdir(exist_ok=True)
    descriptor = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor)
        for left in draft.iterdir():  # of a process that was killed
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)  # what was there before, or what could not be finished
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        pass
    raise _refused("another process is writing it", "site-busy", "wait until it has finished")


# ---------------------------------------------------------------- evidence


def _write_evidence(folder: Path, survey: Survey) -> None:
    """Bundles, ledger export, public keys and the audit's findings: enough to verify offline."""
    (folder / BUNDLES).mkdir(parents=True)
    for bundle in survey.bundles.values():
        _copy_bundle(bundle, folder / BUNDLES / bundle.folder.parent.name / bundle.folder.name)
    checks = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in survey.checks]
    _write(folder / AUDIT, json.dumps({"ok": survey.ok, "checks": checks}, indent=2) + "\n")
    _write_export(folder / EXPORT, survey.entries)
    for key_id, key in sealing_keys(survey).items():
        _write(folder / KEYS / f"{key_id}.pub", PublicKey.from_text(key.public).pem)


def sealing_keys(survey: Survey) -> dict[str, Key]:
    """The keys that seal the chain to its end: active ones, and the one that signed the last entry.

    Right after a rotation that is the old key, for it announces its successor.
    """
    head = survey.state.head
    last = head.key_id if head else ""
    return {key_id: key for key_id, key in survey.state.keys.items() if key.active or key_id == last}


def _write_export(path: Path, entries: Iterable[Entry]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(export_lines(list(entries)))


def _copy_bundle(bundle: Bundle, target: Path) -> None:
    """What its checksums name and nothing else; hard links where the disk allows: bundles never change."""
    target.mkdir(parents=True)
    for path in bundle.folder.iterdir():
        if path.name in (*bundle.digests, CHECKSUMS) and path.is_file() and not path.is_symlink():
            _link(path, target / path.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)


# ---------------------------------------------------------------- in one step


def _show(draft: Path, out: Path) -> None:
    """Put the draft in the site's place; what was there is in the draft's place then."""
    if not out.exists():
        draft.rename(out)
    elif not _exchange(draft, out):
        aside = out.with_name(f".{out.name}.before")
        shutil.rmtree(aside, ignore_errors=True)
        out.rename(aside)
        draft.rename(out)
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders at once; False where the system does not know how."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number))
