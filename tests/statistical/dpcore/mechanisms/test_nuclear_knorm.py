"""Nuclear K-norm noise has the density it claims, by oracles that share nothing with its sampler."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, arb_mat, ctx, fmpq
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from support.dpcore.samplers import NEVER, agrees, generator, symmetric, wishart_difference
from support.dpcore.strategies import as_cells, pipeline, pipelines, schema_with, units

from dpcore.accounting import Epsilon, Rho
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.mechanisms.base import UNIT, GramEvent, triangle_size
from dpcore.mechanisms.nuclear_knorm import LARGEST_DIMENSION, NUCLEAR, mean_squares
from dpcore.mechanisms.registry import cost_of, gram_mechanism
from dpcore.mechanisms.sensitivity import gram_nuclear
from dpcore.noise.certified import FIRST_BITS, decide
from dpcore.noise.nuclear import NuclearNoise, _dominates, _modulus
from dpcore.noise.sources import Noise, SeededNoise
from dpcore.noise.wishart import WishartDifference
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanError, PlanRequest
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, PrivacyUnit, RecordSchema

Floats = NDArray[np.float64]

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
FITS = pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])
SHAPES = {(2, 1, False): 1500, (2, 1, True): 2200, (3, 1, True): 1100, (2, 2, True): 750}
"""Dimension, blocks, trace factor; and draws, enough to detect an error of 10 %."""


def nuclear_noise(p: int, blocks: int, trace_factor: bool, noise: Noise, rate: Fraction = Fraction(1)) -> NuclearNoise:
    return NuclearNoise(dimension=p, blocks=blocks, rate=rate, trace_factor=trace_factor, noise=noise)


@functools.cache
def real_noise(p: int, blocks: int, trace_factor: bool, size: int) -> Floats:
    """Draws of the shipped sampler at rate 1, shape (size, blocks, p, p)."""
    noise, zeros = SeededNoise(1000 * p + 10 * blocks + trace_factor), [[0] * triangle_size(p)] * blocks
    sources = (nuclear_noise(p, blocks, trace_factor, noise) for _ in range(size))
    return np.array([symmetric(s.add_and_round(zeros, unit=1 << 40, step=1), p, 1 << 40) for s in sources])


def draws_of(shape: tuple[int, int, bool]) -> Floats:
    return real_noise(*shape, SHAPES[shape])


def norm(z: Floats, trace_factor: bool) -> Floats:
    """The norm in the exponent of the density, over all blocks."""
    nuclear = np.abs(np.linalg.eigvalsh(z)).sum(axis=(1, 2))
    return nuclear + np.abs(np.einsum("nkii->n", z)) if trace_factor else nuclear


def oracle(p: int, blocks: int, trace_factor: bool, proposals: int, rng: np.random.Generator) -> Floats:
    """The same law from its definition: eigenvalues, a radius and rotations, no Wishart matrix.

    Uniform directions on the sphere of the sum of |λ| are accepted in proportion to the
    Vandermonde products (and to the power of the norm that the trace adds); the norm
    of any K-norm noise is Gamma(number of entries); eigenvectors are Haar.
    """
    entries = blocks * triangle_size(p)
    values = rng.laplace(size=(proposals, blocks, p))
    values /= np.abs(values).sum(axis=(1, 2))[:, None, None]
    i, j = np.triu_indices(p, 1)
    length = 1 + np.abs(values.sum(axis=(1, 2))) * trace_factor
    weight = np.abs(values[..., i] - values[..., j]).prod(axis=(1, 2)) / length**entries
    kept = rng.random(proposals) * weight.max() < weight
    radius = rng.gamma(entries, size=kept.sum()) / length[kept]
    factor, triangle = np.linalg.qr(rng.standard_normal((kept.sum(), blocks, p, p)))
    basis = factor * np.sign(np.einsum("nkii->nki", triangle))[:, :, None, :]
    return np.einsum("nkia,nka,nkja->nkij", basis, values[kept] * radius[:, None, None], basis)


# ---- privacy ------------------------------------------------------------------------------------


def exponent(z: Floats, rate: float, neighbours: Neighbours) -> float:
    """Minus the logarithm of the density, up to a constant."""
    return rate * float(norm(z[None], neighbours is REPLACE)[0])


@given(data=st.data(), pipe=pipelines(), neighbours=st.sampled_from(list(Neighbours)), seed=st.integers(0, 10**6))
def test_no_hostile_pair_moves_the_log_density_by_more_than_epsilon(
    data: st.DataObject, pipe: object, neighbours: Neighbours, seed: int
) -> None:
    """It moves by c |D|, or c |D| + c |tr D|; the dimension does not enter the theorem."""
    layout = pipe.layout
    epsilon = float(gram_nuclear(neighbours, squared_norm=layout.squared_norm))  # at rate 1
    moved = pipe.gram(data.draw(units(pipe))).astype(float) / UNIT
    if neighbours is REPLACE:
        moved = moved - pipe.gram(data.draw(units(pipe))).astype(float) / UNIT
    z = generator(seed).standard_normal(moved.shape)
    z = z + z.transpose(0, 2, 1)
    loss = abs(exponent(z + moved, 1.0, neighbours) - exponent(z, 1.0, neighbours))
    assert loss <= epsilon * (1 + 1e-9)
    assert exponent(moved, 1.0, neighbours) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("one", "two"), [((1.0, 1.0), (1.0, -1.0)), ((1.0, 1.0), (0.0, 0.0))], ids=["orthogonal", "there or not"]
)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_whole_epsilon_is_lost_between_orthogonal_records_and_between_one_and_none(
    one: tuple[float, float], two: tuple[float, float], neighbours: Neighbours
) -> None:
    layout = GramLayout(2, 1, Fraction(1))
    event = NUCLEAR.calibrate(layout, neighbours, Epsilon(Fraction(2)))
    shift = (np.outer(one, one) - np.outer(two, two))[None]
    loss = exponent(shift, float(event.noise), neighbours)
    if neighbours is ADD and any(two):
        assert loss == pytest.approx(4)  # no neighbours: two steps
    else:
        assert loss == pytest.approx(2)


@given(
    p=st.integers(2, 8),
    blocks=st.integers(1, 4),
    rows=st.integers(1, 4),
    neighbours=st.sampled_from(list(Neighbours)),
    epsilon=st.fractions(Fraction(1, 1000), Fraction(50), max_denominator=10**6),
)
def test_a_calibrated_event_costs_exactly_its_budget_also_after_storage(
    p: int, blocks: int, rows: int, neighbours: Neighbours, epsilon: Fraction
) -> None:
    layout = GramLayout(p, blocks, Fraction(1, 2), rows)
    event = NUCLEAR.calibrate(layout, neighbours, Epsilon(epsilon))
    assert event.noise * gram_nuclear(neighbours, squared_norm=layout.squared_norm) == epsilon
    assert NUCLEAR.cost(event) == Epsilon(epsilon)
    back = GramEvent.from_json(json.loads(json.dumps(event.as_json())))
    assert back == event
    assert cost_of(back).epsilon == epsilon
    assert cost_of(back).delta_num == NUCLEAR.delta_num(event) == 0
    spread = NUCLEAR.expected_error(event).off_diagonal_sd * UNIT
    assert event.step & (event.step - 1) == 0
    assert event.step == 1 or spread / 2**11 <= event.step * (1 + 1e-9) <= spread / 2**10 * (1 + 1e-9)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_relation_of_the_event_decides_whether_the_trace_counts(neighbours: Neighbours) -> None:
    """The mechanism draws from the sampler at the event's rate, with the trace factor under replace-one only."""
    event = event_of(2, 1, neighbours)
    trace_factor, zeros = neighbours is REPLACE, [[0, 0, 0]]
    same = nuclear_noise(2, 1, trace_factor, SeededNoise(3), event.noise)
    expected = same.add_and_round(zeros, unit=UNIT, step=event.step)
    assert NUCLEAR.draw(zeros, event, SeededNoise(3)) == expected


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("label", [False, True], ids=["one block", "class blocks"])
def test_with_the_same_noise_two_neighbours_differ_by_their_grams(label: bool, neighbours: Neighbours) -> None:
    """Replay with the same noise, to within one output step: rejections do not depend on the data."""
    schema = schema_with(label=label)
    pipe = pipeline(schema, dimension=1, s=Fraction(1, 2))
    common = [{c.name: i % 2 for c in schema.columns} for i in range(20)]
    event = NUCLEAR.calibrate(pipe.layout, neighbours, Epsilon(Fraction(1)))
    drawn, exact = [], []
    for value in (0, 2):
        cells = as_cells(schema, [*common, {c.name: value for c in schema.columns}])
        total = GramSum(pipe.layout)
        total.add(pipe.records(cells), pipe.encoding.classes(cells))
        exact.append(total.blocks)
        drawn.append(measure_gram(PrivateGram(total), event, SeededNoise(33)))
    truth = exact[0] - exact[1]
    assert np.any(truth != 0)
    i, j = np.triu_indices(pipe.layout.dimension)
    for block, (one, two) in enumerate(zip(*(d.values for d in drawn), strict=True)):
        for a, b, difference in zip(one, two, truth[block][i, j], strict=True):
            assert abs((a - b) * event.step - int(difference)) <= event.step
    assert Released.from_json(drawn[0].as_json()) == drawn[0]


