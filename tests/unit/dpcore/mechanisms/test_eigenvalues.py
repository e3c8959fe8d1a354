"""Noisy eigenvalues: exact before the noise, within their bound for hostile units, and released alone."""

from __future__ import annotations

import functools
import json
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator
from support.dpcore.samplers import seed_the_noise
from support.dpcore.strategies import Pipeline, as_cells, pipeline, rows_of, schema_with, units

import dpcore
from dpcore import EigenvalueGauss
from dpcore.accounting import Epsilon, Rho
from dpcore.estimators import eigenvalue_gauss
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.mechanisms.base import UNIT, GramEvent
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.eigenvalues import EIGENVALUES, rounded_eigenvalues
from dpcore.mechanisms.registry import cost_of, gram_mechanism, mechanism_of
from dpcore.mechanisms.sensitivity import top_eigenvalues_l1
from dpcore.noise.sources import SeededNoise
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanError, PlanRequest
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours, PrivacyUnit

Floats = NDArray[np.float64]

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
SIGMAS = 6.1
ONE = Epsilon(Fraction(1))


def square(matrix: NDArray[np.object_]) -> list[list[int]]:
    return [[int(x) for x in row] for row in matrix]


# ---- eigenvalues ----------------------------------------------------------------------------

HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=object)
"""Columns are orthogonal, of squared length 4."""


@pytest.mark.parametrize(
    "values", [(7, 7, 7, 7), (9, 5, 5, 0), (3, 0, 0, 0), (0, 0, 0, 0), (10**30, 10**30, 1, 0), (2, 2, -1, -1)]
)
def test_multiple_and_zero_eigenvalues_are_found_as_often_as_they_occur(values: tuple[int, ...]) -> None:
    matrix = HADAMARD @ np.diag(np.array(values, dtype=object)) @ HADAMARD.T
    assert rounded_eigenvalues(square(matrix)) == sorted((4 * v for v in values), reverse=True)


@pytest.mark.parametrize("t", [1, 2, 10**6, 10**40, 10**200])
def test_an_eigenvalue_just_below_a_half_is_rounded_down_at_any_size(t: int) -> None:
    """The root of t⁴ + t² is t² + 1/2 less about 1/(8 t²)."""
    assert rounded_eigenvalues([[t**2, t], [t, -(t**2)]]) == [t**2, -(t**2)]
    assert math.isqrt(4 * (t**4 + t**2)) == 2 * t**2, "below t² + 1/2"


@pytest.mark.parametrize("width", [1, 2, 5, 17])
def test_eigenvalues_are_those_of_floating_point_to_its_precision(width: int) -> None:
    rows = np.random.Generator(np.random.PCG64(width)).integers(-65536, 65536, (40, width)).astype(object)
    gram = rows.T @ rows
    found = np.array(rounded_eigenvalues(square(gram)), dtype=float)
    assert found == pytest.approx(np.linalg.eigvalsh(gram.astype(float))[::-1], rel=1e-9, abs=1)
    assert abs(sum(rounded_eigenvalues(square(gram))) - int(np.trace(gram))) <= width / 2, "each within a half"


# ---- sensitivity ------------------------------------------------------------------------------


def points_of(pipe: Pipeline, blocks: NDArray[np.object_]) -> list[list[int]]:
    heads = pipe.layout.heads
    return square(blocks[0][heads:, heads:])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Pipeline, NDArray[np.object_]]:
    """A pipeline without classes, and the Gram matrix of the rows that both neighbours contain."""
    rule = draw(st.sampled_from(["row", "weight", "at-most"]))
    pipe = pipeline(
        schema_with(target=draw(st.booleans())),
        dimension=draw(st.sampled_from([None, 1, 2, 5])),
        s=draw(st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(1, 64)])),
        most_rows=draw(st.integers(2, 4)) if rule == "at-most" else 1,
        weighted=rule == "weight",
    )
    schema = pipe.encoding.schema
    shared = draw(rows_of(schema, least=0, most=3))
    empty = np.full_like(GramSum(pipe.layout).blocks, 0)
    return pipe, sum((pipe.gram(as_cells(schema, [row])) for row in shared), empty)


def moves(one: list[int], two: list[int], components: int) -> int:
    return sum(abs(a - b) for a, b in list(zip(one, two, strict=True))[:components])


