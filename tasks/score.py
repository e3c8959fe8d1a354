"""Stage 8, only where the specification buys checks: test models of the synthetic rows on the real ones, with noise.

The only stage after sampling that reads rows. It comes after the free checks, so that a table
which fails those takes nothing for these; what fails here is refused, and its spend stands.
"""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpcore.errors import CheckFailedError
from dpcore.measure import ReleasedVector, measure_vector
from dpcore.moments import NoisyMoments
from dpcore.noise import SystemNoise
from dpcore.plans import count_and_sum_noise
from dpcore.queries import GRID, ScoreQuery
from dpcore.schema import Cells, RecordSchema
from dpcore.scores import RMSE, TRAINING_ROWS, Scorer, readable_score, summed_scores, trained
from dpcore.utility import Z95
from dpcore.vectors import PrivateVector, VectorEvent
from tasks.boundary import private_task, tell
from tasks.measure import drawn_once, require_rows
from tasks.stores.record import Outcome
from tasks.stores.run import Grant, ReleaseRun
from tasks.stores.tables import cells_of


@private_task("score")
def score_release(run: ReleaseRun, grant: Grant, outcome: Outcome, table: Path) -> Outcome:
    """The outcome with every budgeted check.

    Raises: CheckFailedError naming what did not hold.
    """
    synthetic = _first_rows(table, run.plan.schema)
    found = [_scored(run, grant, name, event, outcome, synthetic) for name, event in run.plan.check_events.items()]
    checks = [_check(run, score) for score in found]
    failed = [check["name"] for check in checks if not check["ok"]]
    if failed:
        raise CheckFailedError(f"checks failed: {', '.join(failed)}")
    tell("; ".join(f"{one['name']} {one['value']:.4g} ({one['low']:.4g} to {one['high']:.4g})" for one in found))
    return replace(outcome, utility=outcome.utility | {"scores": found}, checks=[*outcome.checks, *checks])


def _first_rows(table: Path, schema: RecordSchema) -> Cells:
    """The synthetic rows that models are trained on."""
    return cells_of(next(pq.ParquetFile(table, pre_buffer=False).iter_batches(batch_size=TRAINING_ROWS)), schema)


def _scored(
    run: ReleaseRun, grant: Grant, name: str, event: VectorEvent, outcome: Outcome, synthetic: Cells
) -> dict[str, Any]:
    """One score: noisy on the real rows, exact on the synthetic ones."""
    query, schema = event.query, run.plan.schema
    assert isinstance(query, ScoreQuery)  # noqa: S101  as it was planned
    scorer = trained(query, schema, synthetic, grant.seeds["sampling"])
    released = _measured(run, grant, name, scorer)
    mean, margin = noisy_mean(released, outcome.moments)
    rows = len(next(iter(synthetic.values())))
    low, value, high = (readable_score(query, schema, m) for m in (mean - margin, mean, mean + margin))
    return {
        "name": name,
        "of": query.of,
        "value": value,
        "low": low,
        "high": high,
        "on_synthetic": readable_score(query, schema, summed_scores([(synthetic, None)], scorer) / GRID / rows),
        "direction": "at-most" if query.score == RMSE else "at-least",
    }


def _measured(run: ReleaseRun, grant: Grant, name: str, scorer: Scorer) -> ReleasedVector:
    """The noisy sum of all rows' scores, drawn now or before."""
    event = run.plan.check_events[name]
    query = event.query
    assert isinstance(query, ScoreQuery)  # noqa: S101  as it was planned

    def drawn() -> ReleasedVector:
        total = run.readings.total(name, run.plan.schema, partial(summed_scores, scorer=scorer), operator.add)
        return measure_vector(PrivateVector(query, [require_rows(run, total)]), event, SystemNoise())

    released = drawn_once(run, grant, name, drawn)
    assert isinstance(released, ReleasedVector)  # noqa: S101  as it was reserved
    return released


def noisy_mean(released: ReleasedVector, moments: NoisyMoments) -> tuple[float, float]:
    """The noisy sum over the noisy count, and the 95 % margin of both noises."""
    count = max(moments.count, 1.0)
    mean = min(max(float(released.numbers()[0]) / count, 0.0), 1.0)
    event = moments.released.event
    one, _ = count_and_sum_noise(event, moments.sums.event if moments.sums else None)
    return mean, Z95 * math.hypot(released.deviation(), mean * one * math.sqrt(event.layout.classes)) / count


def _check(run: ReleaseRun, score: dict[str, Any]) -> dict[str, Any]:
    """The noisy value against its threshold; without one it is shown and always holds."""
    key = score["direction"].replace("-", "_")
    threshold, value = getattr(getattr(run.spec.checks, score["name"]), key), score["value"]
    holds = threshold is None or (value >= threshold if key == "at_least" else value <= threshold)
    return {
        "name": score["name"],
        "value": value,
        "threshold": threshold,
        "direction": score["direction"],
        "ok": bool(holds),
    }
