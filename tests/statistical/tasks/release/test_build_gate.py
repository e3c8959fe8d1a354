"""The release gate: a build whose noise is not what it claims draws nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from support.tasks.staged import SPEC, land_rows, release

from dpcore.auditing.attacks import Finding
from dpcore.auditing.build_audit import EventAudit
from dpcore.auditing.known_noise import NoiseSize
from dpcore.errors import RefusedError
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.registry import Event
from dpcore.noise.wishart import WishartDifference
from dpcore.records.schema import Neighbours
from tasks.audit import audit_workspace
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.store import Ledger
from tasks.release import build_gate
from tasks.spec import load_spec
from tasks.spec.plan import plan_release
from tasks.workspace.build_identity import code_digest, code_facts, source_digest
from tasks.workspace.folders import Workspace
from tasks.workspace.user_cache import UserCache


@pytest.fixture
def fresh(tmp_path: Path) -> Workspace:
    place = Workspace(tmp_path)
    place.create()
    place.spec_path.write_text(SPEC)
    land_rows(tmp_path, "2026-03")
    return place


@pytest.fixture
def _audited_anew(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    build_gate._audit.cache_clear()
    yield
    build_gate._audit.cache_clear()


def finding(event: GramEvent, holds: bool) -> dict[str, object]:
    """An audit as the gate keeps it, of a build that never ran one."""
    attack = Finding(event.mechanism, event.neighbours.value, 2.0, 0.0, 1.0 if holds else 3.0, 10).as_json()
    return {"code_digest": "another build", "attack": attack, "noise": None, "holds": holds}


def test_the_record_names_the_audit_of_the_build_that_drew(workspace: Workspace):
    record = json.loads((workspace.bundle("small", "small-2026-01-1") / "record.json").read_text())
    (measurement,) = record["privacy"]["measurements"]
    build = measurement["build"]
    assert build["code_digest"] == code_digest()
    assert build["holds"]
    assert build["attack"]["mechanism"] == measurement["mechanism"]
    assert 0 < build["attack"]["measured"] <= build["attack"]["claimed"]
    assert build["attack"]["draws"] > 0
    assert 0 < build["attack"]["error"] <= 1e-6, "the confidence of the measured epsilon"
    assert 0.5 < build["replay"]["largest_share"] <= 1, "hostile neighbours come close to the bound, not above"
    assert build["noise"]["share"] == pytest.approx(1, abs=6 * build["noise"]["error"])


@pytest.mark.usefixtures("_audited_anew")
@pytest.mark.parametrize("factor", [0.5, 0.8])
def test_a_build_with_too_little_noise_is_refused_and_nothing_is_reserved(
    fresh: Workspace, monkeypatch: pytest.MonkeyPatch, factor: float
):
    whole = WishartDifference.difference
    monkeypatch.setattr(WishartDifference, "difference", lambda self: [z * factor for z in whole(self)])
    with pytest.raises(RefusedError) as refusal:
        release(fresh, "2026-03")
    assert refusal.value.rule == "build-audit-failed"
    with closing(Ledger.open_to_read(fresh.ledger_path)) as ledger:
        assert ledger.entries() == []


def test_a_build_whose_records_move_the_sums_too_far_is_refused(fresh: Workspace, monkeypatch: pytest.MonkeyPatch):
    """Records that leave the unit ball, as a wrong encoding would make them."""
    monkeypatch.setattr("dpcore.records.exact_sums._clip_to_ball", lambda body, share: np.multiply(body, 2, out=body))
    with pytest.raises(RefusedError) as refusal:
        release(fresh, "2026-03")
    assert refusal.value.rule == "build-replay-failed"
    with closing(Ledger.open_to_read(fresh.ledger_path)) as ledger:
        assert ledger.entries() == []


def test_an_audit_in_the_ledger_serves_the_next_release_of_the_same_build(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    land_rows(workspace.root, "2026-03")
    monkeypatch.setattr("tasks.allocate.audit_of_build", lambda event: pytest.fail("audited again"))
    release(workspace, "2026-03")


def test_another_build_must_be_audited_anew(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    land_rows(workspace.root, "2026-03")
    audited = []
    monkeypatch.setattr(build_gate, "code_digest", lambda: "another build")
    monkeypatch.setattr("tasks.allocate.audit_of_build", lambda event: audited.append(event) or finding(event, True))
    release(workspace, "2026-03")
    assert len(audited) == 1


@pytest.fixture
def event(fresh: Workspace) -> GramEvent:
    return plan_release(load_spec(fresh.spec_path)).events["moments"]


AS_PLANNED = NoiseSize(share=1.0, error=0.01, entries=10)
PASSED, FAILED = (Finding("m", "n", 2.0, 0.0, measured, 10) for measured in (1.0, 3.0))


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events that the gate audits from now on; its audit is replaced by one that always passes."""
    made: list[Event] = []
    monkeypatch.setattr("dpcore.auditing.build_audit.attack_event", lambda event, noise: PASSED)
    monkeypatch.setattr(
        "dpcore.auditing.build_audit.audit_event",
        lambda event, noise, found: made.append(event) or EventAudit(found, AS_PLANNED),
    )
    return made


