"""Published months of one name, compared by means of their records alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from dpcore.series.drift import Change, DriftVerdict, Quantity, compare_quantities
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import ReleaseState
from tasks.report.quantities import LeftOut, Name, definitions, left_out, quantities
from tasks.report.wording import DAYS_PER_UNIT
from tasks.site.frame import Site
from tasks.site.survey import FAULTS

GENTLER = [DriftVerdict.NOISE, DriftVerdict.CHANCE, DriftVerdict.DRIFT]


@dataclass(frozen=True, slots=True)
class Month:
    """The current release of a period, with the quantities that can be compared."""

    period: str
    release_id: str
    columns: list[dict[str, Any]]
    quantities: dict[Name, Quantity]
    definitions: dict[str, Any]
    left_out: LeftOut = LeftOut.NOTHING


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two successive months."""

    before: Month
    after: Month
    changes: dict[Name, Change]
    apart: list[str]
    """Columns of the later month that were declared differently before, or not at all."""


def names_with_months(site: Site) -> dict[str, list[Month]]:
    """Return the published months of each name in order; a superseded release is replaced by its successor."""
    months: dict[str, dict[str, Month]] = {}
    for release in site.survey.state.releases.values():
        month = _month_of_release(site, release) if release.status == ReleaseStatus.PUBLISHED else None
        if month is not None:
            months.setdefault(release.reservation.name, {})[month.period] = month
    return {name: [found[period] for period in sorted(found)] for name, found in sorted(months.items())}


def _month_of_release(site: Site, release: ReleaseState) -> Month | None:
    """Read a month from its record; None if the record is elsewhere or cannot be read."""
    bundle = site.survey.bundles.get(release.release_id)
    if bundle is None or bundle.record is None:
        return None
    record = bundle.record
    try:
        columns = list(record["utility"]["columns"])
        measured, declared, apart = quantities(record), definitions(record), left_out(record)
    except (*FAULTS, IndexError):
        return None
    return Month(release.reservation.period, release.release_id, columns, measured, declared, apart)


def comparisons(months: list[Month]) -> list[Comparison]:
    """Compare each month with the one before."""
    return [_comparison(before, after) for before, after in pairwise(months)]


def _comparison(before: Month, after: Month) -> Comparison:
    alike = {column for column, how in after.definitions.items() if before.definitions.get(column) == how}
    apart = [column for column in after.definitions if column not in alike]
    first, second = (
        {name: quantity for name, quantity in month.quantities.items() if name.column in alike}
        for month in (before, after)
    )
    return Comparison(before, after, _gentler_changes(before, after, first, second), apart)


def _gentler_changes(
    before: Month, after: Month, first: dict[Name, Quantity], second: dict[Name, Quantity]
) -> dict[Name, Change]:
    """Compare dates both as they are and relative to the first day of their month; keep the smaller change.

    Dates of visits move with the calendar and dates of birth do not: neither is drift.
    """
    changes = compare_quantities(first, second)
    moved = compare_quantities(dict(_from_first_day(before, first)), dict(_from_first_day(after, second)))
    for name, other in moved.items():
        if GENTLER.index(other.verdict) < GENTLER.index(changes[name].verdict):
            changes[name] = other
    return changes


def _from_first_day(month: Month, values: dict[Name, Quantity]) -> Iterator[tuple[Name, Quantity]]:
    """Yield the quantities with dates counted from the first day of the period."""
    kinds = {column["name"]: column["kind"] for column in month.columns}
    for name, quantity in values.items():
        unit = DAYS_PER_UNIT.get(kinds.get(name.column, ""))
        first = _first_day(month.period)
        shift = 0.0 if unit is None or first is None else first / unit
        yield name, replace(quantity, value=quantity.value - shift)


def _first_day(period: str) -> float | None:
    """Return the days from 1970 to the first day of a period; None if the period is not a month."""
    try:
        return datetime.strptime(period, "%Y-%m").replace(tzinfo=UTC).timestamp() / 86400
    except ValueError:
        return None
