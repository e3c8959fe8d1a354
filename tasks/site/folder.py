"""A site's folder: written beside its place with all evidence, and shown in one step.

A half-written site is never visible, and a folder that somebody else made is never replaced.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.errors import WorkspaceError
from tasks.bundle.staging import CHECKSUMS
from tasks.keys.signing import PublicKey
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.keys import Key
from tasks.ledger.export import export_lines
from tasks.site.survey import Bundle, Survey
from tasks.workspace.folders import Workspace
from tasks.workspace.locks import try_lock
from tasks.workspace.redaction import ErrorBoundary, reason_of

MARK = ".dprelease-site"
"""The file by which a folder is known as a site of ours."""

DRAFT_MARK = ".dprelease-site-draft"
"""The file by which a folder beside a site is known as what a writer of that site left."""

EVIDENCE, BUNDLES, KEYS, EXPORT, AUDIT = "evidence", "bundles", "keys", "ledger.ndjson", "audit.json"
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


def require_place(workspace: Workspace, out: Path) -> None:
    """Refuse a place that is not ours to write: another folder with content, or one the workspace uses.

    What counts is where the place really is: links and `..` are followed first.
    Raises: WorkspaceError.
    """
    taken = [workspace.landing, workspace.vault, workspace.releases, workspace.keys, workspace.prefect_home]
    real = out.resolve()
    if workspace.root.resolve().is_relative_to(real) or any(real.is_relative_to(path.resolve()) for path in taken):
        raise _site_refusal(
            "the workspace itself is there", "site-in-workspace", "leave --out away, or name another folder"
        )
    _require_ours(out)


def _require_ours(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not _is_ours(out)):
        hint = "name a new or empty folder; only a site that this command wrote is replaced"
        raise _site_refusal("there is something else already", "site-foreign", hint)


def _is_ours(out: Path) -> bool:
    return out.is_dir() and ((out / MARK).is_file() or not any(out.iterdir()))


def _site_refusal(what: str, rule: str, hint: str) -> WorkspaceError:
    return WorkspaceError(f"the site cannot be written: {what}", rule=rule, where="--out", hint=hint)


def write_site(out: Path, pages: Mapping[str, str], survey: Survey) -> None:
    """Write pages and evidence, and put them in the place of the site that was there.

    Raises: RefusedError; then the site of before is still there.
    """
    with ErrorBoundary(OSError, refusal=_unwritable_site), _open_site_draft(out) as draft:
        for name, text in pages.items():
            _write_text(draft / name, text)
        _write_evidence(draft / EVIDENCE, survey)
        _write_text(draft / MARK, json.dumps({"program": "dprelease site", "pages": len(pages)}) + "\n")
        _require_ours(out)  # writing took a while
        _put_in_place(draft, out)


def _unwritable_site(error: OSError) -> WorkspaceError:
    hint = "check the folder's owner, its permissions and the space on its disk"
    return _site_refusal(reason_of(error), "site-unwritable", hint)


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# ---------------------------------------------------------------- beside the place


@contextmanager
def _open_site_draft(out: Path) -> Iterator[Path]:
    """An empty folder beside the site's place, while no other process writes the same site; gone in the end.

    It lies in a new folder of an unpredictable name, which is marked before anything else is in
    it: so what a killed process left is told from what belongs to somebody else.
    Raises: WorkspaceError if another process writes the same site.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with _lock(out.with_name(f".{out.name}.lock")):
        _sweep(out)
        around = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            _write_text(around / DRAFT_MARK, _mark_of(out))
            draft = around / "site"  # with the permissions of any new folder, not those of a private one
            draft.mkdir()
            yield draft
        finally:
            _remove(around)  # with what was there before, or what could not be finished


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an empty file of ours, which is gone in the end; one that is a link or has content is not taken."""
    descriptor = _open_locked(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: who waits for it finds another file there, and refuses
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    found = os.fstat(descriptor)
    if not _is_own(found, stat.S_ISREG) or found.st_size:
        os.close(descriptor)
        raise _site_refusal("its lock's name belongs to something else", "site-foreign", f"move {path.name} away")
    if not try_lock(descriptor) or not _is_still(path, descriptor):
        os.close(descriptor)
        raise _site_refusal("another process is writing it", "site-busy", "wait until it has finished")
    return descriptor


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether a path still leads to an open file: its last holder removes it."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    return is_kind(found.st_mode) and found.st_uid == os.geteuid()


def _mark_of(out: Path) -> str:
    return json.dumps({"program": "dprelease site", "draft_of": out.name}) + "\n"


def _sweep(out: Path) -> None:
    """Remove what killed writers of this site left, and nothing else."""
    for path in list(out.parent.iterdir()):
        if path.name.startswith(f".{out.name}.") and _is_left(path, out):
            _remove(path)


def _is_left(path: Path, out: Path) -> bool:
    """Whether it is a folder, not a link to one, of this user, with the mark of this site's drafts."""
    try:
        if not _is_own(path.lstat(), stat.S_ISDIR):
            return False
        mark = path / DRAFT_MARK
        return _is_own(mark.lstat(), stat.S_ISREG) and mark.read_text(encoding="utf-8") == _mark_of(out)
    except (OSError, UnicodeDecodeError):
        return False


def _remove(around: Path) -> None:
    """Remove a draft, its mark last: what a killed process leaves of it is still known."""
    with suppress(OSError):  # the next writer tries again
        for part in list(around.iterdir()):
            if part.name != DRAFT_MARK:
                shutil.rmtree(part)
        shutil.rmtree(around)


# ---------------------------------------------------------------- evidence


def _write_evidence(folder: Path, survey: Survey) -> None:
    """Bundles, ledger export, public keys and the audit's findings: enough to verify offline."""
    (folder / BUNDLES).mkdir(parents=True)
    for bundle in survey.bundles.values():
        _copy_bundle(bundle, folder / BUNDLES / bundle.folder.parent.name / bundle.folder.name)
    checks, ok = [check.as_json() for check in survey.checks], all(check.ok for check in survey.checks)
    _write_text(folder / AUDIT, json.dumps({"ok": ok, "checks": checks}, indent=2) + "\n")
    _write_export(folder / EXPORT, survey.entries)
    for key_id, key in sealing_keys(survey).items():
        _write_text(folder / KEYS / f"{key_id}.pub", PublicKey.from_text(key.public).pem)


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
    """What its checksums name and nothing else; copies, for whoever edits the site must not change the bundle."""
    target.mkdir(parents=True)
    for path in bundle.folder.iterdir():
        if path.name in (*bundle.digests, CHECKSUMS) and path.is_file() and not path.is_symlink():
            shutil.copy2(path, target / path.name)


# ---------------------------------------------------------------- in one step


def _put_in_place(draft: Path, out: Path) -> None:
    """Put the draft in the site's place; what was there is beside the draft's mark then."""
    if not out.exists():
        draft.rename(out)
    elif not _exchange(draft, out):
        before = draft.with_name("before")
        out.rename(before)
        try:
            draft.rename(out)
        except OSError:
            before.rename(out)
            raise


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
