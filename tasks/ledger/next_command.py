"""How a release goes on that stopped: one command."""

from __future__ import annotations

import shlex

from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import RESUMABLE, ReleaseState
from tasks.ledger.state import LedgerState


def resume_command(release: ReleaseState) -> str:
    """The command that takes a release up where it stopped."""
    reservation = release.reservation
    command = f"dprelease run --period {reservation.period}"
    if release.spends or not reservation.supersedes:
        return command
    again = f"--supersedes {reservation.supersedes} --reason {shlex.quote(str(reservation.reason))}"
    return f"{command} {again}"  # what was given back has to be asked for as before


def next_command(state: LedgerState, release: ReleaseState) -> str | None:
    """What brings a release further: resuming, approving, or nothing.

    A reservation that was given back is tried again under the next id, unless that was done.
    """
    if release.status == ReleaseStatus.AWAITING_APPROVAL:
        return f'dprelease approve {release.release_id} --reason "..."'
    reservation = release.reservation
    later = state.of_period(reservation.name, reservation.period)
    given_back = release.status == ReleaseStatus.VOID and (not later or later[-1].release_id == reservation.supersedes)
    return resume_command(release) if release.status in RESUMABLE or given_back else None
