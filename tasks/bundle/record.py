"""The files of a bundle that say what the release is: record and model."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpcore.accounting import LARGEST_FIGURE, Cost, month_number, release_statement
from dpcore.measure import Measurement
from dpcore.measurements.noise_law import noise_facts
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.registry import cost_of, event_from_json
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GRID_BITS, POINT_BITS, PROJECTION_BITS
from dpcore.records.schema import Neighbours, level_names
from dpcore.synthesis.generators import SAMPLINGS
from tasks.bundle import guarantee_text
from tasks.bundle.codebook import noise_limits
from tasks.bundle.projection_text import kept_dimension, projection_facts
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.populations import Population
from tasks.ledger.releases import ReleaseState
from tasks.ledger.state import LedgerState
from tasks.spec.plan import PlannedRelease
from tasks.spec.relations import RELATIONS, relation_figures
from tasks.workspace.build_identity import code_facts, software_versions
from tasks.workspace.clock import MINUTE_FORMAT

RECORD_VERSION = 2
"""1: the balance before counted from the run's start; one measurement in the model; no `code`."""


def record_faults(record: dict[str, Any]) -> list[str]:
    """Where a record breaks its published schema, as paths into it."""
    return sorted(error.json_path for error in _validator().iter_errors(record))


@functools.cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(record_schema())


def record_schema() -> dict[str, Any]:
    """The published JSON Schema of record.json."""
    schema: dict[str, Any] = json.loads((Path(__file__).parent / "schemas" / "record.schema.json").read_text())
    return schema


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the stages after the measurement found."""

    rows: int
    moments: NoisyMoments
    projection: Projection
    utility: dict[str, Any]
    checks: list[dict[str, Any]]


def build_record(
    run: PlannedRelease, release_id: str, outcome: Outcome, state: LedgerState, *, flow_run_id: str, now: datetime
) -> dict[str, Any]:
    """Return the release's record: released and public values only."""
    release = state.releases[release_id]
    planned = planned_facts(run, release.reservation.seeds, outcome)
    return {
        "record_version": RECORD_VERSION,
        "release_id": release_id,
        "name": run.spec.name,
        "period": release.reservation.period,
        "sequence": release.reservation.sequence,
        "supersedes": release.reservation.supersedes,
        "reason": release.reservation.reason,
        "created_at": now.astimezone(UTC).strftime(MINUTE_FORMAT),
        "flow_run_id": flow_run_id,
        "privacy": _privacy(run, release),
        "budget": _budget(run, release, state),
        **planned,
        "rows": outcome.rows,
        "noisy_count": outcome.moments.count,
        "utility": outcome.utility,
        "checks": outcome.checks,
        "specification": run.spec.as_public_json(),
        "spec_digest": run.spec.digest(),
        "code": code_facts(),
        "software": software_versions(),
        "ledger": {"head": state.head.hash if state.head else None, "entries": state.head.seq if state.head else 0},
    }


def planned_facts(run: PlannedRelease, seeds: dict[str, str], outcome: Outcome) -> dict[str, Any]:
    """The parts of a record that follow from its specification, its seeds and its other parts."""
    return {
        "model": _model(run, seeds, outcome),
        "expected_rows": run.spec.expected_rows,
        "expected_error": run.plan.expected_error(),
        "numerics": _numerics(run),
        "limits": [
            *guarantee_text.limits(run, kept_dimension(run, outcome.projection)),
            *noise_limits(run.encoding, outcome.moments, outcome.projection, outcome.utility),
        ],
    }


def _privacy(run: PlannedRelease, release: ReleaseState) -> dict[str, Any]:
    spends = release.spends
    measurements = [_measurement(name, entry) for name, entry in spends.items()]
    events = [event_from_json(entry.parse(Spend).event) for entry in spends.values()]
    return {
        "population": run.spec.privacy.population,
        "unit": run.spec.protects,
        "neighbours": run.spec.neighbours.value,
        **run.stated,
        "delta_num": float(release.spent.delta_num),
        **relation_figures(events, run.spec.neighbours, run.stated),
        "guarantee": guarantee_text.guarantee(run),
        "measurements": measurements,
    }


def _measurement(name: str, entry: Entry) -> dict[str, Any]:
    spend = entry.parse(Spend)
    event = event_from_json(spend.event)
    cost = cost_of(event)
    return {
        "name": name,
        "mechanism": event.mechanism,
        "status": BY_NAME[event.mechanism].status.value,
        "epsilon": float(cost.epsilon) if cost.epsilon else None,
        "rho": float(cost.rho) if cost.rho else None,
        "delta_num": float(cost.delta_num),
        "parameters": event.as_json(),
        "noise": noise_facts(event),
        "seeded": spend.seeded,
        "digest": spend.digest,
        "build": spend.build,
        "ledger_entry": {"seq": entry.seq, "hash": entry.hash},
    }


