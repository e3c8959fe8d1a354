"""A release that waits for a person: hidden until approved, published as it was sealed, or refused."""

from __future__ import annotations

import json
import shutil
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.tasks.staged import SPEC, land_rows, release

from dpcore.errors import BudgetExceededError, LedgerError, RefusedError, SpecError
from flows.cli import main
from flows.release_history import Joined
from tasks.audit import audit_workspace
from tasks.bundle.staging import Staging
from tasks.keys.decision import SignedDecision
from tasks.keys.signing import SigningKey
from tasks.ledger.entries.bodies import Approval, BundleDecision, Refusal
from tasks.ledger.key_changes import enrol_key, rotate_key
from tasks.ledger.opening import ledger_state, writable_ledger
from tasks.ledger.store import Ledger
from tasks.lineage.events import events_of
from tasks.release.approval import approve, decide_apart, finish_reveals, refuse_release
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

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
    assert (known.approval.parse(Approval).who, known.approval.parse(Approval).reason) == (
        "steward",
        "the report is fine",
    )
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
    assert approval.parse(Approval).who == "steward"
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
    refuse_release(waiting, ID, who="steward", reason="a column looks odd")
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
@pytest.mark.parametrize("word", [approve, refuse_release])
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
    for word in (approve, refuse_release):
        with pytest.raises(LedgerError) as caught:
            word(waiting, ID, who="steward", reason="fine")
        assert caught.value.rule == "ledger-incomplete"


def test_a_key_that_was_replaced_while_the_bundle_waited_does_not_spoil_the_audit(waiting: Workspace):
    rotate_key(waiting, load_spec(waiting.spec_path), who="operator")
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
    for word in (approve, refuse_release):
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
    assert refusal.parse(Refusal).rule == "budget-exceeded"
    assert (refusal.parse(Refusal).name, refusal.parse(Refusal).period) == ("small", "2026-03")
    assert state.head == refusal
    assert faults(workspace) == []
    workspace.spec_path.write_text(SPEC)
    release(workspace, "2026-03")
    assert ledger_state(workspace).releases["small-2026-03-1"].status == "published"
    assert faults(workspace) == []


# ---------------------------------------------------------------- named approvers, who sign for themselves


APPROVERS = {name: SigningKey.fresh() for name in ("ada", "grace")}


@pytest.fixture(scope="module")
def waiting_for_two_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("two")
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(SPEC + "approve: {by: [ada, grace], at_least: 2}\n")
    for name, key in APPROVERS.items():
        enrol_key(workspace, load_spec(workspace.spec_path), key.public, roles=["approve"], name=name)
    land_rows(root, "2026-01")
    release(workspace, "2026-01")
    return root


@pytest.fixture
def for_two(waiting_for_two_once: Path, tmp_path: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(waiting_for_two_once, tmp_path / "workspace")))


def elsewhere(workspace: Workspace, name: str, *, no: bool = False) -> SignedDecision:
    """What an approver signs on a machine of their own, who was given the sealed bundle alone."""
    sealed = Staging(workspace.bundle("small", ID)).folder
    return decide_apart(sealed, ID, APPROVERS[name], refuse=no, who=name, reason="looked")


def test_the_second_approver_publishes_and_each_signs_with_their_own_key(for_two: Workspace):
    folder, _, _ = approve(for_two, ID, who="Ada", reason="fine", signer=APPROVERS["ada"])
    assert not folder.exists()
    assert ledger_state(for_two).releases[ID].status == "awaiting-approval"
    folder, _, _ = approve(for_two, ID, who="grace", reason="looked", signed=elsewhere(for_two, "grace"))
    assert folder.is_dir()
    assert faults(for_two) == []
    row = Joined.of(for_two).row(ID)
    assert [(a["who"], a["key"]) for a in row["approvals"]] == [
        ("Ada", APPROVERS["ada"].public.key_id),
        ("grace", APPROVERS["grace"].public.key_id),
    ]