@given(data=st.data(), table=tables(), neighbours=st.sampled_from(list(Neighbours)))
def test_no_hostile_unit_moves_the_rounded_eigenvalues_by_more_than_the_calibration_allows(
    data: st.DataObject, table: tuple[Pipeline, NDArray[np.object_]], neighbours: Neighbours
) -> None:
    pipe, shared = table
    with_one = shared + pipe.gram(data.draw(units(pipe)))
    other = shared + pipe.gram(data.draw(units(pipe))) if neighbours is REPLACE else shared
    found = [rounded_eigenvalues(points_of(pipe, blocks)) for blocks in (with_one, other)]
    for components in range(1, pipe.layout.dimension):
        event = EIGENVALUES.calibrate(pipe.layout, neighbours, ONE, components=components)
        bound = top_eigenvalues_l1(neighbours, squared_norm=Fraction(pipe.layout.rows_per_unit), components=components)
        assert moves(*found, components) <= bound * UNIT + components <= event.noise


def eigenvalues_of(*records: tuple[int, int]) -> list[int]:
    z = np.array(records, dtype=object) * (1 << 16)
    return rounded_eigenvalues(square(z.T @ z))


OTHERS = [(1, 0)] * 5


@pytest.mark.parametrize("components", [1, 2])
def test_the_bound_is_attained_by_a_record_that_turns_from_the_others_to_a_direction_of_its_own(
    components: int,
) -> None:
    along, across = eigenvalues_of((1, 0), *OTHERS), eigenvalues_of((0, 1), *OTHERS)
    bound = top_eigenvalues_l1(REPLACE, squared_norm=Fraction(1), components=components)
    assert moves(along, across, components) == bound * UNIT == components * UNIT


@pytest.mark.parametrize("components", [1, 2])
def test_the_bound_is_attained_by_a_record_that_joins_the_others(components: int) -> None:
    moved = moves(eigenvalues_of((1, 0), *OTHERS), eigenvalues_of(*OTHERS), components)
    assert moved == top_eigenvalues_l1(ADD, squared_norm=Fraction(1), components=components) * UNIT == UNIT


def test_the_bounds_are_those_of_the_table_of_privacy_section_2() -> None:
    for components in (1, 2, 3, 9):
        assert top_eigenvalues_l1(ADD, squared_norm=Fraction(3), components=components) == 3
        assert top_eigenvalues_l1(REPLACE, squared_norm=Fraction(3), components=components) == 3 * min(components, 2)


@given(entries=st.lists(st.fractions(-9, 9, max_denominator=10**9), min_size=2, max_size=2))
def test_rounding_moves_a_difference_by_at_most_one(entries: list[Fraction]) -> None:
    one, two = (math.floor(x + Fraction(1, 2)) for x in entries)
    assert abs(one - two) <= math.ceil(abs(entries[0] - entries[1])) <= abs(entries[0] - entries[1]) + 1


# ---- calibration and noise ----------------------------------------------------------------------


@given(
    width=st.integers(1, 30),
    rows=st.integers(1, 5),
    neighbours=st.sampled_from(list(Neighbours)),
    epsilon=st.fractions(Fraction(1, 1000), Fraction(50), max_denominator=10**6),
    data=st.data(),
)
def test_a_calibrated_event_costs_its_budget_to_nine_digits_and_never_more(
    width: int, rows: int, neighbours: Neighbours, epsilon: Fraction, data: st.DataObject
) -> None:
    components = data.draw(st.integers(1, width))
    layout = GramLayout(width + 1, 1, Fraction(1, 2), rows)
    event = EIGENVALUES.calibrate(layout, neighbours, Epsilon(epsilon), components=components)
    moved = rows * (1 if neighbours is ADD else min(components, 2)) * UNIT + components
    assert moved / epsilon <= event.noise <= moved / epsilon * (1 + Fraction(1, 10**12))
    assert Fraction(float(event.noise)) == event.noise
    cost = EIGENVALUES.cost(event)
    assert epsilon * (1 - Fraction(1, 10**9)) <= cost.value <= epsilon
    back = GramEvent.from_json(json.loads(json.dumps(event.as_json())))
    assert back == event
    assert cost_of(back).epsilon == cost.value
    assert 0 < cost_of(back).delta_num < Fraction(1, 10**100)


def plane_event(components: int, neighbours: Neighbours = REPLACE) -> GramEvent:
    return EIGENVALUES.calibrate(GramLayout(3, 1, Fraction(1, 2)), neighbours, ONE, components=components)


TRIANGLE = [5, 6, 7, 9 * UNIT, 0, 4 * UNIT]
"""A head that must be ignored, and points with eigenvalues 9 and 4."""