# ---- refusals -------------------------------------------------------------------------------------


def test_more_than_eight_dimensions_are_refused_with_the_rule_also_as_a_stored_event() -> None:
    with pytest.raises(ValueError, match=r"dimension at most 8.*got 9"):
        NUCLEAR.calibrate(GramLayout(LARGEST_DIMENSION + 1, 1, Fraction(1)), REPLACE, Epsilon(Fraction(1)))
    forged = GramEvent.from_json(event_of(8, 1, REPLACE).as_json() | {"dimension": 9})
    with pytest.raises(ValueError, match="at most 8"):
        cost_of(forged)


def test_a_budget_of_the_wrong_kind_or_size_is_refused() -> None:
    with pytest.raises(ValueError, match="spends Epsilon, not Rho"):
        NUCLEAR.calibrate(GramLayout(3, 1, Fraction(1)), REPLACE, Rho(Fraction(1)))
    with pytest.raises(ValueError, match="epsilon must be positive"):
        NUCLEAR.calibrate(GramLayout(3, 1, Fraction(1)), REPLACE, Epsilon(Fraction(0)))


def planned(columns: int, **request: object) -> Plan:
    numbers = tuple(IntervalColumn(name=f"n{i}", kind=Kind.NUMERIC, lower=0, upper=1) for i in range(columns))
    chosen = {"neighbours": REPLACE, "dimension": 2, "mechanism": "nuclear-k-norm"} | request
    return make_plan(
        PlanRequest(
            schema=RecordSchema(numbers),
            unit=PrivacyUnit(),
            epsilon=Fraction(1),
            delta=Fraction(0),
            expected_rows=5000,
            **chosen,
        )
    )


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("dimension", [1, 7, "auto"])
def test_a_plan_may_ask_for_it_where_blocks_are_small(neighbours: Neighbours, dimension: int | str) -> None:
    plan = planned(7, neighbours=neighbours, dimension=dimension)
    assert plan.event.mechanism == "nuclear-k-norm"
    assert plan.cost.epsilon == 1
    rival = planned(7, neighbours=neighbours, dimension=plan.dimension, mechanism="wishart-difference")
    assert plan.expected.frobenius < rival.expected.frobenius


