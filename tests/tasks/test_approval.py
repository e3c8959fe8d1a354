"""A release that waits for a person: hidden until approved, published as it was sealed, or refused."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from staged import SPEC, land_rows, release

from dpcore.errors import BudgetExceededError, LedgerError, RefusedError
from tasks.stores.approval import approve, finish_reveals, refuse
from tasks.stores.audit import audit_workspace
from tasks.stores.bundle import Staging
from tasks.stores.ledger import Ledger
from tasks.stores.ledgers import ledger_state, writable_ledger
from tasks.stores.lineage import events_of
from tasks.stores.operations import rotate_key
from tasks.stores.spec import load_spec
from tasks.stores.workspace import Workspace

ID = "small-2026-01-1"


@pytest.fixture(scope="module")
def waiting_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("waiting")
    Workspace(root).create()
    (root / "release.yaml").write_text(SPEC + "approve: required\n")
    land_rows(root, "2026-01")
    release(Workspace(root), "2026-01")
    return root


@pytest.fixture
def waiting(waiting_once: Path, tmp_path: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(waiting_once, tmp_path / "workspace")))


def faults(workspace: Workspace) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in audit_workspace(workspace) if not check.ok]


def test_a_release_that_waits_has_spent_and_shows_no_bundle(waiting: Workspace):
    known = ledger_state(waiting).releases[ID]
    assert (known.status, known.published, len(known.spends)) == ("awaiting-approval", None, 1)
    assert not waiting.bundle("small", ID).exists()
    assert faults(waiting) == []


def test_approval_publishes_the_sealed_bundle_and_the_ledger_says_who_and_why(waiting: Workspace):
    sealed = Staging(waiting.bundle("small", ID))
    before = sealed.digests()
    folder, record, _ = approve(waiting, ID, who="steward", reason="the report is fine")
    known = ledger_state(waiting).releases[ID]
    assert known.status == "published"
    assert known.approval is not None
    assert (known.approval.facts["who"], known.approval.facts["reason"]) == ("steward", "the report is fine")
    assert record["release_id"] == ID
    assert Staging(folder.parent / folder.name).final.is_dir()
    assert {path.name for path in folder.iterdir()} == before.keys()
    assert not sealed.folder.exists()
    assert faults(waiting) == []


def test_the_approved_release_is_charged_once(waiting: Workspace):
    spent = ledger_state(waiting).spent("people")
    approve(waiting, ID, who="steward", reason="fine")
    assert ledger_state(waiting).spent("people") == spent


def test_approving_again_changes_nothing(waiting: Workspace):
    first = approve(waiting, ID, who="steward", reason="fine")
    entries = ledger_state(waiting).head
    assert approve(waiting, ID, who="somebody else", reason="me too") == first
    assert ledger_state(waiting).head == entries


def test_a_crash_between_the_entry_and_the_reveal_is_finished_by_the_next_word(
    waiting: Workspace, monkeypatch: pytest.MonkeyPatch
):
    def crash(_self: Staging) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Staging, "reveal", crash)
        with pytest.raises(KeyboardInterrupt):
            approve(waiting, ID, who="steward", reason="fine")
    assert ledger_state(waiting).releases[ID].status == "published"
    folder, _, approval = approve(waiting, ID, who="steward", reason="fine")
    assert folder.is_dir()
    assert approval.facts["who"] == "steward"
    assert faults(waiting) == []


def test_a_bundle_that_was_touched_while_it_waited_cannot_be_approved(waiting: Workspace):
    report = Staging(waiting.bundle("small", ID)).folder / "report.html"
    report.chmod(0o644)
    report.write_text("all is well")
    with pytest.raises(LedgerError) as caught:
        approve(waiting, ID, who="steward", reason="fine")
    assert caught.value.rule == "bundle-changed"
    assert ledger_state(waiting).releases[ID].status == "awaiting-approval"


def test_a_bundle_that_was_lost_while_it_waited_is_made_anew_without_another_draw(waiting: Workspace):
    shutil.rmtree(Staging(waiting.bundle("small", ID)).folder)
    before = ledger_state(waiting)
    release(waiting, "2026-01")
    after = ledger_state(waiting)
    assert after.spent("people") == before.spent("people")
    assert after.releases[ID].spends == before.releases[ID].spends
    approve(waiting, ID, who="steward", reason="fine")
    assert faults(waiting) == []


def test_a_refused_bundle_is_gone_its_cost_is_not_and_its_period_needs_a_reason(waiting: Workspace):
    spent = ledger_state(waiting).spent("people")
    refuse(waiting, ID, who="steward", reason="a column looks odd")
    state = ledger_state(waiting)
    assert state.releases[ID].status == "refused"
    assert state.releases[ID].refusal is not None
    assert state.spent("people") == spent
    assert not Staging(waiting.bundle("small", ID)).folder.exists()
    assert faults(waiting) == []
    with pytest.raises(LedgerError) as caught:
        release(waiting, "2026-01")
    assert caught.value.rule == "release-refused"


@pytest.mark.parametrize(
    ("release_id", "who", "reason", "rule"),
    [
        ("small-2026-02-1", "steward", "fine", "release-unknown"),
        (ID, " ", "fine", "approval-unsaid"),
        (ID, "steward", "", "approval-unsaid"),
    ],
)
@pytest.mark.parametrize("word", [approve, refuse])
def test_a_word_without_its_release_person_or_reason_is_refused(
    waiting: Workspace, word, release_id: str, who: str, reason: str, rule: str
):
    with pytest.raises(RefusedError) as caught:
        word(waiting, release_id, who=who, reason=reason)
    assert caught.value.rule == rule
    assert ledger_state(waiting).releases[ID].status == "awaiting-approval"


def test_nothing_is_approved_on_a_ledger_that_was_rolled_back(waiting: Workspace):
    old = waiting.ledger_path.read_bytes()
    waiting.spec_path.write_text(SPEC)
    land_rows(waiting.root, "2026-02")
    release(waiting, "2026-02")
    waiting.ledger_path.write_bytes(old)
    for word in (approve, refuse):
        with pytest.raises(LedgerError) as caught:
            word(waiting, ID, who="steward", reason="fine")
        assert caught.value.rule == "ledger-incomplete"


def test_a_key_that_was_replaced_while_the_bundle_waited_does_not_spoil_the_audit(waiting: Workspace):
    rotate_key(waiting, load_spec(waiting.spec_path))
    approve(waiting, ID, who="steward", reason="fine")
    assert faults(waiting) == []


def test_lineage_tells_the_columns_that_were_sealed_whatever_the_specification_says_by_now(waiting: Workspace):
    text = waiting.spec_path.read_text().replace(
        "  - {name: ill, kind: boolean}", "  - {name: ill, kind: boolean}\n  - {name: pay, kind: boolean}"
    )
    waiting.spec_path.write_text(text)
    approve(waiting, ID, who="steward", reason="fine")
    told = [e for e in events_of(waiting.lineage_path) if e["job"]["name"] == "small.publish"][-1]
    fields = told["outputs"][0]["facets"]["schema"]["fields"]
    assert [field["name"] for field in fields] == ["age", "ill"]


def test_only_the_owner_reads_what_nobody_has_approved(waiting: Workspace):
    sealed = Staging(waiting.bundle("small", ID)).folder
    assert sealed.stat().st_mode & 0o077 == 0
    folder, _, _ = approve(waiting, ID, who="steward", reason="fine")
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_release_whose_bundle_is_elsewhere_is_not_approved_here(waiting: Workspace):
    folder, _, _ = approve(waiting, ID, who="steward", reason="fine")
    shutil.rmtree(folder)
    with pytest.raises(RefusedError) as caught:
        approve(waiting, ID, who="steward", reason="fine")
    assert caught.value.rule == "published-elsewhere"


def test_a_published_release_cannot_be_refused_nor_one_that_waited_for_nobody_approved(workspace: Workspace):
    for word in (approve, refuse):
        with pytest.raises(RefusedError) as caught:
            word(workspace, ID, who="steward", reason="late")
        assert caught.value.rule == "not-awaiting-approval"


def test_a_specification_that_stops_asking_does_not_free_what_waits(waiting: Workspace):
    waiting.spec_path.write_text(SPEC)
    shutil.rmtree(Staging(waiting.bundle("small", ID)).folder)
    release(waiting, "2026-01")
    assert ledger_state(waiting).releases[ID].status == "awaiting-approval"


def test_finishing_reveals_leaves_what_waits_alone(waiting: Workspace):
    with closing(writable_ledger(waiting, load_spec(waiting.spec_path))) as ledger:
        assert isinstance(ledger, Ledger)
        finish_reveals(waiting, ledger)
    assert not waiting.bundle("small", ID).exists()


def test_a_budget_that_does_not_allow_a_release_says_so_in_the_ledger_once(workspace: Workspace):
    workspace.spec_path.write_text(SPEC.replace("epsilon: 0.1, lifetime", "epsilon: 1.15, lifetime"))
    land_rows(workspace.root, "2026-03")
    for _ in range(2):
        with pytest.raises(BudgetExceededError):
            release(workspace, "2026-03")
    state = ledger_state(workspace)
    refusal = state.refusals["small-2026-03-1"]
    assert refusal.facts["rule"] == "budget-exceeded"
    assert (refusal.facts["name"], refusal.facts["period"]) == ("small", "2026-03")
    assert state.head == refusal
    assert faults(workspace) == []
    workspace.spec_path.write_text(SPEC)
    release(workspace, "2026-03")
    assert ledger_state(workspace).releases["small-2026-03-1"].status == "published"
    assert faults(workspace) == []
