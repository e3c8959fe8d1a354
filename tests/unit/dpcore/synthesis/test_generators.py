"""Sampled rows have the released moments, decoded levels the released shares, and seeds reproduce rows."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dpcore.samplers import generator
from support.dpcore.strategies import as_cells, pipeline, schema_with

from dpcore.accounting import Epsilon
from dpcore.evaluation.table_summary import IntervalTally, TableSummary
from dpcore.evaluation.utility import MeasuredSummary, correlations, utility_report
from dpcore.measure import PrivateGram, Released, measure_gram, measurement_from_json
from dpcore.measurements.noisy_moments import ClassMoments, NoisyMoments
from dpcore.measurements.projection import haar_basis, no_projection, ron_projection
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.records.decoding import LevelRule, PresentValues
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramSum
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, NominalColumn, RecordSchema
from dpcore.synthesis.class_rows import rows_by_class
from dpcore.synthesis.generators import SAMPLERS, SAMPLINGS, ClassGaussians, synthetic_rows
from dpcore.synthesis.level_choice import fit_level_rule

SEED = "0123456789abcdef" * 2
SIGMAS = 6.1


def noise_free(schema: RecordSchema, cells: Cells, dimension: int | None = None) -> tuple[Encoding, ClassGaussians]:
    """Return the mixture from a measurement at epsilon 1e9."""
    pipe = pipeline(schema, dimension=dimension, s=Fraction(1, 2))
    total = GramSum(pipe.layout)
    total.add(pipe.records(cells), pipe.encoding.classes(cells))
    event = gram_mechanism("wishart-difference").calibrate(pipe.layout, Neighbours.ADD_REMOVE, Epsilon(Fraction(10**9)))
    moments = NoisyMoments.from_released(measure_gram(PrivateGram(total), event, SeededNoise(2)))
    return pipe.encoding, ClassGaussians(moments, pipe.projection)


def mixed_table(rows: int, *, label: bool = True) -> tuple[RecordSchema, Cells]:
    rng = generator(8)
    schema = schema_with(target=True, label=label)
    age = rng.normal(size=rows)
    cells: Cells = {
        "weight": 4 + 2 * age,
        "visits": np.where(rng.random(rows) < 0.3, np.nan, np.clip(np.rint(15 + 5 * age), 0, 50)),
        "born": rng.uniform(0, 9000, rows).round(),
        "seen": 1.7e15 + 3e13 * age,
        "smoker": (age + rng.normal(size=rows) > 1).astype(np.int64),
        "insured": rng.choice([0, 1, -1], size=rows, p=[0.1, 0.7, 0.2]),
        "sex": rng.choice([0, 1, 2], size=rows, p=[0.5, 0.45, 0.05]),
        "ward": rng.choice([0, 1, 2, 3], size=rows, p=[0.7, 0.1, 0.15, 0.05]),
        "cost": np.clip(4e5 + 1e5 * age, 0, 1e6),
    }
    if label:
        cells["outcome"] = rng.choice([0, 1, 2, -1], size=rows, p=[0.6, 0.25, 0.1, 0.05])
    return schema, cells


def drawn(mixture: ClassGaussians, encoding: Encoding, rows: int, seed: str = SEED) -> Cells:
    return synthetic_rows(encoding, mixture, rows, seed).cells()


def test_sampled_points_have_the_released_means_covariances_and_class_shares() -> None:
    schema, cells = mixed_table(4000)
    _, mixture = noise_free(schema, cells, dimension=5)
    rows = 80_000
    points, classes = mixture.law(SEED).draw(rows, generator(4))
    shares = np.bincount(classes, minlength=4) / rows
    assert np.all(np.abs(shares - mixture.moments.weights) < SIGMAS * np.sqrt(0.25 / rows))
    for k, moments in enumerate(mixture.moments.classes):
        mine = points[classes == k] @ mixture.projection.basis()  # orthonormal up to the grid
        n = len(mine)
        spread = np.sqrt(np.diag(moments.covariance) + 1e-9)
        assert np.all(np.abs(mine.mean(axis=0) - moments.mean) < SIGMAS * spread / math.sqrt(n) + 1e-4)
        slack = SIGMAS * np.sqrt(2 / n) * np.outer(spread, spread) + 1e-4
        assert np.all(np.abs(np.cov(mine.T) - moments.covariance) < slack)


@pytest.mark.parametrize("label", [False, True])
def test_decoded_levels_have_the_released_shares_and_intervals_the_released_means(label: bool) -> None:
    schema, cells = mixed_table(6000, label=label)
    encoding, mixture = noise_free(schema, cells)
    rows = 40_000
    synthetic = drawn(mixture, encoding, rows)
    assert list(synthetic) == [c.name for c in schema.columns]
    for column in schema.columns:
        real, made = cells[column.name], synthetic[column.name]
        assert len(made) == rows
        if isinstance(column, NominalColumn):
            for level in [*range(len(column.levels)), *([-1] if column.missing_level else [])]:
                assert abs(np.mean(made == level) - np.mean(real == level)) < 0.02, (column.name, level)
        else:
            real = np.clip(real.astype(float), column.lower, column.upper)
            assert abs(np.mean(np.isnan(made)) - np.mean(np.isnan(real))) < 0.02
            assert abs(np.nanmean(made) - np.nanmean(real)) < 0.01 * (column.upper - column.lower), column.name


def test_the_same_seed_gives_the_same_table_and_another_seed_another_one() -> None:
    schema, cells = mixed_table(1000)
    encoding, mixture = noise_free(schema, cells)
    one, two, other = (drawn(mixture, encoding, 500, seed) for seed in (SEED, SEED, SEED[::-1]))
    assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in ("weight", "visits", "cost"))
    assert not np.any(one["weight"] == other["weight"])


@pytest.mark.parametrize("sampling", ["rounded", "independent"])
def test_rows_follow_from_released_values_seed_and_chunk_alone(sampling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a measurement from its JSON form draws the same chunks, each alone and in any order."""
    monkeypatch.setattr("dpcore.synthesis.generators.ROWS_AT_ONCE", 300)
    schema, cells = mixed_table(1000)
    encoding, mixture = noise_free(schema, cells, dimension=4)
    stored = measurement_from_json(json.loads(json.dumps(mixture.moments.released.as_json())))
    assert isinstance(stored, Released)
    again = ClassGaussians(NoisyMoments.from_released(stored), mixture.projection)
    rows, others = (synthetic_rows(encoding, model, 1000, SEED, sampling) for model in (mixture, again))
    assert rows.chunks == 4
    due = [rows.chunk(index) for index in range(4)]
    for index in (2, 0, 3, 1):
        found = others.chunk(index)
        assert all(np.array_equal(found[name], due[index][name], equal_nan=True) for name in found)
    assert not np.array_equal(due[0]["weight"], due[1]["weight"])


