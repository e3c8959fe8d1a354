"""Attacks on simulated noise and on published calibrations: tight for proved claims, and they catch refuted ones.

`dpcore.auditing.simulated_attacks` simulates the noise along the worst pair; here its laws are compared with
real draws of `measure_gram`, and its tilted counts with exact tails.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, special, stats
from support import ROOT
from support.dpcore.samplers import generator, wishart_difference, wishart_trace

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.auditing.lower_bounds import entrywise_lower_bound, sample_lower_bound
from dpcore.auditing.refuted import COUNTEREXAMPLES
from dpcore.auditing.simulated_attacks import DIMENSIONS, SIMULATED, Tail, claim_of, simulate, wishart_tail
from dpcore.auditing.worst_pairs import orthogonal_pair, steep_pair
from dpcore.measure import PrivateGram, measure_gram
from dpcore.mechanisms.base import UNIT, GramEvent
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.queries import GRID, HistogramsQuery
from dpcore.mechanisms.registry import gram_mechanism, mechanism_of, vector_mechanism
from dpcore.mechanisms.sensitivity import best_l1_weight, gram_weighted_l1
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GRID_BITS, GramLayout, GramSum, integer_records
from dpcore.records.schema import Neighbours

Floats = NDArray[np.float64]
ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE

SIZE = 400_000
CASES = [
    pytest.param(name, relation, p, id=f"{name}, {relation}, P={p}")
    for name in SIMULATED
    for relation in BY_NAME[name].neighbours
    for p in DIMENSIONS
]


# ---- how much of the claim the attacks reach ---------------------------------------------------------


@pytest.mark.parametrize(("name", "relation", "p"), CASES)
def test_the_attack_reaches_most_of_a_proved_claim_and_not_more_than_all(
    name: str, relation: Neighbours, p: int
) -> None:
    """At least 65 % at every dimension, so that an error of a factor 1.5 is detected."""
    claimed, _, measured = simulate(name, relation, p, draws=SIZE, rng=generator(11))
    assert 0.65 * claimed <= measured <= claimed


@pytest.mark.parametrize(("name", "relation", "p"), CASES)
def test_the_same_attack_catches_noise_that_is_one_and_a_half_times_too_small(
    name: str, relation: Neighbours, p: int
) -> None:
    claimed, _, measured = simulate(name, relation, p, draws=SIZE, rng=generator(12), noise=1 / 1.5)
    assert measured > claimed


@pytest.mark.slow
@pytest.mark.parametrize(("name", "relation", "p"), CASES)
def test_ten_times_the_draws_leave_no_room_for_a_factor_of_a_quarter(name: str, relation: Neighbours, p: int) -> None:
    claimed, _, measured = simulate(name, relation, p, draws=10 * SIZE, rng=generator(13))
    assert 0.8 * claimed <= measured <= claimed
    assert simulate(name, relation, p, draws=10 * SIZE, rng=generator(14), noise=0.8)[2] > claimed


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_in_one_dimension_the_attack_reaches_nearly_the_whole_claim(epsilon: float) -> None:
    """For one unit record and noise of rate epsilon this is the Laplace mechanism, for which a threshold is optimal."""
    tail, noise = wishart_tail(1, ADD, trace_factor=False), generator(15)
    assert tail == Tail(1.0)
    assert 0.85 * epsilon <= tail.certify_epsilon(epsilon, draws=SIZE, rng=noise) <= epsilon
    plain = [wishart_difference(1, 1, epsilon, SIZE, noise)[:, 0, 0, 0] for _ in range(2)]
    assert 0.85 * epsilon <= sample_lower_bound(1 + plain[0], plain[1]) <= epsilon


# ---- the simulated laws are the real ones --------------------------------------------------------------


def released(event: GramEvent, table: Floats, size: int, seed: int) -> Floats:
    """Return what `measure_gram` releases of a table with these second moments, in records."""
    total = GramSum(event.layout)
    total.blocks[0] = np.rint(table * UNIT).astype(np.int64).astype(object)
    gram, noise = PrivateGram(total), SeededNoise(seed)
    return np.array([measure_gram(gram, event, noise).matrices()[0] for _ in range(size)])


def calibrated(name: str, relation: Neighbours, p: int, budget: Budget) -> GramEvent:
    return gram_mechanism(name).calibrate(GramLayout(p, 1, Fraction(1)), relation, budget)


def law(tail: Tail, size: int, rng: np.random.Generator) -> Floats:
    """Return draws of the traces without a tilt, thinned by the trace factor if there is one."""
    traces, whole = tail.draw(0.0, size, rng)
    return traces[rng.random(size) < np.exp(-np.abs(whole))]


@pytest.mark.parametrize("p", DIMENSIONS)
@pytest.mark.parametrize("name", ["wishart-difference-trace", "wishart-difference"])
def test_the_contrast_of_orthogonal_records_follows_the_simulated_law(name: str, p: int) -> None:
    event, (x, y) = calibrated(name, REPLACE, p, Epsilon(Fraction(4))), orthogonal_pair(p)
    matrices = released(event, np.outer(x, x), 250, seed=p)
    seen = (np.einsum("nij,i,j->n", matrices, x, x) - np.einsum("nij,i,j->n", matrices, y, y)) / 2
    rate = float(event.noise)
    expected = law(wishart_tail(p, REPLACE, trace_factor=name.endswith("trace")), 300_000, generator(21))
    assert stats.ks_2samp((seen - 2) * rate, expected).pvalue > 1e-6
    assert stats.ks_2samp(2 * (seen - 2) * rate, expected).pvalue < 1e-6


@pytest.mark.parametrize("p", [2, 4])
def test_the_presence_of_a_record_follows_the_simulated_law(p: int) -> None:
    event, (x, _) = calibrated("wishart-difference", ADD, p, Epsilon(Fraction(4))), orthogonal_pair(p)
    seen = np.einsum("nij,i,j->n", released(event, np.zeros((p, p)), 400, seed=p), x, x) / 2
    expected = law(wishart_tail(p, ADD, trace_factor=False), 300_000, generator(22))
    assert stats.ks_2samp(seen * float(event.noise), expected).pvalue > 1e-6


def test_the_gaussian_attack_looks_along_a_normal_variable_of_the_events_scale() -> None:
    event, (x, y) = calibrated("gaussian", REPLACE, 3, Rho(Fraction(1, 2))), orthogonal_pair(3)
    change = (np.outer(x, x) - np.outer(y, y)) / math.sqrt(8)
    seen = np.einsum("nij,ij->n", released(event, np.zeros((3, 3)), 600, seed=1), change)
    assert stats.kstest(seen * UNIT / float(event.noise), "norm").pvalue > 1e-6


def test_the_entries_of_laplace_noise_are_independent_and_of_the_events_scale() -> None:
    event = calibrated("laplace", REPLACE, 3, Epsilon(Fraction(3)))
    upper, scale = np.triu_indices(3), float(event.noise) / UNIT
    entries = released(event, np.zeros((3, 3)), 600, seed=2)[:, *upper] / scale
    weights = np.where(upper[0] == upper[1], 1.0, float(best_l1_weight(REPLACE)))
    assert all(stats.kstest(column * w, "laplace").pvalue > 1e-6 for column, w in zip(entries.T, weights, strict=True))
    ranks = stats.spearmanr(entries).statistic
    assert np.abs(ranks[~np.eye(6, dtype=bool)]).max() < 6 / math.sqrt(600)


@pytest.mark.parametrize("shape", [2.0, 3.0, 9.0])
def test_tilted_draws_count_what_the_exact_tail_says(shape: float) -> None:
    """A difference of two Gamma(a) has density |v|^(a-1/2) K_(a-1/2)(|v|) / (sqrt(pi) 2^(a-1/2) Gamma(a))."""
    threshold = 6 * shape

    def density(v: float) -> float:
        order = shape - 0.5
        return v**order * special.kv(order, v) / (math.sqrt(math.pi) * 2**order * math.gamma(shape))

    exact = integrate.quad(density, threshold, threshold + 80)[0]
    tilt, draws = 1 - 1 / 6, 400_000
    kept = Tail(shape).count_hits(threshold, tilt, draws, generator(23))
    weight = (1 - tilt**2) ** -shape * math.exp(-tilt * threshold)
    assert kept * weight / draws == pytest.approx(exact, rel=6 / math.sqrt(kept))


def test_tilted_draws_count_what_plain_ones_do_under_the_trace_factor() -> None:
    tail, threshold, draws = wishart_tail(3, REPLACE, trace_factor=True), 5.0, 1_000_000
    plain = tail.count_hits(threshold, 0.0, draws, generator(24))
    tilted = (
        tail.count_hits(threshold, 0.5, draws, generator(25)) * (1 - 0.5**2) ** -tail.shape * math.exp(-0.5 * threshold)
    )
    assert tilted == pytest.approx(plain, rel=6 / math.sqrt(plain))


# ---- worst pairs -------------------------------------------------------------------------------------


def test_the_orthogonal_records_are_what_integer_records_gives_at_the_bounds() -> None:
    records = integer_records(np.array([[1.0], [-1.0]]), None, GramLayout(2, 1, Fraction(1))) / (1 << GRID_BITS)
    assert np.array_equal(records, np.array(orthogonal_pair(2)))


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("weight", [Fraction(1), Fraction(17, 12), Fraction(2)])
def test_the_steep_pair_is_orthonormal_and_nearly_attains_the_weighted_bound(p: int, weight: Fraction) -> None:
    x, y = steep_pair(p, float(weight))
    assert np.allclose([x @ x, y @ y, x @ y], [1, 1, 0])
    norm = (np.where(np.eye(p, dtype=bool), 1, float(weight) / 2) * np.abs(np.outer(x, x) - np.outer(y, y))).sum()
    bound = float(gram_weighted_l1(REPLACE, squared_norm=Fraction(1), dimension=p, blocks=1, weight=weight))
    exact = p == 2 or (weight == 2 and p % 2 == 0)
    assert (1 - 1e-9 if exact else 0.95) * bound <= norm <= bound * (1 + 1e-9)


# ---- the trace factor ----------------------------------------------------------------------------------


@pytest.mark.parametrize("statistic", ["trace", "presence"])
def test_the_trace_variant_keeps_its_claim_when_a_record_is_replaced_by_nothing(statistic: str) -> None:
    """|x| = 1 against 0 is the other extreme pair of replace-one: c + c |1 - 0| = 2c."""
    event, rng = calibrated("wishart-difference-trace", REPLACE, 2, Epsilon(Fraction(2))), generator(31)
    x = orthogonal_pair(2)[0]
    noise = [wishart_trace(2, 1, float(event.noise), SIZE, rng)[:, 0] for _ in range(2)]
    draws = np.outer(x, x) + noise[0], noise[1]
    look = (lambda m: np.einsum("nii->n", m)) if statistic == "trace" else (lambda m: np.einsum("nij,i,j->n", m, x, x))
    assert 0.65 * 2 <= sample_lower_bound(*(look(m) for m in draws)) <= 2


def two_blocks(rng: np.random.Generator, *, rate: float, factor_per_block: bool) -> Floats:
    """Return noise of two class blocks of dimension 1, with one common trace factor or, wrongly, one in each."""
    if factor_per_block:
        return np.concatenate([wishart_trace(1, 1, rate, SIZE, rng) for _ in range(2)], axis=1)[:, :, 0, 0]
    return wishart_trace(1, 2, rate, SIZE, rng)[:, :, 0, 0]


@pytest.mark.parametrize(("factor_per_block", "holds"), [(False, True), (True, False)])
def test_the_trace_factor_belongs_to_all_blocks_together(factor_per_block: bool, holds: bool) -> None:
    """A record of length 1 changes its class: +1 in one block, -1 in the other."""
    epsilon, rng = 2.0, generator(16)
    shift = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    draws = [s + two_blocks(rng, rate=epsilon / 2, factor_per_block=factor_per_block) for s in shift]
    losses = [without_last_bits(np.clip(d[:, 0], 0, 1) - np.clip(d[:, 1], 0, 1)) for d in draws]
    found = sample_lower_bound(*losses)
    assert (found <= epsilon) is holds
    assert found >= 0.65 * epsilon


def without_last_bits(losses: Floats) -> Floats:
    """Return a bulk sample rounded to 1e-9, because the last bits of floating-point noise reveal its table.

    Without rounding, the attack refutes the bulk sampler itself (it found 3.9 for a claim
    of 2); the real mechanism adds integers and has no such bits.
    """
    return np.round(losses, 9)


# ---- histograms ------------------------------------------------------------------------------------------

COLUMNS, ROWS = 4, 2
BOTH_CELLS = np.tile([1.0, -1.0], COLUMNS)
"""The change of the counts if a row moves from one cell to the other in every column."""


def histograms(columns: int = COLUMNS, weight: Fraction = Fraction(1), rows: int = 1) -> HistogramsQuery:
    return HistogramsQuery((2,) * columns, (weight,) * columns, rows)


def seen(name: str, query: HistogramsQuery, relation: Neighbours, change: Floats) -> tuple[float, float, float]:
    """Return the claim, its delta, and the lower bound of an attack on counts that differ by `change`.

    Noise is drawn in bulk; `tests/statistical/dpcore/measurements/test_histograms.py` tests that
    `measure_vector` draws from these laws.
    """
    pure = name == "histogram-laplace"
    event = vector_mechanism(name).calibrate(query, relation, Epsilon(Fraction(4)) if pure else Rho(Fraction(1, 2)))
    claimed, delta = claim_of(event)
    scale, rng, size = float(event.noise) / GRID, generator(17), 2_000_000 if not pure else SIZE
    if pure:
        draws = [table + rng.laplace(scale=scale, size=(size, len(change))) for table in (change, 0 * change)]
        return claimed, delta, entrywise_lower_bound(change, 0 * change, draws[0], draws[1])
    shift = float(np.linalg.norm(change)) / scale
    return claimed, delta, sample_lower_bound(shift + rng.standard_normal(size), rng.standard_normal(size), delta=delta)


ARRIVES = np.maximum(BOTH_CELLS, 0)
"""The change of the counts if a row is added."""

LAWS = ["histogram-gaussian", "histogram-laplace"]


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(
    ("query", "relation", "change"),
    [
        pytest.param(histograms(), REPLACE, BOTH_CELLS, id="a row that changes every column"),
        pytest.param(histograms(), ADD, ARRIVES, id="a row that comes"),
        pytest.param(histograms(rows=ROWS), REPLACE, ROWS * BOTH_CELLS, id="a person that changes every row"),
        pytest.param(histograms(weight=Fraction(1, 4)), REPLACE, BOTH_CELLS / 4, id="columns of a quarter's weight"),
    ],
)
def test_histograms_keep_their_claim_and_the_attack_reaches_most_of_it(
    name: str, query: HistogramsQuery, relation: Neighbours, change: Floats
) -> None:
    claimed, _, measured = seen(name, query, relation, change)
    assert 0.75 * claimed <= measured <= claimed


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(
    ("query", "relation", "change"),
    [
        pytest.param(histograms(), ADD, BOTH_CELLS, id="calibrated for add-remove, sold as replace-one"),
        pytest.param(histograms(1), REPLACE, BOTH_CELLS, id="calibrated for one column, drawn for four"),
        pytest.param(histograms(), REPLACE, ROWS * BOTH_CELLS, id="calibrated for a row, sold to persons"),
        pytest.param(histograms(weight=Fraction(1, 4)), REPLACE, BOTH_CELLS, id="counted in full, charged a quarter"),
    ],
)
def test_the_audit_catches_histograms_with_another_ones_noise(
    name: str, query: HistogramsQuery, relation: Neighbours, change: Floats
) -> None:
    claimed, _, measured = seen(name, query, relation, change)
    assert measured > claimed


# ---- refuted calibrations -------------------------------------------------------------------------------


def trace_variant_under_add_remove(rng: np.random.Generator) -> tuple[Floats, Floats, float]:
    """With rate epsilon / r, as for noise without the trace factor, that factor doubles the loss."""
    noise = [wishart_trace(2, 1, 2.0, SIZE, rng)[:, 0] for _ in range(2)]
    return 1 + noise[0][:, 0, 0], noise[1][:, 0, 0], 2.0


def row_bound_for_a_person(rng: np.random.Generator) -> tuple[Floats, Floats, float]:
    """A person has two whole rows, but the noise is calibrated for one."""
    noise = [wishart_difference(1, 1, 1.0, SIZE, rng)[:, 0, 0, 0] for _ in range(2)]
    return 2 + noise[0], noise[1], 1.0


@pytest.mark.parametrize("mutant", [trace_variant_under_add_remove, row_bound_for_a_person])
def test_the_audit_catches_a_mistaken_calibration(
    mutant: Callable[[np.random.Generator], tuple[Floats, Floats, float]],
) -> None:
    first, second, claim = mutant(generator(21))
    assert sample_lower_bound(first, second) > claim


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_the_audit_catches_a_published_calibration(name: str) -> None:
    counterexample = COUNTEREXAMPLES[name]
    assert counterexample.measure(generator(41)) > counterexample.claimed


def test_every_refuted_name_of_the_registry_has_a_counterexample_and_no_mechanism() -> None:
    assert set(COUNTEREXAMPLES) == {entry.name for entry in BY_NAME.values() if entry.status is Status.REFUTED}
    for name in COUNTEREXAMPLES:
        with pytest.raises(KeyError):
            mechanism_of(name)


def test_the_counterexample_of_independent_entries_is_silent_at_the_true_scale() -> None:
    """RON-Gauss's noise at the scale that its sensitivity needs: sqrt(2) p instead of 2 sqrt(p)."""
    (x, y), epsilon, rng = steep_pair(8, 2.0), 16.0, generator(42)
    one, two = np.outer(x, x), np.outer(y, y)
    draws = [table + rng.laplace(scale=math.sqrt(2) * 8 / epsilon, size=(50_000, 8, 8)) for table in (one, two)]
    assert 0.7 * epsilon <= entrywise_lower_bound(one, two, draws[0], draws[1]) <= epsilon


