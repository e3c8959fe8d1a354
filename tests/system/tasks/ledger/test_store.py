"""The ledger under several processes: nothing is spent twice, lost, or taken together by two."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from support.processes import FORKS
from support.tasks.builders import (
    BASIS,
    POPULATION,
    Place,
    cap,
    die_inside_the_spend,
    opened,
    race_to_reserve,
    race_to_spend,
    released,
    request,
)

from tasks.ledger.entries.bodies import Spend
from tasks.ledger.store import Ledger

RACERS, ROOM = 16, 5


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    ledger.ensure_cap(POPULATION, cap(), BASIS)
    return ledger


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries() if entry.kind != "key"]


def test_a_process_that_dies_before_the_commit_leaves_neither(ledger: Ledger, place: Place):
    release_id = ledger.reserve(request()).release_id
    process = FORKS.Process(target=die_inside_the_spend, args=(place, release_id))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    reading = place.read()
    assert kinds(reading) == ["cap", "reserve"]
    assert reading.measurement(release_id, "moments") is None
    reading.close()
    drawn = released()
    assert ledger.spend(release_id, "moments", drawn) == drawn


def race(target: Callable[..., None], place: Place, periods: list[str]) -> list[Any]:
    """One process for each period, all let go at the same moment; returns their answers."""
    barrier, answers = FORKS.Barrier(len(periods)), FORKS.Queue()
    racers = [FORKS.Process(target=target, args=(place, period, barrier, answers)) for period in periods]
    for racer in racers:
        racer.start()
    found = [answers.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    answers.close()
    answers.join_thread()
    return found


def test_of_sixteen_racing_runs_exactly_as_many_succeed_as_the_budget_allows(place: Place):
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap("0.5"), BASIS)
        answers = race(race_to_reserve, place, [f"20{number:02d}-01" for number in range(RACERS)])
        assert answers.count("refused") == RACERS - ROOM
        assert set(ledger.state().releases) == set(answers) - {"refused"}
        assert ledger.state().committed(POPULATION).epsilon == Fraction(1, 2)


def test_sixteen_runs_for_one_period_share_one_reservation_and_one_measurement(place: Place):
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        answers = race(race_to_spend, place, ["2026-01"] * RACERS)
        assert {release_id for release_id, _, _ in answers} == {"visits-2026-01-1"}
        drawn, used = {d for _, d, _ in answers}, {u for _, _, u in answers}
        assert len(drawn) == RACERS, "every run drew for itself"
        assert len(used) == 1, "and all of them go on with one draw"
        assert used <= drawn
        assert kinds(ledger) == ["cap", "reserve", "spend"]
        assert ledger.entries()[-1].parse(Spend).digest in used
