"""The codebook of a release: its columns as an analyst needs to know them, and what not to trust in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.evaluation.copula_fit import CopulaSummary, measured_summary
from dpcore.evaluation.goodness_of_fit import relation_noise
from dpcore.evaluation.utility import readable_map
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.records.encoding import Encoding
from dpcore.records.projected_columns import columns_beside, coordinate_name
from dpcore.records.schema import Column, IntervalColumn, Kind, NominalColumn, RecordSchema
from tasks.bundle.projection_text import published_output, rule_words
from tasks.bundle.sampling_text import sampling_words
from tasks.bundle.staging import DATA, PROJECTED

MOST_NAMED = 12
"""The largest number of names or pairs listed in one sentence; the record has the figures of all."""

COORDINATES = (
    "each row is the synthetic row of the same place, as the point that was drawn before it was decoded: an encoded "
    "record (coordinates of model.json) less the frame's centre, divided by its radius, times the projection's columns "
    "/ 2^bits; beyond 1 it was moved to 1"
)
COARSE = 0.1
"""A margin above this part of a column's range, or of 1 for shares, is called coarse."""


def build_codebook(schema: RecordSchema, record: dict[str, Any]) -> dict[str, Any]:
    """Describe the columns of the released table from the specification and the record's figures."""
    stated = {column["name"]: column for column in record["specification"]["columns"]}
    output = published_output(record)
    figures = {column["name"]: column for column in record["utility"]["columns"]}
    columns = [
        column_entry(column) | _unit(stated[column.name]) | {"measured": _measured_margin(figures[column.name])}
        for column in schema.columns
    ]
    return {
        "table": DATA if output != "projected" else None,
        "release_id": record["release_id"],
        **_projection(record["model"]["projection"]),
        **(_projected_table(schema, record["model"]["projection"]["dimension"]) if output else {}),
        "columns": columns,
        **({"rules": [rule.words for rule in schema.rules]} if schema.rules else {}),
        **({"rows": sampling_words(record["model"])} if "sampling" in record["model"] else {}),
        "do_not_trust": record["limits"],
    }


def _projection(projection: dict[str, Any]) -> dict[str, Any]:
    """Return the projection behind the rows and the rule of its dimension; nothing where every coordinate is kept."""
    rule = rule_words(projection)
    if rule is None:
        return {}
    return {"projection": {"kind": projection["kind"], "dimension": projection["dimension"], "rule": rule}}


def _projected_table(schema: RecordSchema, dimension: int) -> dict[str, Any]:
    """Describe the table of projected points and how a record becomes one."""
    coordinates = [{"name": coordinate_name(i), "kind": "numeric", "bounds": [-1.0, 1.0]} for i in range(dimension)]
    return {
        "projected": {
            "table": PROJECTED,
            "columns": [*coordinates, *map(column_entry, columns_beside(schema))],
            "meaning": COORDINATES,
        }
    }


def _unit(stated: dict[str, Any]) -> dict[str, str]:
    return {"unit": stated["unit"]} if "unit" in stated else {}


def _measured_margin(figures: dict[str, Any]) -> dict[str, Any] | None:
    """Return the margin of a column's mean or shares, 1.96 deviations of its sum's noise; None if not measured."""
    measured = figures["measured"]
    if "shares" in measured:
        known = None not in measured["shares"]
        return {"shares_within": max(measured["margins"])} if known else None
    return None if measured["mean"] is None else {"mean_within": measured["mean_margin"]}


def column_entry(column: Column) -> dict[str, Any]:
    """Describe a column: kind, role, bounds or categories, and how missing and out-of-range cells were treated."""
    entry: dict[str, Any] = {"name": column.name, "kind": column.kind.value, "role": column.role.value}
    entry["nullable"] = column.missing_level
    if isinstance(column, NominalColumn):
        entry["categories"] = list(column.levels)
        entry["unknown_categories"] = _nominal_fallback(column, column.other)
        entry["missing_cells"] = "null" if column.missing_level else _nominal_missing(column)
        return entry
    entry["bounds"] = [_readable(column, column.lower), _readable(column, column.upper)]
    entry["out_of_bounds"] = "moved to the nearer bound"
    stand_in = column.middle if column.impute is None else column.impute
    entry["missing_cells"] = "null" if column.missing_level else f"counted as {_readable(column, stand_in)}"
    if column.kind is Kind.TIMESTAMP:
        entry["timezone"] = column.timezone
    return entry


