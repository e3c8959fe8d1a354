"""Stage 1: refuse a wrong structure, and report invalid cells to the operator only."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from dpcore.planning.plan import Plan
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, Column, NominalColumn
from expectations import landing
from expectations.extremes import Extremes
from expectations.landing import ENCODED_NORM, MEANINGS, TREATMENTS
from expectations.rules import rule_truths
from expectations.verdicts import Verdict
from tasks.boundary import log_operator, log_public, private_task
from tasks.intake.completeness import require_whole
from tasks.landing.passes import Chunk
from tasks.landing.structure import require_shape
from tasks.release.context import ReleaseRun
from tasks.workspace.helper_process import in_helper


@private_task("validate")
def validate_landing(run: ReleaseRun, release_id: str) -> None:
    """Refuse data of another structure, and tell the operator which columns hold invalid cells.

    Raises: LandingError.
    """
    run.planned.fetch(run.workspace.root)
    run.readings.require_same()
    require_structure(run)
    verdicts = read_whole(run)
    run.workspace.keep_verdicts(release_id, [_kept(verdict) for verdict in verdicts])
    keep_month_counts(run, release_id)
    log_public("validated the landing data: the structure matches the specification")
    _log_broken([verdict for verdict in verdicts if not verdict.ok])


def _log_broken(verdicts: Iterable[Verdict]) -> None:
    """Tell the operator, for each broken rule, what it means and for which columns; no value and no count."""
    columns: dict[str, list[str]] = {}
    for verdict in verdicts:
        columns.setdefault(verdict.rule, []).extend([verdict.column] if verdict.column else [])
    for rule, names in columns.items():
        log_operator(f"{TREATMENTS[rule]}: {', '.join(names)}" if names else f"{MEANINGS[rule]} ({rule})")


def _kept(verdict: Verdict) -> dict[str, Any]:
    """A verdict as the operator may read it later."""
    stated = {"column": verdict.column, "rule": verdict.rule, "ok": verdict.ok}
    return stated if verdict.ok else stated | {"means": MEANINGS[verdict.rule]}


def require_structure(run: ReleaseRun) -> None:
    """Check columns and types of every landing file, and that none of the month's is in quarantine.

    Raises: LandingError for the first rule that does not hold.
    """
    if not run.planned.arrival.is_given:
        require_whole(run.workspace, run.planned.spec, run.planned.period)
    require_shape(run.planned.arrival.landing)


def read_whole(run: ReleaseRun) -> tuple[Verdict, ...]:
    """Verdicts on all cells, and the fingerprint side by side with them: both read the data to their end.

    Raises: LandingError if that fails.
    """
    with ThreadPoolExecutor(1) as beside:
        fingerprint = beside.submit(run.readings.fingerprint)
        verdicts = cell_verdicts(run)
        fingerprint.result()
    return verdicts


def cell_verdicts(run: ReleaseRun) -> tuple[Verdict, ...]:
    """Verdicts on all cells, which also shows that the data can be read to their end; all hold where there is none.

    Raises: LandingError if they cannot.
    """
    schema = run.planned.spec.schema
    summed = partial(cell_extremes, encoding=run.planned.encoding, radius=public_radius(run.planned.plan))
    extremes = run.readings.total("validation", schema, summed, with_extremes, by_unit=False)
    if extremes.is_empty:
        of_month = f" of {run.planned.period}" if run.planned.spec.month_rule else ""
        log_operator(f"the landing data have no rows{of_month}; they are measured in the same way as other data")
    return in_helper(landing.cell_verdicts, extremes, schema)


def keep_month_counts(run: ReleaseRun, release_id: str) -> None:
    """Keep in the vault how many rows belong to the month and to others, where a column tells; nothing else holds it.

    Raises: LandingError if the data cannot be read.
    """
    counts = run.readings.month_counts()
    if counts is not None:
        run.workspace.keep_month_counts(release_id, run.planned.period, counts)


def public_radius(plan: Plan) -> float:
    """The radius of the ball to which points are cut, as far as it is known before anything is measured.

    Along a projection a point is shorter than before it, normalised points are all of one length, and a frame or groups
    that are bought are not there yet: then it is the whole ball that the bounds span, and a longer record is shortened
    because its cells are clamped.
    """
    cut_before = plan.projection == "none" and plan.marginals_event is None and not plan.normalise
    return float(plan.radius) if cut_before else 1.0


def cell_extremes(chunks: Iterable[Chunk], *, encoding: Encoding, radius: float = 1.0) -> Extremes:
    """The cells, and the lengths of records before they are cut to their ball, that decide the verdicts on all."""
    extremes = Extremes()
    nothing: Cells = {column.name: np.zeros(0, _cell_type(column)) for column in encoding.schema.columns}
    rules = encoding.schema.rules
    extremes.add({**nothing, **rule_truths(nothing, rules), ENCODED_NORM: np.zeros(0)})  # every column is there
    for cells, _ in chunks:
        lengths = encoding.unclipped_lengths(cells) / radius
        extremes.add({**cells, **rule_truths(cells, rules), ENCODED_NORM: lengths})
    return extremes


def _cell_type(column: Column) -> type[np.generic]:
    return np.int64 if isinstance(column, NominalColumn) else np.float64


def with_extremes(one: Extremes, other: Extremes) -> Extremes:
    """The extremes of both."""
    one.merge(other)
    return one
