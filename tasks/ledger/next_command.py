"""How a release goes on that stopped: one command."""

from __future__ import annotations

import shlex

from tasks.ledger.releases import ReleaseState
from tasks.ledger.state import LedgerState

RESUMABLE = ("reserved", "measured", "failed", "check-failed")


def resume_command(release: ReleaseState) -> str:
    """The command that takes a release up where it stopped."""
    facts = release.facts
    command = f"dprelease run --period {facts['period']}"
    if release.spends or not facts.get("supersedes"):
        return command
    again = f"--supersedes {facts['supersedes']} --reason {shlex.quote(str(facts['reason']))}"
    return f"{command} {again}"  # what was given back has to be asked for as before


def next_command(state: LedgerState, release: ReleaseState) -> str | None:
    """What brings a release further: resuming, approving, or nothing.

    A reservation that was given back is tried again under the next id, unless that was done.
    """
    if release.status == "awaiting-approval":
        return f'dprelease approve {release.release_id} --reason "..."'
    later = state.of_period(release.facts["name"], release.facts["period"])
    given_back = release.status == "void" and (not later or later[-1].release_id == release.facts.get("supersedes"))
    return resume_command(release) if release.status in RESUMABLE or given_back else None
