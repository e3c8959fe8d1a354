"""Noise has the promised distribution, to the last bit where that is certified; wrong scales are detected."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from support.dpcore.samplers import (
    NEVER,
    SIGMAS,
    agrees,
    gaussian_triangles,
    generator,
    laplace_triangles,
    symmetric,
    wishart_difference,
    wishart_trace,
    wishart_trace_by_rejection,
)

from dpcore.accounting import Budget, Epsilon, Rho, rho_of_epsilon
from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.catalogue import ENTRIES
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.certified import FIRST_BITS, LazyUniforms, NormalSums
from dpcore.noise.sources import Noise, SeededNoise, SystemNoise, bulk_generator, draw_seed, public_generator
from dpcore.noise.wishart import WishartDifference
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

Floats = NDArray[np.float64]

FITS = pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.9, False), (1.1, False)])


@functools.cache
def real_noise(p: int, blocks: int, trace_factor: bool, size: int) -> Floats:
    """Draws of the shipped sampler at rate 1, shape (size, blocks, p, p)."""
    noise, cells = SeededNoise(1000 * p + 10 * blocks + trace_factor), p * (p + 1) // 2
    draws = []
    for _ in range(size):
        source = WishartDifference(dimension=p, blocks=blocks, rate=Fraction(1), trace_factor=trace_factor, noise=noise)
        draws.append(symmetric(source.add_and_round([[0] * cells] * blocks, unit=1 << 40, step=1), p, 1 << 40))
    return np.array(draws)


# ---- (a) closed forms at dimension one -------------------------------------------------


@pytest.mark.parametrize("trace_factor", [False, True])
@FITS
def test_in_one_dimension_the_noise_is_exactly_laplace(trace_factor: bool, factor: float, fits: bool) -> None:
    """Rate c gives scale 1/c; the factor exp(-c |z|) makes the density exp(-2 c |z|), scale 1/(2c)."""
    draws = real_noise(1, 1, trace_factor, 8000)[:, 0, 0, 0]
    scale = (0.5 if trace_factor else 1.0) * factor
    assert agrees(np.abs(draws), scale) is fits
    if fits:
        assert stats.kstest(draws, stats.laplace(scale=scale).cdf).pvalue > 1e-6


def test_with_several_blocks_of_one_dimension_the_trace_factor_couples_them() -> None:
    """Two blocks: tr A, tr B have density a b exp(-2c max(a, b)); the total trace's law is integrated numerically."""
    draws = np.einsum("nkii->n", real_noise(1, 2, True, 1500))

    def density(t: float) -> float:  # integral over b of (b + t) b exp(-2 (b + t)), for t >= 0
        return math.exp(-2 * t) * (2 / 8 + t / 4)  # b² and t b against exp(-2b)

    mass = 2 * (0.25 / 2 + 0.25 / 4)

    def cdf(t: Floats) -> Floats:
        x = np.abs(t)
        tail = np.exp(-2 * x) * (0.25 / 2 + x / 8 + 1 / 16) / mass
        return np.where(t < 0, tail, 1 - tail)

    assert density(0.0) == pytest.approx(0.25)
    assert stats.kstest(draws, cdf).pvalue > 1e-6


# ---- (b) moments -----------------------------------------------------------------------

MECHANISMS: dict[str, Budget] = {
    "wishart-difference": Epsilon(Fraction(1)),
    "wishart-difference-trace": Epsilon(Fraction(1)),
    "laplace": Epsilon(Fraction(1)),
    "gaussian": Rho(Fraction(1, 2)),
}


def test_every_gram_mechanism_is_looked_at_here_or_in_a_module_of_its_own() -> None:
    named = {entry.name: entry.mechanism for entry in ENTRIES if entry.mechanism is not None}
    grams = {name for name, mechanism in named.items() if mechanism.output is Output.GRAM}
    assert grams - set(MECHANISMS) == {"nuclear-k-norm"}, "which has test_nuclear_knorm.py"


def event_of(name: str, p: int, blocks: int, neighbours: Neighbours = Neighbours.REPLACE_ONE) -> GramEvent:
    return gram_mechanism(name).calibrate(GramLayout(p, blocks, Fraction(1, 2)), neighbours, MECHANISMS[name])