def test_a_plan_with_larger_blocks_is_refused() -> None:
    with pytest.raises(PlanError, match="at most 8") as refusal:
        planned(9, dimension=8)
    assert refusal.value.rule == "mechanism-not-applicable"
    assert refusal.value.where == "model.mechanism"


def test_it_is_the_registrys() -> None:
    assert gram_mechanism("nuclear-k-norm") is NUCLEAR


# ---- certified decisions ----------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_a_difference_is_kept_exactly_when_both_terms_dominate_its_parts(p: int) -> None:
    """The certified test agrees with B - Z₋ being positive semidefinite in floating point."""
    noise, verdicts = SeededNoise(p), []
    for _ in range(200):
        block = WishartDifference(dimension=p, blocks=1, rate=Fraction(1), trace_factor=False, noise=noise)
        verdict = decide(functools.partial(_dominates, block), block.uniforms)
        (plus,), (minus,) = (
            [np.array([[float(x.mid()) for x in row] for row in m.tolist()]) for m in part] for part in block.terms()
        )
        values, vectors = np.linalg.eigh(plus - minus)
        negative = (vectors * np.maximum(-values, 0)) @ vectors.T
        least = np.linalg.eigvalsh(minus - negative)[0]
        assert verdict == (least > 0) or abs(least) < 1e-9
        verdicts.append(verdict)
    assert all(verdicts) == (p == 1)
    assert any(verdicts)


