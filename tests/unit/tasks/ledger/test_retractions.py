"""Retractions in the ledger: once for each published release, at no refund, and the month is not released by itself."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tasks.builders import BASIS, POPULATION, Chain, Place, cap, opened, released, request

from dpcore.accounting import total
from dpcore.errors import LedgerError
from tasks.keys.signing import SigningKey, signing_key
from tasks.ledger.entries.bodies import Retraction
from tasks.ledger.entries.fields import time_text
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger

ID = "visits-2026-01-1"


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """With a cap, and a published release."""
    ledger.ensure_cap(POPULATION, cap(), BASIS)
    publish(ledger)
    return ledger


def publish(ledger: Ledger, **changes: Any) -> str:
    release_id = ledger.reserve(request(**changes)).release_id
    ledger.spend(release_id, "moments", released())
    ledger.publish(release_id, bundle_digest="b" * 64, flow_run_id="run")
    return release_id


def rule_of(caught: pytest.ExceptionInfo[LedgerError]) -> tuple[str, str]:
    assert caught.value.hint
    return caught.value.rule, caught.value.where


# ---------------------------------------------------------------- what the ledger keeps


def test_a_retraction_says_who_and_why_and_gives_nothing_back(ledger: Ledger):
    before = ledger.state()
    entry = ledger.retract(ID, who="ada", reason="a person asked for erasure")
    after = ledger.state()
    assert entry.parse(Retraction) == Retraction(who="ada", reason="a person asked for erasure")
    assert (entry.kind, entry.population, entry.release_id) == ("retract", POPULATION, ID)
    assert (after.releases[ID].status, after.releases[ID].retraction) == ("retracted", entry)
    assert after.releases[ID].published == before.releases[ID].published
    assert after.populations[POPULATION].spent == before.populations[POPULATION].spent
    assert after.spent(POPULATION).epsilon == Fraction(1, 10)


def test_a_release_is_retracted_once(ledger: Ledger):
    ledger.retract(ID, who="ada", reason="erasure")
    before = ledger.entries()
    with pytest.raises(LedgerError, match="cannot follow status 'retracted'"):
        ledger.retract(ID, who="ada", reason="again")
    assert ledger.entries() == before


def test_a_retracted_month_is_released_again_only_by_superseding_and_is_charged(ledger: Ledger):
    ledger.retract(ID, who="ada", reason="erasure")
    before = ledger.entries()
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(request())
    assert rule_of(caught) == ("release-retracted", ID)
    assert f"--supersedes {ID}" in caught.value.hint
    assert ledger.entries() == before
    second = publish(ledger, supersedes=ID, reason="without that person")
    state = ledger.state()
    assert {r.release_id: r.status for r in state.releases.values()} == {ID: "retracted", second: "published"}
    assert state.spent(POPULATION).epsilon == Fraction(1, 5)


def test_other_months_of_the_same_name_are_released_as_before(ledger: Ledger):
    ledger.retract(ID, who="ada", reason="erasure")
    assert ledger.reserve(request("2026-02")).status == "reserved"


def test_a_restored_backup_is_reconciled_before_anything_is_retracted_on_it(ledger: Ledger):
    ledger.mark_restored(who="ada", made_at="2026-01-01T00:00:00.000000Z")
    with pytest.raises(LedgerError) as caught:
        ledger.retract(ID, who="ada", reason="erasure")
    assert caught.value.rule == "ledger-unreconciled"


def test_a_key_needs_the_role_approve_to_retract(place: Place):
    holder, approver = SigningKey.fresh(), SigningKey.fresh()
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        publish(ledger)
        ledger.enrol_key(holder.public, roles=["release", "cap"], name="office")
        ledger.enrol_key(approver.public, roles=["approve"], name="board")
        owner = signing_key(place.keys).public
    with closing(Ledger.open(place.address, holder, anchors=[owner])) as ledger:
        before = ledger.entries()
        with pytest.raises(LedgerError) as caught:
            ledger.retract(ID, who="ada", reason="erasure")
        assert rule_of(caught) == ("key-role-missing", "keys/signing.key")
        assert "board" in caught.value.hint
        assert ledger.entries() == before
    with closing(Ledger.open(place.address, approver, anchors=[owner])) as ledger:
        assert ledger.retract(ID, who="ada", reason="erasure").key_id == approver.public.key_id


def test_a_person_may_retract_after_years_of_silence(place: Place):
    """The last release may be long past when somebody asks for erasure: a person vouches for the clock."""
    times = [datetime(2026, 3, 1, 12, tzinfo=UTC)]
    with closing(place.open(clock=lambda: times[0])) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        publish(ledger)
        times[0] += timedelta(days=2000)
        with pytest.raises(LedgerError) as caught:
            ledger.reserve(request("2026-02"))
        assert caught.value.rule == "clock-ahead"
        assert ledger.retract(ID, who="ada", reason="erasure").at == time_text(times[0])


# ---------------------------------------------------------------- chains of superseding and retracted releases


@given(st.lists(st.one_of(st.none(), st.integers(0, 7)), max_size=16))
def test_statuses_follow_from_what_was_retracted_and_which_release_came_last(steps: list[int | None]):
    """None publishes one more release over the latest; a number retracts one of those so far, unless that was done."""
    chain, made, taken_back = Chain().cap("9"), list[str](), set[str]()
    for step in steps:
        if step is None:
            name, before = f"r{len(made)}", made[-1] if made else None
            chain.reserve(name, {"moments": "0.1"}, sequence=len(made) + 1, supersedes=before)
            chain.spend(name, epsilon="0.1").publish(name)
            made.append(name)
        elif step < len(made) and made[step] not in taken_back:
            chain.retract(made[step])
            taken_back.add(made[step])
    state = LedgerState.replay(chain.entries)

    def due(name: str) -> str:
        return "retracted" if name in taken_back else "published" if name == made[-1] else "superseded"

    assert {name: release.status for name, release in state.releases.items()} == {name: due(name) for name in made}
    assert state.spent(POPULATION) == total(release.spent for release in state.releases.values())
    assert state.spent(POPULATION).epsilon == Fraction(len(made), 10)
    assert state.next_sequence("visits", "2026-01") == len(made) + 1
    assert [release.release_id for release in state.of_period("visits", "2026-01")] == made
    assert {name for name, release in state.releases.items() if release.retraction} == taken_back
