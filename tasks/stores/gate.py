"""The release gate: a build draws noise for a release only after its own audit passed."""

from __future__ import annotations

import functools
from typing import Any

from dpcore.errors import RefusedError
from dpcore.noise import SystemNoise, fresh_seed
from dpcore.plans import Plan
from dpcore.registry import Event
from tasks.stores.build import code_digest
from tasks.stores.ledger_state import LedgerState

REPLAYED_PAIRS = 8
"""Invented pairs of neighbours on which each measurement's sums are compared before a release."""


def known_audit(state: LedgerState, event: Event) -> dict[str, Any] | None:
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
def audit_of_build(event: Event) -> dict[str, Any]:
    """Audit this build's mechanism for an event; once a process."""
    from dpcore.gate import audit_event

    return {"code_digest": code_digest(), **audit_event(event, SystemNoise()).as_json()}


def replay_of_plan(plan: Plan) -> dict[str, Any]:
    """How much of every declared sensitivity hostile neighbours of the specification's columns use."""
    from dpcore.replay import largest_change

    share = largest_change(plan, pairs=REPLAYED_PAIRS, seed=fresh_seed())
    return {"pairs": REPLAYED_PAIRS, "largest_share": share, "holds": share <= 1}


def require_passed(build: dict[str, Any], mechanism: str) -> None:
    """Refuse a build whose audit failed.

    Raises: RefusedError.
    """
    if not build["replay"]["holds"]:
        raise RefusedError(
            f"one record of this specification moves the sums by {build['replay']['largest_share']:.3g} of the bound",
            rule="build-replay-failed",
            where="columns",
            hint="do not release with this build; please report it with the specification",
        )
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