@functools.cache
def noise_of(components: int) -> Floats:
    event, noise = plane_event(components), SeededNoise(components)
    drawn = [EIGENVALUES.draw([TRIANGLE], event, noise)[0] for _ in range(8000 // components)]
    return (np.array(drawn, dtype=float) - np.array([9 * UNIT, 4 * UNIT])[:components]) / UNIT


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
@pytest.mark.parametrize("components", [1, 2])
def test_the_noise_is_laplace_with_the_promised_scale(components: int, factor: float, fits: bool) -> None:
    """Epsilon 1: scale 1 for the largest eigenvalue alone, 2 for two of them."""
    added = noise_of(components).ravel()
    sizes = np.abs(added)
    near = abs(sizes.mean() - factor * components) <= SIGMAS * sizes.std() / math.sqrt(len(sizes))
    assert near is np.bool_(fits)
    if fits:
        assert stats.kstest(added, stats.laplace(scale=components).cdf).pvalue > 1e-6
        assert components == 1 or abs(np.corrcoef(noise_of(2).T)[0, 1]) < SIGMAS / math.sqrt(len(sizes) / 2)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_with_the_same_noise_two_neighbours_differ_by_exactly_their_eigenvalues(neighbours: Neighbours) -> None:
    """Replay with the same noise through `measure_gram`."""
    schema = schema_with()
    pipe = pipeline(schema, dimension=3, s=Fraction(1, 2))
    event = EIGENVALUES.calibrate(pipe.layout, neighbours, ONE, components=3)
    common = [{c.name: i % 2 for c in schema.columns} for i in range(20)]
    drawn, exact = [], []
    for value in (0, 2):
        cells = as_cells(schema, [*common, {c.name: value for c in schema.columns}])
        total = GramSum(pipe.layout)
        total.add(pipe.records(cells), pipe.encoding.classes(cells))
        exact.append(rounded_eigenvalues(points_of(pipe, total.blocks)))
        drawn.append(measure_gram(PrivateGram(total), event, SeededNoise(33)))
    (one,), (two,) = (d.values for d in drawn)
    assert [a - b for a, b in zip(one, two, strict=True)] == [a - b for a, b in zip(*exact, strict=True)]
    assert exact[0] != exact[1]
    assert Released.from_json(drawn[0].as_json()) == drawn[0]
    assert drawn[0].spectrum() == pytest.approx(np.array(one) / UNIT)


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "components", "words"),
    [
        (GramLayout(3, 1, Fraction(1)), 3, "components must be between 1 and 2, got 3"),
        (GramLayout(3, 1, Fraction(1)), 0, "components must be between 1 and 2, got 0"),
        (GramLayout(3, 1, Fraction(1)), -1, "components"),
        (GramLayout(3, 2, Fraction(1)), 1, "not classes apart"),
        (GramLayout(4, 1, Fraction(1), labels=2), 1, "not classes apart"),
    ],
)
def test_a_shape_that_it_does_not_measure_is_refused(layout: GramLayout, components: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EIGENVALUES.calibrate(layout, REPLACE, ONE, components=components)


def test_a_forged_event_has_no_cost() -> None:
    body = plane_event(2).as_json()
    for forgery in ({"components": 3}, {"blocks": 2}, {"labels": 2}):
        with pytest.raises(ValueError, match=r"components|classes apart"):
            cost_of(GramEvent.from_json(body | forgery))


def test_a_budget_of_the_wrong_kind_or_size_is_refused() -> None:
    layout = GramLayout(3, 1, Fraction(1))
    with pytest.raises(ValueError, match="spends Epsilon, not Rho"):
        EIGENVALUES.calibrate(layout, REPLACE, Rho(Fraction(1)), components=1)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        EIGENVALUES.calibrate(layout, REPLACE, Epsilon(Fraction(-1)), components=1)
    with pytest.raises(ValueError, match=r"2\^54"):
        EIGENVALUES.calibrate(layout, REPLACE, Epsilon(Fraction(1, 10**18)), components=1)


def test_it_gives_no_gram_and_no_release_may_be_planned_with_it() -> None:
    assert mechanism_of("eigenvalues-only") is EIGENVALUES
    with pytest.raises(KeyError):
        gram_mechanism("eigenvalues-only")
    request = PlanRequest(
        schema=schema_with(),
        neighbours=REPLACE,
        unit=PrivacyUnit(),
        epsilon=Fraction(1),
        delta=Fraction(0),
        expected_rows=1000,
        mechanism="eigenvalues-only",
    )
    with pytest.raises(PlanError, match=r"does not measure moments; it serves dpcore.EigenvalueGauss") as refusal:
        make_plan(request)
    assert refusal.value.rule == "mechanism-not-moments"
    assert refusal.value.where == "model.mechanism"


# ---- the estimator ------------------------------------------------------------------------------

SPREAD = np.array([0.9, 0.6, 0.3, 0.05])


def rows(n: int = 4000) -> Floats:
    """Independent features, rotated by a Hadamard matrix, so that no coordinate is principal."""
    rng = np.random.Generator(np.random.PCG64(5))
    return (rng.uniform(-1, 1, (n, 4)) * SPREAD) @ (HADAMARD.astype(float) / 4)


def model(**changes: object) -> EigenvalueGauss:
    parameters = {"epsilon": 5.0, "bounds": (-1.0, 1.0), "n_components": 3, "expected_rows": 4000} | changes
    return EigenvalueGauss(**parameters)


def test_samples_have_the_spectrum_of_the_data_and_independent_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    seed_the_noise(monkeypatch, eigenvalue_gauss)
    X = rows()
    S = model(epsilon=200.0, random_state="5eed").fit(X).sample(20_000)
    truth = np.linalg.eigvalsh(X.T @ X / len(X) / 4)[::-1][:3]  # a row at the bounds has length 1
    assert S.shape == (20_000, 3)
    assert S.var(axis=0) == pytest.approx(truth, rel=0.1)
    assert np.abs(S.mean(axis=0)).max() < 0.01
    assert np.abs(np.corrcoef(S.T) - np.eye(3)).max() < 0.05


def test_negative_noisy_eigenvalues_give_no_spread() -> None:
    fitted = model(epsilon=1.0).fit(np.zeros((50, 4)))
    fitted.spectrum_ = Released(fitted.spectrum_.event, ((UNIT, -UNIT, 0),), False)
    S = fitted.sample(10)
    assert np.all(S[:, 0] != 0)
    assert np.all(S[:, 1:] == 0)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_stated_privacy_is_what_was_asked_for_and_never_more(neighbours: Neighbours) -> None:
    fitted = model(epsilon=0.7, neighbours=neighbours.value).fit(rows(50))
    assert fitted.privacy_["epsilon"] == pytest.approx(0.7, rel=1e-9)
    assert cost_of(fitted.spectrum_.event).epsilon <= Fraction(7, 10)
    assert fitted.privacy_["delta"] == 0
    assert fitted.privacy_["neighbours"] == neighbours
    assert fitted.privacy_["why"] == [BY_NAME["eigenvalues-only"].reason]
    assert len(fitted.spectrum_.values[0]) == 3
    assert fitted.spectrum_.seeded is False


def test_every_check_of_scikit_learn_holds() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model(n_components=1), on_fail=None)
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    assert len(results) > 25


