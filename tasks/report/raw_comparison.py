"""Compare a published release with the raw rows, exactly and privately; no decision may depend on the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpcore.errors import RefusedError
from dpcore.evaluation.table_summary import TableSummary
from dpcore.evaluation.utility import correlations
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, IntervalColumn, RecordSchema
from tasks.landing.file_names import absolute
from tasks.ledger.store import utc_now
from tasks.release.context import PreparedRelease, RunRequest, prepare_release
from tasks.report.comparison import render_comparison
from tasks.workspace.folders import Workspace


def compare_raw(workspace: Workspace, record: dict[str, Any], given: str | None) -> Path:
    """Write the comparison of a release with the landing data of its month; returns where it is.

    Raises: RefusedError if the specification is another one by now, or the data are gone.
    """
    request = RunRequest(period=record["period"], source=absolute(given) if given else None)
    with workspace.scratch() as scratch:
        planned = prepare_release(workspace, request, scratch=scratch, now=utc_now())
        _require_same_specification(planned, record)
        page = _page(record, _raw_summary(planned, workspace, scratch), planned.encoding)
    return workspace.keep_comparison(record["release_id"], page)


def _require_same_specification(planned: PreparedRelease, record: dict[str, Any]) -> None:
    if planned.spec.digest() != record["spec_digest"]:
        raise RefusedError(
            f"the specification changed since {record['release_id']} was released",
            rule="spec-changed",
            where="release.yaml",
            hint="restore the earlier specification, or compare a newer release",
        )


def _raw_summary(planned: PreparedRelease, workspace: Workspace, scratch: Path) -> TableSummary:
    planned.fetch(workspace.root)
    summary, schema = TableSummary(planned.encoding), planned.plan.schema
    for cells, _ in planned.readings(workspace, scratch).chunks(schema):
        summary.add(_as_counted(cells, schema))
    return summary


def _as_counted(cells: Cells, schema: RecordSchema) -> Cells:
    """Numbers cut to their bounds, gaps filled as the release fills them."""
    intervals = [column for column in schema.columns if isinstance(column, IntervalColumn)]
    return cells | {
        column.name: _inside(np.asarray(cells[column.name], dtype=np.float64), column) for column in intervals
    }


def _inside(values: np.ndarray, column: IntervalColumn) -> np.ndarray:
    stand_in = np.nan if column.missing_level else column.middle if column.impute is None else column.impute
    return np.clip(np.where(np.isnan(values), stand_in, values), column.lower, column.upper)


def _page(record: dict[str, Any], raw: TableSummary, encoding: Encoding) -> str:
    utility = record["utility"]
    columns = [_column(column, raw.column(column["name"])) for column in utility["columns"]]
    names, exact = correlations(encoding, raw.sums)
    synthetic = np.array(utility["correlation"]["synthetic"])
    correlation = {"names": names, "measured": exact.tolist(), "synthetic": synthetic.tolist()}
    gaps = {
        "a mean, as a share of the bounds' distance": max(
            (_mean_gap(c) for c in columns if "levels" not in c), default=0.0
        ),
        "a level's share": max((_share_gap(c) for c in columns if "levels" in c), default=0.0),
        "correlations": float(np.sqrt(np.mean((exact - synthetic) ** 2))),
    }
    return render_comparison(record["release_id"], columns, correlation, gaps, has_rows=bool(raw.sums.counts.any()))


def _column(column: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    """A column of the record with exact figures where the noisy ones were."""
    if "levels" in column:
        return column | {"measured": {"shares": raw["shares"], "margins": None}}
    exact = {"mean": raw["mean"], "mean_margin": None, "sd": raw["sd"]}
    return column | {"measured": exact, "measured_missing_share": raw["missing_share"] or None}


def _mean_gap(column: dict[str, Any]) -> float:
    edges = column["synthetic"]["edges"]
    return float(abs(column["measured"]["mean"] - column["synthetic"]["mean"]) / (edges[-1] - edges[0]))


def _share_gap(column: dict[str, Any]) -> float:
    sides = column["measured"]["shares"], column["synthetic"]["shares"]
    return float(max(abs(exact - drawn) for exact, drawn in zip(*sides, strict=True)))
