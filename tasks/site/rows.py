"""Releases and refusals as rows of a list, and the strip of months above it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tasks.ledger.entries.bodies import Refusal, Retraction
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import ReleaseState
from tasks.site.frame import Site
from tasks.site.survey import FAULTS
from tasks.spec.relations import is_unproved

TONES = {
    ReleaseStatus.PUBLISHED: "good",
    ReleaseStatus.SUPERSEDED: "plain",
    ReleaseStatus.VOID: "plain",
    ReleaseStatus.RESERVED: "accent",
    ReleaseStatus.MEASURED: "accent",
    ReleaseStatus.AWAITING_APPROVAL: "accent",
    ReleaseStatus.CHECK_FAILED: "bad",
    ReleaseStatus.FAILED: "bad",
    ReleaseStatus.REFUSED: "bad",
    ReleaseStatus.RETRACTED: "bad",
    ReleaseStatus.LOST: "bad",
}
SIGNS = {"good": "✓", "bad": "✕", "accent": "…", "plain": "–"}
MOST_MONTHS = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A release, or a refused request, as one row of a list."""

    release_id: str
    name: str
    period: str
    population: str
    sequence: int
    status: ReleaseStatus
    epsilon: float | None
    delta: float | None
    at: str
    words: str = ""
    elsewhere: bool = False
    href: str | None = None

    @property
    def tone(self) -> str:
        """The colour of its status."""
        return TONES.get(self.status, "plain")

    @property
    def sign(self) -> str:
        """The symbol of its status, for readers who do not see colours."""
        return SIGNS[self.tone]


def rows_of(site: Site) -> list[Row]:
    """Return every release and refusal, the newest period first."""
    state = site.survey.state
    rows = [_release_row(site, release) for release in state.releases.values()]
    rows += [_refusal_row(site, entry) for entry in pending_refusals(site)]
    return sorted(rows, key=lambda row: (row.period, row.name, row.sequence), reverse=True)


def pending_refusals(site: Site) -> list[Entry]:
    """Return the requests that the budget refused and that have not been released since."""
    state = site.survey.state
    return [entry for release_id, entry in state.refusals.items() if release_id not in state.releases]


def _release_row(site: Site, release: ReleaseState) -> Row:
    reserved, last = release.reservation, release.published or site.survey.entries[release.reserve_seq - 1]
    return Row(
        release_id=release.release_id,
        name=reserved.name,
        period=reserved.period,
        population=release.population,
        sequence=reserved.sequence,
        status=release.status,
        epsilon=reserved.stated.get("epsilon"),
        delta=reserved.stated.get("delta"),
        at=last.at if release.published else "",
        words=" ".join(_remarks(site, release)),
        elsewhere=is_from_elsewhere(site, release),
        href=site.release_href(release.release_id),
    )


def is_from_elsewhere(site: Site, release: ReleaseState) -> bool:
    """Whether a release was published from another workspace of a shared ledger."""
    here = release.release_id in (*site.survey.bundles, *site.survey.withheld)
    return site.survey.shared and release.published is not None and not here


def _remarks(site: Site, release: ReleaseState) -> Iterator[str]:
    """Yield remarks that a list shows besides the status."""
    if release.reservation.supersedes:
        yield f"Supersedes {release.reservation.supersedes}."
    if release.refusal is not None:
        refusal = release.refusal.parse(Refusal)
        yield f"{refusal.who}: {refusal.reason}"
    if release.retraction is not None:
        retraction = release.retraction.parse(Retraction)
        yield f"Retracted by {retraction.who}: {retraction.reason}"
    if _is_approximate(site, release):
        yield "Approximate: not proved."
    if is_from_elsewhere(site, release):
        yield "Published from another workspace of this ledger."


def _is_approximate(site: Site, release: ReleaseState) -> bool:
    """Whether the record calls the guarantee approximate; False if the record was changed and cannot be read."""
    bundle = site.survey.bundles.get(release.release_id)
    try:
        return bundle is not None and bundle.record is not None and is_unproved(bundle.record["privacy"])
    except FAULTS:
        return False


def _refusal_row(site: Site, entry: Entry) -> Row:
    body = entry.parse(Refusal)
    stated = body.stated or {}
    return Row(
        release_id=entry.release_id,
        name=body.name or "",
        period=body.period or "",
        population=entry.population,
        sequence=0,
        status=ReleaseStatus.REFUSED,
        epsilon=stated.get("epsilon"),
        delta=stated.get("delta"),
        at="",
        words=f"{body.reason}.",
        href=site.release_href(entry.release_id),
    )


def strips(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the last months of each name, oldest first, each with its current release."""
    strips = []
    for name in sorted({row.name for row in rows}):
        by_period: dict[str, Row] = {}
        for row in sorted((row for row in rows if row.name == name), key=_weight):
            by_period[row.period] = row
        shown = sorted(by_period)[-MOST_MONTHS:]
        strips.append({"name": name, "rows": [by_period[period] for period in shown], "all": len(by_period)})
    return strips


def _weight(row: Row) -> tuple[bool, int]:
    """Order rows so that the current release of a month is last: the published one, or else the last attempt."""
    return row.status == ReleaseStatus.PUBLISHED, row.sequence


def summary(rows: list[Row]) -> list[tuple[str, str, int]]:
    """Count the rows of each status, with its colour."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return [(status, TONES.get(status, "plain"), counts[status]) for status in TONES if status in counts]
