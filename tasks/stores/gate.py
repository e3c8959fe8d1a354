"""The release gate: a build draws noise for a release only after its own audit passed."""

from __future__ import annotations

import functools
from typing import Any

from dpcore.errors import RefusedError
from dpcore.mechanisms.base import GramEvent
from dpcore.noise import SystemNoise
from tasks.stores.build import code_digest
from tasks.stores.ledger_state import LedgerState


def known_audit(state: LedgerState, event: GramEvent) -> dict[str, Any] | None:
    """What the ledger holds of an audit of this very build and event: an earlier spend relied on it."""
    wanted, digest = event.as_json(), code_digest()
    for release in reversed(state.releases.values()):
        for entry in release.spends.values():
            facts = entry.facts
            build = facts.get("build")
            if build and build["code_digest"] == digest and facts["event"] == wanted:
                return dict(build)
    return None


@functools.cache
def audit_of_build(event: GramEvent) -> dict[str, Any]:
    """Audit this build's mechanism for an event; once a process."""
    from dpcore.gate import audit_event

    return {"code_digest": code_digest(), **audit_event(event, SystemNoise()).as_json()}


def require_passed(build: dict[str, Any], mechanism: str) -> None:
    """Refuse a build whose audit failed.

    Raises: RefusedError.
    """
    if build["holds"]:
        return
    attack = build["attack"]
    raise RefusedError(
        f"this build's {mechanism} failed its audit: epsilon {attack['claimed']:.3g} is claimed, "
        f"at least {attack['measured']:.3g} was measured, and its noise has "
        f"{build['noise']['share'] if build['noise'] else 1:.3g} of the planned mean square",
        rule="build-audit-failed",
        where=f"model.mechanism ({mechanism})",
        hint="do not release with this build; run `dprelease mechanisms --audit`, and install the program anew",
    )
