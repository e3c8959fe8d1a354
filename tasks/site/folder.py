"""The folder of a site: written as a draft with all evidence, and put in place in one step.

A half-written site is never visible, and a folder that somebody else created is never replaced.
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
"""The file that marks a folder as a site written by this program."""

DRAFT_MARK = ".dprelease-site-draft"
"""The file that marks a folder beside a site as a draft of that site."""

EVIDENCE, BUNDLES, KEYS, EXPORT, AUDIT = "evidence", "bundles", "keys", "ledger.ndjson", "audit.json"
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


def require_place(workspace: Workspace, out: Path) -> None:
    """Refuse a place that must not be written: a foreign folder with content, or one that the workspace uses.

    Links and `..` are resolved first.
    Raises: WorkspaceError.
    """
    taken = [workspace.landing, workspace.vault, workspace.releases, workspace.keys, workspace.prefect_home]
    real = out.resolve()
    if workspace.root.resolve().is_relative_to(real) or any(real.is_relative_to(path.resolve()) for path in taken):
        raise _site_error(
            "the workspace itself is there", "site-in-workspace", "leave --out away, or name another folder"
        )
    _require_ours(out)


def _require_ours(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not _is_ours(out)):
        hint = "name a new or empty folder; only a site that this command wrote is replaced"
        raise _site_error("there is something else already", "site-foreign", hint)


def _is_ours(out: Path) -> bool:
    return out.is_dir() and ((out / MARK).is_file() or not any(out.iterdir()))


def _site_error(what: str, rule: str, hint: str) -> WorkspaceError:
    return WorkspaceError(f"the site cannot be written: {what}", rule=rule, where="--out", hint=hint)


def write_site(out: Path, pages: Mapping[str, str], survey: Survey) -> None:
    """Write pages and evidence, and replace the site that was there.

    Raises: RefusedError; the earlier site then remains.
    """
    with ErrorBoundary(OSError, refusal=_unwritable_site), _draft_folder(out) as draft:
        for name, text in pages.items():
            _write_page(draft / name, text)
        _write_evidence(draft / EVIDENCE, survey)
        _write_page(draft / MARK, json.dumps({"program": "dprelease site", "pages": len(pages)}) + "\n")
        _require_ours(out)  # writing took a while
        _put_in_place(draft, out)


def _unwritable_site(error: OSError) -> WorkspaceError:
    hint = "check the folder's owner, its permissions and the space on its disk"
    return _site_error(reason_of(error), "site-unwritable", hint)


def _write_page(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# ---------------------------------------------------------------- beside the place


@contextmanager
def _draft_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside the site, while no other process writes the same site; remove it at the end.

    It is inside a new folder with an unpredictable name, which is marked before anything else is
    written to it: so the drafts of killed processes can be distinguished from the folders of others.
    Raises: WorkspaceError if another process writes the same site.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with _site_lock(out.with_name(f".{out.name}.lock")):
        _sweep_drafts(out)
        around = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            _write_page(around / DRAFT_MARK, _mark_of(out))
            draft = around / "site"  # with the permissions of an ordinary new folder, not of a private one
            draft.mkdir()
            yield draft
        finally:
            _remove_draft(around)  # with the earlier site, or an unfinished one


@contextmanager
def _site_lock(path: Path) -> Iterator[None]:
    """Lock an empty file of this user and remove it at the end; a link or a file with content is not used."""
    descriptor = _open_locked(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while locked: a waiting process finds another file there, and refuses
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    found = os.fstat(descriptor)
    if not _is_own(found, stat.S_ISREG) or found.st_size:
        os.close(descriptor)
        raise _site_error("its lock's name belongs to something else", "site-foreign", f"move {path.name} away")
    if not try_lock(descriptor) or not _is_still(path, descriptor):
        os.close(descriptor)
        raise _site_error("another process is writing it", "site-busy", "wait until it has finished")
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


def _sweep_drafts(out: Path) -> None:
    """Remove drafts that killed processes left of this site, and nothing else."""
    for path in list(out.parent.iterdir()):
        if path.name.startswith(f".{out.name}.") and _is_left(path, out):
            _remove_draft(path)


def _is_left(path: Path, out: Path) -> bool:
    """Whether the path is a folder (not a link) of this user with the mark of this site's drafts."""
    try:
        if not _is_own(path.lstat(), stat.S_ISDIR):
            return False
        mark = path / DRAFT_MARK
        return _is_own(mark.lstat(), stat.S_ISREG) and mark.read_text(encoding="utf-8") == _mark_of(out)
    except (OSError, UnicodeDecodeError):
        return False


def _remove_draft(around: Path) -> None:
    """Remove a draft, its mark last, so that the remains are recognised if this process is killed."""
    with suppress(OSError):  # the next writer tries again
        for part in list(around.iterdir()):
            if part.name != DRAFT_MARK:
                shutil.rmtree(part)
        shutil.rmtree(around)


# ---------------------------------------------------------------- evidence


def _write_evidence(folder: Path, survey: Survey) -> None:
    """Write bundles, ledger export, public keys and the audit's findings: enough to verify offline."""
    (folder / BUNDLES).mkdir(parents=True)
    for bundle in survey.bundles.values():
        _copy_bundle(bundle, folder / BUNDLES / bundle.folder.parent.name / bundle.folder.name)
    checks, ok = [check.as_json() for check in survey.checks], all(check.ok for check in survey.checks)
    _write_page(folder / AUDIT, json.dumps({"ok": ok, "checks": checks}, indent=2) + "\n")
    _write_export(folder / EXPORT, survey.entries)
    for key_id, key in sealing_keys(survey).items():
        _write_page(folder / KEYS / f"{key_id}.pub", PublicKey.from_text(key.public).pem)


def sealing_keys(survey: Survey) -> dict[str, Key]:
    """Return the keys that an audit to the end of the chain needs: active keys, and the last entry's key.

    Right after a rotation the latter is the old key, which announces its successor.
    """
    head = survey.state.head
    last = head.key_id if head else ""
    return {key_id: key for key_id, key in survey.state.keys.items() if key.active or key_id == last}


def _write_export(path: Path, entries: Iterable[Entry]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(export_lines(list(entries)))


def _copy_bundle(bundle: Bundle, target: Path) -> None:
    """Copy the files that the checksums name, and no others; editing the site then leaves the bundle alone."""
    target.mkdir(parents=True)
    for path in bundle.folder.iterdir():
        if path.name in (*bundle.digests, CHECKSUMS) and path.is_file() and not path.is_symlink():
            shutil.copy2(path, target / path.name)


# ---------------------------------------------------------------- in one step


def _put_in_place(draft: Path, out: Path) -> None:
    """Put the draft in the place of the site; the earlier site is then beside the draft's mark."""
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
    """Exchange two folders atomically; return False if the system does not support it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number))