def test_one_approver_does_not_count_twice_and_the_workspace_not_at_all(for_two: Workspace):
    approve(for_two, ID, who="Ada", reason="fine", signer=APPROVERS["ada"])
    for signer, rule in (
        (APPROVERS["ada"], "approved-before"),
        (SigningKey.fresh(), "not-an-approver"),
        (None, "not-an-approver"),
    ):
        with pytest.raises(LedgerError) as caught:
            approve(for_two, ID, who="somebody", reason="fine", signer=signer)
        assert caught.value.rule == rule
    assert ledger_state(for_two).releases[ID].status == "awaiting-approval"


def test_a_decision_about_another_bundle_is_not_added(for_two: Workspace):
    signed = elsewhere(for_two, "ada")
    for changed in (replace(signed.content, bundle_digest="0" * 64), replace(signed.content, release_id="small-x")):
        stale = SignedDecision.by(APPROVERS["ada"], changed)
        with pytest.raises(LedgerError) as caught:
            approve(for_two, ID, who="ada", reason="looked", signed=stale)
        assert caught.value.rule == "decision-differs"


def test_an_approver_may_refuse_from_elsewhere(for_two: Workspace):
    entry = refuse_release(for_two, ID, who="ada", reason="looked", signed=elsewhere(for_two, "ada", no=True))
    assert entry.parse(BundleDecision).approver == APPROVERS["ada"].public.key_id
    assert ledger_state(for_two).releases[ID].status == "refused"
    assert faults(for_two) == []


def test_nobody_signs_for_a_bundle_that_was_touched(for_two: Workspace):
    record = Staging(for_two.bundle("small", ID)).folder / "record.json"
    record.chmod(0o644)
    record.write_text(record.read_text() + " ")
    with pytest.raises(RefusedError) as caught:
        elsewhere(for_two, "ada")
    assert caught.value.rule == "bundle-changed"


def test_the_commands_sign_elsewhere_and_add(
    for_two: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def run(*argv: str | Path) -> dict[str, object]:
        monkeypatch.setattr("sys.argv", ["dprelease", "approve", ID, *map(str, argv), "--json"])
        with suppress(SystemExit):
            main()
        answer: dict[str, object] = json.loads(capsys.readouterr().out)
        return answer

    for name, key in APPROVERS.items():
        (tmp_path / name).write_bytes(key.stored())
        (tmp_path / name).chmod(0o600)
    sealed, place = Staging(for_two.bundle("small", ID)).folder, ("-w", for_two.root)
    out = tmp_path / "ada.json"
    assert run("--key", tmp_path / "ada", "--out", out)["rule"] == "options-conflict"
    signed = run("--key", tmp_path / "ada", "--bundle", sealed, "--out", out, "--who", "ada", "--reason", "fine")
    assert signed["approver"] == APPROVERS["ada"].public.key_id
    assert run("--add", tmp_path / "ada", *place)["rule"] == "decision-unreadable"
    assert run("--add", out, *place)["status"] == "awaiting-approval"
    assert run("--add", out, *place)["rule"] == "approved-before"
    assert run("--key", tmp_path / "grace", "--reason", "fine", *place)["status"] == "published"


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("approvers-too-few", "{by: [ada], at_least: 2}"),
        ("approver-twice", "{by: [ada, ada], at_least: 1}"),
        ("unknown-key", "{by: [ada], most: 2}"),
        ("missing-key", "{at_least: 2}"),
        ("not-positive", "{by: [ada], at_least: 0}"),
    ],
)
def test_a_specification_of_approvers_that_cannot_be_met_is_refused(tmp_path: Path, rule: str, value: str):
    (tmp_path / "release.yaml").write_text(f"{SPEC}approve: {value}\n")
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "release.yaml")
    assert (caught.value.rule, caught.value.where.startswith("approve")) == (rule, True)
