"""Checks of the measurements: their costs and their noisy values."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

from dpcore.accounting import Cost
from dpcore.measure import measurement_from_json
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.names import MOMENTS
from dpcore.mechanisms.registry import cost_of, cost_under, event_from_json
from tasks.audit.checks import Check, check
from tasks.audit.evidence import Evidence
from tasks.ledger.entries.bodies import MeasurementPlan, Spend
from tasks.ledger.entries.fields import canonical
from tasks.ledger.releases import ReleaseState


def costs_check(release: ReleaseState) -> Check:
    """Every stated cost follows from its mechanism's parameters."""
    return check(f"{release.release_id}: costs", lambda: _cost_faults(release), lambda: _proof_words(release))


def _cost_faults(release: ReleaseState) -> list[str]:
    found = []
    priced: dict[str, MeasurementPlan | Spend] = {
        f"reservation of {name}": plan for name, plan in release.reservation.measurements.items()
    }
    priced |= {f"entry {entry.seq}": entry.parse(Spend) for entry in release.spends.values()}
    for place, body in priced.items():
        name = body.event["mechanism"]
        if name not in BY_NAME or BY_NAME[name].status is Status.REFUTED:
            found.append(f"{place} uses {name!r}, which is not proved")
        elif not _is_stated_cost(body.cost, canonical(body.event), unsigned=_is_of_version_1(release)):
            found.append(f"{place} states another cost than its parameters give")
        elif isinstance(body, MeasurementPlan) and body.other not in (None, _other_cost_of(canonical(body.event))):
            found.append(f"{place} states another cost under the other relation than its parameters give")
    return found


def _is_of_version_1(release: ReleaseState) -> bool:
    """Whether a release was measured before entries were signed."""
    return bool(release.spends) and not any(entry.key_id for entry in release.spends.values())


def _is_stated_cost(stated: Cost, event: str, *, unsigned: bool) -> bool:
    """Whether a cost is that of its event; version 1 counted a delta_num for Gaussian noise, which has none now."""
    given = _cost_of(event)
    if unsigned and stated.delta_num >= given.delta_num:
        given = replace(given, delta_num=stated.delta_num)
    return given == stated


@functools.lru_cache(maxsize=4096)
def _cost_of(event: str) -> Cost:
    """The cost of an event in JSON text; it is cached, because years of releases repeat a few events."""
    return cost_of(event_from_json(json.loads(event)))


@functools.lru_cache(maxsize=4096)
def _other_cost_of(event: str) -> Cost | None:
    """The cost of an event in JSON text under the relation that it does not declare."""
    parsed = event_from_json(json.loads(event))
    return cost_under(parsed, parsed.neighbours.other)


def _proof_words(release: ReleaseState) -> str:
    names = dict.fromkeys(str(plan.event["mechanism"]) for plan in release.reservation.measurements.values())
    doubtful = [name for name in names if BY_NAME[name].status is Status.APPROXIMATE]
    if not doubtful:
        return f"follow from proved mechanisms ({', '.join(names)})"
    return f"follow from their mechanisms; {', '.join(doubtful)} is approximate"


def measurements_check(evidence: Evidence, release: ReleaseState) -> Check:
    """The stored measurements are those of the spends, drawn unseeded by builds that had passed their audit."""
    return check(
        f"{release.release_id}: measurements",
        lambda: _drawing_faults(evidence, release),
        lambda: _measurement_words(evidence, release),
    )


def _drawing_faults(evidence: Evidence, release: ReleaseState) -> list[str]:
    found = []
    for name, entry in release.spends.items():
        if evidence.stored is not None:
            evidence.stored(release.release_id, name)  # raises an error if it is missing or was changed
        spend = entry.parse(Spend)
        if spend.seeded:
            found.append(f"the noise of entry {entry.seq} was seeded")
        of_version_1 = not entry.key_id and "build" not in json.loads(entry.body)  # before builds were audited
        if not of_version_1 and not (spend.build or {}).get("holds"):
            found.append(f"the build that drew entry {entry.seq} has not passed its audit")
    return found


def _measurement_words(evidence: Evidence, release: ReleaseState) -> str:
    if not release.spends:
        return "nothing was drawn"
    entries = " and ".join(str(entry.seq) for entry in release.spends.values())
    kept = "equal to the spent values, " if evidence.stored is not None else ""
    builds = "before builds were audited" if _is_of_version_1(release) else "by a build that had passed its audit"
    return f"{kept}drawn from unseeded noise {builds} (entry {entries})"


def spent_faults(model: dict[str, Any], release: ReleaseState) -> list[str]:
    """Where the measurements of a model are not those of the spends."""
    shown = dict(model["measurements"]) if "measurements" in model else {"measurement": model["measurement"]}
    wanted = {name: entry.parse(Spend).digest for name, entry in release.spends.items()}
    if "measurement" in shown:  # version 1 shows the moments alone
        shown, wanted = {MOMENTS: shown["measurement"]}, {MOMENTS: wanted[MOMENTS]}
    both = sorted(shown.keys() & wanted.keys())
    other = [name for name in both if measurement_from_json(shown[name]).digest() != wanted[name]]
    return [
        *(f"{name!r} was not spent" for name in sorted(shown.keys() - wanted.keys())),
        *(f"{name!r} is missing" for name in sorted(wanted.keys() - shown.keys())),
        *(f"{name!r} is not the measurement of its spend" for name in other),
    ]