def test_an_open_question_is_asked_again_with_more_places_of_the_same_numbers() -> None:
    block = WishartDifference(dimension=2, blocks=1, rate=Fraction(1), trace_factor=True, noise=SeededNoise(1))
    before = [ball.mid() for ball in block.uniforms[0].balls()]

    def only_with_many_places() -> bool | None:
        return True if block.uniforms[0].known_bits >= 8 * FIRST_BITS and ctx.prec >= 8 * FIRST_BITS else None

    assert decide(only_with_many_places, block.uniforms)
    with ctx.workprec(4096):
        assert all(abs(b - a) < 1e-15 for b, a in zip(block.uniforms[0].balls(), before, strict=True))


def test_eigenvalues_that_balls_cannot_tell_apart_leave_the_question_open() -> None:
    vague = arb(1, 1e-3)
    assert _modulus(arb_mat(2, 2, [vague, arb(0, 1e-3), arb(0, 1e-3), vague])) is None


TAPE_BITS = 1024


class Tapes(SeededNoise):
    """Noise that reads the places of the first uniform numbers from tapes; later ones are seeded."""

    def __init__(self, tapes: list[int], order: list[int]) -> None:
        super().__init__(77)
        self.tapes, self.order = tapes, iter(order)
        self.position = [0] * len(tapes)

    def bits(self, count: int) -> int:
        tape = None if count == 1 else next(self.order, None)
        if tape is None:
            return super().bits(count)
        start = self.position[tape]
        self.position[tape] += count
        return (self.tapes[tape] >> (TAPE_BITS - start - count)) & ((1 << count) - 1)


def whole(ball: arb) -> int:
    """The tape of a uniform number."""
    with ctx.workprec(4 * TAPE_BITS):
        return int((ball.mid() * arb(2) ** TAPE_BITS).floor().unique_fmpz())


def normals(tapes: list[int]) -> list[arb]:
    return [arb(2).sqrt() * (arb(fmpq(2 * t + 1, 1 << TAPE_BITS)) - 1).erfinv() for t in tapes]


def wishart(numbers: list[arb], p: int) -> arb_mat:
    factor = arb_mat(p, p + 1, numbers)
    return factor * factor.transpose()


@pytest.mark.parametrize(("nudge", "kept"), [(-1, True), (1, False)])
def test_an_acceptance_on_the_edge_asks_for_more_places_and_is_then_right(nudge: int, kept: bool) -> None:
    """Two blocks of one dimension; the uniform number agrees with exp(-|tr Z|) to 200 places."""
    source = SeededNoise(12)
    tapes = [source.bits(TAPE_BITS) for _ in range(8)]
    with ctx.workprec(TAPE_BITS):
        ends = normals(tapes)
        traces = [(wishart(ends[k : k + 2], 1) - wishart(ends[k + 2 : k + 4], 1))[0, 0] / 2 for k in (0, 4)]
        edge = whole((-abs(traces[0] + traces[1])).exp())
    tapes.append(edge + nudge * (1 << (TAPE_BITS - 200)))
    first, again = [*range(9)], [8, *range(8)]
    noise = Tapes(tapes, first + again)
    drawn = nuclear_noise(1, 2, True, noise).add_and_round([[0], [0]], unit=1 << 60, step=1)
    assert noise.position[8] == 2 * FIRST_BITS
    with ctx.workprec(TAPE_BITS):
        expected = [[int((t * 2**60 + arb(0.5)).floor().unique_fmpz())] for t in traces]
    assert (drawn == expected) is kept