def test_independent_rows_are_those_of_sampler_1_and_rounded_ones_those_of_sampler_2() -> None:
    assert SAMPLINGS == {"rounded": 2, "independent": 3}
    schema, cells = mixed_table(1000)
    encoding, mixture = noise_free(schema, cells)
    for sampling, number in SAMPLINGS.items():
        named = synthetic_rows(encoding, mixture, 200, SEED, sampling).cells()
        numbered = SAMPLERS[number](encoding, mixture, 200, SEED).cells()
        assert all(np.array_equal(named[name], numbered[name], equal_nan=True) for name in named)
    with pytest.raises(KeyError):
        synthetic_rows(encoding, mixture, 200, SEED, "stratified")


@pytest.mark.parametrize("rows", [1, 7, 5000])
@pytest.mark.parametrize("dimension", [None, 4])
def test_rounded_rows_have_the_laws_class_sizes_and_means(rows: int, dimension: int | None) -> None:
    schema, cells = mixed_table(4000)
    encoding, mixture = noise_free(schema, cells, dimension=dimension)
    drawn, law = synthetic_rows(encoding, mixture, rows, SEED).draw_chunk(0), mixture.law(SEED)
    label = np.where(drawn.cells["outcome"] < 0, 3, drawn.cells["outcome"])
    sizes = np.bincount(label, minlength=4)
    assert np.all(np.abs(sizes - rows * law.weights) < 3)
    for k in np.flatnonzero(sizes > 100):
        spread = np.sqrt((law.roots[k] ** 2).sum(axis=1) + 1e-12)
        far = np.abs(drawn.points[label == k].mean(axis=0) - law.means[k]) / spread
        assert np.all(far < 0.5 / math.sqrt(sizes[k]) + 1e-4), "some mean of independent rows would be farther off"


