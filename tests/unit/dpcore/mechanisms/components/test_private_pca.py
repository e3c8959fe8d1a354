"""Private PCA: released directions have the claimed cost and the claimed law."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import i0e
from sklearn.base import clone
from support.dpcore.private_pca import ADD, EXPONENTIAL, FAMILY, GRAMS, POWER, REPLACE, dice, event_of, table_of
from support.dpcore.strategies import schema_with

from dpcore import PcaGauss
from dpcore.accounting import Budget, Epsilon, Rho, release_statement
from dpcore.measure import PrivateGram, Released, exact_gram, measure_gram
from dpcore.measurements.projection import measured_coordinates, no_projection, private_projection
from dpcore.mechanisms.base import UNIT, GramEvent
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.components import power_method
from dpcore.mechanisms.components.exponential_pca import BinghamMechanism, Envelope, score_range
from dpcore.mechanisms.components.orthonormal import (
    FRAME_UNIT,
    contraction,
    orthonormal,
    pooled_points,
    squared_norm_above,
)
from dpcore.mechanisms.components.power_method import (
    ITERATIONS,
    PowerMechanism,
    draw_noisy_product,
    exact_product,
    product_sensitivity,
)
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.registry import basis_mechanism, cost_of, gram_mechanism, mechanism_of
from dpcore.noise.certified import NormalSums
from dpcore.noise.sources import SeededNoise, SystemNoise
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanError, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum, integer_records
from dpcore.records.schema import Neighbours, PrivacyUnit

unusual = st.sampled_from([0.0, 1.0, -1.0, 0.5, math.sqrt(0.5), math.nan, math.inf, 1e308, 5e-324])
entries = st.one_of(unusual, st.floats(-1, 1))


def triangle(points: np.ndarray, layout: GramLayout) -> list[list[int]]:
    """The exact upper triangles of points, all in the first class."""
    total = GramSum(layout)
    total.add(integer_records(points, None, layout), np.zeros(len(points), dtype=np.int64))
    return PrivateGram(total)._triangles()


# The power method: sensitivity of one product


def squared_distance(one: list[list[int]], two: list[list[int]]) -> int:
    return sum((a - b) ** 2 for left, right in zip(one, two, strict=True) for a, b in zip(left, right, strict=True))


@given(
    width=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    data=st.data(),
    neighbours=st.sampled_from(list(Neighbours)),
)
def test_one_record_moves_a_product_by_at_most_the_bound(
    width: int, seed: int, data: st.DataObject, neighbours: Neighbours
) -> None:
    components = data.draw(st.integers(1, width))
    point = st.lists(entries, min_size=width, max_size=width)
    others, gone, come = data.draw(st.lists(point, max_size=3)), data.draw(point), data.draw(point)
    layout = GramLayout(width + 1, 1, Fraction(1, 2))
    frame = contraction(orthonormal(dice(seed).standard_normal((width, components))))
    tables = [[*others, gone], [*others, come] if neighbours is REPLACE else [*others, [0.0] * width]]
    products = [exact_product(pooled_points(triangle(np.array(rows), layout), layout), frame) for rows in tables]
    assert squared_distance(*products) <= (product_sensitivity(layout, neighbours, components) * FRAME_UNIT) ** 2


@pytest.mark.parametrize(("neighbours", "components"), [(REPLACE, 2), (REPLACE, 1), (ADD, 3), (ADD, 1)])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_bound_is_attained_by_orthogonal_records_inside_the_frame(
    neighbours: Neighbours, components: int, rows: int
) -> None:
    layout = GramLayout(5, 1, Fraction(1, 2), rows_per_unit=rows)
    frame = contraction(np.eye(4)[:, :components])
    gone, come = np.eye(4)[[0] * rows], np.eye(4)[[1] * rows] * (neighbours is REPLACE)
    products = [exact_product(pooled_points(triangle(points, layout), layout), frame) for points in (gone, come)]
    bound = product_sensitivity(layout, neighbours, components) * FRAME_UNIT
    assert (bound * (1 - Fraction(1, 10**5))) ** 2 <= squared_distance(*products) <= bound**2


@given(width=st.integers(1, 40), seed=st.integers(0, 10**6), data=st.data())
def test_a_frame_on_the_grid_never_lengthens_anything(width: int, seed: int, data: st.DataObject) -> None:
    components = data.draw(st.integers(1, width))
    whole = contraction(orthonormal(dice(seed).standard_normal((width, components))))
    exact = [[int(cell) for cell in row] for row in whole.T]
    squares = [[sum(a * b for a, b in zip(one, two, strict=True)) for two in exact] for one in exact]
    assert max(sum(map(abs, row)) for row in squares) == squared_norm_above(whole) <= FRAME_UNIT**2
    assert 1 - 1e-4 < np.linalg.norm(whole / FRAME_UNIT, 2) <= 1


def test_a_product_is_exact_and_stays_on_the_fine_grid() -> None:
    large = 3**70
    frame = np.array([[FRAME_UNIT - 1, 1], [5, -7]])
    assert exact_product([[large, 1], [1, -large]], frame) == [
        [large * (FRAME_UNIT - 1) + 5, large - 7],
        [FRAME_UNIT - 1 - 5 * large, 1 + 7 * large],
    ]


def test_class_blocks_are_pooled_and_the_head_is_left_out() -> None:
    layout = GramLayout(3, 2, Fraction(1, 2))
    blocks = [[1, 2, 3, 10, 20, 30], [4, 5, 6, 100, 200, 300]]
    assert pooled_points(blocks, layout) == [[110, 220], [220, 330]]


# Costs
@given(
    name=st.sampled_from([POWER, EXPONENTIAL]),
    neighbours=st.sampled_from(list(Neighbours)),
    width=st.integers(1, 40),
    rows=st.integers(1, 4),
    value=st.fractions(Fraction(1, 1000), Fraction(50), max_denominator=10**6),
    data=st.data(),
)
def test_an_event_costs_its_budget_and_never_more(
    name: str, neighbours: Neighbours, width: int, rows: int, value: Fraction, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, width))
    layout = GramLayout(width + 1, 2, Fraction(1, 2), rows)
    event = event_of(name, layout, value, k, neighbours)
    back = GramEvent.from_json(json.loads(json.dumps(event.as_json())))
    assert back == event
    cost = mechanism_of(name).cost(back)
    assert isinstance(cost, Rho if name == POWER else Epsilon)
    assert value * (1 - Fraction(1, 10**9)) <= cost.value <= value
    assert cost_of(back).delta_num == 0


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("rows", [1, 2])
def test_costs_follow_from_the_theorems(neighbours: Neighbours, k: int, rows: int) -> None:
    """rho = L Δ² / 2s² with Δ = (r or √2 r) 4^16; epsilon = c r or 2 c r."""
    layout = GramLayout(8, 1, Fraction(1, 2), rows)
    noisy = event_of(POWER, layout, Fraction(1, 7), k, neighbours)
    length = math.sqrt(2) if neighbours is REPLACE and k > 1 else 1.0
    moved = rows * length * 2.0**32
    rho = ITERATIONS * moved**2 / (2 * float(noisy.noise) ** 2)
    assert float(cost_of(noisy).rho) == pytest.approx(rho, rel=1e-12)
    assert cost_of(replace(noisy, iterations=2 * ITERATIONS)).rho == 2 * cost_of(noisy).rho
    assert cost_of(replace(noisy, noise=noisy.noise * 2)).rho == cost_of(noisy).rho / 4
    exponential = event_of(EXPONENTIAL, layout, Fraction(1, 7), k, neighbours)
    assert exponential.noise * rows * (2 if neighbours is REPLACE else 1) == Fraction(1, 7)


def test_every_step_adds_the_noise_of_the_event_to_every_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, set[Fraction]]] = []

    class Watching(NormalSums):
        def add_and_round(self, offsets: Sequence[int], variances: Sequence[Fraction]) -> list[int]:
            asked.append((len(offsets), set(variances)))
            return super().add_and_round(offsets, variances)

    monkeypatch.setattr(power_method, "NormalSums", Watching)
    layout = GramLayout(6, 1, Fraction(1, 2))
    event = event_of(POWER, layout, Fraction(1, 3), 2)
    released = measure_gram(table_of(np.eye(5), layout), event, SeededNoise(1))
    assert asked == [(10, {(event.noise * FRAME_UNIT) ** 2})] * ITERATIONS
    assert np.allclose(released.basis().T @ released.basis(), np.eye(2), atol=1e-4)


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
def test_the_noise_of_a_step_has_the_promised_scale(factor: float, fits: bool) -> None:
    layout = GramLayout(21, 1, Fraction(1, 2))
    event = event_of(POWER, layout, Fraction(1, 3), 5)
    frame, nothing = contraction(np.eye(20)[:, :5]), [[0] * 20] * 20
    drawn = np.array([draw_noisy_product(nothing, frame, event.noise, SeededNoise(seed)) for seed in range(80)])
    # s from the theorem alone: rho = L Δ² / 2s² with Δ = √2 4^16
    scale = factor * math.sqrt(ITERATIONS * 2 * 2.0**64 / (2 / 3)) * FRAME_UNIT
    statistic = float(np.sum((drawn / scale) ** 2))
    tail = stats.chi2(drawn.size)
    assert (min(tail.cdf(statistic), tail.sf(statistic)) > 1e-9) == fits


# The exponential mechanism: range of the score, and the sampler's law
@given(seed=st.integers(0, 10**6), width=st.integers(1, 6), data=st.data())
def test_scores_change_within_the_range(seed: int, width: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, width))
    point = st.lists(entries, min_size=width, max_size=width)
    layout = GramLayout(width + 1, 1, Fraction(1, 2))
    gone, come = (
        np.array(pooled_points(triangle(np.array([data.draw(point)]), layout), layout)) / UNIT for _ in range(2)
    )
    frames = np.linalg.qr(dice(seed).standard_normal((50, width, k)))[0]
    added, replaced = (np.einsum("nik,ij,njk->n", frames, d.astype(float), frames) for d in (come, come - gone))
    assert np.ptp(added) <= score_range(layout, ADD) + 1e-9
    assert np.ptp(replaced) <= score_range(layout, REPLACE) + 1e-9


def log_density_on_circle(moments: np.ndarray, rate: float, angles: np.ndarray) -> np.ndarray:
    """The exact log density: von Mises in the doubled angle."""
    (a, b), (_, d) = rate * moments
    kappa, turn = math.hypot((a - d) / 2, b), math.atan2(2 * b, a - d)
    return kappa * (np.cos(2 * angles - turn) - 1) - math.log(i0e(kappa))


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_loss_on_the_circle_is_epsilon_at_most_and_nearly_that(neighbours: Neighbours) -> None:
    """The exact privacy loss between neighbours, over all tables of a grid; for large tables it is nearly epsilon."""
    epsilon, layout = 2.0, GramLayout(3, 1, Fraction(1, 2))
    rate = float(event_of(EXPONENTIAL, layout, Fraction(2), 1, neighbours).noise)
    angles = np.linspace(0, math.pi, 721)
    units = [np.outer(x, x) for t in np.linspace(0, math.pi, 13) for x in [np.array([math.cos(t), math.sin(t)])]]
    losses = []
    for rest, one, two in itertools.product((0.0, 3.0, 1000.0), units, [np.zeros((2, 2)), *units]):
        if neighbours is ADD and two.any():
            continue
        tables = [rest * np.diag([0.0, 1.0]) + part for part in (one, two)]
        ratio = np.subtract(*(log_density_on_circle(table, rate, angles) for table in tables))
        losses.append(float(np.abs(ratio).max()))
    assert 0.98 * epsilon < max(losses) <= epsilon + 1e-9


@pytest.mark.parametrize("width", [2, 8, 64])
@pytest.mark.parametrize("reach", [0.0, 1.0, 30.0, 1e4, 1e8])
def test_proposals_are_kept_often_enough_and_never_with_probability_above_one(width: int, reach: float) -> None:
    envelope = Envelope.of(reach * np.linspace(0, 1, width) ** 2)
    logarithms = envelope.log_acceptance(envelope.propose(dice(2), 4000))
    assert logarithms.max() <= 1e-9
    assert np.exp(logarithms).mean() > 0.7 / math.sqrt(width)
    most = envelope.losses.max()
    if most > (width - envelope.spread) / 2 > 0:  # a point where the bound is attained
        share = (width - envelope.spread) / 2 / most
        edge = np.zeros((1, width))
        edge[0, 0], edge[0, -1] = math.sqrt(1 - share), math.sqrt(share)
        assert envelope.log_acceptance(edge)[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", [POWER, EXPONENTIAL])
def test_directions_keep_the_target_beside_them_and_know_no_centre(name: str) -> None:
    encoding = Encoding(schema_with(target=True))
    layout = GramLayout(encoding.feature_width + 1, 1, Fraction(1, 2))
    event = event_of(name, layout, Fraction(1), 3)
    through = measured_coordinates(event, encoding)
    assert (through.width, through.dimension) == (encoding.width, encoding.feature_width)
    cells = {c.name: np.zeros(4) for c in encoding.schema.columns}
    gram = exact_gram([({k: v.astype(float) for k, v in cells.items()}, None)], encoding, layout, through)
    projection = private_projection(measure_gram(gram, event, SeededNoise(1)), encoding, 3)
    basis = projection.basis()
    assert projection.centre is None
    assert not projection.knows_every_mean
    assert basis.shape == (encoding.width, 3 + encoding.target_width)
    assert np.array_equal(basis[encoding.feature_width :, 3:], np.eye(encoding.target_width))
    assert not basis[encoding.feature_width :, :3].any()
    assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-4)
    whole = measured_coordinates(replace(event, mechanism="laplace"), encoding)
    assert whole == no_projection(encoding)


# Plans


REQUEST = PlanRequest(
    schema=schema_with(target=True),
    neighbours=REPLACE,
    unit=PrivacyUnit(),
    epsilon=Fraction(1),
    delta=Fraction(1, 10**6),
    expected_rows=10_000,
    projection="private-pca",
    dimension=3,
)


def plan(**changes: object) -> Plan:
    return make_plan(replace(REQUEST, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("mechanism", ["auto", "wishart-difference", "laplace", "gaussian"])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_every_combination_stays_within_the_epsilon_asked_for(
    name: str, mechanism: str, neighbours: Neighbours
) -> None:
    if neighbours not in BY_NAME[name].neighbours:
        pytest.skip("not proved for these neighbours")
    for epsilon, share in itertools.product((Fraction(1, 10), Fraction(3)), (Fraction(1, 20), Fraction(1, 2))):
        decided = plan(
            projection_mechanism=name,
            mechanism=mechanism,
            neighbours=neighbours,
            epsilon=epsilon,
            allocation={"projection": share, "moments": 1 - share},
        )
        stated = release_statement(decided.cost, delta=REQUEST.delta)
        assert stated.epsilon <= epsilon
        kinds = {isinstance(mechanism_of(e.mechanism).cost(e), Rho) for e in decided.events.values()}
        assert float(stated.epsilon) > float(epsilon) * (0.999 if len(kinds) == 1 else 0.5)
        assert decided.events["projection"].mechanism == name
        assert not decided.reuses_gram
        assert decided.knows_centre == (name in GRAMS)


@pytest.mark.parametrize("name", [POWER, EXPONENTIAL])
def test_directions_are_planned_for_the_features_alone(name: str) -> None:
    decided, encoding = plan(projection_mechanism=name), Encoding(REQUEST.schema)
    event = decided.events["projection"]
    assert event.components == decided.dimension == 3
    assert event.layout.dimension == encoding.feature_width + 1
    assert decided.event.layout.dimension == 3 + encoding.target_width + 1


def test_an_approximate_mechanism_is_called_so_in_the_reasons() -> None:
    doubtful, proved = plan(projection_mechanism=EXPONENTIAL), plan(projection_mechanism=POWER)
    assert (doubtful.approximate, proved.approximate) == ((EXPONENTIAL,), ())
    assert any("approximate" in reason and EXPONENTIAL in reason for reason in doubtful.reasons)
    assert not any("approximate" in reason for reason in proved.reasons)
    assert BY_NAME[EXPONENTIAL].status is Status.APPROXIMATE
    assert BY_NAME[POWER].status is Status.PROVED
    assert "dominated" in BY_NAME[POWER].reason


def test_auto_is_what_it_was() -> None:
    assert plan(projection_mechanism="auto") == plan()
    assert all(event.mechanism in GRAMS for event in plan().events.values())
    assert plan().knows_centre
    assert not plan(projection="ron").knows_centre


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"projection_mechanism": POWER, "delta": Fraction(0)}, "mechanism-needs-delta"),
        ({"projection_mechanism": "gaussian", "delta": Fraction(0)}, "mechanism-needs-delta"),
        ({"projection_mechanism": POWER, "projection": "ron"}, "projection-mechanism-unused"),
        ({"projection_mechanism": "laplace", "projection": "none", "dimension": "auto"}, "projection-mechanism-unused"),
        ({"projection_mechanism": "ron"}, "projection-mechanism-unknown"),
        ({"projection_mechanism": "no-such-name"}, "projection-mechanism-unknown"),
        ({"projection_mechanism": "published-sn"}, "mechanism-refuted"),
        ({"projection_mechanism": POWER, "allocation": {"moments": Fraction(1)}}, "allocation-missing"),
        ({"projection_mechanism": "wishart-difference-trace", "neighbours": ADD}, "mechanism-not-applicable"),
        ({"projection": POWER}, "projection-unknown"),
        ({"projection": EXPONENTIAL}, "projection-unknown"),
        ({"mechanism": POWER}, "mechanism-not-moments"),
        ({"mechanism": EXPONENTIAL}, "mechanism-not-moments"),
    ],
)
def test_wishes_that_cannot_be_carried_out_are_refused(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(PlanError) as refusal:
        plan(**changes)
    assert refusal.value.rule == rule
    assert refusal.value.where
    assert refusal.value.hint


@pytest.mark.parametrize("name", FAMILY)
def test_pca_gauss_takes_every_member_of_the_family(name: str) -> None:
    rng = dice(12)
    common = rng.normal(0, 0.4, 4000)
    X = np.clip(np.column_stack([common, common, rng.normal(0, 0.05, 4000)]), -1, 1)
    model = PcaGauss(epsilon=8.0, delta=1e-6, bounds=(-1.0, 1.0), n_components=2, projection_mechanism=name)
    assert clone(model).projection_mechanism == name
    S = model.fit(X).sample(2000)
    assert np.corrcoef(S[:, 0], S[:, 1])[0, 1] > 0.9
    assert model.privacy_["epsilon"] <= 8.0
    assert model.privacy_["measurements"]["projection"]["mechanism"] == name
    assert BY_NAME[name].reason in model.privacy_["why"]


# Bad input


@pytest.mark.parametrize("name", [POWER, EXPONENTIAL])
def test_directions_that_the_points_do_not_have_are_refused(name: str) -> None:
    layout = GramLayout(4, 1, Fraction(1, 2))
    for components in (0, 4, -1):
        with pytest.raises(ValueError, match="between 1 and 3"):
            event_of(name, layout, Fraction(1), components)
    event = event_of(name, layout, Fraction(1), 3)
    for forged in ({"components": 0}, {"components": 9}):
        with pytest.raises(ValueError, match="between 1 and 3"):
            cost_of(GramEvent.from_json(event.as_json() | forged))
    with pytest.raises(ValueError, match="shape"):
        Released(event, ((0, 0, 0),), seeded=True)
    with pytest.raises(ValueError, match="another shape"):
        measure_gram(table_of(np.eye(2), GramLayout(3, 1, Fraction(1, 2))), event, SeededNoise(1))


def test_a_power_method_without_steps_is_refused() -> None:
    event = event_of(POWER, GramLayout(4, 1, Fraction(1, 2)), Fraction(1), 1)
    with pytest.raises(ValueError, match="positive"):
        cost_of(replace(event, iterations=0))


@pytest.mark.parametrize(
    ("mechanism", "wrong"), [(PowerMechanism(), Epsilon(Fraction(1))), (BinghamMechanism(), Rho(Fraction(1)))]
)
def test_a_budget_of_the_wrong_kind_is_refused(mechanism: PowerMechanism, wrong: Budget) -> None:
    with pytest.raises(ValueError, match="spends"):
        mechanism.calibrate(GramLayout(4, 1, Fraction(1, 2)), REPLACE, wrong, components=1)


@pytest.mark.parametrize("name", FAMILY)
def test_a_mechanism_is_found_by_what_it_gives(name: str) -> None:
    right, wrong = (gram_mechanism, basis_mechanism) if name in GRAMS else (basis_mechanism, gram_mechanism)
    assert right(name).name == name
    with pytest.raises(KeyError):
        wrong(name)


def test_system_streams_differ_and_seeded_ones_repeat() -> None:
    one, two = (SystemNoise().generator().standard_normal(4) for _ in range(2))
    assert not np.array_equal(one, two)
    again = [SeededNoise(5).generator().standard_normal(4) for _ in range(2)]
    assert np.array_equal(*again)


@pytest.mark.parametrize("name", [POWER, EXPONENTIAL])
def test_a_release_goes_through_the_system_noise(name: str) -> None:
    layout = GramLayout(5, 1, Fraction(1, 2))
    event = event_of(name, layout, Fraction(1), 2)
    released = measure_gram(table_of(np.diag([50.0, 30.0, 1.0, 1.0]), layout), event, SystemNoise())
    assert not released.seeded
    assert Released.from_json(json.loads(json.dumps(released.as_json()))) == released
    assert released.basis().shape == (4, 2)
