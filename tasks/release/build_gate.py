"""The release gate: a build draws noise for a release only after its own audit passed.

An audit says something about a build and a measurement's public parameters, not about a workspace. One that
passed is kept in the account's cache and in the ledgers that relied on it; its attack, which does not depend on the
parameters, serves all measurements with the same mechanism. The replay on hostile neighbours of the specification's
columns runs for each release anew.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dpcore.errors import RefusedError
from dpcore.mechanisms.registry import Event
from dpcore.noise.sources import SystemNoise, draw_seed
from dpcore.planning.plan import Plan
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.entries.fields import canonical
from tasks.ledger.state import LedgerState
from tasks.spec.relations import at_least, at_most
from tasks.workspace.build_identity import code_digest, code_facts
from tasks.workspace.reading import parse_json
from tasks.workspace.user_cache import UserCache

if TYPE_CHECKING:
    from dpcore.auditing.attacks import Finding

_ONE_AT_A_TIME = threading.Lock()
REPLAYED_PAIRS = 8
"""Invented pairs of neighbours on which each measurement's sums are compared before a release."""


def known_audit(state: LedgerState, event: Event) -> dict[str, Any] | None:
    """What the ledger holds of an audit of this very build and event: an earlier spend relied on it."""
    wanted, digest = event.as_json(), code_digest()
    for release in reversed(state.releases.values()):
        for entry in release.spends.values():
            spend = entry.parse(Spend)
            build = spend.build
            if build and build["code_digest"] == digest and spend.event == wanted:
                return dict(build)
    return None


def kept_audit(event: Event) -> dict[str, Any] | None:
    """An audit of this very build and event, on this platform, that passed in any workspace of this account."""
    return _read_cached(_entry_name(event))


def audit_of_build(event: Event) -> dict[str, Any]:
    """Audit this build's mechanism for an event; once a process, and kept for others if it passes.

    A thread that asks while another is at it waits for the same result.
    """
    with _ONE_AT_A_TIME:
        return _audit(event)


@functools.cache
def _audit(event: Event) -> dict[str, Any]:
    from dpcore.auditing.build_audit import audit_event

    made_at, finding = _attack(event)
    audit = audit_event(event, SystemNoise(), finding)
    facts = {"code_digest": code_digest(), "audited_at": made_at, **audit.as_json()}
    if audit.holds:
        _keep_cached(_entry_name(event), facts)
    return facts


def _attack(event: Event) -> tuple[str, Finding]:
    """The attack on an event's mechanism, and when it was made: one that passed serves every event that shares it."""
    from dpcore.auditing.attacks import Finding
    from dpcore.auditing.build_audit import attack_arguments, attack_event

    arguments = attack_arguments(event)
    name = _name_of("attack", arguments)
    kept = _read_cached(name)
    if kept is not None and kept["arguments"] == arguments:
        return kept["audited_at"], Finding.from_json(kept["attack"])
    finding = attack_event(event, SystemNoise())
    made_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:00Z}"  # records show times to the minute
    if finding.holds:
        _keep_cached(name, {"audited_at": made_at, "arguments": arguments, "attack": finding.as_json()})
    return made_at, finding


def _read_cached(name: str) -> dict[str, Any] | None:
    cache = UserCache.of()
    entry = cache.read(name) if cache else None
    return dict(parse_json(entry)) if entry is not None else None


def _keep_cached(name: str, facts: dict[str, Any]) -> None:
    cache = UserCache.of()
    if cache:
        cache.keep(name, canonical(facts).encode())


def _entry_name(event: Event) -> str:
    return _name_of("audit", event.as_json())


def _name_of(kind: str, what: dict[str, Any]) -> str:
    """One name for what an audit depends on: code, installed libraries, platform and what is audited."""
    subject = {
        "code": code_digest(),
        **{name: code_facts()[name] for name in ("dependencies_digest", "platform")},
        "event": what,
    }
    return f"{kind}-{hashlib.sha256(canonical(subject).encode()).hexdigest()}.json"


def replay_of_plan(plan: Plan) -> dict[str, Any]:
    """How much of every declared sensitivity hostile neighbours of the specification's columns use."""
    from dpcore.auditing.replay import largest_change

    share = largest_change(plan, pairs=REPLAYED_PAIRS, seed=draw_seed())
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
        f"this build's {mechanism} failed its audit: epsilon {at_most(attack['claimed'], 3)} is claimed, "
        f"at least {at_least(attack['measured'], 3)} was measured, and its noise has "
        f"{build['noise']['share'] if build['noise'] else 1:.3g} of the planned mean square",
        rule="build-audit-failed",
        where=f"model.mechanism ({mechanism})",
        hint="do not release with this build; run `dprelease mechanisms --audit`, and reinstall the program",
    )
