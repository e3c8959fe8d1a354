"""The figures of a release: its utility, its checks and its bought scores; the release and its audit share this.

Everything here is a function of released measurements, synthetic rows and the specification.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpcore.evaluation.copula_fit import measured_summary
from dpcore.evaluation.goodness_of_fit import release_report
from dpcore.evaluation.rules_effect import rules_effect
from dpcore.evaluation.table_summary import TableSummary
from dpcore.measure import ReleasedVector
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.measurements.scores import RMSE, TRAINING_ROWS, Scorer, readable_score, sum_scores
from dpcore.mechanisms.expected_noise import count_and_sum_noise
from dpcore.mechanisms.queries import GRID, ScoreQuery
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, RecordSchema
from dpcore.stats import Z95
from dpcore.synthesis.generators import SAMPLERS, SyntheticRows, generator_of, without_rules
from tasks.landing.cells import cells_of
from tasks.spec import ChecksSpec
from tasks.workspace.parallel import one_blas_thread

FLOORS = ("signal_to_noise", "means_inside", "pairs_inside", "category_coverage", "spectrum_above_noise", "isotropy")
CEILINGS = ("mean_gap", "category_gap", "correlation_gap")
AT_LEAST = {"min_rows": "noisy_rows", **{name: name for name in FLOORS}}
AT_MOST = {name: name for name in CEILINGS}


def utility_of(
    encoding: Encoding, moments: NoisyMoments, projection: Projection, summary: TableSummary
) -> dict[str, Any]:
    """How well the synthetic rows reproduce what was measured."""
    return release_report(measured_summary(encoding, moments, projection), summary)


@one_blas_thread  # a release and its audit count the same rows
def rules_effect_of(
    rows: SyntheticRows, sampler: int, encoding: Encoding, moments: NoisyMoments, projection: Projection
) -> dict[str, Any] | None:
    """What enforcing the specification's rules moved; None without rules.

    Raises: CheckFailedError if the rules hold for too little of the model.
    """
    if not encoding.schema.rules:
        return None
    plain = without_rules(encoding, generator_of(encoding.schema, moments, projection))
    return rules_effect(rows, SAMPLERS[sampler](*plain, rows.rows, rows.seed), encoding.schema)


def metric_checks(metrics: dict[str, float], thresholds: ChecksSpec) -> list[dict[str, Any]]:
    """Each metric against its threshold; a metric without one is shown and always holds."""
    checks = []
    for key, metric in {**AT_LEAST, **AT_MOST}.items():
        value, threshold = metrics[metric], getattr(thresholds, key)
        holds = threshold is None or (value >= threshold if key in AT_LEAST else value <= threshold)
        limit = None if threshold is None else float(threshold)
        direction = "at-least" if key in AT_LEAST else "at-most"
        checks.append({"name": key, "value": value, "threshold": limit, "direction": direction, "ok": bool(holds)})
    return checks


def table_check(rule: str, *, ok: bool) -> dict[str, Any]:
    """The check that a rule about the released table's cells holds."""
    return {"name": f"table: {rule}", "value": None, "threshold": None, "direction": "holds", "ok": ok}


def training_rows(table: Path, schema: RecordSchema) -> Cells:
    """The synthetic rows that models of bought checks are trained on."""
    return cells_of(next(pq.ParquetFile(table, pre_buffer=False).iter_batches(batch_size=TRAINING_ROWS)), schema)


def score_of(
    name: str, released: ReleasedVector, scorer: Scorer, moments: NoisyMoments, synthetic: Cells, schema: RecordSchema
) -> dict[str, Any]:
    """One bought score: noisy on the real rows, exact on the synthetic ones."""
    query = released.event.query
    assert isinstance(query, ScoreQuery)  # noqa: S101  as it was planned
    mean, margin = noisy_mean(released, moments)
    rows = len(next(iter(synthetic.values())))
    low, value, high = (readable_score(query, schema, m) for m in (mean - margin, mean, mean + margin))
    return {
        "name": name,
        "of": query.of,
        "value": value,
        "low": low,
        "high": high,
        "on_synthetic": readable_score(query, schema, sum_scores([(synthetic, None)], scorer) / GRID / rows),
        "direction": "at-most" if query.score == RMSE else "at-least",
    }


def noisy_mean(released: ReleasedVector, moments: NoisyMoments) -> tuple[float, float]:
    """The noisy sum over the noisy count, and 1.96 deviations of both noises."""
    count = max(moments.count, 1.0)
    mean = min(max(float(released.numbers()[0]) / count, 0.0), 1.0)
    event = moments.released.event
    one, _ = count_and_sum_noise(event, moments.sums.event if moments.sums else None)
    return mean, Z95 * math.hypot(released.deviation(), mean * one * math.sqrt(event.layout.classes)) / count


def score_check(score: dict[str, Any], thresholds: ChecksSpec) -> dict[str, Any]:
    """The noisy value against its threshold; without one it is shown and always holds."""
    key = score["direction"].replace("-", "_")
    threshold, value = getattr(getattr(thresholds, score["name"]), key), score["value"]
    holds = threshold is None or (value >= threshold if key == "at_least" else value <= threshold)
    return {
        "name": score["name"],
        "value": value,
        "threshold": threshold,
        "direction": score["direction"],
        "ok": bool(holds),
    }
