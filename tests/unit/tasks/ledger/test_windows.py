"""Caps that count over windows of months, and under both relations: random histories against brute force."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from support.tasks.builders import BASIS, LAYOUT, POPULATION, Chain, cap, released, request

from dpcore.accounting import Cap, CapKind, Cost, Epsilon, month_name, month_number
from dpcore.errors import BudgetExceededError, LedgerError
from dpcore.mechanisms.wishart import WISHART_DIFFERENCE
from dpcore.records.schema import Neighbours
from tasks.ledger.entries.bodies import CapChange, body_to_json
from tasks.ledger.entries.costs import cost_to_json
from tasks.ledger.entries.entry import Entry
from tasks.ledger.releases import ReserveRequest
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.spec.privacy import Windows

RULE = {"column": "seen", "timezone": "UTC"}
FIRST = month_number("2020-01")
UNITS = 40
VALUES, PRESENCE = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE


def pure(epsilon: Fraction) -> Cost:
    return Cost(epsilon=epsilon, rho_of_pure=epsilon**2 / 2)


# ---------------------------------------------------------------- random histories


@dataclass
class Drawn:
    """A release of a random history, as brute force remembers it."""

    month: int | None
    costs: dict[Neighbours, int | None]
    """In units of 1/40 of epsilon."""
    counts: bool = True


@dataclass
class BruteForce:
    """The rule in its plainest form: every window is summed up by itself."""

    limit: int
    span: int | None
    releases: dict[str, Drawn] = field(default_factory=dict)
    declared: set[Neighbours] = field(default_factory=set)
    unknown: set[Neighbours] = field(default_factory=set)
    """Under these, something was reserved whose cost no entry states; giving it back does not help."""

    def worst(self, relation: Neighbours, more: Drawn | None = None) -> int | None:
        """The largest sum over a window; None if a cost is unknown."""
        held = [drawn for drawn in [*self.releases.values(), more] if drawn is not None and drawn.counts]
        costs = [(drawn.month, drawn.costs[relation]) for drawn in held]
        if relation in self.unknown or any(cost is None for _, cost in costs):
            return None
        starts = range(FIRST - 22, FIRST + 11) if self.span else [None]
        return max(sum(c for m, c in costs if self._is_within(m, start)) for start in starts)

    def _is_within(self, month: int | None, start: int | None) -> bool:
        return month is None or start is None or start <= month < start + (self.span or 0)

    def admits(self, relation: Neighbours, more: Drawn) -> bool:
        sums = [self.worst(declared, more) for declared in self.declared | {relation}]
        return all(found is not None and found <= self.limit for found in sums)


def reservation(name: str, month: int, relation: Neighbours, drawn: Drawn) -> dict[str, Any]:
    plan = {
        "event": {"mechanism": "x", "neighbours": relation.value},
        "cost": cost_to_json(pure(Fraction(drawn.costs[relation], UNITS))),
    }
    if drawn.costs[relation.other] is not None:
        plan["other"] = cost_to_json(pure(Fraction(drawn.costs[relation.other], UNITS)))
    window = {"window": RULE} if drawn.month is not None else {}
    body = request(month_name(month)).reservation(1)
    facts = {
        "name": name, "period": month_name(month), "sequence": 1, "measurements": {"m": plan, "n": plan},
        "stated": {"epsilon": 1.0, "delta": 0.0}, "spec_digest": body.spec_digest, "seeds": body.seeds,
        "flow_run_id": "run", "supersedes": None, "reason": None, "approve": "none",
    }  # fmt: skip
    return facts | window


def spend(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    plan = facts["measurements"][name]
    return {"measurement": name, "event": plan["event"], "cost": plan["cost"], "seeded": False, "digest": "e" * 64}


def history(dice: random.Random) -> Iterator[tuple[LedgerState, BruteForce, bool, bool]]:
    """One history step by step: the ledger, the oracle, and whether each admitted what was asked."""
    span = dice.choice([None, 1, 2, 3, 12])
    limit = 4 * dice.randint(5, 40)
    chain, oracle = Chain(), BruteForce(limit, span)
    window = {} if span is None else {"window": {"span": str(span), **RULE}}
    figures = {"epsilon": str(Fraction(limit, UNITS)), "delta": "0", "delta_num": "0", "basis": BASIS, "reason": None}
    state = LedgerState.replay(chain.add("cap", body=figures | {"rule": {"kind": "pure"}} | window).entries)
    for number in range(dice.randint(3, 12)):
        name, month = f"r{number}", FIRST + dice.randint(-10, 10)
        relation = dice.choice([VALUES] * 4 + [PRESENCE])
        epsilon = 2 * dice.randint(1, 12)
        other = dice.choice([epsilon // 2, epsilon, 2 * epsilon, None if dice.random() < 0.1 else epsilon])
        tells = span is not None and dice.random() < 0.9
        one = Drawn(month if tells else None, {relation: epsilon, relation.other: other})
        counted = one.costs
        if tells:  # who has rows in other months may be in this one or not
            counted = counted | {VALUES: None if other is None else max(epsilon, other)}
        twice = Drawn(one.month, {r: None if c is None else 2 * c for r, c in counted.items()})
        facts = reservation(name, month, relation, one)
        tried = Chain()
        tried.entries = list(chain.entries)
        expected, before = oracle.admits(relation, twice), state.snapshot()
        tried.add("reserve", name, facts)
        found = fault_of(state, tried) is None
        if not found:
            state = before
        else:
            chain, oracle.releases[name] = tried, twice
            oracle.declared.add(relation)
            oracle.unknown |= {r for r, cost in counted.items() if cost is None}
            for body in follow_up(dice, name, facts, twice):
                state.apply(chain.add(body[0], name, body[1]).entries[-1])
        yield state, oracle, found, expected


def fault_of(state: LedgerState, chain: Chain) -> LedgerError | None:
    """Why the last entry is refused, which is the cap or nothing."""
    try:
        state.apply(chain.entries[-1])
    except LedgerError as error:
        return error if "exceeds the population's cap" in str(error) else pytest.fail(str(error))
    return None


Event = tuple[str, dict[str, Any]]


def follow_up(dice: random.Random, name: str, facts: dict[str, Any], drawn: Drawn) -> Iterator[Event]:
    """What becomes of a reservation: nothing, given back, half or wholly measured, published or failed."""
    end = dice.choice(["reserved", "void", "half", "measured", "published", "failed"])
    if end == "void":
        drawn.counts = False
        yield "void", {"reason": "gone"}
    if end in ("half", "measured", "published", "failed"):
        yield "spend", spend("m", facts)
    if end in ("measured", "published"):
        yield "spend", spend("n", facts)
    if end == "published":
        yield "publish", {"bundle_digest": "b" * 64, "flow_run_id": "run"}
    if end == "failed":
        yield "fail", {"status": "failed", "stage": "sample"}


@pytest.mark.parametrize("count", [400, pytest.param(5_000, marks=pytest.mark.slow)])
def test_random_histories_agree_with_brute_force_over_windows(count: int):
    outcomes = set()
    for number in range(count):
        for state, oracle, found, expected in history(random.Random(f"{count} {number}")):  # noqa: S311
            assert found == expected
            outcomes.add((found, oracle.span is None, len(oracle.declared)))
            for relation in oracle.declared:
                worst, balance = oracle.worst(relation), state.balance(POPULATION, relation)
                if worst is None:
                    assert balance.months is None
                    assert not balance.is_admitted
                else:
                    assert balance.cost.epsilon * UNITS == worst <= oracle.limit
    assert {True, False} == {found for found, _, _ in outcomes}
    assert {1, 2} <= {declared for _, _, declared in outcomes}


# ---------------------------------------------------------------- sixty months


def months(count: int) -> list[str]:
    return [month_name(FIRST + number) for number in range(count)]


def sixty(ledger: Ledger, windows: Windows) -> list[str]:
    """Release month by month at a tenth; returns the months that were released."""
    ledger.ensure_cap(POPULATION, cap("1.2"), BASIS, windows=windows, cost=pure(Fraction(1, 10)))
    done = []
    for period in months(60):
        try:
            release_id = ledger.reserve(request(period, window=windows.rule)).release_id
        except BudgetExceededError:
            return done
        ledger.spend(release_id, "moments", released())
        ledger.publish(release_id, bundle_digest="b" * 64, flow_run_id="run")
        done.append(period)
    return done


def test_sixty_monthly_releases_pass_under_a_span_of_twelve_months(ledger: Ledger):
    assert sixty(ledger, Windows(12, RULE)) == months(60)
    known = ledger.state().populations[POPULATION]
    assert known.statement().epsilon == Fraction("1.2")
    assert known.balance().releases_left(pure(Fraction(1, 10))) is None, "without end"


def test_without_a_span_they_are_refused_when_the_cap_is_reached(ledger: Ledger):
    assert sixty(ledger, Windows()) == months(12)
    assert ledger.state().balance(POPULATION).releases_left(pure(Fraction(1, 10))) == 0


def test_a_thirteenth_release_within_twelve_months_is_refused(ledger: Ledger):
    sixty(ledger, Windows(12, RULE))
    with pytest.raises(BudgetExceededError, match="within 12 consecutive months"):
        ledger.reserve(request(months(60)[-1], name="other", window=RULE))
    assert ledger.reserve(request(month_name(FIRST + 60), window=RULE)).release_id.endswith("2025-01-1")


def test_what_no_month_can_be_told_of_counts_in_every_window(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap("0.3"), BASIS, windows=Windows(1, RULE), cost=pure(Fraction(1, 10)))
    ledger.reserve(request("2026-01", "0.2"))
    ledger.reserve(request("2030-01", window=RULE))
    with pytest.raises(BudgetExceededError):
        ledger.reserve(request("2030-01", "0.11", name="other", window=RULE))


# ---------------------------------------------------------------- caps that change


def test_a_span_is_fixed_until_a_person_changes_it_with_a_reason(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap(), BASIS)
    for windows, where in ((Windows(12, RULE), "privacy.unit.span"),):
        with pytest.raises(LedgerError) as caught:
            ledger.ensure_cap(POPULATION, cap(), BASIS, windows=windows)
        assert (caught.value.rule, caught.value.where) == ("cap-differs", where)
    entry = ledger.raise_cap(POPULATION, cap(), BASIS, "a year counts", windows=Windows(12, RULE))
    assert entry.parse(CapChange).windows == Windows(12, RULE)
    ledger.ensure_cap(POPULATION, cap(), BASIS, windows=Windows(12, RULE))
    with pytest.raises(LedgerError) as caught:
        ledger.ensure_cap(POPULATION, cap(), BASIS, windows=Windows(12, {"column": "admitted", "timezone": "UTC"}))
    assert (caught.value.rule, caught.value.where) == ("cap-differs", "source.period_column")


def test_releases_before_a_rule_for_months_count_in_every_window(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap("1.2"), BASIS, cost=pure(Fraction(1)))
    ledger.reserve(request("2020-01", "1"))
    ledger.raise_cap(POPULATION, cap("1.2"), BASIS, "a year counts", windows=Windows(12, RULE))
    with pytest.raises(BudgetExceededError):
        ledger.reserve(request("2026-01", "0.3", window=RULE))
    ledger.reserve(request("2026-01", "0.2", window=RULE))


def test_another_rule_for_months_makes_all_earlier_releases_count_in_every_window(ledger: Ledger):
    other = {"column": "admitted", "timezone": "UTC"}
    ledger.ensure_cap(POPULATION, cap("1.2"), BASIS, windows=Windows(1, RULE), cost=pure(Fraction(1)))
    for period in months(3):
        ledger.reserve(request(period, "0.4", window=RULE))
    assert ledger.state().balance(POPULATION).cost.epsilon == Fraction("0.4")
    ledger.raise_cap(POPULATION, cap("1.2"), BASIS, "another column", windows=Windows(1, other))
    assert ledger.state().balance(POPULATION).cost.epsilon == Fraction("1.2")


def test_entries_of_earlier_versions_read_as_all_months():
    state = LedgerState.replay(Chain().cap("1").reserve("a").entries)
    known = state.populations[POPULATION]
    assert (known.windows, known.cap.kind, known.former_delta) == (Windows(), None, 0)


def test_a_cap_of_another_kind_or_span_adds_the_delta_of_the_one_before(ledger: Ledger):
    first = Cap(Fraction(1), Fraction(1, 10**6), Fraction(1, 10**9), CapKind.PURE)
    ledger.ensure_cap(POPULATION, first, BASIS)
    ledger.raise_cap(POPULATION, Cap(Fraction(2), first.delta, first.delta_num, CapKind.ZCDP), BASIS, "nothing yet")
    assert ledger.state().populations[POPULATION].former_delta == 0, "nothing was released under the first"
    ledger.reserve(request("2026-01"))
    ledger.raise_cap(POPULATION, Cap(Fraction(3), first.delta, first.delta_num, CapKind.PURE), BASIS, "back")
    known = ledger.state().populations[POPULATION]
    assert known.former_delta == Fraction(1, 10**6)
    assert known.statement(reserved=True).delta >= Fraction(1, 10**6)


# ---------------------------------------------------------------- kinds


def test_the_first_release_decides_the_kind_of_a_cap_that_names_none(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap(delta="1/1000000"), BASIS, cost=Cost(rho=Fraction(1, 100)))
    assert ledger.state().populations[POPULATION].cap.kind is CapKind.GAUSSIAN
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(request("2026-01"))
    assert (caught.value.rule, caught.value.where) == ("cap-kind", "model.mechanism")
    assert "Gaussian noise alone" in str(caught.value)


def test_a_cap_of_an_earlier_version_goes_on_with_the_kind_that_it_was_used_for(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap(delta="1/1000000"), BASIS)
    ledger.reserve(request("2026-01"))
    differs = ledger.state().populations[POPULATION]
    assert differs.cap.kind is None
    entry = ledger.raise_cap(POPULATION, cap("2", delta="1/1000000"), BASIS, "a second year")
    assert entry.parse(CapChange).rule == {"kind": "pure"}


def test_slots_count_releases_and_not_their_epsilon(ledger: Ledger):
    slots = Cap.of_slots(Fraction(2), Fraction(1, 10**6), Fraction(1, 10**9), each=Fraction(1, 10))
    assert slots.slots == 24
    ledger.ensure_cap(POPULATION, slots, BASIS)
    for number in range(24):
        ledger.reserve(request(month_name(FIRST + number), "0.1" if number % 2 else "0.05"))
    with pytest.raises(BudgetExceededError):
        ledger.reserve(request(month_name(FIRST + 24), "0.01"))
    assert ledger.state().balance(POPULATION).statement.epsilon <= 2


def test_a_slot_that_is_given_back_is_free_again(ledger: Ledger):
    slots = Cap(Fraction(1), Fraction(1, 10**6), Fraction(1), CapKind.SLOTS, slots=1, each=Fraction(1, 2))
    ledger.ensure_cap(POPULATION, slots, BASIS)
    first = ledger.reserve(request("2026-01")).release_id
    with pytest.raises(BudgetExceededError):
        ledger.reserve(request("2026-02"))
    ledger.void(first, reason="gone")
    second = ledger.reserve(request("2026-02")).release_id
    ledger.spend(second, "moments", released())
    assert ledger.state().balance(POPULATION).cost.releases == 1


def test_a_release_larger_than_a_slot_is_refused(ledger: Ledger):
    slots = Cap.of_slots(Fraction(2), Fraction(1, 10**6), Fraction(1, 10**9), each=Fraction(1, 20))
    ledger.ensure_cap(POPULATION, slots, BASIS)
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(request("2026-01", "0.1"))
    assert caught.value.rule == "cap-kind"


def test_a_release_larger_than_a_slot_under_the_relation_of_earlier_ones_is_refused(ledger: Ledger):
    """Noise for presence at a tenth costs a fifth for values; with the small releases before, the sum would fit."""
    slots = Cap.of_slots(Fraction(2), Fraction(1, 10**6), Fraction(1, 10**9), each=Fraction(1, 10))
    ledger.ensure_cap(POPULATION, slots, BASIS)
    for number in range(3):
        ledger.reserve(request(month_name(FIRST + number), "0.01"))
    noise = WISHART_DIFFERENCE.calibrate(LAYOUT, PRESENCE, Epsilon(Fraction(1, 10)))
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(request(month_name(FIRST + 3), events={"moments": noise}))
    assert caught.value.rule == "cap-kind"


# ---------------------------------------------------------------- relations


def test_specifications_with_different_relations_share_a_population_with_a_tally_each(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap("1"), BASIS, cost=pure(Fraction(1)))
    ledger.ensure_cap(POPULATION, cap("1"), BASIS | {"neighbours": "add-remove"})
    ledger.reserve(request("2026-01", "0.4"))
    known = ledger.state().populations[POPULATION]
    assert (known.balance(VALUES).cost.epsilon, known.balance(PRESENCE).cost.epsilon) == (
        Fraction("0.4"),
        Fraction("0.2"),
    ), "a Wishart difference costs half for being in the data"


def test_a_charge_counts_as_a_release_under_every_relation_that_was_promised_and_closes_the_others(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap("1"), BASIS, cost=pure(Fraction(1)))
    ledger.reserve(request("2026-01", "0.4"))
    charged = ledger.state().populations[POPULATION].charging(pure(Fraction(1, 10)))
    assert (charged.balance(VALUES).cost.epsilon, charged.balance(VALUES).cost.releases) == (Fraction(1, 2), 2)
    assert charged.balance(PRESENCE).months is None


def asked(period: str, epsilon: str, relation: Neighbours) -> ReserveRequest:
    measured = WISHART_DIFFERENCE.calibrate(LAYOUT, relation, Epsilon(Fraction(epsilon)))
    return request(period, epsilon, events={"moments": measured})


def test_a_slot_holds_a_release_under_every_relation_that_was_promised(ledger: Ledger):
    """A tenth for being in the data is a fifth for values."""
    slots = Cap.of_slots(Fraction(2), Fraction(1, 10**6), Fraction(1, 10**9), each=Fraction(1, 10))
    ledger.ensure_cap(POPULATION, slots, BASIS)
    ledger.reserve(asked("2026-01", "0.05", VALUES))
    ledger.reserve(asked("2026-02", "0.05", PRESENCE))
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(asked("2026-03", "0.1", PRESENCE))
    assert caught.value.rule == "cap-kind"


def test_a_relation_that_is_promised_later_looks_at_earlier_releases(ledger: Ledger):
    slots = Cap.of_slots(Fraction(2), Fraction(1, 10**6), Fraction(1, 10**9), each=Fraction(1, 10))
    ledger.ensure_cap(POPULATION, slots, BASIS | {"neighbours": "add-remove"})
    ledger.reserve(asked("2026-01", "0.1", PRESENCE))
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(asked("2026-02", "0.01", VALUES))
    assert caught.value.rule == "cap-kind"


def test_slots_do_not_follow_a_release_that_is_larger(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap("2", delta="1/1000000"), BASIS, cost=pure(Fraction(1)))
    first = ledger.reserve(request("2026-01", "1.4")).release_id
    for month in range(2, 8):
        ledger.reserve(request(f"2026-0{month}", "0.001"))
    ledger.void(first, reason="gone")
    slots = Cap.of_slots(Fraction(2), Fraction(1, 10**6), Fraction(1, 10**9), each=Fraction(1, 10))
    with pytest.raises(LedgerError) as caught:
        ledger.raise_cap(POPULATION, slots, BASIS, "slots from now on")
    assert (caught.value.rule, caught.value.where) == ("cap-kind", "privacy.lifetime.kind")
    entries, windows = ledger.entries(), Windows()
    forged = Entry.after(
        entries[-1],
        at=entries[-1].at,
        kind="cap",
        population=POPULATION,
        release_id="",
        body=body_to_json(CapChange.of(slots, BASIS, "slots from now on", "ada", windows)),
    )
    state = LedgerState.replay(entries)
    state.keys, state.closed = {}, False  # what is signed is another test's matter
    with pytest.raises(LedgerError, match="smaller than an earlier release"):
        state.apply(forged)


def test_releases_left_are_those_of_the_relation_with_the_least_room(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap("1"), BASIS, cost=pure(Fraction(1)))
    ledger.reserve(asked("2026-01", "0.2", VALUES))
    ledger.reserve(asked("2026-02", "0.1", PRESENCE))
    known = ledger.state().populations[POPULATION]
    costs = {PRESENCE: pure(Fraction(1, 10)), VALUES: pure(Fraction(1, 5))}
    assert known.balance(PRESENCE).releases_left(costs[PRESENCE]) == 8
    assert known.releases_left(costs, first=0) == known.balance(VALUES).releases_left(costs[VALUES]) == 3


def test_releases_left_see_a_month_that_was_released_early(ledger: Ledger):
    ledger.ensure_cap(POPULATION, cap("0.3"), BASIS, windows=Windows(2, RULE), cost=pure(Fraction(1)))
    ledger.reserve(request(month_name(FIRST + 2), "0.3", window=RULE))
    each, held = pure(Fraction(1, 10)), ledger.state().balance(POPULATION)
    assert held.releases_left(each, first=FIRST) == 1, "the second would share a window with the early one"
    assert held.releases_left(each, first=FIRST + 4) is None


def test_an_entry_without_the_other_figure_promises_nothing_under_it():
    chain = Chain().cap("1").reserve("a").entries
    state = LedgerState.replay(chain)
    assert state.balance(POPULATION, PRESENCE).months is None
    assert state.balance(POPULATION, PRESENCE).statement.epsilon == float("inf")
    assert state.balance(POPULATION, VALUES).cost.epsilon == Fraction(1, 2)
