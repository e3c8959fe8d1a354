"""Retracted releases before an audit: verified where their bundles are, no fault where they are not, always told."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.tasks import monthly
from support.tasks.audit.evidence import Given, hand_over
from support.tasks.audit.tampering import FIRST, SECOND, broken, bundle, rewritten
from support.tasks.goldens import GOLDEN
from support.tasks.staged import land_rows, release

from tasks.audit import Check, audit_workspace
from tasks.ledger.entries.marks import mark_text, marked_entry
from tasks.ledger.opening import ledger_state
from tasks.release.retraction import retract
from tasks.workspace.folders import Workspace, mark_beside

NAME = f"{FIRST}.RETRACTED.json"
SAID = "retracted by ada on"


@pytest.fixture(scope="module")
def retracted_once(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published workspace, whose first release was retracted; not to be changed."""
    root = Path(shutil.copytree(published, tmp_path_factory.mktemp("retracted") / "workspace"))
    retract(Workspace(root), FIRST, who="ada", reason="a person asked for erasure")
    return root


@pytest.fixture
def retracted(retracted_once: Path, tmp_path: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(retracted_once, tmp_path / "retracted")))


@pytest.fixture
def given(retracted_once: Path, tmp_path: Path) -> Given:
    return hand_over(Workspace(retracted_once), tmp_path / "given")


def mark(workspace: Workspace, release_id: str = FIRST) -> Path:
    return mark_beside(bundle(workspace, release_id))


def detail(checks: list[Check], name: str) -> str:
    (found,) = (check for check in checks if check.name == name)
    assert found.ok
    return found.detail


def names(checks: list[Check]) -> list[str]:
    return [check.name for check in checks]


# ---------------------------------------------------------------- in the workspace


def test_a_retracted_bundle_that_is_there_is_verified_as_any_other(workspace: Workspace):
    before = names(audit_workspace(workspace))
    retract(workspace, FIRST, who="ada", reason="a person asked for erasure")
    checks = audit_workspace(workspace)
    assert broken(checks) == {}
    assert set(names(checks)) - set(before) == {f"{FIRST}: retraction"}
    assert set(before) <= set(names(checks))
    told = detail(checks, f"{FIRST}: retraction")
    assert told.startswith(SAID)
    assert told.endswith("(ledger entry 9): a person asked for erasure")


def test_a_changed_byte_in_a_retracted_bundle_is_still_found(retracted: Workspace):
    path = bundle(retracted) / "data.parquet"
    rewritten(path, path.read_bytes()[:-1] + b"x")
    assert broken(audit_workspace(retracted)) == {f"{FIRST}: bundle": "data.parquet was changed"}


def test_a_bundle_may_be_deleted_as_a_whole_after_its_retraction_and_only_then(retracted: Workspace):
    whole = names(audit_workspace(retracted))
    shutil.rmtree(bundle(retracted))
    checks = audit_workspace(retracted)
    assert broken(checks) == {}
    assert "may be deleted" in detail(checks, f"{FIRST}: bundle")
    assert detail(checks, f"{FIRST}: retraction").startswith(SAID)
    gone = set(whole) - set(names(checks))
    assert gone == {name for name in whole if name.startswith(f"{FIRST}: ")} - {
        f"{FIRST}: {part}" for part in ("costs", "measurements", "retraction", "bundle")
    }, "what it cost and what was measured is still verified"
    mark(retracted).unlink()
    assert broken(audit_workspace(retracted)) == {}, "there is nothing left to mark"
    shutil.rmtree(bundle(retracted, SECOND))
    assert list(broken(audit_workspace(retracted))) == [f"{SECOND}: bundle"]


@pytest.mark.parametrize("name", ["data.parquet", "record.json", "SHA256SUMS"])
def test_a_part_of_a_retracted_bundle_is_no_bundle(retracted: Workspace, name: str):
    (bundle(retracted) / name).unlink()
    assert broken(audit_workspace(retracted))[f"{FIRST}: bundle"] == f"{name} is missing"


def edited(workspace: Workspace, **changes: object) -> None:
    rewritten(mark(workspace), json.dumps(json.loads(mark(workspace).read_text()) | changes, indent=2).encode() + b"\n")


def pretend(workspace: Workspace, release_id: str = SECOND) -> Path:
    """A mark beside a release that nobody retracted, made from another's."""
    said = json.loads(mark(workspace).read_text())
    said["release_id"] = said["ledger_entry"]["release_id"] = release_id
    path = mark(workspace, release_id)
    path.write_text(json.dumps(said))
    return path


TAMPERINGS: dict[str, tuple[Callable[[Workspace], object], str, str]] = {
    "no mark": (lambda w: mark(w).unlink(), f"{FIRST}: retraction", "has no mark"),
    "another reason": (lambda w: edited(w, reason="nothing"), f"{FIRST}: retraction", "is not the mark that"),
    "another person": (lambda w: edited(w, who="grace"), f"{FIRST}: retraction", "is not the mark that"),
    "an empty mark": (lambda w: rewritten(mark(w), b""), f"{FIRST}: retraction", "is not the mark that"),
    "a mark of other bytes": (lambda w: rewritten(mark(w), b"\xff"), f"{FIRST}: retraction", "cannot be read"),
    "a pipe for a mark": (lambda w: (mark(w).unlink(), os.mkfifo(mark(w))), f"{FIRST}: retraction", "cannot be read"),
    "a mark without an entry": (pretend, f"{SECOND}: retraction", "the ledger has no such entry"),
    "a mark of an unknown release": (
        lambda w: pretend(w, "small-2031-01-1"),
        "bundles",
        "not in the ledger: small-2031-01-1.RETRACTED.json",
    ),
    "a mark inside the bundle": (
        lambda w: shutil.copy(mark(w), bundle(w) / NAME),
        f"{FIRST}: bundle",
        f"{NAME} does not belong to the bundle",
    ),
}