def entry_of(event: GramEvent) -> Path:
    cache = UserCache.of()
    assert cache is not None
    return cache.folder / build_gate._entry_name(event)


@pytest.mark.usefixtures("_audited_anew")
def test_an_audit_that_passed_serves_every_workspace_and_says_when_it_was_made(event: GramEvent, audits: list[Event]):
    before = datetime.now(UTC) - timedelta(minutes=1)
    made = build_gate.audit_of_build(event)
    assert before < datetime.fromisoformat(made["audited_at"]) <= datetime.now(UTC)
    build_gate._audit.cache_clear()  # as in another process
    assert build_gate.kept_audit(event) == made
    assert audits == [event]


@pytest.mark.usefixtures("_audited_anew")
@pytest.mark.parametrize("differs", ["code", "dependencies_digest", "platform", "event"])
def test_an_audit_of_another_build_platform_or_event_counts_for_nothing(
    event: GramEvent, audits: list[Event], monkeypatch: pytest.MonkeyPatch, differs: str
):
    build_gate.audit_of_build(event)
    if differs == "code":
        monkeypatch.setattr(build_gate, "code_digest", lambda: "another")
    monkeypatch.setattr(build_gate, "code_facts", lambda: {**code_facts(), differs: "another"})
    wanted = replace(event, noise=event.noise * 2) if differs == "event" else event
    assert build_gate.kept_audit(wanted) is None
    build_gate._audit.cache_clear()
    attacks: list[Event] = []
    monkeypatch.setattr(
        "dpcore.auditing.build_audit.attack_event", lambda event, noise: attacks.append(event) or PASSED
    )
    build_gate.audit_of_build(wanted)
    assert attacks == ([] if differs == "event" else [event]), "an attack serves other events of the same build alone"


@pytest.mark.usefixtures("_audited_anew", "audits")
def test_a_kept_attack_under_the_name_of_another_counts_for_nothing(event: GramEvent, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build_gate, "_name_of", lambda kind, what: f"{kind}-one-name-for-all.json")
    build_gate.audit_of_build(event)
    attacks: list[Event] = []
    monkeypatch.setattr(
        "dpcore.auditing.build_audit.attack_event", lambda event, noise: attacks.append(event) or PASSED
    )
    other = replace(event, mechanism="wishart-difference")
    build_gate.audit_of_build(other)
    assert attacks == [other]


@pytest.mark.usefixtures("_audited_anew", "audits")
@pytest.mark.parametrize("forgery", ["changed", "cut", "of another event", "readable by others"])
def test_a_kept_audit_that_this_account_did_not_write_as_it_is_counts_for_nothing(event: GramEvent, forgery: str):
    build_gate.audit_of_build(event)
    path, other = entry_of(event), replace(event, noise=event.noise * 2)
    content = path.read_bytes()
    if forgery == "readable by others":
        path.chmod(0o644)
    elif forgery == "of another event":
        build_gate.audit_of_build(other)
        path.write_bytes(entry_of(other).read_bytes())
    else:
        path.write_bytes(content[:-1] if forgery == "cut" else content.replace(b'"holds":true', b'"holds":null', 1))
    assert build_gate.kept_audit(event) is None


@pytest.mark.usefixtures("_audited_anew")
def test_an_audit_that_failed_is_not_kept(event: GramEvent, monkeypatch: pytest.MonkeyPatch):
    failed = EventAudit(FAILED, AS_PLANNED)
    assert not failed.holds
    monkeypatch.setattr("dpcore.auditing.build_audit.attack_event", lambda event, noise: FAILED)
    monkeypatch.setattr("dpcore.auditing.build_audit.audit_event", lambda event, noise, found: failed)
    assert not build_gate.audit_of_build(event)["holds"]
    assert build_gate.kept_audit(event) is None


