"""Stage 8, for specifications with budgeted checks: evaluate models of the synthetic rows on the real rows, with noise.

This is the only stage after sampling that reads landing rows. It follows the free checks, so that a table that
fails those spends nothing here. A release that fails here is refused, and its cost stays spent.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import partial
from typing import Any

from dpcore.errors import RELAX_CHECKS, CheckFailedError
from dpcore.measure import ReleasedVector, measure_vector
from dpcore.measurements.scores import Scorer, sum_scores, train_scorer
from dpcore.mechanisms.queries import ScoreQuery
from dpcore.mechanisms.vectors import PrivateVector
from dpcore.noise.sources import SystemNoise
from dpcore.records.schema import Cells
from tasks.boundary import log_public, private_task
from tasks.bundle.figures import score_check, score_of, training_rows
from tasks.bundle.record import Outcome
from tasks.bundle.staging import DATA
from tasks.draw_once import draw_once
from tasks.release.context import ReleaseRun
from tasks.release.stage_values import Grant, SyntheticTable
from tasks.workspace.parallel import one_blas_thread


@private_task("score")
@one_blas_thread
def score_release(run: ReleaseRun, grant: Grant, outcome: Outcome, table: SyntheticTable) -> Outcome:
    """Return the outcome with every budgeted check.

    Raises: CheckFailedError naming what did not hold.
    """
    synthetic = training_rows(table.folder / DATA, run.planned.plan.schema)
    found = [_score(run, grant, name, outcome, synthetic) for name in run.planned.plan.check_events]
    checks = [score_check(score, run.planned.spec.checks) for score in found]
    failed = [check["name"] for check in checks if not check["ok"]]
    if failed:
        raise CheckFailedError(f"checks failed: {', '.join(failed)}", hint=RELAX_CHECKS)
    scores = "; ".join(f"{one['name']} {one['value']:.4g} ({one['low']:.4g} to {one['high']:.4g})" for one in found)
    log_public(f"measured the budgeted checks: {scores}")
    return replace(outcome, utility=outcome.utility | {"scores": found}, checks=[*outcome.checks, *checks])


def _score(run: ReleaseRun, grant: Grant, name: str, outcome: Outcome, synthetic: Cells) -> dict[str, Any]:
    """One score, measured on the real rows."""
    query, schema = run.planned.plan.check_events[name].query, run.planned.plan.schema
    assert isinstance(query, ScoreQuery)  # noqa: S101  as it was planned
    scorer = train_scorer(query, schema, synthetic, grant.seeds["sampling"])
    return score_of(name, _measure_or_load(run, grant, name, scorer), scorer, outcome.moments, synthetic, schema)


def _measure_or_load(run: ReleaseRun, grant: Grant, name: str, scorer: Scorer) -> ReleasedVector:
    """The noisy sum of all rows' scores, drawn now or before."""
    event = run.planned.plan.check_events[name]
    query = event.query
    assert isinstance(query, ScoreQuery)  # noqa: S101  as it was planned

    def drawn() -> ReleasedVector:
        total = run.readings.total(name, run.planned.plan.schema, partial(sum_scores, scorer=scorer), operator.add)
        return measure_vector(PrivateVector(query, [total]), event, SystemNoise())

    released = draw_once(run, grant, name, drawn)
    assert isinstance(released, ReleasedVector)  # noqa: S101  as it was reserved
    return released