@functools.cache
def mechanism_noise(name: str, p: int, blocks: int, size: int) -> Floats:
    """The noise that a mechanism adds to zero sums, in records."""
    event = event_of(name, p, blocks)
    zeros, noise = [[0] * (p * (p + 1) // 2)] * blocks, SeededNoise(p + 17 * blocks)
    mechanism = gram_mechanism(name)
    size *= 4 if "laplace" in name else 1  # cheap draws with heavy tails
    return np.array([symmetric(mechanism.draw(zeros, event, noise), p, UNIT / event.step) for _ in range(size)])


SHAPES = [(2, 1, 6000), (3, 2, 2000)]
"""Dimension, blocks, draws: enough to detect an error of 10 %."""


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("p", "blocks", "size"), SHAPES)
@FITS
def test_the_expected_error_is_that_of_the_drawn_noise(
    name: str, p: int, blocks: int, size: int, factor: float, fits: bool
) -> None:
    error = gram_mechanism(name).expected_error(event_of(name, p, blocks))
    squares = mechanism_noise(name, p, blocks, size) ** 2
    frobenius = squares.sum(axis=(2, 3)).mean(axis=1)
    diagonal = np.einsum("nkii->n", squares) / (p * blocks)
    other = (squares.sum(axis=(1, 2, 3)) - np.einsum("nkii->n", squares)) / (blocks * p * (p - 1))
    assert agrees(frobenius, (factor * error.frobenius) ** 2) is fits
    assert agrees(diagonal, (factor * error.diagonal_sd) ** 2) is fits
    assert agrees(other, (factor * error.off_diagonal_sd) ** 2) is fits


@pytest.mark.parametrize("p", [2, 3])
def test_the_off_diagonal_variance_is_half_of_p_plus_one_over_the_squared_rate(p: int) -> None:
    draws = real_noise(p, 1, False, 1500)[:, 0]
    diagonal, other = draws[:, 0, 0] ** 2, draws[:, 0, 1] ** 2
    assert agrees(other, (p + 1) / 2)
    assert agrees(diagonal, p + 1)
    assert agrees(draws[:, 0, 0], 0.0)
    assert agrees(draws[:, 0, 1], 0.0)


@pytest.mark.parametrize(("name", "p"), [(name, p) for name in MECHANISMS for p in (4, 24)])
def test_the_expected_operator_norm_is_near_that_of_the_noise(name: str, p: int) -> None:
    """It is a large-dimension limit: within 15 % at p = 24, within a factor of a half at p = 4."""
    event = event_of(name, p, 1)
    rng, scale = generator(p), float(event.noise)
    if name == "laplace":
        draws = laplace_triangles(p, scale / UNIT, 17 / 12, 300, rng)
    elif name == "gaussian":
        draws = gaussian_triangles(p, scale / UNIT, 300, rng)
    else:
        assert name.startswith("wishart"), f"{name} needs a second sampler here"
        sampler = wishart_trace if name.endswith("trace") else wishart_difference
        draws = sampler(p, 1, scale, 300, rng)[:, 0]
    simulated = np.linalg.norm(draws, ord=2, axis=(1, 2)).mean()
    expected = gram_mechanism(name).expected_error(event).operator
    assert (0.9 if p == 24 else 0.5) * simulated <= expected <= (1.15 if p == 24 else 1.5) * simulated


# ---- (c) the rejection-free sampler against the definition ------------------------------

STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "trace": lambda z: np.einsum("nkii->n", z),
    "frobenius": lambda z: np.sqrt((z**2).sum(axis=(1, 2, 3))),
    "corner entry": lambda z: z[:, 0, 0, -1],
    "first block's trace": lambda z: np.einsum("nii->n", z[:, 0]),
    "top eigenvalue": lambda z: np.linalg.eigvalsh(z[:, 0])[:, -1],
}


@pytest.mark.parametrize(("p", "blocks"), [(2, 1), (3, 1), (2, 2), (1, 3), pytest.param(2, 3, marks=pytest.mark.slow)])
def test_the_trace_variant_is_plain_noise_kept_with_probability_exp_minus_c_trace(p: int, blocks: int) -> None:
    drawn = real_noise(p, blocks, True, 1500)
    oracle = wishart_trace_by_rejection(p, blocks, 1.0, 120_000, generator(p + blocks))
    for name, statistic in STATISTICS.items():
        assert stats.ks_2samp(statistic(drawn), statistic(oracle)).pvalue > 1e-6, name