def _budget(run: PlannedRelease, release: ReleaseState, state: LedgerState) -> dict[str, Any]:
    """The population's balance without this release and with it, as the ledger's head has it."""
    known = state.populations[run.spec.privacy.population]
    return {
        "lifetime": {name: float(getattr(known.cap, name)) for name in ("epsilon", "delta", "delta_num")},
        **budget_facts(known, release),
        "releases_left": further_releases(known, release),
    }


def further_releases(known: Population, release: ReleaseState) -> int | None:
    """How many more releases like this one fit, from the next month on; None without end."""
    reservation = release.reservation
    costs = known.costs_of(reservation, reservation.measurements, releases=1)
    return known.releases_left(costs, month_number(reservation.period) + 1)


def budget_facts(known: Population, release: ReleaseState) -> dict[str, Any]:
    """What a record says of its population's budget as of an entry: kind and span of the cap, and the balances."""
    relation = known.relation_of(release.reservation)
    balances = {"before": known.without(release), "after": known}
    return {
        "relations": balances_under_relations(known),
        **({"kind": known.cap.kind.value} if known.cap.kind else {}),
        **({"span": known.windows.span, "odometer": odometer(known, relation)} if known.windows.span else {}),
        **{when: held.balance(relation, reserved=False).statement.as_json() for when, held in balances.items()},
    }


def balances_under_relations(known: Population) -> dict[str, dict[str, float] | None]:
    """What is spent for the values of a unit, and for its being in the data.

    None where a cost is not known, or where the cap's rule states nothing for what it does not bind.
    """
    balances = {name: known.balance(relation, reserved=False) for name, relation in RELATIONS.items()}
    stated = {name: balance.statement for name, balance in balances.items()}
    return {name: one.as_json() if math.isfinite(one.epsilon) else None for name, one in stated.items()}


def odometer(known: Population, relation: Neighbours) -> dict[str, float]:
    """The sum over all months, for somebody who is in all of them; valid for a schedule that was fixed beforehand."""
    months = known.balance(relation, reserved=False).months
    cost = months.largest(None) if months else Cost(epsilon=Fraction(LARGEST_FIGURE))
    return release_statement(cost, delta=known.cap.delta).as_json()


def _model(run: PlannedRelease, seeds: dict[str, str], outcome: Outcome) -> dict[str, Any]:
    label = run.plan.schema.label
    return {
        "projection": projection_facts(run, seeds["projection"], outcome.moments, outcome.projection),
        "generator": run.plan.generator,
        "mechanism": run.plan.event.mechanism,
        "allocation": run.plan.allocation,
        "count_weight": float(run.plan.event.layout.count_weight),
        "classes": level_names(label) if label else None,
        "sampling": run.spec.model.row_sampling,
        "sampling_seed": seeds["sampling"],
        "reasons": list(run.plan.reasons),
    }


def _numerics(run: PlannedRelease) -> dict[str, Any]:
    event = run.plan.event
    return {
        "grid_bits": GRID_BITS,
        "point_bits": POINT_BITS,
        "projection_bits": PROJECTION_BITS,
        "method": _methods({name: BY_NAME[drawn.mechanism].numerics for name, drawn in run.plan.events.items()}),
        "output_step": event.step / UNIT,
    }


def _methods(by_measurement: Mapping[str, str]) -> str:
    """How noise was computed, once if all measurements share the method and else for each of them."""
    if len(set(by_measurement.values())) == 1:
        return next(iter(by_measurement.values()))
    return "; ".join(f"{name}: {method}" for name, method in by_measurement.items())


def build_model(
    encoding: Encoding, outcome: Outcome, measurements: Mapping[str, Measurement], sampling: str
) -> dict[str, Any]:
    """Everything needed to sample again: sampler, projection, noisy measurements, repaired moments.

    `sampling` is a value of `model.sampling`, which determines the sampler.
    """
    classes = [
        {"count": c.count, "mean": c.mean.tolist(), "covariance": c.covariance.tolist()}
        for c in outcome.moments.classes
    ]
    return {
        "sampler": SAMPLINGS[sampling],
        "coordinates": encoding.coordinate_names(),
        "projection": stored_projection(outcome.projection),
        "frame": stored_frame(outcome.projection),
        "measurements": {name: released.as_json() for name, released in measurements.items()},
        "classes": classes,
    }


def stored_frame(projection: Projection) -> dict[str, Any] | None:
    """Centre and radius of the ball that points are clipped to, and the lengths of normalised points."""
    frame = projection.frame
    if frame is None:
        return None
    lengths = {} if frame.directions is None else {"normalised": asdict(frame.directions)}
    return {"centre": frame.centre.tolist(), "radius": frame.radius, **lengths}


def stored_projection(projection: Projection) -> dict[str, Any] | None:
    """The projection's columns, and the point that stands in for what they leave out."""
    columns, centre = projection.columns, projection.centre
    if columns is None:
        return None
    point = None if centre is None else centre.tolist()
    return {"bits": PROJECTION_BITS, "columns": columns.astype(int).tolist(), "centre": point}