@pytest.mark.usefixtures("_audited_anew")
def test_an_attack_that_passed_serves_other_events_of_its_mechanism_and_their_noise_is_measured(
    event: GramEvent, monkeypatch: pytest.MonkeyPatch
):
    attacks: list[Event] = []
    monkeypatch.setattr(
        "dpcore.auditing.build_audit.attack_event", lambda event, noise: attacks.append(event) or PASSED
    )
    first, second = (build_gate.audit_of_build(each) for each in (event, replace(event, noise=event.noise * 2)))
    assert attacks == [event]
    assert first["attack"] == second["attack"] == PASSED.as_json()
    assert first["audited_at"] == second["audited_at"]
    assert first["noise"] != second["noise"], "each event's noise was drawn"


@pytest.mark.usefixtures("_audited_anew", "audits")
@pytest.mark.parametrize("differs", ["mechanism", "relation", "several classes"])
def test_an_attack_on_something_else_serves_no_event(event: GramEvent, monkeypatch: pytest.MonkeyPatch, differs: str):
    attacks: list[Event] = []
    monkeypatch.setattr(
        "dpcore.auditing.build_audit.attack_event", lambda event, noise: attacks.append(event) or PASSED
    )
    other = {
        "mechanism": replace(event, mechanism="wishart-difference"),
        "relation": replace(event, neighbours=next(n for n in Neighbours if n is not event.neighbours)),
        "several classes": replace(event, layout=replace(event.layout, blocks=event.layout.blocks + 1)),
    }[differs]
    build_gate.audit_of_build(event)
    build_gate.audit_of_build(other)
    assert attacks == [event, other]


@pytest.mark.usefixtures("_audited_anew", "audits")
def test_an_attack_that_succeeded_is_repeated_for_the_next_event(event: GramEvent, monkeypatch: pytest.MonkeyPatch):
    attacks: list[Event] = []
    monkeypatch.setattr(
        "dpcore.auditing.build_audit.attack_event", lambda event, noise: attacks.append(event) or FAILED
    )
    for each in (event, replace(event, noise=event.noise * 2)):
        assert not build_gate.audit_of_build(each)["holds"]
    assert len(attacks) == 2


@pytest.mark.usefixtures("_audited_anew")
def test_the_first_release_of_another_workspace_relies_on_a_kept_audit_but_replays_its_own_columns(
    fresh: Workspace, event: GramEvent, audits: list[Event], monkeypatch: pytest.MonkeyPatch
):
    kept = build_gate.audit_of_build(event)
    build_gate._audit.cache_clear()
    monkeypatch.setattr("tasks.allocate.audit_of_build", lambda event: pytest.fail("audited again"))
    release(fresh, "2026-03")
    with closing(Ledger.open_to_read(fresh.ledger_path)) as ledger:
        build = ledger.state().releases["small-2026-03-1"].spends["moments"].parse(Spend).build
    replay = build.pop("replay")
    assert build == kept
    assert replay["pairs"] == build_gate.REPLAYED_PAIRS
    assert audits == [event]


@pytest.mark.usefixtures("_audited_anew")
def test_two_threads_that_need_an_audit_at_the_same_time_share_one(event: GramEvent, audits: list[Event]):
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(build_gate.audit_of_build, [event] * 4))
    assert audits == [event]
    assert all(each is made[0] for each in made)


def test_the_audit_refuses_a_release_whose_build_passed_no_audit(fresh: Workspace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tasks.allocate.kept_audit", lambda event: None)
    monkeypatch.setattr("tasks.allocate.audit_of_build", lambda event: finding(event, False))
    monkeypatch.setattr("tasks.allocate.require_passed", lambda build, mechanism: None)
    release(fresh, "2026-03")
    broken = {check.name: check.detail for check in audit_workspace(fresh) if not check.ok}
    assert next(iter(broken)) == "small-2026-03-1: measurements"
    assert "has not passed its audit" in broken["small-2026-03-1: measurements"]


def test_one_changed_byte_of_the_program_is_another_build(tmp_path: Path):
    source = tmp_path / "dpcore" / "deep" / "module.py"
    source.parent.mkdir(parents=True)
    source.write_text("RATE = 1\n")
    before = source_digest(tmp_path)
    assert source_digest(tmp_path) == before
    source.write_text("RATE = 2\n")
    assert source_digest(tmp_path) != before
