"""The quantities of a release record that can be compared between months, with their noise.

All come from the record's noisy measurements; synthetic rows are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from dpcore.mechanisms.base import GramEvent, Output
from dpcore.mechanisms.expected_noise import count_and_sum_noise
from dpcore.mechanisms.names import CENTRE, MEAN, MOMENTS, PROJECTION
from dpcore.mechanisms.registry import mechanism_of
from dpcore.records.schema import Role
from dpcore.series.drift import LARGEST_COUNT_NOISE, Quantity, ratio_noise
from dpcore.stats import Z95
from tasks.report.wording import is_number


class Name(NamedTuple):
    """A quantity: a column's mean, the share of one of its levels, or the count of rows (no column)."""

    column: str
    level: str | None = None


class LeftOut(Enum):
    """What replaces the directions that a release's projection leaves out."""

    NOTHING = "nothing is left out"
    MEASURED = "a measured mean"
    """Every figure comes from the data, but the spreads of the columns are not known."""
    PUBLIC = "the mean of a public table"
    """Figures of the columns come partly from that table, and say nothing about random variation or drift."""
    FAR_OFF = "the edge of a measured ball"
    """Distant records are clipped to another radius each month, which alone may move the columns' figures."""


class _Basis(NamedTuple):
    """The basis of one record's figures: the noisy count of rows, and noise as standard deviations."""

    left_out: LeftOut
    rows: float
    count_noise: float
    centre_noise: float = 0.0
    """Noise of a position between -1 and 1 that comes from the measured mean."""
    centre_count_noise: float = 0.0


def quantities(record: dict[str, Any]) -> dict[Name, Quantity]:
    """Return the quantities by which a month can be compared; none if the record does not state its noise."""
    basis = _basis(record)
    if basis is None or basis.count_noise > LARGEST_COUNT_NOISE * basis.rows:
        return {}
    found = {Name(""): Quantity(basis.rows, basis.count_noise, math.sqrt(basis.rows))}
    kept = basis._replace(left_out=LeftOut.NOTHING, centre_noise=0.0, centre_count_noise=0.0)
    whole = (Role.LABEL,) if basis.left_out is LeftOut.FAR_OFF else (Role.LABEL, Role.TARGET)  # never projected
    for column in record["utility"]["columns"]:
        found |= dict(_of_column(column, kept if column["role"] in whole else basis))
    return found


def left_out(record: dict[str, Any]) -> LeftOut:
    """Return what replaces what the projection leaves out; nothing if no mean is stated at all."""
    projection = record["model"]["projection"]
    if any(measurement["name"] == CENTRE for measurement in record["privacy"]["measurements"]):
        return LeftOut.FAR_OFF
    targets = [column for column in record["utility"]["columns"] if column["role"] == Role.TARGET]
    features = projection["encoded_width"] - sum(map(_coordinates, targets))
    if projection["kind"] == "none" or projection["dimension"] >= features:
        return LeftOut.NOTHING
    return {"private-pca": LeftOut.MEASURED, "public-pca": LeftOut.PUBLIC}.get(projection["kind"], LeftOut.NOTHING)


def _coordinates(target: dict[str, Any]) -> int:
    """Count the coordinates of a numeric target in an encoded point."""
    return 1 + (target.get("measured_missing_share") is not None)


def definitions(record: dict[str, Any]) -> dict[str, Any]:
    """Return how columns and privacy unit were declared: only what was declared alike is compared."""
    privacy = record["privacy"]
    basis = (privacy["unit"], privacy["neighbours"])
    columns = record["utility"]["columns"]
    return {"": basis} | {column["name"]: (*basis, *_definition(column)) for column in columns}


def _definition(column: dict[str, Any]) -> tuple[Any, ...]:
    edges = column["synthetic"].get("edges") or [None]
    missing = column.get("measured_missing_share") is not None
    return column["kind"], tuple(column.get("levels", ())), edges[0], edges[-1], missing


