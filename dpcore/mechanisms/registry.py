"""Mechanisms by their names, events as they are stored, and what an event costs."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, cast

from dpcore.accounting import Cost, Statement, release_statement, total
from dpcore.mechanisms.base import ComponentMechanism, GramEvent, GramMechanism, Mechanism, Output
from dpcore.mechanisms.catalogue import BY_NAME, ENTRIES
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.queries import RowsQuery
from dpcore.mechanisms.vectors import VectorEvent, VectorMechanism
from dpcore.records.schema import Neighbours


def offered_under(key: str) -> list[str]:
    """The names that a key of the specification takes."""
    return [entry.name for entry in ENTRIES if key in entry.offered]


def mechanism_of(name: str) -> Mechanism:
    """The releasable mechanism of that name.

    Raises: KeyError for a name that is unknown, refuted, or measures nothing.
    """
    entry = BY_NAME[name]
    if entry.mechanism is None or entry.status is Status.REFUTED:
        raise KeyError(name)
    return entry.mechanism


def gram_mechanism(name: str) -> GramMechanism:
    """The releasable mechanism of that name, which must give whole Gram blocks.

    Raises: KeyError for any other name.
    """
    mechanism = mechanism_of(name)
    if mechanism.output is not Output.GRAM:
        raise KeyError(name)
    return cast(GramMechanism, mechanism)


def basis_mechanism(name: str) -> ComponentMechanism:
    """The releasable mechanism of that name, which must give directions.

    Raises: KeyError for any other name.
    """
    mechanism = mechanism_of(name)
    if mechanism.output is not Output.BASIS:
        raise KeyError(name)
    return cast(ComponentMechanism, mechanism)


def vector_mechanism(name: str) -> VectorMechanism:
    """The proved mechanism of that name, which must answer queries of vectors.

    Raises: KeyError for any other name.
    """
    entry = BY_NAME[name]
    if entry.vector is None or entry.status is Status.REFUTED:
        raise KeyError(name)
    return entry.vector


Event = GramEvent | VectorEvent
"""What one draw of noise leaves behind."""


def event_from_json(body: dict[str, Any]) -> Event:
    """The event that `as_json` wrote."""
    return VectorEvent.from_json(body) if "ask" in body else GramEvent.from_json(body)


def cost_of(event: Event) -> Cost:
    """What an event costs, recomputed from its public parameters."""
    if isinstance(event, VectorEvent):
        vector = vector_mechanism(event.mechanism)
        return Cost.of(vector.cost(event), vector.delta_num(event))
    mechanism = mechanism_of(event.mechanism)
    return Cost.of(mechanism.cost(event), mechanism.delta_num(event))


SATURATED_AGAIN = 1 << 150
"""What N3 has for 1 + e^epsilon, once more: under the other relation epsilon is at most twice as large."""


def cost_under(event: Event, neighbours: Neighbours) -> Cost | None:
    """What an event costs under a relation, its own or the other one; None where nothing is promised under that.

    Computed from the parameters with which the noise was drawn, whatever relation they were chosen for.
    Guarantee: GUARANTEE.md, R. Raises: as `cost_of`, for an event that no mechanism leaves behind.
    """
    own = cost_of(event)
    if neighbours is event.neighbours:
        return own
    delta_num = SATURATED_AGAIN * own.delta_num
    if not isinstance(event, VectorEvent):
        return Cost.of(mechanism_of(event.mechanism).cost(event, neighbours), delta_num)
    if isinstance(event.query, RowsQuery):  # it shows how many rows there are
        return None
    return Cost.of(vector_mechanism(event.mechanism).cost(event, neighbours), delta_num)


def statement_under(events: Iterable[Event], neighbours: Neighbours, *, delta: Fraction) -> Statement | None:
    """What the measurements of a release promise together under a relation; None if one of them promises nothing."""
    costs = [cost_under(event, neighbours) for event in events]
    known = [cost for cost in costs if cost is not None]
    return release_statement(total(known), delta=delta) if len(known) == len(costs) else None
