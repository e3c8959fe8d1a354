"""Replays with the same noise: honest pipelines pass on hostile neighbours, and each kind of fault is detected."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcore.auditing import hostile_rows as hostile
from dpcore.auditing import replay, replay_measurements
from dpcore.auditing.hostile_rows import hostile_pair, hostile_rows
from dpcore.auditing.replay import RecordingNoise, ReplayResult, example_plans, largest_change, replay_pairs
from dpcore.auditing.replay_measurements import ReplayedGram, rounded_share
from dpcore.measure import measure_gram, measure_vector
from dpcore.measurements.group_encoding import GroupedEncoding
from dpcore.measurements.groups import GROUPING, GROUPINGS
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.catalogue import ENTRIES
from dpcore.mechanisms.gaussian import GaussianMechanism
from dpcore.noise.sources import Noise, SeededNoise, public_generator
from dpcore.planning.allocation import FRAME_SHARES
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanRequest
from dpcore.records import exact_sums
from dpcore.records.encoding import Encoding
from dpcore.records.schema import MISSING, UNKNOWN, IntervalColumn, Kind, Neighbours, PrivacyUnit, RecordSchema, RowRule

PLANS = [pytest.param(plan, id=f"{plan.event.mechanism}, {plan.event.neighbours}") for plan in example_plans()]
NUMBERS = RecordSchema(
    tuple(IntervalColumn(name=name, kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for name in ("a", "b", "c", "d"))
)


def plan_of(neighbours: Neighbours = Neighbours.REPLACE_ONE, **request: Any) -> Plan:
    chosen: dict[str, Any] = {"projection": "none", "mechanism": "gaussian", "unit": PrivacyUnit()} | request
    return make_plan(
        PlanRequest(
            schema=NUMBERS,
            neighbours=neighbours,
            epsilon=Fraction(1),
            delta=Fraction(1, 10**6),
            expected_rows=1000,
            **chosen,
        )
    )


@pytest.mark.parametrize("plan", PLANS)
def test_nothing_but_the_noise_stands_between_hostile_neighbours(plan: Plan) -> None:
    replays = replay_pairs(plan, pairs=8, seed="1")
    assert len(replays) == 8 * len(plan.events)
    assert all(found.ok for found in replays)
    assert all(found.as_json()["ok"] for found in replays)


@pytest.mark.parametrize(("neighbours", "share"), [("replace-one", 0.85), ("add-remove", 0.99)])
def test_hostile_neighbours_come_close_to_every_sensitivity(neighbours: str, share: float) -> None:
    """Corners of the cube are records of full length, and some pairs of them are nearly orthogonal."""
    replays = replay_pairs(plan_of(Neighbours(neighbours)), pairs=60, seed="2")
    assert all(found.ok for found in replays)
    assert max(found.nuclear for found in replays) > share
    assert max(found.frobenius for found in replays) > share
    assert max(found.weighted_l1 for found in replays) > 0.6


@pytest.mark.parametrize("radius", [Fraction(1), Fraction(1, 3), "auto"])
@pytest.mark.parametrize("projection", ["ron", "private-pca", "none"])
def test_every_projection_is_replayed(projection: str, radius: Fraction | str) -> None:
    frame = {name: Fraction(1, 10) for name in FRAME_SHARES} if radius == "auto" else {}
    rest = (1 - sum(frame.values())) / 2
    apart = {"allocation": {**frame, "projection": rest, "moments": rest}}
    request = apart if projection == "private-pca" else {}
    plan = plan_of(projection=projection, dimension=2, radius=radius, **request)
    replays = replay_pairs(plan, pairs=10, seed="3")
    assert {found.measurement for found in replays} == set(plan.events)
    assert all(found.ok for found in replays)


@pytest.mark.parametrize("radius", [Fraction(1), "auto"])
@pytest.mark.parametrize("rule", [{"dimension": "dfm"}, {"projection": "private-pca", "dimension": Fraction(9, 10)}])
def test_dimensions_by_a_rule_are_replayed(rule: dict[str, Any], radius: Fraction | str) -> None:
    """What is measured is fixed before: with a share, all coordinates are, and the release decides what is kept."""
    plan = plan_of(radius=radius, **rule)
    replays = replay_pairs(plan, pairs=10, seed="3")
    assert {found.measurement for found in replays} == set(plan.events)
    assert all(found.ok for found in replays)


def test_a_person_of_several_rows_stays_within_the_bounds() -> None:
    plan = plan_of(unit=PrivacyUnit(person="who", row_rule=RowRule.AT_MOST, most_rows=4))
    replays = replay_pairs(plan, pairs=40, seed="4")
    assert all(found.ok for found in replays)
    assert max(found.nuclear for found in replays) > 0.5


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_sums_that_are_measured_apart_are_held_to_their_own_bound(
    neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {"mean": Fraction(3, 10), "moments": Fraction(7, 10)}
    plan = plan_of(neighbours, mechanism="laplace", allocation=shares)
    found = [found for found in replay_pairs(plan, pairs=60, seed="1") if found.measurement == "mean"]
    assert all(each.ok for each in found)
    assert max(each.weighted_l1 for each in found) > 0.8
    declared = replay_measurements.record_sums_l1
    monkeypatch.setattr(
        replay_measurements, "record_sums_l1", lambda *given, **named: declared(*given, **named) * Fraction(3, 4)
    )
    assert not all(each.ok for each in replay_pairs(plan, pairs=60, seed="1"))


def test_the_change_is_the_exact_difference_of_the_sums() -> None:
    plan, rng = plan_of(), public_generator("5", "test")
    encoding = Encoding(NUMBERS)
    tables = hostile_pair(NUMBERS, plan.event, rng)
    subject = ReplayedGram(plan.event, encoding, replay.no_projection(encoding))
    forward = replay.replay_tables(tables, subject, seed=1)
    backward = replay.replay_tables(tables[::-1], subject, seed=1)
    assert forward.change == [[-cell for cell in block] for block in backward.change]
    assert replay.replay_tables((tables[0], tables[0]), subject, seed=1).change == [[0] * 15]


def test_a_record_that_is_too_long_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sums, "_clip_to_ball", lambda body, share: None)
    monkeypatch.setattr(Encoding, "encode", lambda self, cells: np.column_stack([np.ones(len(cells["a"]))] * 4))
    replays = replay_pairs(plan_of(Neighbours.ADD_REMOVE), pairs=4, seed="6")
    assert all(found.nuclear > 1 and found.frobenius > 1 and not found.ok for found in replays)


def test_a_person_whose_rows_all_count_in_full_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "hostile_unit", lambda schema, most, rng: (hostile_rows(schema, 3, rng), None))
    replays = replay_pairs(plan_of(Neighbours.ADD_REMOVE), pairs=4, seed="7")
    assert all(found.nuclear > 1 and not found.ok for found in replays)


def test_draws_that_depend_on_the_rows_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = GaussianMechanism.draw

    def leaking(self: GaussianMechanism, sums: Any, event: GramEvent, noise: Noise) -> Any:
        if sums[0][0] > 6 << 30:  # more rows than five
            noise.bits(1)
        return honest(self, sums, event, noise)

    monkeypatch.setattr(GaussianMechanism, "draw", leaking)
    replays = replay_pairs(plan_of(Neighbours.ADD_REMOVE), pairs=2, seed="8")
    assert not any(found.same_draws or found.ok for found in replays)


def test_a_released_value_that_adds_more_than_noise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = GaussianMechanism.draw
    doubled = lambda self, sums, event, noise: honest(self, [[2 * s for s in b] for b in sums], event, noise)  # noqa: E731
    monkeypatch.setattr(GaussianMechanism, "draw", doubled)
    replays = replay_pairs(plan_of(Neighbours.ADD_REMOVE), pairs=2, seed="9")
    assert all(found.same_draws and not found.same_difference and not found.ok for found in replays)


def test_hostile_rows_hold_every_kind_of_cell() -> None:
    schema, rng = example_plans()[0].schema, public_generator("10", "test")
    parts = [hostile_rows(schema, 50, rng) for _ in range(10)]
    numbers = np.concatenate([part["number"] for part in parts])
    assert np.isnan(numbers).any()
    assert {-np.inf, np.inf, 1e308, -3.0, 9.0} <= set(numbers[~np.isnan(numbers)])
    assert {0, 1, 2, MISSING, UNKNOWN} <= set(np.concatenate([part["class"] for part in parts]))


def test_the_recorder_changes_nothing_and_forgets_nothing() -> None:
    recorder, plain = RecordingNoise(SeededNoise(1)), SeededNoise(1)
    assert recorder.seeded
    assert recorder.bits(7) == plain.bits(7)
    assert recorder.discrete_laplace(3.0, 2) == plain.discrete_laplace(3.0, 2)
    assert recorder.generator().random() == plain.generator().random()
    assert [kind for kind, _, _ in recorder.asked] == ["bits", "discrete_laplace", "generator"]


def test_a_share_just_above_one_is_not_rounded_down() -> None:
    found = replay_pairs(plan_of(), pairs=1, seed="11")[0]
    barely = Fraction(10**30 + 1, 10**30)
    assert rounded_share(barely) > 1
    assert rounded_share(1 / barely) <= 1
    assert not replace(found, frobenius=rounded_share(barely)).ok


def test_the_replay_draws_through_the_real_door() -> None:
    assert replay_measurements.measure_gram is measure_gram
    assert replay_measurements.measure_vector is measure_vector


# ---- histograms, and the moments of their groups -------------------------------------------------------


def mixed_plan(neighbours: Neighbours = Neighbours.REPLACE_ONE, **request: Any) -> Plan:
    """Return a plan with histograms and groups of the example's columns, which are of every kind."""
    chosen: dict[str, Any] = {"mechanism": "laplace", "unit": PrivacyUnit(), "expected_rows": 10_000} | request
    return make_plan(
        PlanRequest(
            schema=example_plans()[0].schema,
            neighbours=neighbours,
            epsilon=Fraction(1),
            delta=Fraction(1, 10**6),
            projection="none",
            generator="copula",
            **chosen,
        )
    )