def bare(covariance: np.ndarray, mean: np.ndarray, schema: RecordSchema) -> tuple[Encoding, ClassGaussians]:
    """Return a mixture with the given moments: one class, no projection."""
    encoding = Encoding(schema)
    template = noise_free(schema, as_cells(schema, [{c.name: 0 for c in schema.columns}]))[1]
    moments = NoisyMoments((ClassMoments(100.0, mean, covariance),), template.moments.released)
    return encoding, ClassGaussians(moments, no_projection(encoding))


@pytest.mark.parametrize("shares", [[0.7, 0.2, 0.1], [0.98, 0.01, 0.01], [1.02, -0.01, -0.01], [-0.04, 0.52, 0.52]])
@pytest.mark.parametrize("variance", [0.0, 0.05])
def test_level_shares_hold_with_and_without_measured_variance(shares: list[float], variance: float) -> None:
    """Without jitter, a column without variance would always decode to one level; negative shares are noise."""
    column = NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("a", "b", "c"))
    schema = RecordSchema((column,))
    from dpcore.records.encoding import level_corners

    mean = np.array(shares) @ level_corners(column)
    encoding, mixture = bare(variance * np.eye(3), mean, schema)
    rows = 40_000
    made = drawn(mixture, encoding, rows)["c"]
    for level, share in enumerate(np.maximum(shares, 0) / np.maximum(shares, 0).sum()):
        pilot, sample = math.sqrt(0.25 / 20_000), math.sqrt(0.25 / rows)
        assert abs(np.mean(made == level) - share) < SIGMAS * math.hypot(pilot, sample)
        if share == 0:
            assert not np.any(made == level), "a level of share 0 is never drawn"


@given(data=st.data(), count=st.integers(2, 6))
def test_a_level_rule_gives_a_sample_the_wanted_shares(data: st.DataObject, count: int) -> None:
    weights = np.array(data.draw(st.lists(st.floats(0.02, 1), min_size=count, max_size=count)))
    shares = weights / weights.sum()
    scores = generator(count).standard_normal((4000, count)) * np.linspace(0.3, 2, count)
    chosen = fit_level_rule(scores, shares).choose(scores)
    found = np.bincount(chosen, minlength=count) / 4000
    assert found == pytest.approx(shares, abs=0.01)


def test_a_level_rule_chooses_the_largest_score_plus_offset() -> None:
    rule = LevelRule((0.0, 1.0, -math.inf))
    assert rule.choose(np.array([[0.5, 0.0, 9.0], [2.0, 0.5, 9.0]])).tolist() == [1, 0]
    assert fit_level_rule(np.zeros((10, 3)), np.array([0.0, 1.0, 0.0])).choose(np.zeros((5, 3))).tolist() == [1] * 5


@given(data=st.data(), count=st.integers(2, 5))
def test_the_chosen_level_is_numpys_argmax_also_where_scores_tie(data: st.DataObject, count: int) -> None:
    few = st.sampled_from([0.0, 0.5, 1.0])
    offsets = data.draw(st.lists(st.one_of(few, st.just(-math.inf)), min_size=count, max_size=count))
    scores = np.array(data.draw(st.lists(st.lists(few, min_size=count, max_size=count), min_size=1, max_size=9)))
    assert LevelRule(tuple(offsets)).choose(scores).tolist() == np.argmax(scores + offsets, axis=1).tolist()