def dominates_in_the_plane(numbers: list[arb]) -> bool:
    """Whether A + B - |A - B| is positive definite, with |Z| of a 2 x 2 matrix in closed form."""
    a, b = wishart(numbers[:6], 2), wishart(numbers[6:], 2)
    z, total = a - b, a + b
    determinant, trace = z.det(), z[0, 0] + z[1, 1]
    if determinant > 0:
        rest = total - z if trace > 0 else total + z
    else:  # |Z| = (Z² + λ₊|λ₋|) / (λ₊ + |λ₋|)
        one = arb_mat(2, 2, [1, 0, 0, 1])
        rest = total - (z * z - one * determinant) * (1 / (trace**2 - 4 * determinant).sqrt())
    return bool(rest[0, 0] > 0 and rest.det() > 0)


def edge_of_the_test(tapes: list[int], moving: int) -> tuple[int, bool]:
    """The uniform number at which the test changes its result, to 300 places, and whether larger numbers pass."""
    with ctx.workprec(TAPE_BITS):
        fixed = normals(tapes)

        def passes(tape: int) -> bool:
            return dominates_in_the_plane([*fixed[:moving], *normals([tape]), *fixed[moving + 1 :]])

        low, high = tapes[moving], next(t << (TAPE_BITS - 4) for t in range(1, 16) if passes(t << (TAPE_BITS - 4)))
        assert not passes(low)
        for _ in range(300):
            middle = (low + high) // 2
            low, high = (low, middle) if passes(middle) else (middle, high)
    return low, high > low


def rejected_tapes() -> list[int]:
    """Uniform numbers of a rejected 2 x 2 Wishart difference."""
    for seed in range(100):
        source = SeededNoise(seed)
        tapes = [source.bits(TAPE_BITS) for _ in range(12)]
        with ctx.workprec(TAPE_BITS):
            if not dominates_in_the_plane(normals(tapes)):
                return tapes
    raise AssertionError("every draw was kept")


@pytest.mark.parametrize("kept", [True, False])
def test_a_domination_on_the_edge_asks_for_more_places_and_is_then_right(kept: bool) -> None:
    tapes = rejected_tapes()
    edge, upwards = edge_of_the_test(tapes, 0)
    tapes[0] = edge + (1 if kept == upwards else -1) * (1 << (TAPE_BITS - 200))
    noise = Tapes(tapes, [*range(12), *range(12)])
    drawn = nuclear_noise(2, 1, False, noise).add_and_round([[0] * 3], unit=1 << 60, step=1)
    assert noise.position == [2 * FIRST_BITS] * 12
    with ctx.workprec(TAPE_BITS):
        ends = normals(tapes)
        z = (wishart(ends[:6], 2) - wishart(ends[6:], 2)) / 2
        expected = [[int((z[i, j] * 2**60 + arb(0.5)).floor().unique_fmpz()) for i, j in ((0, 0), (0, 1), (1, 1))]]
    assert (drawn == expected) is kept


# ---- the law ------------------------------------------------------------------------------


@pytest.mark.parametrize("trace_factor", [False, True])
def test_in_one_dimension_the_noise_is_exactly_laplace(trace_factor: bool) -> None:
    """Rate c gives scale 1/c, and 1/(2c) with the trace factor."""
    draws = real_noise(1, 1, trace_factor, 800)[:, 0, 0, 0]
    scale, wrong = (0.5, 1.0) if trace_factor else (1.0, 0.5)
    assert stats.kstest(draws, stats.laplace(scale=scale).cdf).pvalue > 1e-6
    assert stats.kstest(draws, stats.laplace(scale=wrong).cdf).pvalue < NEVER


