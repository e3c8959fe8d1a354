"""The ledger's meaning: which events may follow which, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tasks.builders import BASIS, POPULATION, Chain, spend_body

from dpcore.accounting import Cost, total
from dpcore.errors import LedgerError
from tasks.ledger.entries.costs import cost_from_json, cost_to_json
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.fields import canonical
from tasks.ledger.state import LedgerState


def pure(epsilon: str) -> Cost:
    return Cost(epsilon=Fraction(epsilon), rho_of_pure=Fraction(epsilon) ** 2 / 2)


def replayed(chain: Chain) -> LedgerState:
    return LedgerState.replay(chain.entries)


# ---------------------------------------------------------------- what cannot happen

TWO = {"moments": "0.5", "marginals": "0.1"}
RETRACTED = {"who": "steward", "reason": "erasure"}
ILLEGAL: dict[str, tuple[Callable[[Chain], Chain], str]] = {
    "reserve-without-cap": (lambda c: c.reserve(), "for a population without a cap"),
    "reserve-beyond-the-cap": (lambda c: c.cap("0.4").reserve(), "exceeds the population's cap"),
    "reserve-beyond-what-others-reserved": (
        lambda c: c.cap("0.9").reserve("a").reserve("b"),
        "exceeds the population's cap",
    ),
    "reserve-beyond-what-others-spent": (
        lambda c: c.cap("0.9").reserve("a").spend("a").publish("a").reserve("b"),
        "exceeds the population's cap",
    ),
    "reserve-one-step-beyond": (
        lambda c: c.cap("0.5").reserve(epsilons={"m": "0.500000000000000000001"}),
        "exceeds the population's cap",
    ),
    "reserve-after-the-cap-was-lowered": (
        lambda c: c.cap("1.2").cap("0.4", reason="less").reserve(),
        "exceeds the population's cap",
    ),
    "reserve-twice": (lambda c: c.cap().reserve().reserve(), "a second time"),
    "reserve-again-after-void": (lambda c: c.cap().reserve().void().reserve(), "a second time"),
    "spend-unknown-release": (lambda c: c.cap().spend(), "unknown release"),
    "spend-not-reserved": (lambda c: c.cap().reserve().spend(name="marginals"), "spends on what was not reserved"),
    "spend-twice": (lambda c: c.cap().reserve().spend().spend(), "draws a measurement a second time"),
    "spend-more": (lambda c: c.cap().reserve().spend(epsilon="0.6"), "spends another cost than was reserved"),
    "spend-less": (lambda c: c.cap().reserve().spend(epsilon="0.4"), "spends another cost than was reserved"),
    "spend-on-another-event": (
        lambda c: c.cap().reserve().add("spend", "a", spend_body(blocks=2)),
        "measures something else than was reserved",
    ),
    "spend-after-void": (lambda c: c.cap().reserve().void().spend(), "cannot follow status 'void'"),
    "spend-after-publish": (lambda c: c.cap().reserve().spend().publish().spend(), "cannot follow status 'published'"),
    "publish-unknown-release": (lambda c: c.cap().publish(), "unknown release"),
    "publish-before-measured": (lambda c: c.cap().reserve().publish(), "cannot follow status 'reserved'"),
    "publish-half-measured": (
        lambda c: c.cap().reserve(epsilons={"moments": "0.5", "marginals": "0.1"}).spend().publish(),
        "publishes before all was measured",
    ),
    "publish-twice": (lambda c: c.cap().reserve().spend().publish().publish(), "cannot follow status 'published'"),
    "publish-void": (lambda c: c.cap().reserve().void().publish(), "cannot follow status 'void'"),
    "publish-over-an-unknown-release": (
        lambda c: c.cap().reserve(supersedes="other").spend().publish(),
        "supersedes an unknown release",
    ),
    "fail-before-measured": (lambda c: c.cap().reserve().fail(), "cannot follow status 'reserved'"),
    "fail-with-unknown-status": (lambda c: c.cap().reserve().spend().fail(status="lost"), "unknown status"),
    "fail-after-publish": (lambda c: c.cap().reserve().spend().publish().fail(), "cannot follow status 'published'"),
    "void-unknown-release": (lambda c: c.cap().void(), "unknown release"),
    "void-after-spend": (lambda c: c.cap().reserve().spend().void(), "cannot follow status 'measured'"),
    "void-after-failure": (lambda c: c.cap().reserve().spend().fail().void(), "cannot follow status 'failed'"),
    "void-twice": (lambda c: c.cap().reserve().void().void(), "cannot follow status 'void'"),
    "void-published": (lambda c: c.cap().reserve().spend().publish().void(), "cannot follow status 'published'"),
    "cap-changed-without-reason": (lambda c: c.cap().cap("2"), "changes a cap without a reason"),
    "cap-lowered-without-reason": (lambda c: c.cap().cap("1"), "changes a cap without a reason"),
    "cap-changed-with-empty-reason": (lambda c: c.cap().cap("2", reason=""), "changes a cap without a reason"),
    "cap-of-another-basis": (
        lambda c: c.cap().cap("2", reason="growth", basis=BASIS | {"unit": "person (rows: weight)"}),
        "changes what the budget is counted for",
    ),
    "await-before-measured": (lambda c: c.cap().reserve().wait(), "cannot follow status 'reserved'"),
    "await-half-measured": (
        lambda c: c.cap().reserve(epsilons={"moments": "0.5", "marginals": "0.1"}).spend().wait(),
        "publishes before all was measured",
    ),
    "await-after-publish": (lambda c: c.cap().reserve().spend().publish().wait(), "cannot follow status 'published'"),
    "publish-unapproved": (lambda c: c.cap().reserve().spend().wait().publish(), "nobody has approved"),
    "publish-without-waiting": (
        lambda c: c.cap().reserve(approve="required").spend().publish(),
        "publishes what nobody has approved",
    ),
    "publish-what-was-approved-before-it-was-made-anew": (
        lambda c: c.cap().reserve().spend().wait().approve().wait(digest="c" * 64).publish(),
        "publishes what nobody has approved",
    ),
    "publish-another-bundle": (
        lambda c: c.cap().reserve().spend().wait(digest="c" * 64).approve(digest="c" * 64).publish(),
        "another bundle than the approved one",
    ),
    "approve-another-bundle": (
        lambda c: c.cap().reserve().spend().wait().approve(digest="c" * 64),
        "another bundle than the one that waits",
    ),
    "approve-what-waits-for-nobody": (lambda c: c.cap().reserve().spend().approve(), "cannot follow status 'measured'"),
    "approve-as-nobody": (lambda c: c.cap().reserve().spend().wait().approve(who=""), "does not say who approved"),
    "approve-without-reason": (lambda c: c.cap().reserve().spend().wait().approve(reason=""), "or why"),
    "refuse-as-nobody": (lambda c: c.cap().reserve().spend().wait().refuse(who=None), "does not say who refuses"),
    "refuse-without-reason": (lambda c: c.cap().refuse(reason=""), "does not say why"),
    "refuse-without-cap": (lambda c: c.refuse(), "population without a cap"),
    "refuse-what-is-published": (lambda c: c.cap().reserve().spend().publish().refuse(), "cannot follow"),
    "publish-what-was-refused": (
        lambda c: c.cap().reserve().spend().wait().refuse().publish(),
        "cannot follow status 'refused'",
    ),
    "spend-on-what-was-refused": (
        lambda c: c.cap().reserve().spend().wait().refuse().spend(),
        "cannot follow status 'refused'",
    ),
    "publish-a-month-a-second-time": (
        lambda c: c.cap().reserve("a").spend("a").publish("a").reserve("b").spend("b").publish("b"),
        "publishes a month a second time",
    ),
    "publish-over-itself": (
        lambda c: c.cap().reserve("a").spend("a").publish("a").reserve("b", supersedes="b").spend("b").publish("b"),
        "publishes a month a second time",
    ),
    "retract-unknown-release": (lambda c: c.cap().retract(), "unknown release"),
    "retract-reserved": (lambda c: c.cap().reserve().retract(), "cannot follow status 'reserved'"),
    "retract-measured": (lambda c: c.cap().reserve().spend().retract(), "cannot follow status 'measured'"),
    "retract-failed": (lambda c: c.cap().reserve().spend().fail().retract(), "cannot follow status 'failed'"),
    "retract-what-waits": (
        lambda c: c.cap().reserve().spend().wait().retract(),
        "cannot follow status 'awaiting-approval'",
    ),
    "retract-refused": (
        lambda c: c.cap().reserve().spend().wait().refuse().retract(),
        "cannot follow status 'refused'",
    ),
    "retract-void": (lambda c: c.cap().reserve().void().retract(), "cannot follow status 'void'"),
    "retract-twice": (
        lambda c: c.cap().reserve().spend().publish().retract().retract(),
        "cannot follow status 'retracted'",
    ),
    "retract-as-nobody": (lambda c: c.cap().reserve().spend().publish().retract(who=""), "does not say who retracts"),
    "retract-without-reason": (lambda c: c.cap().reserve().spend().publish().retract(reason=""), "or why"),
    "retract-of-another-population": (
        lambda c: c.cap().reserve().spend().publish().add("retract", "a", RETRACTED, population="others"),
        "another population than its release",
    ),
    "publish-what-was-retracted": (
        lambda c: c.cap().reserve().spend().publish().retract().publish(),
        "cannot follow status 'retracted'",
    ),
    "spend-on-what-was-retracted": (
        lambda c: (
            c.cap().reserve(epsilons=TWO).spend().spend(name="marginals", epsilon="0.1").publish().retract().spend()
        ),
        "cannot follow status 'retracted'",
    ),
    "publish-a-retracted-month-by-itself": (
        lambda c: c.cap().reserve("a").spend("a").publish("a").retract("a").reserve("b").spend("b").publish("b"),
        "publishes a month a second time",
    ),
    "unknown-kind": (lambda c: c.cap().add("gift"), "has an unknown kind"),
    "kind-of-a-method": (lambda c: c.cap().add("", "a"), "has an unknown kind"),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_an_illegal_sequence_is_refused_at_its_last_entry(case: str):
    build, message = ILLEGAL[case]
    entries = build(Chain()).entries
    state = LedgerState.replay(entries[:-1])
    with pytest.raises(LedgerError, match=message) as caught:
        state.apply(entries[-1])
    assert (caught.value.rule, caught.value.where) == ("ledger-broken", f"ledger entry {len(entries)}")
    assert str(caught.value).startswith(f"ledger entry {len(entries)} ")
    assert "backup" in caught.value.hint


# ---------------------------------------------------------------- what was done to a ledger afterwards


def life() -> list[Entry]:
    """A ledger with a published release, a void one and one in flight."""
    chain = Chain().cap().reserve("a", sequence=1).spend("a").publish("a")
    chain.reserve("b", sequence=2).void("b").reserve("c", sequence=3)
    return chain.entries


def rehashed(entry: Entry) -> Entry:
    return replace(entry, hash=entry.expected_hash())


def swapped(entries: list[Entry]) -> list[Entry]:
    return [*entries[:4], entries[5], entries[4], *entries[6:]]


def renumbered(entries: list[Entry]) -> list[Entry]:
    return [replace(entry, seq=index) for index, entry in enumerate(entries, start=1)]


def edited(entries: list[Entry], index: int, **changes: str) -> list[Entry]:
    return [*entries[:index], replace(entries[index], **changes), *entries[index + 1 :]]


def edited_and_rehashed(entries: list[Entry], index: int, **changes: str) -> list[Entry]:
    return [*entries[:index], rehashed(replace(entries[index], **changes)), *entries[index + 1 :]]


TAMPERED: dict[str, tuple[Callable[[list[Entry]], list[Entry]], int, str]] = {
    "first-entry-missing": (lambda e: e[1:], 2, "an entry is missing"),
    "middle-entry-missing": (lambda e: [*e[:2], *e[3:]], 4, "an entry is missing"),
    "middle-entry-missing-renumbered": (lambda e: renumbered([*e[:2], *e[3:]]), 3, "names another predecessor"),
    "entry-twice": (lambda e: [*e[:3], e[2], *e[3:]], 3, "does not follow the one before"),
    "entries-swapped": (swapped, 6, "an entry is missing"),
    "entries-swapped-and-renumbered": (lambda e: renumbered(swapped(e)), 5, "names another predecessor"),
    "wrong-predecessor": (
        lambda e: edited_and_rehashed(e, 2, previous="1" * 64),
        3,
        "names another predecessor",
    ),
    "genesis-with-predecessor": (lambda e: edited_and_rehashed(e, 0, previous="1" * 64), 1, "another predecessor"),
    "body-edited": (lambda e: edited(e, 0, body=e[0].body.replace("6/5", "9")), 1, "was changed"),
    "body-respaced": (lambda e: edited(e, 0, body=e[0].body.replace(":", ": ", 1)), 1, "was changed"),
    "time-edited": (lambda e: edited(e, 3, at="2027-01-01T00:00:00.000000Z"), 4, "was changed"),
    "population-edited": (lambda e: edited(e, 1, population="others"), 2, "was changed"),
    "release-edited": (lambda e: edited(e, 3, release_id="b"), 4, "was changed"),
    "kind-edited": (lambda e: edited(e, 5, kind="fail"), 6, "was changed"),
    "hash-edited": (lambda e: edited(e, 1, hash="2" * 64), 2, "was changed"),
    "body-edited-and-rehashed": (
        lambda e: edited_and_rehashed(e, 0, body=e[0].body.replace("6/5", "9")),
        2,
        "names another predecessor",
    ),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_tampered_ledger_is_refused_at_the_first_wrong_entry(case: str):
    tamper, seq, message = TAMPERED[case]
    with pytest.raises(LedgerError, match=message) as caught:
        LedgerState.replay(tamper(life()))
    assert caught.value.where == f"ledger entry {seq}"


def test_an_untouched_ledger_replays():
    state = LedgerState.replay(life())
    assert {name: r.status for name, r in state.releases.items()} == {"a": "published", "b": "void", "c": "reserved"}
    assert state.head == life()[-1]


@given(index=st.integers(0, 6), field=st.sampled_from(["at", "kind", "population", "release_id", "body"]), at=st.data())
def test_no_character_of_an_entry_can_change_unnoticed(index: int, field: str, at: st.DataObject):
    entries = life()
    text = getattr(entries[index], field)
    place = at.draw(st.integers(0, len(text)))
    inserted = at.draw(st.characters(codec="utf-8"))
    with pytest.raises(LedgerError, match="was changed"):
        LedgerState.replay(edited(entries, index, **{field: text[:place] + inserted + text[place:]}))


def test_text_cannot_move_from_one_field_to_its_neighbour():
    entry = Chain().cap().add("reserve", "ab").entries[1]
    assert replace(entry, population=POPULATION + "a", release_id="b").expected_hash() != entry.expected_hash()


def test_canonical_text_has_one_spelling_and_no_infinities():
    assert canonical({"b": 1, "a": [0.1, "ü"]}) == '{"a":[0.1,"\\u00fc"],"b":1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"epsilon": float("inf")})


# ---------------------------------------------------------------- what may happen

LEGAL: dict[str, tuple[Callable[[Chain], Chain], str, str, str]] = {
    # steps after the cap, status, spent, outstanding
    "reserved": (lambda c: c.reserve(), "reserved", "0", "0.5"),
    "measured": (lambda c: c.reserve().spend(), "measured", "0.5", "0"),
    "half-measured": (
        lambda c: c.reserve(epsilons=TWO).spend(),
        "measured",
        "0.5",
        "0.1",
    ),
    "published": (lambda c: c.reserve().spend().publish(), "published", "0.5", "0"),
    "failed": (lambda c: c.reserve().spend().fail(), "failed", "0.5", "0"),
    "check-failed": (lambda c: c.reserve().spend().fail(status="check-failed"), "check-failed", "0.5", "0"),
    "failed-twice": (lambda c: c.reserve().spend().fail().fail(status="check-failed"), "check-failed", "0.5", "0"),
    "failed-then-published": (lambda c: c.reserve().spend().fail().publish(), "published", "0.5", "0"),
    "failed-then-measured-on": (
        lambda c: c.reserve(epsilons=TWO).spend().fail().spend("a", "marginals", "0.1"),
        "measured",
        "0.6",
        "0",
    ),
    "failed-half-measured": (
        lambda c: c.reserve(epsilons=TWO).spend().fail(),
        "failed",
        "0.5",
        "0.1",
    ),
    "void": (lambda c: c.reserve().void(), "void", "0", "0"),
    "awaiting": (lambda c: c.reserve().spend().wait(), "awaiting-approval", "0.5", "0"),
    "approved": (lambda c: c.reserve(approve="required").spend().wait().approve().publish(), "published", "0.5", "0"),
    "made-anew-while-waiting": (
        lambda c: c.reserve().spend().wait(digest="c" * 64).wait().approve().publish(),
        "published",
        "0.5",
        "0",
    ),
    "refused-by-a-person": (lambda c: c.reserve().spend().wait().refuse(), "refused", "0.5", "0"),
    "retracted": (lambda c: c.reserve().spend().publish().retract(), "retracted", "0.5", "0"),
    "retracted-after-approval": (
        lambda c: c.reserve(approve="required").spend().wait().approve().publish().retract(),
        "retracted",
        "0.5",
        "0",
    ),
    "superseded-and-retracted": (
        lambda c: c.reserve().spend().publish().reserve("b", supersedes="a").spend("b").publish("b").retract("a"),
        "retracted",
        "1",
        "0",
    ),
    "retracted-and-measured-anew": (
        lambda c: c.reserve().spend().publish().retract("a").reserve("b", supersedes="a").spend("b").publish("b"),
        "retracted",
        "1",
        "0",
    ),
    "refused-by-the-budget-before": (lambda c: c.refuse(who=None).reserve(), "reserved", "0", "0.5"),
}


@pytest.mark.parametrize("case", LEGAL)
def test_a_legal_life_ends_in_its_status_with_its_cost(case: str):
    build, status, spent, outstanding = LEGAL[case]
    state = replayed(build(Chain().cap()))
    assert state.releases["a"].status == status
    assert state.spent(POPULATION).epsilon == Fraction(spent)
    assert state.reserved(POPULATION).epsilon == Fraction(outstanding)


@pytest.mark.parametrize("case", LEGAL)
def test_committed_is_spent_plus_outstanding_at_every_step(case: str):
    entries = LEGAL[case][0](Chain().cap()).entries
    state, spent_before = LedgerState(), Fraction(0)
    for entry in entries:
        state.apply(entry)
        assert state.committed(POPULATION) == state.spent(POPULATION) + state.reserved(POPULATION)
        assert state.spent(POPULATION) == total(r.spent for r in state.releases.values())
        assert state.spent(POPULATION).epsilon >= spent_before, "what is spent stays spent"
        spent_before = state.spent(POPULATION).epsilon


def test_a_spend_moves_cost_from_reserved_to_spent_and_changes_no_sum():
    chain = Chain().cap().reserve(epsilons={"moments": "0.5", "marginals": "0.1"})
    before = replayed(chain)
    after = replayed(chain.spend())
    assert before.committed(POPULATION) == after.committed(POPULATION) == pure("0.5") + pure("0.1")
    assert (after.spent(POPULATION), after.reserved(POPULATION)) == (pure("0.5"), pure("0.1"))


def test_void_gives_back_the_reservation_and_nothing_that_others_spent():
    chain = Chain().cap("1").reserve("a", sequence=1).spend("a").reserve("b", sequence=2).void("b")
    assert replayed(chain).committed(POPULATION) == pure("0.5")
    assert replayed(chain.reserve("c", sequence=3)).committed(POPULATION) == pure("0.5") + pure("0.5")


def test_twelve_releases_of_a_tenth_fit_exactly_and_a_thirteenth_does_not():
    chain = Chain().cap("1.2")
    for month in range(12):
        chain.reserve(f"r{month}", {"moments": "0.1"})
    assert replayed(chain).committed(POPULATION).epsilon == Fraction(6, 5)
    with pytest.raises(LedgerError, match="exceeds"):
        replayed(chain.reserve("r12", {"moments": "1/1000000000000000000000"}))


def test_a_raised_cap_makes_room_and_keeps_what_was_spent():
    chain = Chain().cap("0.5").reserve("a").spend("a").cap("1", reason="a new year").reserve("b")
    assert replayed(chain).committed(POPULATION) == pure("0.5") + pure("0.5")


def test_populations_do_not_pay_for_each_other():
    chain = Chain().cap("0.5").reserve("a")
    others = {"epsilon": "1/2", "delta": "0", "delta_num": "0", "basis": BASIS, "reason": None}
    chain.add("cap", body=others, population="others")
    state = replayed(chain)
    assert state.committed("others") == Cost()
    assert state.committed(POPULATION) == pure("0.5")


def test_a_superseding_release_replaces_the_other_only_when_it_is_published():
    chain = Chain().cap().reserve("a", sequence=1).spend("a").publish("a")
    chain.reserve("b", sequence=2, supersedes="a").spend("b")
    assert replayed(chain).releases["a"].status == "published"
    state = replayed(chain.publish("b"))
    assert {name: r.status for name, r in state.releases.items()} == {"a": "superseded", "b": "published"}
    assert state.spent(POPULATION) == pure("0.5") + pure("0.5"), "a superseded release was still paid for"


def test_what_a_refused_release_was_to_replace_is_replaced_by_the_one_after_it():
    chain = Chain().cap("2").reserve("a").spend("a").publish("a")
    chain.reserve("b", supersedes="a").spend("b").wait("b").refuse("b")
    state = replayed(chain.reserve("c", supersedes="b").spend("c").publish("c"))
    assert {r.release_id: r.status for r in state.releases.values()} == {
        "a": "superseded",
        "b": "refused",
        "c": "published",
    }


def test_releases_of_a_period_come_oldest_first_without_void_ones():
    chain = Chain().cap("9").reserve("a", sequence=1).void("a")
    chain.reserve("c", sequence=10).reserve("b", sequence=9).reserve("x", sequence=1, period="2026-02")
    state = replayed(chain)
    assert [r.release_id for r in state.of_period("visits", "2026-01")] == ["b", "c"]
    assert [r.release_id for r in state.of_period("visits", "2026-02")] == ["x"]
    assert state.of_period("other", "2026-01") == []


def test_a_sequence_number_is_never_used_again_not_even_a_void_one():
    chain = Chain().cap("9")
    assert replayed(chain).next_sequence("visits", "2026-01") == 1
    chain.reserve("a", sequence=1).void("a")
    assert replayed(chain).next_sequence("visits", "2026-01") == 2
    chain.reserve("b", sequence=2).spend("b").publish("b")
    assert replayed(chain).next_sequence("visits", "2026-01") == 3
    assert replayed(chain).next_sequence("visits", "2026-02") == 1


fractions = st.fractions(min_value=0, max_value=100, max_denominator=10**40)


@given(fractions, fractions, fractions, fractions)
def test_a_cost_survives_json_exactly(epsilon: Fraction, rho: Fraction, rho_of_pure: Fraction, delta_num: Fraction):
    cost = Cost(epsilon, rho, rho_of_pure, delta_num)
    assert cost_from_json(cost_to_json(cost)) == cost
