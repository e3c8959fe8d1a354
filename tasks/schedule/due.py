"""Which months a schedule owes: those whose firing is past and that nobody has released or decided."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from tasks.ledger.entries.bodies import Refusal, Reservation
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.state import LedgerState
from tasks.schedule.calendar import month_before, periods_due
from tasks.spec import ReleaseSpec
from tasks.workspace.files import write_atomically
from tasks.workspace.folders import Workspace
from tasks.workspace.reading import parse_json, read_text

DECIDED = (
    ReleaseStatus.PUBLISHED,
    ReleaseStatus.SUPERSEDED,
    ReleaseStatus.RETRACTED,
    ReleaseStatus.AWAITING_APPROVAL,
    ReleaseStatus.REFUSED,
)
"""What another run of the period would not change."""


@dataclass(frozen=True, slots=True)
class Due:
    """The months to release, in order, and those that wait for a person."""

    periods: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """The budget did not allow them; trying again is a person's decision."""
    untold: tuple[str, ...] = ()
    """Missed months whose data cannot be told apart: neither file names nor a column say the month."""


def schedule_began(workspace: Workspace, registered: datetime) -> datetime:
    """When the schedule's promise began: at its first registration, which the workspace keeps.

    The orchestrator forgets it with its database; the workspace and its backups do not.
    """
    path = workspace.schedule_path
    try:
        kept = datetime.fromisoformat(parse_json(read_text(path))["since"])
    except (OSError, ValueError, KeyError, TypeError):
        kept = registered
    began = min(kept, registered)
    if began != kept or not path.is_file():
        content = json.dumps({"since": began.isoformat()}) + "\n"
        write_atomically(path, content.encode(), draft=path.with_name(f".{path.name}.{secrets.token_hex(8)}"))
    return began


def due_periods(
    spec: ReleaseSpec, state: LedgerState, *, since: datetime, now: datetime, fired: datetime | None = None
) -> Due:
    """The months that the schedule's firings after `since` owe; `fired` is one that the orchestrator counted itself.

    Its clock, and its reading of hours that clocks skip, may differ from ours: what it started counts.
    Where the source does not tell months apart all data are one dataset of the latest month: older months would
    publish the same data again, at full price.
    """
    schedule = spec.schedule
    if schedule.cron is None:
        return Due()
    months = set(periods_due(schedule.cron, schedule.timezone, since, now))
    if fired is not None:
        months.add(month_before(fired.astimezone(ZoneInfo(schedule.timezone)).date()))
    owed = [period for period in sorted(months) if not is_decided(spec, state, period)]
    untold = [] if spec.source.tells_months_apart else [period for period in owed if period != max(months)]
    owed = [period for period in owed if period not in untold]
    refused = [period for period in owed if _was_refused(spec, state, period)]
    return Due(tuple(p for p in owed if p not in refused), tuple(refused), tuple(untold))


def is_decided(spec: ReleaseSpec, state: LedgerState, period: str) -> bool:
    """Whether a month is released, waits for approval, or was refused or retracted by a person."""
    known = state.of_period(spec.name, period)
    return bool(known) and known[-1].status in DECIDED


def _was_refused(spec: ReleaseSpec, state: LedgerState, period: str) -> bool:
    """Whether the budget refused the month, and nobody began it again since, with success or not."""
    mine = [entry.seq for entry in state.refusals.values() if _is_of_month(entry.parse(Refusal), spec, period)]
    begun = [r.reserve_seq for r in state.releases.values() if _is_of_month(r.reservation, spec, period)]
    return bool(mine) and max(mine) > max(begun, default=0)


def _is_of_month(body: Refusal | Reservation, spec: ReleaseSpec, period: str) -> bool:
    return (body.name, body.period) == (spec.name, period)