def of(name: str, replays: list[ReplayResult]) -> list[ReplayResult]:
    return [found for found in replays if found.measurement == name]


def test_every_mechanism_of_histograms_is_replayed_under_both_relations() -> None:
    asked = {(p.marginals_event.mechanism, p.event.neighbours) for p in example_plans() if p.marginals_event}
    assert asked == {(e.name, n) for e in ENTRIES if e.kind == "marginals" for n in e.neighbours}


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_hostile_neighbours_come_close_to_the_bounds_on_histograms_and_groups(
    neighbours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a room of 0.8 records fill the ball; in that of releases, two that are orthogonal hardly ever do."""
    monkeypatch.setitem(GROUPINGS, GROUPING, replace(GROUPINGS[GROUPING], room=0.8))
    replays = replay_pairs(mixed_plan(Neighbours(neighbours)), pairs=30, seed="12")
    assert all(found.ok for found in replays)
    marginals, moments = of("marginals", replays), of("moments", replays)
    assert len(marginals) == len(moments) == 30
    assert max(found.weighted_l1 for found in marginals) == 1
    assert max(found.frobenius for found in marginals) == 1
    assert max(found.nuclear for found in moments) > 0.95
    assert largest_change(mixed_plan(Neighbours(neighbours)), pairs=8, seed="13") > 0.9


def test_a_person_of_several_rows_fills_a_cell_as_far_as_the_bound_says() -> None:
    plan = mixed_plan(Neighbours.ADD_REMOVE, unit=PrivacyUnit(person="who", row_rule=RowRule.AT_MOST, most_rows=3))
    replays = replay_pairs(plan, pairs=40, seed="14")
    assert all(found.ok for found in replays)
    assert max(found.weighted_l1 for found in of("marginals", replays)) == 1
    assert max(found.nuclear for found in of("moments", replays)) > 0.6


def test_invented_groups_are_several_and_change_with_the_seed() -> None:
    """With one group per column there would be no coordinates, and every bound would hold."""
    plan = mixed_plan()
    made = [[column.counts.tolist() for column in replay._invented_groups(plan, seed).groups] for seed in "ab"]
    assert made[0] != made[1]
    assert all(len(counts) > 1 for groups in made for counts in groups)


@pytest.mark.parametrize("bound", ["l1_sensitivity", "squared_l2_sensitivity"])
def test_a_bound_on_histograms_that_is_too_small_is_seen(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = mixed_plan(Neighbours.ADD_REMOVE)
    declared = getattr(replay_measurements.HistogramsQuery, bound)
    monkeypatch.setattr(
        replay_measurements.HistogramsQuery,
        bound,
        lambda self, neighbours: declared(self, neighbours) * Fraction(9, 10),
    )
    assert not all(found.ok for found in of("marginals", replay_pairs(plan, pairs=10, seed="15")))
    assert largest_change(plan, pairs=10, seed="15") > 1


def test_a_record_that_falls_into_two_cells_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_measurements, "count_cells", lambda *given: [2 * count for count in honest(*given)])
    assert not any(found.ok for found in of("marginals", replay_pairs(mixed_plan(), pairs=4, seed="16")))


honest = replay_measurements.count_cells


def test_groups_that_depend_on_other_rows_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """If points are 0 for tables of few rows, one more row changes all of them."""
    alone = GroupedEncoding.encode
    monkeypatch.setattr(
        GroupedEncoding, "encode", lambda self, cells: alone(self, cells) * (len(next(iter(cells.values()))) > 5)
    )
    plan = mixed_plan(Neighbours.ADD_REMOVE)
    subject = dict(replay._replayed_measurements(plan, "17"))["moments"]
    (common, unit), _ = hostile_pair(plan.schema, plan.event, public_generator("17", "test"))
    together = {name: np.concatenate([common[0][name], unit[0][name]]) for name in common[0]}
    found = replay.replay_tables(([(together, None)], [common]), subject, seed=1)
    assert found.nuclear > 1
    assert not found.ok
