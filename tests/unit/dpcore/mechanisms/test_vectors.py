"""Only `dpcore.measure` releases vectors; the bound on Jiang's statistics holds and is attained."""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import json
import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from support import ROOT
from support.dpcore.samplers import NEVER, generator, has_scale
from support.dpcore.strategies import LABEL, as_cells, hostile_cell

from dpcore.accounting import Budget, Cost, Epsilon, Rho
from dpcore.measure import ReleasedVector, measure_vector
from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.catalogue import BY_NAME, ENTRIES
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.queries import HistogramsQuery, MomentsQuery, Query, RowsQuery, ScoreQuery
from dpcore.mechanisms.registry import cost_of, vector_mechanism
from dpcore.mechanisms.sensitivity import jiang_moments_l1, rows_l1
from dpcore.mechanisms.vectors import (
    HISTOGRAM_GAUSSIAN,
    HISTOGRAM_LAPLACE,
    JIANG_LAPLACE,
    NOISY_ROWS,
    PrivateVector,
    UnitCoordinates,
    VectorEvent,
    exact_moments,
)
from dpcore.noise.sources import SeededNoise, SystemNoise
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, NominalColumn, RecordSchema

R1, AR = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
SHAPES = [(p, q, classes) for p in range(4) for q in range(4) for classes in (1, 2, 3) if p + q]
SCHEMA = RecordSchema(
    (
        IntervalColumn(name="weight", kind=Kind.NUMERIC, lower=-3.7, upper=11.3),
        IntervalColumn(name="born", kind=Kind.DATE, lower=-10_000, upper=20_000, impute=0.0),
        NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m", "x"), other=2),
        NominalColumn(name="ward", kind=Kind.CATEGORICAL, levels=("a", "b", "c", "d")),
        LABEL,
    )
)
COORDINATES = UnitCoordinates(Encoding(SCHEMA))
MOMENTS, ROWS = MomentsQuery(2, (3,), 2), RowsQuery(4, 3)
HISTOGRAMS = HistogramsQuery((3, 5), (Fraction(1), Fraction(1, 4)), 2)
SECRET = 918273645


def statistics(u: np.ndarray, levels: np.ndarray, label: int, classes: int) -> np.ndarray:
    """A second implementation of Jiang's statistics of one record, for columns with two levels each."""
    x = np.concatenate([u, *(np.eye(2)[level] for level in levels)])
    counts, sums = np.zeros(classes), np.zeros((classes, len(x)))
    counts[label], sums[label] = 1, x
    return np.concatenate([counts, sums.ravel(), np.outer(x, x)[np.triu_indices(len(x))]])


def bound(p: int, q: int, classes: int, neighbours: Neighbours = R1) -> float:
    return float(jiang_moments_l1(neighbours, numeric=p, categorical=q, classes=classes))


# ---- the bound on Jiang's statistics (GUARANTEE.md, M9) -------------------------------------------


@pytest.mark.parametrize(("p", "q", "classes"), SHAPES)
def test_no_random_pair_of_records_moves_the_statistics_beyond_the_bound(p: int, q: int, classes: int) -> None:
    rng = generator(p + 10 * q + 100 * classes)
    limits = {relation: bound(p, q, classes, relation) for relation in Neighbours}
    for step in (4, 10**6):
        for _ in range(150):
            parts = [
                statistics(
                    rng.integers(0, step + 1, p) / step, rng.integers(0, 2, q), int(rng.integers(classes)), classes
                )
                for _ in range(2)
            ]
            assert np.abs(parts[0] - parts[1]).sum() <= limits[R1] + 1e-9
            assert np.abs(parts[0]).sum() <= limits[AR] + 1e-9


@pytest.mark.parametrize(("p", "q"), [(1, 1), (2, 2), (3, 1), (2, 0), (0, 3)])
def test_no_corner_exceeds_the_bound(p: int, q: int) -> None:
    grid = [np.array(u, dtype=float) for u in itertools.product((0.0, 0.5, 1.0), repeat=p)]
    codes = [np.array(levels, dtype=int) for levels in itertools.product((0, 1), repeat=q)]
    for classes in (1, 2):
        records = [statistics(u, v, k, classes) for u in grid for v in codes for k in range(classes)]
        table = np.array(records)
        farthest = max(float(np.abs(table - record).sum(axis=1).max()) for record in records)
        assert farthest <= bound(p, q, classes) + 1e-9
        assert np.abs(table).sum(axis=1).max() == pytest.approx(bound(p, q, classes, AR))


