"""The release gate: a build whose noise is not what it claims draws nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from staged import SPEC, land_rows, release

from dpcore.attacks import Finding
from dpcore.errors import RefusedError
from dpcore.mechanisms.base import GramEvent
from dpcore.noise import WishartDifference
from tasks.stores import gate
from tasks.stores.audit import audit_workspace
from tasks.stores.build import code_digest, digest_of
from tasks.stores.ledger import Ledger
from tasks.stores.workspace import Workspace


@pytest.fixture
def fresh(tmp_path: Path) -> Workspace:
    place = Workspace(tmp_path)
    place.create()
    place.spec_path.write_text(SPEC)
    land_rows(tmp_path, "2026-03")
    return place


@pytest.fixture
def _audited_anew() -> Iterator[None]:
    gate.audit_of_build.cache_clear()
    yield
    gate.audit_of_build.cache_clear()


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
    whole = WishartDifference._difference
    monkeypatch.setattr(WishartDifference, "_difference", lambda self: [z * factor for z in whole(self)])
    with pytest.raises(RefusedError) as refusal:
        release(fresh, "2026-03")
    assert refusal.value.rule == "build-audit-failed"
    with closing(Ledger.open_to_read(fresh.ledger_path)) as ledger:
        assert ledger.entries() == []


def test_a_build_whose_records_move_the_sums_too_far_is_refused(fresh: Workspace, monkeypatch: pytest.MonkeyPatch):
    """Records that leave the unit ball, as a wrong encoding would make them."""
    monkeypatch.setattr("dpcore.exactgram._draw_into_ball", lambda body, share: np.multiply(body, 2, out=body))
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
    monkeypatch.setattr(gate, "code_digest", lambda: "another build")
    monkeypatch.setattr("tasks.allocate.audit_of_build", lambda event: audited.append(event) or finding(event, True))
    release(workspace, "2026-03")
    assert len(audited) == 1


def test_the_audit_refuses_a_release_whose_build_passed_no_audit(fresh: Workspace, monkeypatch: pytest.MonkeyPatch):
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
    before = digest_of(tmp_path)
    assert digest_of(tmp_path) == before
    source.write_text("RATE = 2\n")
    assert digest_of(tmp_path) != before