def test_two_fits_of_the_same_rows_differ_and_two_samples_of_one_seed_do_not() -> None:
    X = rows(200)
    fitted = model(random_state="ab").fit(X)
    assert np.array_equal(fitted.sample(20), fitted.sample(20))
    assert clone(fitted).fit(X).spectrum_ != fitted.spectrum_
    free = model().fit(X)
    assert not np.array_equal(free.sample(20), free.sample(20))


def test_hostile_values_are_mapped_not_refused() -> None:
    X = np.array([[np.nan, np.inf, -np.inf, 1e308], [0.0, 0.0, 0.0, 0.0]] * 50)
    assert np.isfinite(model().fit(X).sample(10)).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon": float("nan")}, "finite"),
        ({"bounds": (1.0, -1.0)}, "increasing"),
        ({"neighbours": "none"}, "none"),
        ({"n_components": 5}, "components must be between 1 and 4, got 5"),
        ({"n_components": 0}, "components"),
        ({"expected_rows": 0}, "expected_rows must be at least 1, got 0"),
    ],
)
def test_a_bad_parameter_is_refused_with_its_rule(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model(**changes).fit(rows(10))


@pytest.mark.parametrize("missing", ["epsilon", "bounds", "n_components", "expected_rows"])
def test_public_parameters_have_no_default(missing: str) -> None:
    parameters = {"epsilon": 1.0, "bounds": (-1.0, 1.0), "n_components": 1, "expected_rows": 10}
    del parameters[missing]
    with pytest.raises(TypeError, match=missing):
        EigenvalueGauss(**parameters)


def test_sampling_needs_a_fit_and_a_positive_number() -> None:
    with pytest.raises(NotFittedError):
        model().sample(3)
    with pytest.raises(ValueError, match="at least 1"):
        model().fit(rows(10)).sample(0)


def test_the_package_offers_it() -> None:
    assert "EigenvalueGauss" in dpcore.__all__
    assert dpcore.EigenvalueGauss is EigenvalueGauss