def _nominal_missing(column: NominalColumn) -> str:
    return _nominal_fallback(column, column.other if column.impute is None else column.impute)


def _nominal_fallback(column: NominalColumn, level: int | None) -> str:
    if level is not None:
        return f"counted as {column.levels[level]}"
    return f"counted as {column.levels[0]}" if column.role.value == "label" else "counted equally for all categories"


def _readable(column: IntervalColumn, value: float) -> Any:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    if column.kind is Kind.DATE:
        return (epoch + timedelta(days=value)).date().isoformat()
    if column.kind is Kind.TIMESTAMP:
        return (epoch + timedelta(microseconds=value)).isoformat()
    return int(value) if column.kind is Kind.INTEGER and value == int(value) else value


# -- what is mostly noise: post-processing of released values, at no cost -----------------


def noise_limits(
    encoding: Encoding, moments: NoisyMoments, projection: Projection, utility: dict[str, Any]
) -> list[str]:
    """Say which columns and which relations are hidden by the noise of this release."""
    columns = encoding.schema.columns
    unknown = [c["name"] for c in utility["columns"] if _measured_margin(c) is None]
    coarse = [
        c["name"] for c, column in zip(utility["columns"], columns, strict=True) if _relative_margin(c, column) > COARSE
    ]
    lines = []
    if unknown:
        lines.append(f"Means and shares of these columns were not measured and are only guesses: {_some(unknown)}.")
    if coarse:
        lines.append(f"Means or shares of these columns are known to within {COARSE:.0%} at best: {_some(coarse)}.")
    if not unknown:  # without means, no relation can be distinguished from noise either
        lines += _relation_limit(encoding, moments, projection, utility)
    return lines


def _relative_margin(figures: dict[str, Any], column: Column) -> float:
    """The margin of a column's mean or shares as a part of its range."""
    measured = _measured_margin(figures)
    if measured is None:
        return 0.0
    if isinstance(column, IntervalColumn):
        return float(measured["mean_within"]) / (column.upper - column.lower)
    return float(measured["shares_within"])


def _relation_limit(
    encoding: Encoding, moments: NoisyMoments, projection: Projection, utility: dict[str, Any]
) -> list[str]:
    names, margins = relation_margins(encoding, moments, projection, float(utility["spectrum"]["noise_level"]))
    measured = np.array(utility["correlation"]["measured"])[: len(names), : len(names)]
    pairs = [(i, j) for i, j in combinations(range(len(names)), 2) if _column_of(names[i]) != _column_of(names[j])]
    hidden = [f"{names[i]} with {names[j]}" for i, j in pairs if abs(measured[i, j]) <= margins[i, j]]
    if not hidden:
        return []
    if len(hidden) == len(pairs):
        verdict = "None of the correlations can be distinguished from noise"
    else:
        verdict = f"{len(hidden)} of {len(pairs)} correlations cannot be distinguished from noise"
    return [f"{verdict}; do not interpret these: {_some(hidden)}."]


def relation_margins(
    encoding: Encoding, moments: NoisyMoments, projection: Projection, level: float
) -> tuple[list[str], NDArray[np.float64]]:
    """Bound how far noise can move each correlation of two quantities, for all of them at once.

    `level` is the operator norm of the noise per record. It says nothing about a copula, which measures groups in
    coordinates of their own: there every pair has its own noise, and all stay within the bound in 95 of 100 releases.
    """
    names, matrix = readable_map(encoding)
    summary = measured_summary(encoding, moments, projection)
    sums = summary.sums
    total = max(float(sums.counts.sum()), 1.0)
    mean = matrix @ sums.mean
    variance = np.einsum("ij,jk,ik->i", matrix, sums.seconds.sum(axis=0) / total, matrix) - mean**2
    lengths = np.linalg.norm(matrix, axis=1)
    unsure = level * np.outer(lengths, lengths)
    if isinstance(summary, CopulaSummary):
        count = max(len(names) * (len(names) - 1) // 2, 1)
        unsure = NormalDist().inv_cdf(1 - 0.025 / count) * relation_noise(summary)
    spread = np.sqrt(np.maximum(variance, 1e-18))
    margins: NDArray[np.float64] = unsure / np.outer(spread, spread)
    return names, margins


def _column_of(quantity: str) -> str:
    return quantity.partition(" = ")[0].removesuffix(" missing")


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