@pytest.mark.parametrize("trace_factor", [False, True])
def test_in_one_dimension_nothing_is_rejected(trace_factor: bool) -> None:
    """Draw by draw it is the Wishart difference, whose Laplace law is tested to 10 %."""
    one, two = SeededNoise(2), SeededNoise(2)
    for _ in range(50):
        plain = WishartDifference(dimension=1, blocks=1, rate=Fraction(3), trace_factor=trace_factor, noise=one)
        drawn = nuclear_noise(1, 1, trace_factor, two, Fraction(3))
        assert drawn.add_and_round([[5]], unit=UNIT, step=1) == plain.add_and_round([[5]], unit=UNIT, step=1)


@pytest.mark.parametrize("shape", SHAPES)
@FITS
def test_the_norm_of_the_noise_is_gamma_with_one_degree_per_entry(
    shape: tuple[int, int, bool], factor: float, fits: bool
) -> None:
    """This holds for every K-norm noise and does not involve eigenvalues."""
    p, blocks, trace_factor = shape
    entries = blocks * triangle_size(p)
    lengths = norm(draws_of(shape), trace_factor)
    assert agrees(lengths, factor * entries) is fits
    if fits:
        assert stats.kstest(lengths, stats.gamma(entries).cdf).pvalue > 1e-6


STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "trace": lambda z: np.einsum("nkii->n", z),
    "frobenius": lambda z: np.sqrt((z**2).sum(axis=(1, 2, 3))),
    "corner entry": lambda z: z[:, 0, 0, -1],
    "first block's trace": lambda z: np.einsum("nii->n", z[:, 0]),
    "top eigenvalue": lambda z: np.linalg.eigvalsh(z[:, 0])[:, -1],
    "positive eigenvalues": lambda z: (np.linalg.eigvalsh(z[:, 0]) > 0).sum(axis=1) + 0.0,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_noise_has_the_law_of_eigenvalues_radius_and_rotation(shape: tuple[int, int, bool]) -> None:
    expected = oracle(*shape, 150_000, generator(5))
    assert len(expected) > 2000
    for name, statistic in STATISTICS.items():
        assert stats.ks_2samp(statistic(draws_of(shape)), statistic(expected)).pvalue > 1e-6, name


def test_that_comparison_would_notice_a_missing_trace_factor() -> None:
    expected = oracle(2, 1, True, 150_000, generator(6))
    for name in ("trace", "frobenius"):
        assert stats.ks_2samp(STATISTICS[name](draws_of((2, 1, False))), STATISTICS[name](expected)).pvalue < NEVER


def test_a_trace_factor_in_each_block_would_be_another_law() -> None:
    single = [oracle(2, 1, True, 400_000, generator(seed))[:20_000] for seed in (1, 2)]
    expected = oracle(2, 2, True, 400_000, generator(7))
    lengths = norm(np.concatenate(single, axis=1), True)
    assert stats.ks_2samp(lengths, norm(expected, True)).pvalue < NEVER


def test_plain_wishart_differences_are_another_law() -> None:
    """Without the rejection the norm is not Gamma."""
    plain = norm(wishart_difference(3, 1, 1.0, 20_000, generator(8)), False)
    assert not agrees(plain, triangle_size(3))


@pytest.mark.parametrize("shape", [(2, 1, False), (2, 1, True), (3, 1, True)])
def test_the_noise_does_not_change_when_it_is_rotated(shape: tuple[int, int, bool]) -> None:
    p = shape[0]
    turn, _ = np.linalg.qr(generator(9).standard_normal((p, p)))
    one, two = np.array_split(draws_of(shape), 2)
    turned = turn @ two @ turn.T
    for i, j in ((0, 0), (0, 1), (p - 1, p - 1)):
        assert stats.ks_2samp(one[:, 0, i, j], turned[:, 0, i, j]).pvalue > 1e-6


# ---- the size -------------------------------------------------------------------------------


def event_of(p: int, blocks: int, neighbours: Neighbours, epsilon: Fraction = Fraction(1)) -> GramEvent:
    return NUCLEAR.calibrate(GramLayout(p, blocks, Fraction(1, 2)), neighbours, Epsilon(epsilon))