@pytest.mark.parametrize(("p", "q", "classes"), SHAPES)
def test_the_bound_is_attained_by_all_ones_against_all_t(p: int, q: int, classes: int) -> None:
    """t = (q - 1) / (p + 1) in one class, (q + 1) / (p + 1) between two, clipped to [0, 1]."""
    slope = q - 1 if classes == 1 else q + 1
    t = min(1.0, max(0.0, slope / (p + 1)))
    one = statistics(np.ones(p), np.zeros(q, dtype=int), 0, classes)
    two = statistics(np.full(p, t), np.ones(q, dtype=int), min(1, classes - 1), classes)
    assert np.abs(one - two).sum() == pytest.approx(bound(p, q, classes), rel=1e-12)
    assert np.abs(one).sum() == pytest.approx(bound(p, q, classes, AR), rel=1e-12)


@pytest.mark.parametrize(("p", "q", "classes"), [(2, 2, 1), (3, 3, 1), (1, 2, 1), (3, 1, 2), (3, 0, 2)])
def test_no_optimiser_finds_a_farther_pair(p: int, q: int, classes: int) -> None:
    def nearness(w: np.ndarray) -> float:
        other = statistics(w[p:], np.ones(q, dtype=int), classes - 1, classes)
        return -float(np.abs(statistics(w[:p], np.zeros(q, dtype=int), 0, classes) - other).sum())

    rng = generator(3)
    found = [optimize.minimize(nearness, rng.random(2 * p), bounds=[(0, 1)] * (2 * p)).fun for _ in range(15)]
    assert -min(found) <= bound(p, q, classes) + 1e-9
    assert -min(found) == pytest.approx(bound(p, q, classes), rel=1e-4)


def test_the_papers_bounds_are_met_where_they_hold_and_exceeded_where_they_do_not() -> None:
    for p in range(1, 6):
        assert bound(p, 0, 1) == p + p * (p + 1) / 2
        assert bound(p, 0, 2) - 2 < 2 * p + p * (p + 1) / 2, "the paper's sums between classes are loose"
    published = (1 + 4) + (3 * 4 + 2 * 3) / 2
    assert bound(1, 2, 1) == 14.25 > published == 14


@given(data=st.data())
def test_the_real_statistics_of_hostile_records_stay_within_the_bound_on_the_grid(data: st.DataObject) -> None:
    records = [{c.name: data.draw(hostile_cell(c)) for c in SCHEMA.columns} for _ in range(2)]
    one, two = (exact_moments([as_cells(SCHEMA, [r])], COORDINATES, 4)._whole_numbers() for r in records)
    query = COORDINATES.query(4)
    assert all(isinstance(n, int) for n in one)
    assert sum(abs(a - b) for a, b in zip(one, two, strict=True)) <= query.l1_sensitivity(R1)
    assert sum(map(abs, one)) <= query.l1_sensitivity(AR)


def table(rows: int = 400) -> Cells:
    rng = generator(4)
    return {
        "weight": rng.uniform(-5, 12, rows),
        "born": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(-10_000, 20_000, rows)),
        "smoker": rng.integers(-1, 2, rows),
        "sex": rng.integers(-2, 3, rows),
        "ward": rng.integers(-2, 4, rows),
        "outcome": rng.integers(-1, 3, rows),
    }


def test_chunks_and_order_do_not_change_one_bit() -> None:
    cells = table()
    whole = exact_moments([cells], COORDINATES, 4)._whole_numbers()
    order = generator(1).permutation(400)
    parts = [{name: values[order[a : a + 57]] for name, values in cells.items()} for a in range(0, 400, 57)]
    assert exact_moments(parts, COORDINATES, 4)._whole_numbers() == whole


def test_a_neighbouring_table_with_frozen_noise_moves_the_release_by_no_more_than_the_bound() -> None:
    cells = table()
    other = {name: values.copy() for name, values in cells.items()}
    for name, value in {"weight": np.inf, "born": np.nan, "smoker": 1, "sex": 0, "ward": 3, "outcome": 2}.items():
        other[name][17] = value
    query = COORDINATES.query(4)
    event = JIANG_LAPLACE.calibrate(query, R1, Epsilon(Fraction(1)))
    one, two = (measure_vector(exact_moments([c], COORDINATES, 4), event, SeededNoise(5)) for c in (cells, other))
    moved = sum(abs(a - b) for a, b in zip(one.values, two.values, strict=True))
    assert 0 < moved <= query.l1_sensitivity(R1)


def test_coordinates_are_those_of_the_encoding_up_to_scale_and_shift() -> None:
    cells = {name: np.abs(values) % 3 if name in ("sex", "ward") else values for name, values in table().items()}
    plain = COORDINATES.records(cells) / (1 << 16)
    assert plain.min() >= 0
    assert plain.max() <= 1
    assert COORDINATES.encoded(plain) == pytest.approx(COORDINATES.encoding.encode(cells), abs=1e-4)
    assert COORDINATES.from_encoded(COORDINATES.encoded(plain)) == pytest.approx(plain, abs=1e-12)


