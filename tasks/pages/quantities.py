"""The quantities of a release record that may be compared between months, with their noise.

All come from the record's noisy measurements; nothing of the synthetic rows is compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from dpcore.drift import LARGEST_COUNT_NOISE, Quantity, ratio_noise
from dpcore.mechanisms.base import GramEvent
from dpcore.planning import count_and_sum_noise
from dpcore.utility import Z95
from tasks.pages.wording import is_number


class Name(NamedTuple):
    """A quantity: a column's mean, the share of one of its levels, or the count of rows (no column)."""

    column: str
    level: str | None = None


def quantities(record: dict[str, Any]) -> dict[Name, Quantity]:
    """What a month may be compared by; nothing where the record does not say how noisy it is."""
    noise = _count_noise(record)
    count = record["noisy_count"]
    if noise is None or not is_number(count) or noise > LARGEST_COUNT_NOISE * count:
        return {}
    found = {Name(""): Quantity(count, noise, math.sqrt(count))}
    for column in record["utility"]["columns"]:
        found |= dict(_of_column(column, count, noise))
    return found


def definitions(record: dict[str, Any]) -> dict[str, Any]:
    """How each column was declared, and what the budget was counted for: only what was declared alike is compared."""
    privacy = record["privacy"]
    basis = (privacy["unit"], privacy["neighbours"])
    columns = record["utility"]["columns"]
    return {"": basis} | {column["name"]: (*basis, *_definition(column)) for column in columns}


def _definition(column: dict[str, Any]) -> tuple[Any, ...]:
    edges = column["synthetic"].get("edges") or [None]
    missing = column.get("measured_missing_share") is not None
    return column["kind"], tuple(column.get("levels", ())), edges[0], edges[-1], missing


def _count_noise(record: dict[str, Any]) -> float | None:
    """Standard deviation of the noise on the count of all rows."""
    events = {m["name"]: m["parameters"] for m in record["privacy"]["measurements"]}
    try:
        moments = GramEvent.from_json(events["moments"])
        mean = GramEvent.from_json(events["mean"]) if "mean" in events else None
        return count_and_sum_noise(moments, mean)[0] * math.sqrt((mean or moments).layout.classes)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None  # of a version that stated its noise otherwise


def _of_column(column: dict[str, Any], count: float, noise: float) -> Iterator[tuple[Name, Quantity]]:
    measured = column.get("measured") or {}
    if "levels" in column:
        yield from _shares(column, measured, count, noise)
    elif is_number(measured.get("mean")) and is_number(measured.get("mean_margin")):
        yield Name(column["name"]), _mean(column, measured, count, noise)


def _mean(column: dict[str, Any], measured: dict[str, Any], count: float, noise: float) -> Quantity:
    edges = column["synthetic"]["edges"]
    sd, offset = measured["mean_margin"] / Z95, abs(measured["mean"] - (edges[0] + edges[-1]) / 2)
    total = ratio_noise(sd, offset=offset, count_sd=noise, count=count)
    present = 1.0
    if is_number(column.get("measured_missing_share")):  # the mean is over a noisy share of the rows
        present = min(max(1 - column["measured_missing_share"], 0.05), 1.0)
        total = math.hypot(total, sd * offset / ((edges[-1] - edges[0]) / 2))
    spread = measured["sd"] if is_number(measured.get("sd")) else 0.0
    return Quantity(measured["mean"], total, spread / math.sqrt(max(count * present, 1.0)))


def _shares(
    column: dict[str, Any], measured: dict[str, Any], count: float, noise: float
) -> Iterator[tuple[Name, Quantity]]:
    """One share a level; of two levels the second says all."""
    levels = column["levels"]
    nothing = [None] * len(levels)
    shares, margins = measured.get("shares") or nothing, measured.get("margins") or nothing
    rows = list(zip(levels, shares, margins, strict=True))
    for level, share, margin in rows[1:] if len(rows) == 2 else rows:
        if is_number(share) and is_number(margin):
            total = ratio_noise(margin / Z95, offset=share, count_sd=noise, count=count)
            inside = min(max(share, 0.0), 1.0)
            yield Name(column["name"], str(level)), Quantity(share, total, math.sqrt(inside * (1 - inside) / count))