@pytest.mark.parametrize("shape", [(2, 1, True), (3, 1, True)])
@FITS
def test_the_expected_error_is_that_of_the_drawn_noise(shape: tuple[int, int, bool], factor: float, fits: bool) -> None:
    p, event = shape[0], event_of(shape[0], 1, REPLACE)
    error = NUCLEAR.expected_error(event)
    squares = (draws_of(shape)[:, 0] / float(event.noise)) ** 2
    trace, total = np.einsum("nii->n", squares), squares.sum(axis=(1, 2))
    assert agrees(total, (factor * error.frobenius) ** 2) is fits
    if fits:
        assert agrees(trace / p, error.diagonal_sd**2)
        assert agrees((total - trace) / (p * (p - 1)), error.off_diagonal_sd**2)


@pytest.mark.parametrize(("p", "blocks"), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (4, 1)])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_exact_mean_squares_are_those_of_the_oracle(p: int, blocks: int, neighbours: Neighbours) -> None:
    """The closed form against a weighted integral over directions: for a K-norm E|Z|² = d (d+1) E|direction|²."""
    frobenius, off_diagonal = mean_squares(p, blocks, neighbours)
    z = oracle(p, blocks, neighbours is REPLACE, 250_000, generator(10))
    assert agrees((z**2).sum(axis=(2, 3)).mean(axis=1), float(frobenius))
    assert p == 1 or agrees(z[:, 0, 0, -1] ** 2, float(off_diagonal))


def test_in_one_dimension_the_mean_squares_are_laplaces() -> None:
    assert mean_squares(1, 1, ADD)[0] == 2
    assert mean_squares(1, 1, REPLACE)[0] == Fraction(1, 2)


def test_blocks_do_not_matter_to_each_other_under_add_remove_and_ever_less_under_replace_one() -> None:
    for p in (2, 5, 8):
        assert mean_squares(p, 4, ADD) == mean_squares(p, 1, ADD)
        one, four, many = (mean_squares(p, k, REPLACE)[0] for k in (1, 4, 40))
        assert one < four < many < mean_squares(p, 1, ADD)[0]


TABLE = {(2, False): (5.0, 4.7), (4, False): (13, 10), (2, True): (3.4, None), (4, True): (11.0, None)}
"""Mean Frobenius and operator norms at rate 1/2."""


@pytest.mark.parametrize(("p", "trace_factor"), TABLE)
def test_mean_norms_are_those_of_the_table(p: int, trace_factor: bool) -> None:
    draws = 2 * (draws_of((p, 1, trace_factor)) if p == 2 else oracle(p, 1, trace_factor, 250_000, generator(4)))[:, 0]
    for order, expected in zip(("fro", 2), TABLE[p, trace_factor], strict=True):
        if expected is not None:
            assert np.linalg.norm(draws, ord=order, axis=(1, 2)).mean() == pytest.approx(expected, rel=0.06)


def test_at_dimension_eight_the_root_mean_square_is_near_the_mean() -> None:
    """The norm's radius is Gamma(36), so mean and root mean square are 2 % apart; a draw takes seconds."""
    assert 2 * math.sqrt(mean_squares(8, 1, ADD)[0]) == pytest.approx(33, rel=0.03)


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("p", [2, 4])
def test_the_expected_operator_norm_is_near_that_of_the_noise(p: int, neighbours: Neighbours) -> None:
    """It is a large-dimension limit, within a factor of a half at small dimensions."""
    event = event_of(p, 1, neighbours)
    z = oracle(p, 1, neighbours is REPLACE, 150_000, generator(11))[:, 0] / float(event.noise)
    simulated = np.linalg.norm(z, ord=2, axis=(1, 2)).mean()
    assert simulated <= NUCLEAR.expected_error(event).operator <= 1.5 * simulated


def test_at_dimension_eight_the_expected_operator_norm_is_near_the_published_mean() -> None:
    event = event_of(8, 1, ADD)
    assert 22 <= NUCLEAR.expected_error(event).operator * 2 * float(event.noise) <= 1.2 * 22