def test_a_level_of_its_own_for_missing_numbers_is_refused() -> None:
    column = IntervalColumn(name="a", kind=Kind.NUMERIC, lower=0, upper=1, missing_level=True)
    with pytest.raises(ValueError, match="missing"):
        UnitCoordinates(Encoding(RecordSchema((column,))))


# ---- calibration, cost, noise ----------------------------------------------------------------------

CASES = [(JIANG_LAPLACE, MOMENTS, R1), (JIANG_LAPLACE, MOMENTS, AR), (NOISY_ROWS, ROWS, R1)]


@given(case=st.sampled_from(CASES), value=st.fractions(Fraction(1, 1000), 50, max_denominator=10**6))
def test_a_calibrated_event_costs_its_budget_to_nine_digits_and_never_more(case, value: Fraction) -> None:
    mechanism, query, neighbours = case
    event = mechanism.calibrate(query, neighbours, Epsilon(value))
    cost = cost_of(VectorEvent.from_json(json.loads(json.dumps(event.as_json()))))
    assert value * (1 - Fraction(1, 10**9)) <= cost.epsilon <= value
    assert event.noise >= query.l1_sensitivity(neighbours) / value
    assert 0 < cost.delta_num < Fraction(1, 10**100)
    assert cost == Cost.of(mechanism.cost(event), mechanism.delta_num(event))


@pytest.mark.parametrize(("p", "q", "classes"), SHAPES)
def test_a_query_moves_by_exactly_its_bound_in_units_of_its_grid(p: int, q: int, classes: int) -> None:
    for relation in Neighbours:
        exact = jiang_moments_l1(relation, numeric=p, categorical=q, classes=classes)
        assert MomentsQuery(p, (3,) * q, classes).l1_sensitivity(relation) == exact * UNIT
    assert RowsQuery(2, p + 1).l1_sensitivity(R1) == rows_l1(dimension=p + 1) * (1 << 16)


def test_saturation_is_charged_where_the_scale_is_large() -> None:
    event = VectorEvent(mechanism="noisy-rows", neighbours=R1, query=ROWS, noise=Fraction(1 << 54))
    assert NOISY_ROWS.delta_num(event) == 12 * Fraction(1 << 151, 1 << 512)


@pytest.mark.parametrize(
    ("mechanism", "query"), [(JIANG_LAPLACE, MomentsQuery(6, (3, 3), 3)), (NOISY_ROWS, RowsQuery(60, 4))]
)
@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
def test_noise_has_the_promised_scale(mechanism, query, factor: float, fits: bool) -> None:
    """Laplace noise with the scale sensitivity / epsilon."""
    draws, scale = noise_on_nothing(mechanism, query), float(query.l1_sensitivity(R1)) / 2
    assert has_scale(draws, "laplace", scale * factor) is fits
    if fits:
        assert stats.kstest(draws, "laplace", args=(0, scale)).pvalue > NEVER


