"""Pair tables: exact where the noise is negligible, unbiased and of the stated variance where it is not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support.dpcore.samplers import generator

from dpcore.accounting import Rho
from dpcore.measure import exact_gram, measure_gram, measure_vector
from dpcore.measurements.group_encoding import GroupedEncoding
from dpcore.measurements.groups import cells_of_columns, group_columns
from dpcore.measurements.histograms import count_cells, histograms_query
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.gaussian import GAUSSIAN
from dpcore.mechanisms.vectors import HISTOGRAM_GAUSSIAN, PrivateVector
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, NominalColumn, RecordSchema, Role
from dpcore.synthesis.copula.pair_tables import PairTables, pair_tables

R1 = Neighbours.REPLACE_ONE
SILENT = Fraction(10**12)
WEIGHT = Fraction(5, 16)
LABEL = NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("x", "y"), role=Role.LABEL)


def binary(name: str) -> NominalColumn:
    return NominalColumn(name=name, kind=Kind.CATEGORICAL, levels=("no", "yes"))


SCHEMA = RecordSchema((binary("a"), binary("b"), binary("c"), LABEL))


def balanced(cells: Cells) -> Cells:
    """The rows and their mirror images: every group has the same share, so no record is clipped to the ball."""
    mirrored = {name: 1 - values if name != "class" else values for name, values in cells.items()}
    return {name: np.concatenate([values, mirrored[name]]) for name, values in cells.items()}


def table(rows: int, seed: int = 1) -> Cells:
    """b agrees with a in class x and disagrees in class y; c follows b in both."""
    rng = generator(seed)
    classes = (rng.random(rows) < 0.3).astype(np.int64)
    a = rng.integers(0, 2, rows)
    b = np.where(rng.random(rows) < 0.8, a ^ classes, rng.integers(0, 2, rows))
    c = np.where(rng.random(rows) < 0.6, b, rng.integers(0, 2, rows))
    return balanced({"a": a, "b": b, "c": c, "class": classes})


def encoded(
    schema: RecordSchema, cells: Cells, *, rho: Fraction = SILENT, width: int, seed: int = 1
) -> GroupedEncoding:
    query = histograms_query(schema.encoded_columns)
    exact = count_cells([(cells, None)], cells_of_columns(schema.encoded_columns), query)
    event = HISTOGRAM_GAUSSIAN.calibrate(query, R1, Rho(rho))
    marginals = measure_vector(PrivateVector(query, exact), event, SeededNoise(seed))
    groups = group_columns(marginals, cells_of_columns(schema.encoded_columns), least=20.0, coordinates=width)
    return GroupedEncoding(schema, groups, width, room=1.0)


def estimated(
    schema: RecordSchema,
    cells: Cells,
    encoding: GroupedEncoding,
    *,
    rho: Fraction = SILENT,
    draws: int = 1,
    seed: int = 2,
) -> list[PairTables]:
    layout = GramLayout(1 + encoding.width, schema.class_count, WEIGHT)
    gram = exact_gram([(cells, None)], encoding, layout, Projection("none", encoding.width, encoding.width, None))
    event, noise = GAUSSIAN.calibrate(layout, R1, Rho(rho)), SeededNoise(seed)
    return [pair_tables(measure_gram(gram, event, noise), encoding) for _ in range(draws)]


def truth(schema: RecordSchema, cells: Cells, encoding: GroupedEncoding) -> tuple[list[np.ndarray], np.ndarray]:
    """Count the shares of groups per class, and the joint shares minus the products of the marginals."""
    classes = encoding.classes(cells)
    member = np.eye(schema.class_count)[classes]
    indicators = [np.eye(column.size)[column.codes(cells)] for column in encoding.groups]
    shares = [(member.T @ found) / member.sum(axis=0)[:, None] for found in indicators]
    every, total = np.hstack(indicators), len(classes)
    excess = []
    for k in range(schema.class_count):
        mine = every[classes == k]
        product = len(mine) / total * np.outer(mine.mean(axis=0), mine.mean(axis=0))
        excess.append(mine.T @ mine / total - product)
    return shares, np.array(excess)


def pairs_only(excess: np.ndarray, encoding: GroupedEncoding) -> np.ndarray:
    """Set the blocks of a column with itself to 0."""
    column = np.repeat(np.arange(len(encoding.groups)), [c.size for c in encoding.groups])
    return np.where(column[:, None] == column[None], 0.0, excess)


# ---- without noise -----------------------------------------------------------------------------------


def test_without_noise_class_sizes_shares_and_excesses_are_the_table_s_own() -> None:
    cells = table(4000)
    encoding = encoded(SCHEMA, cells, width=5)
    (found,) = estimated(SCHEMA, cells, encoding)
    shares, excess = truth(SCHEMA, cells, encoding)
    assert found.counts == pytest.approx(np.bincount(cells["class"]), abs=0.5)
    assert found.weights.sum() == pytest.approx(1)
    assert found.total == pytest.approx(8000, abs=1)
    for one, other in zip(found.shares, shares, strict=True):
        assert one == pytest.approx(other, abs=2e-3)
    assert found.excess == pytest.approx(pairs_only(excess, encoding), abs=2e-3)
    assert np.abs(found.excess).max() > 0.05, "there is something to find"


def test_pairs_of_many_groups_and_unlike_sizes_are_found() -> None:
    """Three levels against seven ranges of integers, all equally frequent."""
    levels = NominalColumn(name="level", kind=Kind.CATEGORICAL, levels=("a", "b", "c"))
    number = IntervalColumn(name="number", kind=Kind.INTEGER, lower=0, upper=6)
    schema, rng = RecordSchema((levels, number)), generator(3)
    level = np.repeat(np.arange(3), 7000)
    base = np.tile(np.arange(7), 3000)
    shift = np.where(rng.random(21_000) < 0.5, 0, rng.permutation(21_000) % 7)
    cells: Cells = {"level": level, "number": ((base // 3 + level + shift) % 7).astype(float)}
    encoding = encoded(schema, cells, width=8)
    (found,) = estimated(schema, cells, encoding)
    shares, excess = truth(schema, cells, encoding)
    assert [share.shape[1] for share in found.shares] == [3, 7]
    for one, other in zip(found.shares, shares, strict=True):
        assert one == pytest.approx(other, abs=5e-3)
    assert found.excess == pytest.approx(pairs_only(excess, encoding), abs=3e-3)


def test_records_cut_to_the_ball_leave_the_marginals_to_the_histograms() -> None:
    """The records of a level with a share of 1/50 are clipped; the histograms still give accurate shares."""
    schema, rng = RecordSchema((binary("a"), binary("b"))), generator(4)
    rare = (rng.random(50_000) < 0.02).astype(np.int64)
    cells: Cells = {"a": rare, "b": np.where(rng.random(50_000) < 0.9, rare, rng.integers(0, 2, 50_000))}
    encoding = encoded(schema, cells, width=2)
    (found,) = estimated(schema, cells, encoding, rho=Fraction(1, 2))
    shares, excess = truth(schema, cells, encoding)
    for one, other in zip(found.shares, shares, strict=True):
        assert one == pytest.approx(other, abs=5e-3)
    strongest = pairs_only(excess, encoding)[0, 0, 2]
    assert 0 < found.excess[0, 0, 2] < 1.05 * strongest, "shrunk, with the right sign"


def test_most_of_what_the_cut_takes_of_a_pair_is_put_back() -> None:
    """A pair among eight columns of rare levels; without the correction, half of the excess would be missing."""
    names = "abcdefgh"
    schema, rng = RecordSchema(tuple(binary(name) for name in names)), generator(7)
    cells: Cells = {name: (rng.random(60_000) < 0.15).astype(np.int64) for name in names}
    cells["b"] = np.where(rng.random(60_000) < 0.5, cells["a"], cells["b"])
    encoding = encoded(schema, cells, width=8)
    (found,) = estimated(schema, cells, encoding)
    _, excess = truth(schema, cells, encoding)
    assert encoding.clipping_factors(0, 1)[1][1, 1] == pytest.approx(0.5, abs=0.05), "what is left of two rare levels"
    assert 0.75 < found.excess[0, 1, 3] / excess[0, 1, 3] < 1.02
    assert np.abs(found.excess[0][4:, 4:]).max() < 0.08 * excess[0, 1, 3], "and nothing is put where nothing is"


def test_excesses_are_symmetric_and_sum_to_zero_over_each_column() -> None:
    cells = table(500, seed=5)
    encoding = encoded(SCHEMA, cells, rho=Fraction(1), width=5)
    (found,) = estimated(SCHEMA, cells, encoding, rho=Fraction(1, 10))
    for block in found.excess:
        assert np.array_equal(block, block.T)
        for start in (0, 2, 4):
            assert block[:, start : start + 2].sum(axis=1) == pytest.approx(np.zeros(6), abs=1e-12)


# ---- with noise --------------------------------------------------------------------------------------

DRAWS = 400
LOUD = Fraction(1, 50)
PAIRS = ((0, 2), (0, 4), (2, 4))
CONTRAST = np.array([1, -1]) / math.sqrt(2)


def contrasts_of(found: list[PairTables], k: int, a: int, b: int) -> np.ndarray:
    return np.array([CONTRAST @ tables.excess[k][a : a + 2, b : b + 2] @ CONTRAST for tables in found])


def has_variance(samples: np.ndarray, variance: float) -> bool:
    statistic = (len(samples) - 1) * samples.var(ddof=1) / variance
    return bool(1e-6 < stats.chi2.cdf(statistic, len(samples) - 1) < 1 - 1e-6)


def off_diagonal_variance(rho: Fraction) -> float:
    """The variance of the noise on a Gram: sigma² / 2 with sigma² = 2 r² / (2 rho) under replace-one."""
    return (1 + float(WEIGHT) ** 2) ** 2 / float(rho) / 2


def test_excesses_are_unbiased() -> None:
    cells = table(10_000)
    encoding = encoded(SCHEMA, cells, width=3)
    _, excess = truth(SCHEMA, cells, encoding)
    found = estimated(SCHEMA, cells, encoding, rho=LOUD, draws=DRAWS)
    for k in range(2):
        for a, b in PAIRS:
            seen, true = contrasts_of(found, k, a, b), CONTRAST @ excess[k][a : a + 2, b : b + 2] @ CONTRAST
            assert abs(seen.mean() - true) < 6 * seen.std() / math.sqrt(DRAWS) + 1e-3
            assert abs(seen.mean()) > 50 * seen.std() / math.sqrt(DRAWS), "there is something to find"


def test_the_noise_on_a_pair_has_the_stated_variance() -> None:
    """For independent columns; for dependent ones the noisy number of units adds to the variance."""
    rng = generator(6)
    cells = balanced({"a": rng.integers(0, 2, 5000), "b": rng.integers(0, 2, 5000), "c": rng.integers(0, 2, 5000)})
    cells["class"] = rng.integers(0, 2, 10_000)
    encoding = encoded(SCHEMA, cells, width=3)
    found = estimated(SCHEMA, cells, encoding, rho=LOUD, draws=DRAWS)
    variance = off_diagonal_variance(LOUD) * encoding.radius**4 / 10_000**2
    assert np.mean([tables.excess_variance for tables in found]) == pytest.approx(variance, rel=0.02)
    for k in range(2):
        for a, b in PAIRS:
            assert has_variance(contrasts_of(found, k, a, b), variance)
            assert not has_variance(contrasts_of(found, k, a, b), variance * 1.6)
            assert not has_variance(contrasts_of(found, k, a, b), variance / 1.6)


@pytest.mark.parametrize("rho", [SILENT, LOUD])
def test_shares_are_unbiased_and_have_the_variance_of_both_measurements_combined(rho: Fraction) -> None:
    """The difference of a binary column's counts over sqrt 2 is the sum of its coordinate: variance v in each class.

    The histogram knows the two classes together with variance h: v - v² / (2v + h) is left in each.
    """
    cells = table(1500)
    shares, _ = truth(SCHEMA, cells, encoded(SCHEMA, cells, width=3))
    found = []
    for seed in range(DRAWS):
        encoding = encoded(SCHEMA, cells, rho=rho, width=3, seed=seed)
        found += estimated(SCHEMA, cells, encoding, rho=Fraction(1), seed=seed + DRAWS)
    v = off_diagonal_variance(Fraction(1)) * encoding.radius**2 / float(WEIGHT) ** 2
    h = float(encoding.groups[0].variances[0])
    for index, true in enumerate(shares):
        for k, size in enumerate(np.bincount(cells["class"])):
            seen = np.array([tables.shares[index][k] @ CONTRAST for tables in found]) * size
            assert abs(seen.mean() - true[k] @ CONTRAST * size) < 6 * math.sqrt(v / DRAWS) + 1e-3 * size
            assert has_variance(seen, v - v**2 / (2 * v + h))
        assert found[0].variances[index] == pytest.approx(np.mean([t.variances[index] for t in found]), rel=0.1)
    both = np.array([np.bincount(cells["class"]) @ tables.shares[0] @ CONTRAST for tables in found])
    assert has_variance(both, 2 * v * h / (2 * v + h) + 1e-9) or rho == SILENT


def test_histograms_make_shares_surer_the_less_noise_they_have() -> None:
    cells = table(5000)
    found = [
        estimated(SCHEMA, cells, encoded(SCHEMA, cells, rho=rho, width=3), rho=LOUD)[0]
        for rho in (Fraction(1, 500), LOUD, SILENT)
    ]
    for kind in ("variances", "pooled_variances"):
        one, two, three = (float(getattr(tables, kind)[0]) for tables in found)
        assert one > two > three
    assert found[2].pooled_variances[0] < 1e-3, "over all classes nothing is left to know"
    assert found[2].variances[0] > found[1].variances[0] / 2, "which class it is the histograms do not tell"


def test_a_class_that_comes_out_below_nothing_counts_one() -> None:
    cells = {name: values[:0] for name, values in table(10).items()}
    encoding = encoded(SCHEMA, table(1000), width=3)
    for found in estimated(SCHEMA, cells, encoding, rho=Fraction(1, 50), draws=20):
        assert found.counts.min() >= 1
        assert np.isfinite(found.excess).all()
        for share in found.shares:
            assert share.min() >= 0
            assert share.sum(axis=1) == pytest.approx(np.ones(2))


def test_a_column_of_one_group_has_nothing_to_tell() -> None:
    constant = IntervalColumn(name="same", kind=Kind.NUMERIC, lower=0, upper=1)
    schema = RecordSchema((binary("a"), constant, LABEL))
    cells = {"a": table(500)["a"], "same": np.full(1000, 0.5), "class": table(500)["class"]}
    encoding = encoded(schema, cells, width=4)
    (found,) = estimated(schema, cells, encoding, rho=Fraction(1))
    assert found.shares[1].tolist() == [[1.0], [1.0]]
    assert found.variances[1] == found.pooled_variances[1] == 0
    assert not found.excess[:, 2].any()
