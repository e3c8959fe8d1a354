"""Which months a schedule owes: those whose firing is past and that nobody has released or decided."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tasks.stores.calendar import periods_due
from tasks.stores.ledger_state import LedgerState
from tasks.stores.spec import ReleaseSpec

DECIDED = ("published", "superseded", "awaiting-approval", "refused")
"""What another run of the period would not change."""


@dataclass(frozen=True, slots=True)
class Due:
    """The months to release, in order, and those that wait for a person."""

    periods: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """The budget did not allow them; trying again is a person's decision."""
    untold: tuple[str, ...] = ()
    """Missed months whose data cannot be told apart, because file names carry no period."""


def due_periods(spec: ReleaseSpec, state: LedgerState, *, since: datetime, now: datetime) -> Due:
    """The months that the schedule's firings after `since` owe.

    Without `source.period` all files are one dataset of the latest month: older months would
    publish the same data again, at full price.
    """
    schedule = spec.schedule
    if schedule.cron is None:
        return Due()
    fired = list(periods_due(schedule.cron, schedule.timezone, since, now))
    owed = [period for period in fired if not _is_decided(spec, state, period)]
    if spec.source.period is None:
        owed, untold = [p for p in owed if p == fired[-1]], [p for p in owed if p != fired[-1]]
    else:
        untold = []
    refused = [period for period in owed if _was_refused(spec, state, period)]
    return Due(tuple(p for p in owed if p not in refused), tuple(refused), tuple(untold))


def _is_decided(spec: ReleaseSpec, state: LedgerState, period: str) -> bool:
    known = state.of_period(spec.name, period)
    return bool(known) and known[-1].status in DECIDED


def _was_refused(spec: ReleaseSpec, state: LedgerState, period: str) -> bool:
    """Whether the budget refused the month, and nothing was reserved for it since."""
    refused = [entry.facts for entry in state.refusals.values()]
    mine = any((facts["name"], facts["period"]) == (spec.name, period) for facts in refused)
    return mine and not state.of_period(spec.name, period)