@pytest.mark.parametrize(("p", "blocks"), [(2, 1)])
def test_that_comparison_would_notice_a_missing_trace_factor(p: int, blocks: int) -> None:
    drawn = real_noise(p, blocks, False, 1500)
    oracle = wishart_trace_by_rejection(p, blocks, 1.0, 120_000, generator(p + blocks))
    for name in ("trace", "frobenius"):
        assert stats.ks_2samp(STATISTICS[name](drawn), STATISTICS[name](oracle)).pvalue < NEVER, name


def test_that_comparison_would_notice_a_trace_factor_in_each_block() -> None:
    single = [wishart_trace(2, 1, 1.0, 2500, generator(seed)) for seed in (1, 2)]
    oracle = wishart_trace_by_rejection(2, 2, 1.0, 120_000, generator(3))
    first = STATISTICS["first block's trace"]
    assert stats.ks_2samp(first(np.concatenate(single, axis=1)), first(oracle)).pvalue < NEVER


@pytest.mark.parametrize(("p", "blocks"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("trace_factor", [False, True])
def test_the_bulk_sampler_of_the_audits_agrees_with_the_real_one(p: int, blocks: int, trace_factor: bool) -> None:
    drawn = real_noise(p, blocks, trace_factor, 8000 if p == 1 == blocks else 1500)
    bulk = (wishart_trace if trace_factor else wishart_difference)(p, blocks, 1.0, 60_000, generator(77))
    for name, statistic in STATISTICS.items():
        assert stats.ks_2samp(statistic(drawn), statistic(bulk)).pvalue > 1e-6, name


# ---- (d) a table of mean norms -----------------------------------------------------------

TABLE = {
    ("wishart-difference", 2): (5.1, 4.8),
    ("wishart-difference", 4): (13, 11),
    ("wishart-difference", 8): (35, 24),
    ("wishart-difference-trace", 2): (3.7, 3.2),
    ("wishart-difference-trace", 4): (12, 9.1),
    ("wishart-difference-trace", 8): (34, 22),
    ("gaussian", 2): (9.5, 8.6),
    ("gaussian", 4): (18, 14),
    ("gaussian", 8): (36, 22),
    ("laplace", 2): (5.2, 4.7),
    ("laplace", 4): (19, 15),
    ("laplace", 8): (70, 44),
}


@pytest.mark.parametrize(("name", "p"), TABLE)
def test_mean_norms_are_those_of_the_table(name: str, p: int) -> None:
    """Mean Frobenius and operator norms at epsilon 1, replace-one and squared norm 1: that of the layout is 5/4."""
    budget = Rho(rho_of_epsilon(1.0, delta=1e-6)) if name == "gaussian" else Epsilon(Fraction(1))
    layout, mechanism = GramLayout(p, 1, Fraction(1, 2)), gram_mechanism(name)
    event = mechanism.calibrate(layout, Neighbours.REPLACE_ONE, budget)
    zeros, noise = [[0] * (p * (p + 1) // 2)], SeededNoise(p)
    size = {2: 2500, 4: 700, 8: 300}[p]
    draws = [symmetric(mechanism.draw(zeros, event, noise), p, UNIT / event.step)[0] for _ in range(size)]
    stacked = np.array(draws) / float(layout.squared_norm)
    for order, expected in zip(("fro", 2), TABLE[name, p], strict=True):
        assert np.linalg.norm(stacked, ord=order, axis=(1, 2)).mean() == pytest.approx(expected, rel=0.05)


# ---- (e) certified rounding ----------------------------------------------------------------

TAPE_BITS = 1024


class Tapes:
    """Noise that reads the places of each uniform number from its own tape, so that an oracle knows all of them."""

    seeded = True

    def __init__(self, normals: list[int], traces: list[int], coin: int) -> None:
        self.tapes, self.coin = normals + traces, coin
        self.position = [0] * len(self.tapes)
        self.calls = 0

    def bits(self, count: int) -> int:
        if count == 1:
            return self.coin
        tape = self.calls % len(self.tapes)
        self.calls += 1
        start = self.position[tape]
        self.position[tape] += count
        return (self.tapes[tape] >> (TAPE_BITS - start - count)) & ((1 << count) - 1)

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        raise NotImplementedError

    @property
    def places_read(self) -> int:
        return max(self.position)


def oracle_difference(tapes: Tapes, p: int, blocks: int, rate: Fraction, trace_factor: bool) -> list[list[Fraction]]:
    """The upper triangles of Z from whole tapes at 1024 bits, computed as sums instead of matrix products."""
    from flint import arb, ctx, fmpq

    def exact(value: object) -> Fraction:
        middle = value.mid().man_exp()  # type: ignore[attr-defined]
        return Fraction(int(middle[0])) * Fraction(2) ** int(middle[1])

    with ctx.workprec(TAPE_BITS):
        uniforms = [arb(fmpq(2 * t + 1, 1 << (TAPE_BITS + 1))) for t in tapes.tapes]
        count = 2 * blocks * p * (p + 1)
        normals = [arb(2).sqrt() * (2 * u - 1).erfinv() for u in uniforms[:count]]

        def entry(matrix: int, i: int, j: int) -> arb:
            base = matrix * p * (p + 1)
            return sum(
                (normals[base + i * (p + 1) + k] * normals[base + j * (p + 1) + k] for k in range(p + 1)), arb(0)
            )

        def total(first: int) -> arb:
            return sum((entry(first + b, i, i) for b in range(blocks) for i in range(p)), arb(0))

        plus = minus = arb(fmpq(rate.denominator, 2 * rate.numerator))
        if trace_factor:
            n = blocks * p * (p + 1) // 2
            larger = sum((-u.log() for u in uniforms[count + 1 :]), arb(0)) * plus
            smaller = larger * uniforms[count] ** arb(fmpq(1, n))
            traces = (larger, smaller) if tapes.coin else (smaller, larger)
            plus, minus = traces[0] / total(0), traces[1] / total(blocks)
        return [
            [exact(entry(b, i, j) * plus - entry(blocks + b, i, j) * minus) for i in range(p) for j in range(i, p)]
            for b in range(blocks)
        ]


def tapes_for(p: int, blocks: int, trace_factor: bool, seed: int) -> Tapes:
    source = SeededNoise(seed)
    traces = blocks * p * (p + 1) + 1 if trace_factor else 0
    draw = [source.bits(TAPE_BITS) for _ in range(2 * blocks * p * (p + 1) + traces)]
    normals = 2 * blocks * p * (p + 1)
    return Tapes(draw[:normals], draw[normals:], source.bits(1))


@pytest.mark.parametrize(("p", "blocks"), [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("trace_factor", [False, True])
@pytest.mark.parametrize("nudge", [-1, 1])
def test_a_sum_on_the_edge_of_a_rounding_asks_for_more_places_and_is_then_right(
    p: int, blocks: int, trace_factor: bool, nudge: int
) -> None:
    """Offsets put every sum within 2^-200 steps of a rounding boundary: 128 places do not decide it."""
    tapes, rate, unit = tapes_for(p, blocks, trace_factor, 5), Fraction(3, 7), 1 << 200
    ideal = oracle_difference(tapes, p, blocks, rate, trace_factor)
    offsets = [[round(Fraction(unit, 2) - unit * z) + nudge for z in block] for block in ideal]
    source = WishartDifference(dimension=p, blocks=blocks, rate=rate, trace_factor=trace_factor, noise=tapes)
    rounded = source.add_and_round(offsets, unit=unit, step=unit)
    assert tapes.places_read >= 2 * FIRST_BITS
    exact = [
        [math.floor((base + unit * z) / unit + Fraction(1, 2)) for base, z in zip(row, block, strict=True)]
        for row, block in zip(offsets, ideal, strict=True)
    ]
    assert rounded == exact
    assert {cell for row in rounded for cell in row} == {1 if nudge > 0 else 0}


@pytest.mark.parametrize("trace_factor", [False, True])
def test_ordinary_sums_are_rounded_as_at_1024_bits(trace_factor: bool) -> None:
    for seed in range(40):
        tapes, rate = tapes_for(2, 1, trace_factor, seed), Fraction(1, 3)
        offsets = [[3 * seed, -(10**12), 10**15 + seed]]
        (ideal,) = oracle_difference(tapes, 2, 1, rate, trace_factor)
        source = WishartDifference(dimension=2, blocks=1, rate=rate, trace_factor=trace_factor, noise=tapes)
        (row,) = source.add_and_round(offsets, unit=UNIT, step=1 << 10)
        assert row == [
            math.floor((o + UNIT * z) / (1 << 10) + Fraction(1, 2)) for o, z in zip(offsets[0], ideal, strict=True)
        ]
        assert tapes.places_read == FIRST_BITS


@pytest.mark.parametrize(("scale_bits", "places"), [(20, 1), (100, 1), (300, 4)], ids=["quick", "first", "more"])
def test_normal_sums_are_rounded_as_at_1024_bits_whatever_precision_decides_each(scale_bits: int, places: int) -> None:
    """A scale of 2^100 needs more than the quick precision, one of 2^300 more places; small ones stay as decided."""
    from flint import arb, ctx, fmpq

    source = SeededNoise(8)
    tapes = Tapes([source.bits(TAPE_BITS) for _ in range(40)], [], 0)
    scales = [1 << scale_bits if k % 2 else 5 for k in range(40)]
    offsets = [(-1) ** k * 10 ** (k + 1) for k in range(40)]
    with ctx.workprec(TAPE_BITS):
        uniforms = [arb(fmpq(2 * t + 1, 1 << (TAPE_BITS + 1))) for t in tapes.tapes]
        normals = [arb(2).sqrt() * (2 * u - 1).erfinv() * s for u, s in zip(uniforms, scales, strict=True)]
        ideal = [base + int((n + arb(0.5)).floor().unique_fmpz()) for n, base in zip(normals, offsets, strict=True)]
    assert NormalSums(40, tapes).add_and_round(offsets, [Fraction(s) ** 2 for s in scales]) == ideal
    assert tapes.places_read == places * FIRST_BITS


@pytest.mark.parametrize("places", [0, (1 << FIRST_BITS) - 1], ids=["zero", "one"])
@pytest.mark.parametrize("which", ["normals", "traces"])
def test_a_uniform_whose_first_places_are_all_equal_asks_for_more_places(places: int, which: str) -> None:
    """Its ball touches 0 or 1, where the logarithm or the normal quantile is infinite."""
    tapes = tapes_for(2, 1, True, 9)
    at = 0 if which == "normals" else len(tapes.tapes) - 1
    rest = tapes.tapes[at] & ((1 << (TAPE_BITS - FIRST_BITS)) - 1)
    tapes.tapes[at] = (places << (TAPE_BITS - FIRST_BITS)) | rest
    (ideal,) = oracle_difference(tapes, 2, 1, Fraction(1), True)
    source = WishartDifference(dimension=2, blocks=1, rate=Fraction(1), trace_factor=True, noise=tapes)
    (row,) = source.add_and_round([[0, 0, 0]], unit=UNIT, step=1)
    assert row == [math.floor(UNIT * z + Fraction(1, 2)) for z in ideal]


def test_extending_uniform_numbers_keeps_their_known_places() -> None:
    uniforms = LazyUniforms(50, SeededNoise(3))
    before, known = list(uniforms._places), uniforms.balls()
    uniforms.extend()
    assert uniforms.known_bits == 2 * FIRST_BITS
    assert [place >> FIRST_BITS for place in uniforms._places] == before
    assert len({place & ((1 << FIRST_BITS) - 1) for place in uniforms._places}) == 50, "the new places are random"
    from flint import ctx

    with ctx.workprec(4 * FIRST_BITS):
        assert all(old.contains(new) for old, new in zip(known, uniforms.balls(), strict=True))


def test_uniform_numbers_are_uniform() -> None:
    places = LazyUniforms(5000, SeededNoise(4))._places
    assert stats.kstest([p / 2.0**FIRST_BITS for p in places], "uniform").pvalue > 1e-6


# ---- (f) the discrete samplers: unseeded, so the thresholds are at 1e-9 ------------------------


def system_draws(kind: str, scale: float, size: int) -> Floats:
    noise: Noise = SystemNoise()
    if kind == "gaussian":
        return np.array(
            NormalSums(size, noise).add_and_round([0] * size, [Fraction(scale) ** 2] * size), dtype=np.float64
        )
    return np.array(noise.discrete_laplace(scale, size), dtype=np.float64)


@functools.cache
def large_draws(kind: str) -> Floats:
    return system_draws(kind, 2.0**33 * 1.7, 24_000)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@FITS
def test_system_noise_has_the_promised_scale(kind: str, factor: float, fits: bool) -> None:
    draws, scale = large_draws(kind) / (2.0**33 * 1.7), factor
    law = stats.laplace(scale=scale) if kind == "laplace" else stats.norm(scale=scale)
    assert agrees(np.abs(draws), scale * (1.0 if kind == "laplace" else math.sqrt(2 / math.pi))) is fits
    if fits:
        assert stats.kstest(draws, law.cdf).pvalue > NEVER
        assert agrees(draws, 0.0)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_small_system_noise_is_discrete_with_the_exact_masses(kind: str) -> None:
    scale, size = 1.5, 20_000
    draws = system_draws(kind, scale, size)
    support = np.arange(-60, 61)
    mass = np.exp(-np.abs(support) / scale)
    if kind == "gaussian":  # a normal number, rounded
        mass = stats.norm.cdf(support + 0.5, scale=scale) - stats.norm.cdf(support - 0.5, scale=scale)
    mass /= mass.sum()
    edge = 4
    observed = [np.sum(draws <= -edge), *(np.sum(draws == k) for k in range(1 - edge, edge)), np.sum(draws >= edge)]
    tail = mass[support >= edge].sum()
    expected = [tail, *mass[(support > -edge) & (support < edge)], tail]
    assert stats.chisquare(observed, np.array(expected) * size).pvalue > NEVER


def test_the_off_diagonal_noise_of_a_gaussian_release_is_smaller_by_the_root_of_two() -> None:
    """One draw of 4000 blocks, from operating-system entropy."""
    layout, mechanism = GramLayout(2, 4000, Fraction(1)), gram_mechanism("gaussian")
    event = mechanism.calibrate(layout, Neighbours.ADD_REMOVE, Rho(Fraction(1)))
    drawn = symmetric(mechanism.draw([[0, 0, 0]] * 4000, event, SystemNoise()), 2, float(event.noise))
    assert agrees(drawn[:, 0, 0] ** 2, 1.0)
    assert agrees(drawn[:, 1, 1] ** 2, 1.0)
    assert agrees(drawn[:, 0, 1] ** 2, 0.5)
    assert not agrees(drawn[:, 0, 1] ** 2, 1.0)


def test_system_noise_is_not_seeded_and_never_repeats() -> None:
    assert SystemNoise.seeded is False
    assert len({SystemNoise().bits(128) for _ in range(200)}) == 200
    assert all(0 <= SystemNoise().bits(3) < 8 for _ in range(200))


# ---- (g) seeds ------------------------------------------------------------------------------------


def test_seeded_noise_repeats_itself_and_says_so() -> None:
    one, two, other = SeededNoise(7), SeededNoise(7), SeededNoise(8)
    assert one.seeded
    assert [one.bits(64), one.discrete_laplace(1e6, 4)] == [two.bits(64), two.discrete_laplace(1e6, 4)]
    assert one.bits(64) != other.bits(64)


Stream = Callable[[str, str], np.random.Generator]


@pytest.mark.parametrize("stream", [public_generator, bulk_generator])
def test_a_public_seed_gives_the_same_stream_again_and_another_one_for_another_purpose(stream: Stream) -> None:
    seed = "ab" * 16
    first, again = (stream(seed, "projection").standard_normal(2000) for _ in range(2))
    assert np.array_equal(first, again)
    for other in (
        stream(seed, "sampling").standard_normal(2000),
        stream("ac" * 16, "projection").standard_normal(2000),
    ):
        assert not np.any(first == other)
        assert abs(np.corrcoef(first, other)[0, 1]) < SIGMAS / math.sqrt(2000)


@pytest.mark.parametrize("stream", [public_generator, bulk_generator])
def test_seed_and_purpose_cannot_be_exchanged_for_one_another(stream: Stream) -> None:
    """A seed that ends in a purpose's bytes is not the shorter seed with that purpose."""
    tail = b"x".hex()
    assert stream("ab" + tail, "y").random() != stream("ab", "xy").random()


def test_fresh_seeds_differ_and_have_128_bits() -> None:
    seeds = {draw_seed() for _ in range(1000)}
    assert len(seeds) == 1000
    assert {len(seed) for seed in seeds} == {32}
    ones = sum(int(seed, 16).bit_count() for seed in seeds)
    assert abs(ones - 64_000) < SIGMAS * math.sqrt(128_000 / 4)