def _basis(record: dict[str, Any]) -> _Basis | None:
    events = {m["name"]: m["parameters"] for m in record["privacy"]["measurements"]}
    count = record["noisy_count"]
    if not is_number(count):
        return None
    try:
        moments = GramEvent.from_json(events[MOMENTS])
        mean = GramEvent.from_json(events[MEAN]) if MEAN in events else None
        noise = count_and_sum_noise(moments, mean)[0] * math.sqrt((mean or moments).layout.classes)
        basis = _Basis(left_out(record), count, noise)
        if basis.left_out is LeftOut.MEASURED and PROJECTION in events:  # else it is computed from the moments
            basis = _with_centre(basis, GramEvent.from_json(events[PROJECTION]), record["utility"]["columns"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None  # written by a version that stated its noise in another way
    return basis


def _with_centre(basis: _Basis, event: GramEvent, columns: list[dict[str, Any]]) -> _Basis:
    """Add the noise of a mean that was measured separately from the moments."""
    if mechanism_of(event.mechanism).output is Output.BASIS:  # directions come without a mean, and no mean is stated
        return basis
    count_sd, sum_sd = count_and_sum_noise(event)
    scale = math.sqrt(sum(column["role"] != Role.LABEL for column in columns))
    position = scale * sum_sd / max(basis.rows, 1.0)
    return basis._replace(centre_noise=position, centre_count_noise=count_sd)


def _of_column(column: dict[str, Any], basis: _Basis) -> Iterator[tuple[Name, Quantity]]:
    measured = column.get("measured") or {}
    if basis.left_out in (LeftOut.PUBLIC, LeftOut.FAR_OFF):
        return
    if "levels" in column:
        yield from _shares(column, measured, basis)
    elif is_number(measured.get("mean")) and is_number(measured.get("mean_margin")):
        yield Name(column["name"]), _mean(column, measured, basis)


def _ratio_noise(basis: _Basis, margin_sd: float, centre_sd: float, offset: float) -> float:
    """Bound the noise of a mean: the kept part has the noise of the moments, the rest that of the centre."""
    count_sd = max(basis.count_noise, basis.centre_count_noise)
    return ratio_noise(max(margin_sd, centre_sd), offset=offset, count_sd=count_sd, count=basis.rows)


def _mean(column: dict[str, Any], measured: dict[str, Any], basis: _Basis) -> Quantity:
    edges = column["synthetic"]["edges"]
    half_width, offset = (edges[-1] - edges[0]) / 2, abs(measured["mean"] - (edges[0] + edges[-1]) / 2)
    present = 1.0
    if is_number(column.get("measured_missing_share")):
        present = min(max(1 - column["measured_missing_share"], 0.05), 1.0)
    sd, centre_sd = measured["mean_margin"] / Z95, half_width * basis.centre_noise / present
    total = _ratio_noise(basis, sd, centre_sd, offset)
    if present < 1:  # the mean is over a noisy share of the rows
        total = math.hypot(total, max(sd, centre_sd) * offset / half_width)
    return Quantity(
        measured["mean"], total, _spread(measured, half_width, basis) / math.sqrt(max(basis.rows * present, 1.0))
    )


def _spread(measured: dict[str, Any], half_width: float, basis: _Basis) -> float:
    """Return the measured standard deviation of a column, or else the largest that its bounds allow.

    Moments of projected points contain only the variance of the kept directions.
    """
    known = basis.left_out is LeftOut.NOTHING and is_number(measured.get("sd"))
    return float(measured["sd"]) if known else half_width


def _shares(column: dict[str, Any], measured: dict[str, Any], basis: _Basis) -> Iterator[tuple[Name, Quantity]]:
    """Yield one share per level; for two levels the second suffices. A share implies its spread, projected or not."""
    levels = column["levels"]
    nothing = [None] * len(levels)
    shares, margins = measured.get("shares") or nothing, measured.get("margins") or nothing
    rows = list(zip(levels, shares, margins, strict=True))
    centre_sd = (1 - 1 / len(levels)) * basis.centre_noise
    for level, share, margin in rows[1:] if len(rows) == 2 else rows:
        if is_number(share) and is_number(margin):
            total = _ratio_noise(basis, margin / Z95, centre_sd, offset=share)
            inside = min(max(share, 0.0), 1.0)
            chance = math.sqrt(inside * (1 - inside) / basis.rows)
            yield Name(column["name"], str(level)), Quantity(share, total, chance)