def test_the_categorical_bound_of_jiang_is_below_a_change_that_happens() -> None:
    """One numeric column in [0, 1] and two categorical ones: (1, a, a) becomes (1/2, b, b)."""
    p1, p2 = 1, 2
    published = (p1 + 2 * p2) + Fraction((p1 + p2) * (p1 + p2 + 1) + p2 * (p2 + 1), 2)
    one = [Fraction(1), *map(Fraction, (1, 0, 1, 0))]
    two = [Fraction(1, 2), *map(Fraction, (0, 1, 0, 1))]
    moved = sum(abs(a - b) for a, b in zip(one, two, strict=True))
    moved += sum(abs(one[i] * one[j] - two[i] * two[j]) for i in range(5) for j in range(i, 5))
    safe = p1 + 2 * p2 + Fraction(p1 * (p1 + 1), 2) + 2 * p1 * p2 + p2 * (p2 + 1)
    assert published < moved <= safe


def test_nothing_that_releases_knows_the_published_samplers() -> None:
    """Only the attacks may run them."""
    knowing = {
        path.relative_to(ROOT).as_posix()
        for folder in ("dpcore", "tasks", "flows", "expectations")
        for path in (ROOT / folder).rglob("*.py")
        if "dpcore.auditing.refuted" in imported(path)
    }
    assert knowing == {"dpcore/auditing/attacks.py"}


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return modules | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