@functools.cache
def noise_on_nothing(mechanism, query) -> np.ndarray:
    """18,000 numbers from the sampler that releases use."""
    event, nothing = mechanism.calibrate(query, R1, Epsilon(Fraction(2))), PrivateVector(query, [0] * query.size)
    draws = [measure_vector(nothing, event, SystemNoise()).values for _ in range(18_000 // query.size + 1)]
    return np.array(draws, dtype=np.float64).ravel()


def test_the_rows_bound_is_the_width_of_the_ball() -> None:
    for k in (1, 2, 7):
        exact = 2 * math.sqrt(k)
        assert exact <= float(rows_l1(dimension=k)) * (1 + 1e-15)
        assert float(rows_l1(dimension=k)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: JIANG_LAPLACE.calibrate(MOMENTS, R1, Rho(Fraction(1))), "spends Epsilon"),
        (lambda: JIANG_LAPLACE.calibrate(ROWS, R1, Epsilon(Fraction(1))), "MomentsQuery"),
        (lambda: NOISY_ROWS.calibrate(MOMENTS, R1, Epsilon(Fraction(1))), "RowsQuery"),
        (lambda: HISTOGRAM_LAPLACE.calibrate(MOMENTS, R1, Epsilon(Fraction(1))), "HistogramsQuery"),
        (lambda: HISTOGRAM_GAUSSIAN.calibrate(ROWS, R1, Rho(Fraction(1))), "HistogramsQuery"),
        (lambda: NOISY_ROWS.calibrate(ROWS, AR, Epsilon(Fraction(1))), "replace-one only"),
        (lambda: NOISY_ROWS.calibrate(ROWS, R1, Epsilon(Fraction(1, 10**30))), "too small"),
        (lambda: Epsilon(Fraction(0)), "positive"),
        (lambda: MomentsQuery(0, ()), "coordinate"),
        (lambda: MomentsQuery(-1, (3,)), "coordinate"),
        (lambda: MomentsQuery(1, (1,)), "two levels"),
        (lambda: MomentsQuery(1, (), 0), "class"),
        (lambda: RowsQuery(0, 2), "at least one row"),
        (lambda: RowsQuery(2, 0), "coordinate"),
        (lambda: PrivateVector(ROWS, [0]), "shape"),
        (lambda: VectorEvent.from_json(event_for(MOMENTS).as_json() | {"grid_bits": 12}), "grid_bits"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_its_rule(attempt, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attempt()


# ---- measurement -----------------------------------------------------------------------------------


def event_for(query: Query) -> VectorEvent:
    kinds = {MomentsQuery: JIANG_LAPLACE, RowsQuery: NOISY_ROWS, HistogramsQuery: HISTOGRAM_LAPLACE}
    mechanism = kinds[type(query)]
    return mechanism.calibrate(query, R1, Epsilon(Fraction(1)))


def secret(query: Query = ROWS) -> PrivateVector:
    return PrivateVector(query, [SECRET] * query.size)


def test_a_private_vector_neither_prints_nor_pickles_nor_compares() -> None:
    for shown in (repr(secret()), str(secret()), f"{[secret()]}"):
        assert str(SECRET) not in shown
    for serialise in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not serialised"):
            serialise(secret())
    with pytest.raises(TypeError):
        vars(secret())
    assert secret() != secret()
    assert [name for name in dir(secret()) if not name.startswith("_")] == ["query"]


def test_only_the_one_door_opens_a_private_vector() -> None:
    openers = {
        path.relative_to(ROOT).as_posix()
        for room in ("dpcore", "expectations", "tasks", "flows", "deployments")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("_whole_numbers", "_answer")
    }
    assert openers == {"dpcore/measure.py", "dpcore/mechanisms/vectors.py"}


@pytest.mark.parametrize("query", [MOMENTS, ROWS, HISTOGRAMS])
def test_a_measurement_survives_its_json(query: Query) -> None:
    released = measure_vector(secret(query), event_for(query), SeededNoise(1))
    assert ReleasedVector.from_json(json.loads(json.dumps(released.as_json()))) == released
    assert released.seeded
    assert not measure_vector(secret(query), event_for(query), SystemNoise()).seeded
    with pytest.raises(ValueError, match="shape"):
        replace(released, values=released.values[1:])


def test_an_event_planned_for_another_query_is_refused_before_anything_is_drawn() -> None:
    class Untouchable(SeededNoise):
        def discrete_laplace(self, scale: float, size: int) -> list[int]:
            raise AssertionError("drawn")

    for query in (RowsQuery(5, 3), RowsQuery(4, 2), MOMENTS, HISTOGRAMS):
        with pytest.raises(ValueError, match="another query"):
            measure_vector(secret(), event_for(query), Untouchable(1))


def test_the_registry_knows_every_mechanism_and_the_neighbours_it_holds_for() -> None:
    assert vector_mechanism("jiang-laplace") is JIANG_LAPLACE
    assert vector_mechanism("histogram-gaussian") is HISTOGRAM_GAUSSIAN
    assert vector_mechanism("histogram-laplace") is HISTOGRAM_LAPLACE
    assert vector_mechanism("noisy-rows") is NOISY_ROWS
    assert "local" in BY_NAME["noisy-rows"].guarantee
    assert "number of rows" in BY_NAME["noisy-rows"].guarantee
    for entry in ENTRIES:
        if entry.vector is None:
            with pytest.raises(KeyError):
                vector_mechanism(entry.name)
            continue
        assert (entry.vector.name, entry.status, entry.mechanism) == (entry.name, Status.PROVED, None)
        query = {"moments": MOMENTS, "rows": ROWS, "marginals": HISTOGRAMS, "check": ScoreQuery("accuracy")}[entry.kind]
        budget: Budget = Rho(Fraction(1)) if "rho" in entry.guarantee else Epsilon(Fraction(1))
        for relation in Neighbours:
            if relation in entry.neighbours:
                assert entry.vector.calibrate(query, relation, budget).neighbours is relation
            else:
                with pytest.raises(ValueError, match="only"):
                    entry.vector.calibrate(query, relation, budget)


def test_numbers_are_the_whole_numbers_in_units() -> None:
    released = ReleasedVector(event_for(MOMENTS), (UNIT,) * MOMENTS.size, True)
    assert released.numbers().tolist() == [1.0] * MOMENTS.size
    assert ReleasedVector(event_for(ROWS), (1 << 15,) * 12, True).numbers().tolist() == [0.5] * 12
