"""A published release that a person takes back: the ledger says so, then lineage and mark, also after a crash."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.tasks.ledger.postgres import Server
from support.tasks.lineage.events import all_schemas, assert_valid
from support.tasks.release.faults import Tripwire, in_a_process
from support.tasks.staged import SPEC, land_rows, release, run_of, share

from dpcore.errors import LedgerError, RefusedError, WorkspaceError
from tasks.answers.intervals import read_inference
from tasks.answers.projecting import project_rows
from tasks.audit import audit_workspace
from tasks.backup.archive import back_up, restore
from tasks.bundle.staging import DATA, Staging, sha256_of
from tasks.keys.signing import signing_key
from tasks.ledger.entries.bodies import Retraction
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.marks import NOTICE, mark_text, marked_entry
from tasks.ledger.opening import ledger_state, readable_ledger
from tasks.ledger.reconcile import reconcile
from tasks.lineage.events import events_of
from tasks.lineage.graph import lineage_graph, withdrawal_in_words
from tasks.release import retraction
from tasks.release.approval import approve
from tasks.release.early_refusals import require_releasable
from tasks.release.retraction import Retracted, retract
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace, mark_beside
from tasks.workspace.reading import parse_json

ID, SECOND = "small-2026-01-1", "small-2026-02-1"


def faults(workspace: Workspace) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in audit_workspace(workspace) if not check.ok]


def bundle(workspace: Workspace, release_id: str = ID) -> Path:
    return workspace.bundle("small", release_id)


def mark(workspace: Workspace, release_id: str = ID) -> Path:
    return mark_beside(bundle(workspace, release_id))


def take_back(workspace: Workspace, release_id: str = ID, **said: str) -> Retracted:
    return retract(workspace, release_id, **({"who": "ada", "reason": "a person asked for erasure"} | said))


def entries_of(workspace: Workspace) -> list[Entry]:
    with closing(readable_ledger(workspace)) as ledger:
        return ledger.entries()


def withdrawals(workspace: Workspace) -> list[dict[str, Any]]:
    """The events that withdraw a bundle."""
    events = [event for event in events_of(workspace.lineage_path) if event["job"]["name"] == "small.retract"]
    return [event for event in events if event["eventType"] == "COMPLETE"]


# ---------------------------------------------------------------- what a retraction does


def test_the_ledger_keeps_it_the_bundle_stays_as_it_was_and_is_marked(workspace: Workspace):
    before = {path: (sha256_of(path), path.stat().st_mtime_ns) for path in bundle(workspace).iterdir()}
    spent = ledger_state(workspace).spent("people")
    done = take_back(workspace, who=" ada ", reason=" a person asked for erasure ")
    state = ledger_state(workspace)
    assert state.releases[ID].status == "retracted"
    assert state.head == done.entry == state.releases[ID].retraction
    assert done.entry.parse(Retraction) == Retraction(who="ada", reason="a person asked for erasure")
    assert state.spent("people") == spent
    assert {path: (sha256_of(path), path.stat().st_mtime_ns) for path in bundle(workspace).iterdir()} == before
    assert (done.bundle, done.mark, done.flow_run_id) == (bundle(workspace), mark(workspace), "run")
    assert faults(workspace) == []


def test_the_mark_says_who_when_and_why_and_holds_the_signed_entry(workspace: Workspace):
    entry = take_back(workspace, reason="« geht nicht »").entry
    said = json.loads(mark(workspace).read_text(encoding="utf-8"))
    assert said["notice"] == NOTICE
    facts = ("ada", entry.at, "« geht nicht »", ID)
    assert tuple(said[name] for name in ("who", "at", "reason", "release_id")) == facts
    again = Entry.from_json(said["ledger_entry"])
    assert again == entry == marked_entry(mark(workspace))
    assert signing_key(workspace.keys).public.verifies(again.signature, again.expected_hash().encode())
    assert "« geht nicht »" in mark(workspace).read_text(encoding="utf-8"), "people can read it"
    assert mark(workspace).stat().st_mode & 0o777 == 0o444, "whoever reads the bundle reads the mark"


def test_lineage_withdraws_the_bundle_that_publishing_made(workspace: Workspace):
    published = next(
        event
        for event in events_of(workspace.lineage_path)
        if (event["job"]["name"], event["eventType"]) == ("small.publish", "COMPLETE")
    )
    made = next(dataset for dataset in published["outputs"] if dataset["name"].endswith("/bundle"))
    entry = take_back(workspace).entry
    (event,) = withdrawals(workspace)
    (dataset,) = event["outputs"]
    assert (dataset["namespace"], dataset["name"]) == (made["namespace"], made["name"])
    assert dataset["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"
    assert dataset["facets"]["version"]["datasetVersion"] == made["facets"]["version"]["datasetVersion"]
    cited = dataset["facets"]["dp_ledger"]
    assert (cited["ledgerEntry"], cited["ledgerHash"]) == (entry.seq, entry.hash)
    assert "schema" not in dataset["facets"], "its columns are not told again"
    registry = all_schemas()
    for told in events_of(workspace.lineage_path):
        assert_valid(told, registry)


def test_the_lineage_graph_shows_both_the_publication_and_the_withdrawal(workspace: Workspace):
    before = lineage_graph(workspace, ID)
    entry = take_back(workspace).entry
    graph = lineage_graph(workspace, ID)
    fresh = [node for node in graph["nodes"] if node["id"] not in {known["id"] for known in before["nodes"]}]
    assert [(node["kind"], node["name"], node["state"]) for node in fresh] == [("stage", "retract", "COMPLETE")]
    (node,) = [node for node in graph["nodes"] if node["name"] == "bundle"]
    (known,) = [node for node in before["nodes"] if node["name"] == "bundle"]
    assert node.items() >= known.items(), "what was published is still told"
    assert withdrawal_in_words(node) == f"withdrew bundle: ledger entry {entry.seq}"
    assert withdrawal_in_words(known) is None


def test_a_bundle_that_was_deleted_before_leaves_no_mark(workspace: Workspace):
    shutil.rmtree(bundle(workspace))
    done = take_back(workspace)
    assert (done.bundle, done.mark) == (None, None)
    assert not mark(workspace).exists()
    assert len(withdrawals(workspace)) == 1
    assert faults(workspace) == []


# ---------------------------------------------------------------- what is refused


REFUSED: dict[str, tuple[str, dict[str, str], str, str]] = {
    "an unknown release": ("small-2031-01-1", {}, "release-unknown", "RELEASE"),
    "a release of another name": ("other-2026-01-1", {}, "release-unknown", "RELEASE"),
    "nobody": (ID, {"who": "  "}, "who-missing", "--who"),
    "no reason": (ID, {"reason": " "}, "reason-missing", "--reason"),
    "a reason that is no text": (ID, {"reason": "\udcff"}, "text-unwritable", "--reason, --who"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_and_changes_nothing(workspace: Workspace, case: str):
    release_id, said, rule, where = REFUSED[case]
    before = entries_of(workspace), workspace.lineage_path.read_bytes()
    with pytest.raises(RefusedError) as caught:
        take_back(workspace, release_id, **said)
    assert (caught.value.rule, caught.value.where, bool(caught.value.hint)) == (rule, where, True)
    assert (entries_of(workspace), workspace.lineage_path.read_bytes()) == before
    assert not mark(workspace).exists()


def test_a_release_is_retracted_once(workspace: Workspace):
    take_back(workspace)
    before = entries_of(workspace), mark(workspace).read_bytes()
    with pytest.raises(RefusedError) as caught:
        take_back(workspace, who="somebody else", reason="me too")
    assert (caught.value.rule, caught.value.where) == ("release-retracted", "RELEASE")
    assert "retracted by ada" in caught.value.message
    assert f"--supersedes {ID}" in caught.value.hint
    assert (entries_of(workspace), mark(workspace).read_bytes()) == before
    assert len(withdrawals(workspace)) == 1


def test_a_release_that_waits_is_refused_not_retracted(workspace: Workspace):
    workspace.spec_path.write_text(SPEC + "approve: required\n")
    land_rows(workspace.root, "2026-03")
    release(workspace, "2026-03")
    with pytest.raises(RefusedError) as caught:
        take_back(workspace, "small-2026-03-1")
    assert caught.value.rule == "release-not-published"
    assert "approve small-2026-03-1 --refuse" in caught.value.hint
    approve(workspace, "small-2026-03-1", who="ada", reason="fine")
    assert take_back(workspace, "small-2026-03-1").entry.kind == "retract"
    assert faults(workspace) == []


def test_nothing_is_retracted_on_a_ledger_that_was_rolled_back(workspace: Workspace):
    old = workspace.ledger_path.read_bytes()
    land_rows(workspace.root, "2026-03")
    release(workspace, "2026-03")
    workspace.ledger_path.write_bytes(old)
    with pytest.raises(LedgerError) as caught:
        take_back(workspace)
    assert caught.value.rule == "ledger-incomplete"


# ---------------------------------------------------------------- what happens to the month


def test_the_month_is_not_released_by_itself_nor_read(workspace: Workspace, tmp_path: Path):
    take_back(workspace)
    before = entries_of(workspace), workspace.lineage_path.read_bytes()
    with pytest.raises(LedgerError) as caught:
        release(workspace, "2026-01")
    assert (caught.value.rule, caught.value.where) == ("release-retracted", ID)
    planned = run_of(workspace, tmp_path, period="2026-01").planned
    with pytest.raises(LedgerError) as caught:
        require_releasable(planned, workspace)
    assert caught.value.rule == "release-retracted", "before a server is started"
    assert (entries_of(workspace), workspace.lineage_path.read_bytes()) == before
    again = run_of(workspace, tmp_path, period="2026-01", supersedes=ID, reason="x").planned
    require_releasable(again, workspace)


def test_a_superseding_release_measures_it_anew_and_is_charged(workspace: Workspace):
    take_back(workspace)
    before = ledger_state(workspace).spent("people").epsilon
    folder = release(workspace, "2026-01", supersedes=ID, reason="without that person")
    state = ledger_state(workspace)
    assert (state.releases[ID].status, state.releases[folder.name].status) == ("retracted", "published")
    assert state.spent("people").epsilon - before == before / 2, "two releases were charged before, and one now"
    assert parse_json((folder / "record.json").read_text())["supersedes"] == ID
    assert faults(workspace) == []


def test_a_superseded_release_is_retracted_without_its_successor(workspace: Workspace):
    folder = release(workspace, "2026-01", supersedes=ID, reason="two files were missing")
    take_back(workspace)
    state = ledger_state(workspace)
    assert (state.releases[ID].status, state.releases[folder.name].status) == ("retracted", "published")
    assert not mark_beside(folder).exists()
    assert release(workspace, "2026-01") == folder, "the month is still published"
    assert faults(workspace) == []


def test_a_correction_that_waits_for_approval_is_not_touched_by_a_retraction(workspace: Workspace):
    workspace.spec_path.write_text(SPEC + "approve: required\n")
    release(workspace, "2026-01", supersedes=ID, reason="two files were missing")
    take_back(workspace)
    approve(workspace, "small-2026-01-2", who="ada", reason="fine")
    state = ledger_state(workspace)
    assert {name: state.releases[name].status for name in (ID, "small-2026-01-2")} == {
        ID: "retracted",
        "small-2026-01-2": "published",
    }
    assert faults(workspace) == []


# ---------------------------------------------------------------- what analysts' functions do


def test_intervals_and_projections_of_a_marked_bundle_are_refused_unless_that_is_accepted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    known = read_inference(bundle(workspace)).mean("age")
    rows = pq.read_table(bundle(workspace) / DATA)
    take_back(workspace)
    monkeypatch.chdir(bundle(workspace))
    for place in (bundle(workspace), str(bundle(workspace)), "."):
        for ask in (lambda place=place: read_inference(place), lambda place=place: project_rows(place, rows)):
            with pytest.raises(RefusedError) as caught:
                ask()
            assert caught.value.rule == "release-retracted"
            assert mark(workspace).name in caught.value.message
    assert read_inference(bundle(workspace), accept_retracted=True).mean("age").estimate == known.estimate
    with suppress(ValueError):  # a bundle without a projection
        project_rows(bundle(workspace), rows, accept_retracted=True)
    read_inference(bundle(workspace, SECOND))


# ---------------------------------------------------------------- crashes


def steps_of(root: Path, told: Path) -> list[str]:
    """The steps of an undisturbed retraction."""

    def tell(name: str) -> None:
        with told.open("a") as file:
            file.write(f"{name}\n")

    assert retracted_in_a_process(root, None, tell) == 0
    return told.read_text().splitlines()


def retracted_in_a_process(root: Path, fatal: int | None, told: Any = lambda name: None) -> int:
    def life() -> None:
        Tripwire(fatal, told).install()
        take_back(Workspace(root))

    return in_a_process(life)


def test_a_retraction_that_is_killed_anywhere_is_finished_by_the_next_command(published: Path, tmp_path: Path):
    """By a run of another month, or by the same word again; until then the audit says what is missing."""
    steps = steps_of(Path(shutil.copytree(published, tmp_path / "whole")), tmp_path / "steps")
    assert Counter(step.partition(" ")[2] for step in steps).keys() >= {"commit", "fsync", "replace"}
    seen = Counter[str]()
    for fatal in range(1, len(steps) + 1):
        what = f"killed {steps[fatal - 1]} (step {fatal} of {len(steps)})"
        workspace = Workspace(Path(shutil.copytree(published, tmp_path / f"trial-{fatal}")))
        assert os.WIFSIGNALED(retracted_in_a_process(workspace.root, fatal)), what
        retraction_of = ledger_state(workspace).releases[ID].retraction
        marked = mark(workspace).exists()
        assert not marked or retraction_of is not None, f"{what}: a mark without an entry"
        if retraction_of is None:
            seen["nothing happened"] += 1
            assert faults(workspace) == [], what
            take_back(workspace)
        elif not marked:
            seen["unmarked"] += 1
            (fault,) = faults(workspace)
            assert fault.startswith(f"{ID}: retraction: retracted by ada"), what
            assert "has no mark" in fault, what
        finish(workspace, by_a_run=bool(fatal % 2))
        state = ledger_state(workspace)
        assert [entry.kind for entry in entries_of(workspace)].count("retract") == 1, what
        assert mark(workspace).read_text() == mark_text(state.releases[ID].retraction), what  # type: ignore[arg-type]
        assert withdrawals(workspace), f"{what}: the lineage does not tell"
        assert [path.name for path in bundle(workspace).parent.glob(".*RETRACTED*")] == [], what
        assert faults(workspace) == [], what
        shutil.rmtree(workspace.root)
    assert seen.keys() == {"nothing happened", "unmarked"}, "both sides of the commit were tried"


def finish(workspace: Workspace, *, by_a_run: bool) -> None:
    if by_a_run:
        assert release(workspace, "2026-02").name == SECOND  # already published: it spends nothing
        return
    with pytest.raises(RefusedError) as caught:
        take_back(workspace)
    assert caught.value.rule == "release-retracted"


def test_a_bundle_that_a_crash_kept_hidden_is_revealed_and_marked(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    def crash(_self: Staging) -> None:
        raise KeyboardInterrupt

    land_rows(workspace.root, "2026-03")
    with monkeypatch.context() as patch:
        patch.setattr(Staging, "reveal", crash)
        with pytest.raises(KeyboardInterrupt):
            release(workspace, "2026-03")
    assert not bundle(workspace, "small-2026-03-1").exists()
    done = take_back(workspace, "small-2026-03-1")
    assert done.bundle == bundle(workspace, "small-2026-03-1")
    assert marked_entry(mark(workspace, "small-2026-03-1")) == done.entry
    assert faults(workspace) == []


def test_a_mark_that_cannot_be_written_is_told_with_the_way_out(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    def full(*_args: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(retraction, "write_atomically", full)
        with pytest.raises(WorkspaceError) as caught:
            take_back(workspace)
    assert (caught.value.rule, caught.value.where) == ("mark-unwritable", "releases")
    assert "No space left" in caught.value.message
    assert ledger_state(workspace).releases[ID].status == "retracted"
    finish(workspace, by_a_run=True)
    assert faults(workspace) == []


# ---------------------------------------------------------------- backups, and a ledger that lost the entry


def test_a_backup_holds_the_mark_and_a_restored_workspace_keeps_it(workspace: Workspace, tmp_path: Path):
    take_back(workspace)
    back_up(workspace, tmp_path / "w.tar", now=datetime(2026, 3, 20, 12, tzinfo=UTC))
    restore(tmp_path / "w.tar", tmp_path / "again", who="ada")
    again = Workspace(tmp_path / "again")
    assert mark(again).read_bytes() == mark(workspace).read_bytes()
    assert mark(again).stat().st_mode & 0o777 == 0o444
    assert faults(again) == []


def test_an_older_backup_has_to_be_told_of_the_retraction_again(workspace: Workspace, tmp_path: Path):
    back_up(workspace, tmp_path / "w.tar", now=datetime(2026, 3, 20, 12, tzinfo=UTC))
    take_back(workspace)
    restore(tmp_path / "w.tar", tmp_path / "again", who="ada")
    again = Workspace(tmp_path / "again")
    with pytest.raises(LedgerError) as caught:
        take_back(again)
    assert caught.value.rule == "ledger-unreconciled"
    reconcile(again, load_spec(again.spec_path), reason="restored", who="ada", charges=None)
    assert ledger_state(again).releases[ID].status == "published"
    take_back(again)
    assert faults(again) == []


@pytest.mark.parametrize("trace", ["mark", "lineage"])
def test_a_ledger_that_lost_the_retraction_is_found_by_its_traces(workspace: Workspace, trace: str):
    old = workspace.ledger_path.read_bytes()
    log = workspace.lineage_path.read_bytes()
    take_back(workspace)
    workspace.ledger_path.write_bytes(old)
    if trace == "mark":
        workspace.lineage_path.write_bytes(log)
    else:
        mark(workspace).unlink()
    assert any(fault.startswith("ledger completeness: lacks entries") for fault in faults(workspace))
    with pytest.raises(LedgerError) as caught:
        release(workspace, "2026-02", supersedes=SECOND, reason="late rows")
    assert caught.value.rule == "ledger-incomplete"


def test_after_a_reconciliation_the_release_is_retracted_again_and_marked_anew(workspace: Workspace):
    old = workspace.ledger_path.read_bytes()
    first = take_back(workspace).entry
    workspace.ledger_path.write_bytes(old)
    spec = load_spec(workspace.spec_path)
    with pytest.raises(LedgerError, match="charge at least"):
        reconcile(workspace, spec, reason="an old copy", who="ada", charges=None)
    reconcile(workspace, spec, reason="an old copy", who="ada", charges={"": Fraction(1, 10**6)})
    assert [fault.partition(": the")[0] for fault in faults(workspace)] == [
        f"{ID}: retraction: {mark(workspace).name} says that it was retracted, but the ledger has no such entry"
    ]
    second = take_back(workspace, reason="once more").entry
    assert marked_entry(mark(workspace)) == second != first
    assert faults(workspace) == []


# ---------------------------------------------------------------- a ledger that a team shares


def test_in_a_shared_ledger_the_role_decides_and_each_workspace_marks_its_own_bundle(
    server: Server, database: str, tmp_path: Path
):
    spec = f"{SPEC}ledger: '{server.url(database)}'\n"
    one, two, three = (Workspace(tmp_path / name) for name in ("one", "two", "three"))
    for workspace in (one, two, three):
        workspace.create()
        workspace.spec_path.write_text(spec)
    land_rows(one.root, "2026-01")
    release(one, "2026-01")
    share(one, two, "release")
    share(one, three, "approve")
    with pytest.raises(LedgerError) as caught:
        take_back(two)
    assert caught.value.rule == "key-role-missing"
    done = take_back(three)
    assert (done.bundle, done.mark) == (None, None)
    (fault,) = faults(one)
    assert "has no mark" in fault
    with pytest.raises(LedgerError) as caught:
        release(one, "2026-01")
    assert caught.value.rule == "release-retracted"
    assert mark(one).read_text() == mark_text(done.entry)
    assert len(withdrawals(one)) == 1, "the catalogue of the workspace that published is told"
    assert faults(one) == faults(three) == []