@given(classes=st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_rows_of_a_class_are_found_wherever_they_lie(classes: list[int]) -> None:
    for order in (classes, sorted(classes)):
        found = dict(rows_by_class(np.array(order)))
        everywhere = np.arange(len(order))
        for index in range(4):
            where = np.flatnonzero(np.array(order) == index)
            assert (everywhere[found[index]].tolist() if index in found else []) == where.tolist()
    assert all(isinstance(mine, slice) for mine in found.values()), "rows that lie together are not copied"


def test_present_values_are_restored_to_their_own_mean_and_spread() -> None:
    """Gaussian positions with the moments of a half-missing column are restored to the moments of its present half."""
    rng = generator(3)
    share, mean, spread = 0.6, 0.4, 0.2
    gone = rng.random(400_000) >= share
    position = np.where(gone, 0.0, mean + spread * rng.standard_normal(len(gone)))
    moments = np.cov(position, gone)
    sampled = rng.multivariate_normal([position.mean(), gone.mean()], moments, size=400_000)
    restored = PresentValues(mean, share).restore(sampled[:, 0], sampled[:, 1])
    assert restored.mean() == pytest.approx(mean, abs=0.005)
    assert restored.std() == pytest.approx(spread, rel=0.02)
    assert abs(np.corrcoef(restored, sampled[:, 1])[0, 1]) < 0.02


# ---- projections ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 3, 6])
def test_a_haar_basis_is_orthonormal_and_has_no_preferred_direction(dimension: int) -> None:
    """Each squared entry has mean 1/width, each entry mean 0; QR without the signs would fail the second."""
    rng = generator(dimension)
    bases = np.array([haar_basis(6, dimension, rng) for _ in range(3000)])
    assert bases.transpose(0, 2, 1) @ bases == pytest.approx(
        np.broadcast_to(np.eye(dimension), (3000, dimension, dimension)), abs=1e-12
    )
    limit = SIGMAS / math.sqrt(3000)
    assert np.all(np.abs(bases.mean(axis=0)) < limit * math.sqrt(1 / 6))
    assert np.all(np.abs((bases**2).mean(axis=0) - 1 / 6) < limit * np.std(bases**2, axis=0).max())


def test_a_random_projection_keeps_the_target_apart_and_is_the_seeds() -> None:
    encoding = Encoding(schema_with(target=True))
    one, two, other = (ron_projection(encoding, 4, seed) for seed in (SEED, SEED, SEED[::-1]))
    assert one.columns is not None
    assert two.columns is not None
    assert other.columns is not None
    assert np.array_equal(one.columns, two.columns)
    assert not np.array_equal(one.columns, other.columns)
    assert np.array_equal(one.columns, np.rint(one.columns))
    basis = one.basis()
    assert basis.shape == (encoding.width, 5)
    assert basis[-1].tolist() == [0, 0, 0, 0, 1]
    assert not basis[:-1, -1].any()
    assert basis.T @ basis == pytest.approx(np.eye(5), abs=1e-5)
    points = generator(1).standard_normal((4, 5))
    assert one.lift(points) @ basis == pytest.approx(points, abs=1e-4)


@pytest.mark.parametrize("dimension", [0, -1, 10**6])
def test_a_projection_onto_an_impossible_dimension_is_refused(dimension: int) -> None:
    with pytest.raises(ValueError, match="dimension must be between 1 and"):
        ron_projection(Encoding(schema_with()), dimension, SEED)


def test_without_projection_points_stay_as_they_are() -> None:
    encoding = Encoding(schema_with())
    kept = no_projection(encoding)
    points = generator(1).standard_normal((3, encoding.width))
    assert np.array_equal(kept.lift(points), points)
    assert np.array_equal(kept.basis(), np.eye(encoding.width))


# ---- utility ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [False, True])
def test_the_summary_of_a_table_is_that_of_numpy(label: bool) -> None:
    schema, cells = mixed_table(2000, label=label)
    encoding = Encoding(schema)
    summary = TableSummary(encoding)
    for start in range(0, 2000, 700):
        summary.add({name: values[start : start + 700] for name, values in cells.items()})
    points, classes = encoding.encode(cells), encoding.classes(cells)
    assert summary.rows == 2000
    assert summary.sums.counts.tolist() == np.bincount(classes, minlength=schema.class_count).tolist()
    assert summary.sums.mean == pytest.approx(points.mean(axis=0))
    assert summary.sums.seconds.sum(axis=0) == pytest.approx(points.T @ points)
    visits, sex = summary.column("visits"), summary.column("sex")
    assert visits["mean"] == pytest.approx(np.nanmean(cells["visits"]))
    assert visits["sd"] == pytest.approx(np.nanstd(cells["visits"]))
    assert visits["missing_share"] == pytest.approx(np.mean(np.isnan(cells["visits"])))
    assert sum(visits["shares"]) == pytest.approx(1)
    assert sex["shares"] == pytest.approx(np.bincount(cells["sex"]) / 2000)


@pytest.mark.parametrize("kind", [Kind.NUMERIC, Kind.INTEGER])
def test_the_histogram_of_a_column_is_numpys_also_of_values_beyond_the_bounds(kind: Kind) -> None:
    tally = IntervalTally(IntervalColumn(name="x", kind=kind, lower=-3.3, upper=7.1))
    values = generator(6).normal(2, 4, 20_000)
    if kind is Kind.INTEGER:
        values = values.round()
    tally.add(np.append(values, [np.nan, np.nan]))
    found = tally.summary()
    counts = np.histogram(values, bins=found["edges"])[0]
    assert 0 < counts.sum() < len(values)
    assert found["shares"] == pytest.approx(counts / counts.sum())
    assert found["missing_share"] == pytest.approx(2 / (counts.sum() + 2))


def test_summaries_of_parts_add_up_to_that_of_the_whole() -> None:
    schema, cells = mixed_table(900)
    whole, first, second = (TableSummary(Encoding(schema)) for _ in range(3))
    whole.add(cells)
    first.add({name: values[:200] for name, values in cells.items()})
    second.add({name: values[200:] for name, values in cells.items()})
    first.merge(second)
    assert first.rows == whole.rows
    assert first.sums.counts.tolist() == whole.sums.counts.tolist()
    assert first.sums.seconds == pytest.approx(whole.sums.seconds)
    for column in schema.columns:
        one, all_at_once = first.column(column.name), whole.column(column.name)
        assert all(one[key] == pytest.approx(all_at_once[key]) for key in all_at_once)


@pytest.mark.parametrize("label", [False, True])
def test_correlations_are_those_of_the_readable_columns(label: bool) -> None:
    """numpy.corrcoef over indicator columns is the oracle."""
    schema, cells = mixed_table(3000, label=label)
    encoding = Encoding(schema)
    summary = TableSummary(encoding)
    summary.add(cells)
    names, found = correlations(encoding, summary.sums)
    clip = {c.name: (c.lower, c.upper) for c in schema.columns if isinstance(c, IntervalColumn)}
    readable = {
        "weight": np.clip(cells["weight"], *clip["weight"]),
        "sex = m": cells["sex"] == 1,
        "smoker = True": cells["smoker"] == 1,
        "visits missing": np.isnan(cells["visits"]),
        "insured = (missing)": cells["insured"] == -1,
        "cost": cells["cost"],
    }
    if label:
        readable["outcome = yes"] = cells["outcome"] == 1
    at = [names.index(name) for name in readable]
    oracle = np.corrcoef(np.array([np.asarray(v, dtype=float) for v in readable.values()]))
    assert found[np.ix_(at, at)] == pytest.approx(oracle, abs=1e-6)


def test_a_report_says_nothing_of_means_that_a_projection_left_out() -> None:
    schema, cells = mixed_table(500)
    encoding, mixture = noise_free(schema, cells, dimension=3)
    summary = TableSummary(encoding)
    summary.add(drawn(mixture, encoding, 500))
    columns = {c["name"]: c for c in utility_report(MeasuredSummary.of(encoding, mixture), summary)["columns"]}
    assert columns["weight"]["measured"] == {"mean": None, "mean_margin": None, "sd": None}
    assert columns["ward"]["measured"] == {"shares": [None] * 4, "margins": [None] * 4}
    assert {name for name, column in columns.items() if "gap" in column} == {"outcome"}, "the label's shares are known"


@pytest.mark.parametrize("label", [False, True])
def test_the_report_of_a_noise_free_release_shows_the_tables_own_figures(label: bool) -> None:
    schema, cells = mixed_table(6000, label=label)
    encoding, mixture = noise_free(schema, cells)
    summary = TableSummary(encoding)
    summary.add(drawn(mixture, encoding, 30_000))
    report = utility_report(MeasuredSummary.of(encoding, mixture), summary)
    columns = {c["name"]: c for c in report["columns"]}
    assert list(columns) == [c.name for c in schema.columns]
    assert columns["weight"]["measured"]["mean"] == pytest.approx(np.clip(cells["weight"], -3.7, 11.3).mean(), abs=0.01)
    assert columns["visits"]["measured"]["mean"] == pytest.approx(np.nanmean(cells["visits"]), abs=0.05)
    assert columns["visits"]["measured"]["sd"] == pytest.approx(np.nanstd(cells["visits"]), rel=0.01)
    assert columns["visits"]["measured_missing_share"] == pytest.approx(np.mean(np.isnan(cells["visits"])), abs=1e-3)
    assert columns["ward"]["measured"]["shares"] == pytest.approx(np.bincount(cells["ward"]) / 6000, abs=1e-3)
    metrics = report["metrics"]
    assert metrics["noisy_rows"] == pytest.approx(6000, rel=1e-3)
    assert metrics["mean_gap"] < 0.01
    assert metrics["category_gap"] < 0.02
    assert metrics["signal_to_noise"] > 1000
    values = [x for block in report["spectrum"]["blocks"] for x in block["eigenvalues"]]
    points = encoding.encode(cells)
    assert sum(values) == pytest.approx(float(np.mean((points**2).sum(axis=1))), rel=1e-3)


def test_margins_hold_the_noise_on_means_and_shares_nineteen_times_in_twenty() -> None:
    """The coverage of the 95 % margins of one mean, one level and one class share, over 200 seeded releases."""
    schema, cells = mixed_table(1500)
    pipe = pipeline(schema, dimension=None, s=Fraction(1, 2))
    total = GramSum(pipe.layout)
    total.add(pipe.records(cells), pipe.encoding.classes(cells))
    event = gram_mechanism("laplace").calibrate(pipe.layout, Neighbours.REPLACE_ONE, Epsilon(Fraction(60)))
    by_name = schema.by_name
    truth = {
        "weight": np.clip(cells["weight"], -3.7, 11.3).mean(),
        "sex": np.mean(cells["sex"] == 1),
        "outcome": np.mean(cells["outcome"] == 1),
    }
    inside = dict.fromkeys(truth, 0)
    for seed in range(200):
        moments = NoisyMoments.from_released(measure_gram(PrivateGram(total), event, SeededNoise(seed)))
        measured = MeasuredSummary.of(pipe.encoding, ClassGaussians(moments, pipe.projection))
        weight = measured.column(by_name["weight"])
        inside["weight"] += abs(weight["mean"] - truth["weight"]) <= weight["mean_margin"]
        for name in ("sex", "outcome"):
            shown = measured.column(by_name[name])
            inside[name] += abs(shown["shares"][1] - truth[name]) <= shown["margins"][1]
    for name, hits in inside.items():
        assert 0.85 <= hits / 200 <= 1.0, name