@pytest.mark.parametrize("case", TAMPERINGS)
def test_marks_and_entries_that_do_not_fit_are_told(retracted: Workspace, case: str):
    tamper, name, words = TAMPERINGS[case]
    tamper(retracted)
    faults = broken(audit_workspace(retracted))
    assert list(faults) == [name]
    assert words in faults[name]


def test_a_mark_that_cites_an_entry_of_nowhere_says_that_the_ledger_is_not_whole(retracted: Workspace):
    known = marked_entry(mark(retracted))
    assert known is not None
    said = json.loads(mark_text(known))
    said["ledger_entry"] |= {"seq": 77, "release_id": SECOND}
    mark(retracted, SECOND).write_text(json.dumps(said))
    assert marked_entry(mark(retracted, SECOND)) is None, "its hash does not fit: it cites nothing"
    assert list(broken(audit_workspace(retracted))) == [f"{SECOND}: retraction"]


def test_an_audit_of_one_release_or_of_recent_ones_tells_of_its_retraction(tmp_path: Path):
    workspace = monthly.fresh(tmp_path)
    monthly.release_months(workspace, ["2026-01", "2026-02"])
    published = ledger_state(workspace).releases[SECOND].published
    entry = retract(workspace, FIRST, who="ada", reason="a person asked for erasure").entry
    assert published is not None
    assert published.at[:10] < entry.at[:10], "the releases are older than the retraction"
    assert f"{FIRST}: retraction" in names(audit_workspace(workspace, FIRST))
    recent = names(audit_workspace(workspace, since=entry.at[:10]))
    assert {f"{FIRST}: retraction", f"{FIRST}: bundle"} <= set(recent)
    assert f"{SECOND}: bundle" not in recent


def test_the_ledger_goes_on_after_a_retraction(retracted: Workspace):
    land_rows(retracted.root, "2026-03")
    release(retracted, "2026-03")
    release(retracted, "2026-01", supersedes=FIRST, reason="without that person")
    assert broken(audit_workspace(retracted)) == {}


# ---------------------------------------------------------------- with evidence alone


@pytest.mark.parametrize("depth", ["workspace", "name", "bundle"])
def test_an_auditor_who_was_given_the_mark_finds_it_however_deep_it_lies(given: Given, depth: str):
    given.bundles = {"workspace": given.bundles, "name": given.bundles / "small", "bundle": given.bundle()}[depth]
    assert broken(given.audit(FIRST)) == {}
    marked = mark_beside(given.bundle() if depth == "workspace" else given.bundles / FIRST)
    marked = mark_beside(given.bundles) if depth == "bundle" else marked
    rewritten(marked, b"{}")
    assert list(broken(given.audit(FIRST))) == [f"{FIRST}: retraction"]


def test_an_auditor_may_have_been_given_the_bundle_without_its_mark(given: Given):
    mark_beside(given.bundle()).unlink()
    checks = given.audit()
    assert broken(checks) == {}
    assert detail(checks, f"{FIRST}: retraction").endswith("; its bundle came without a mark")


@pytest.mark.parametrize("keep", [True, False])
def test_an_auditor_may_have_been_given_no_bundle_of_a_retracted_release(given: Given, keep: bool):
    shutil.rmtree(given.bundle())
    if not keep:
        mark_beside(given.bundle()).unlink()
    checks = given.audit()
    assert broken(checks) == {}
    assert detail(checks, f"{FIRST}: retraction").endswith("a person asked for erasure")
    assert detail(checks, f"{SECOND}: bundle") == "is as published"


def test_a_flat_folder_of_bundles_and_marks_is_audited_as_well(given: Given):
    for path in list(given.bundle().parent.iterdir()):
        if path.name != ".lock":
            path.rename(given.bundles / path.name)
    assert broken(given.audit()) == {}
    shutil.rmtree(given.bundles / FIRST)
    assert broken(given.audit()) == {}, "the mark is no stray, though nothing says where the bundle was"
    pretender = given.bundles / f"{SECOND}.RETRACTED.json"
    pretender.write_text("{}")
    assert list(broken(given.audit())) == [f"{SECOND}: retraction"]


# ---------------------------------------------------------------- releases of before


def test_a_release_of_an_earlier_version_can_be_retracted(tmp_path: Path):
    with tarfile.open(GOLDEN / "version-3.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    workspace = Workspace(tmp_path)
    workspace.create()
    assert broken(audit_workspace(workspace)) == {}
    folder = next(workspace.bundles())
    retract(workspace, folder.name, who="ada", reason="erasure")
    assert broken(audit_workspace(workspace)) == {}
    shutil.rmtree(folder)
    assert broken(audit_workspace(workspace)) == {}
