"""Mechanisms by name, stored events, and the costs of events."""

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
    """The mechanism names that a key of the specification accepts."""
    return [entry.name for entry in ENTRIES if key in entry.offered]


def mechanism_of(name: str) -> Mechanism:
    """The releasable mechanism of that name.

    Raises: KeyError for a name that is unknown or refuted, or that has no mechanism on Gram blocks.
    """
    entry = BY_NAME[name]
    if entry.mechanism is None or entry.status is Status.REFUTED:
        raise KeyError(name)
    return entry.mechanism


def gram_mechanism(name: str) -> GramMechanism:
    """The releasable mechanism of that name, which must release whole Gram blocks.

    Raises: KeyError for any other name.
    """
    return cast(GramMechanism, _mechanism_with(Output.GRAM, name))


def basis_mechanism(name: str) -> ComponentMechanism:
    """The releasable mechanism of that name, which must release directions.

    Raises: KeyError for any other name.
    """
    return cast(ComponentMechanism, _mechanism_with(Output.BASIS, name))


def _mechanism_with(output: Output, name: str) -> Mechanism:
    mechanism = mechanism_of(name)
    if mechanism.output is not output:
        raise KeyError(name)
    return mechanism


def vector_mechanism(name: str) -> VectorMechanism:
    """The releasable mechanism of that name, which must answer vector queries.

    Raises: KeyError for any other name.
    """
    entry = BY_NAME[name]
    if entry.vector is None or entry.status is Status.REFUTED:
        raise KeyError(name)
    return entry.vector


Event = GramEvent | VectorEvent
"""The public description of one draw of noise."""


def event_from_json(body: dict[str, Any]) -> Event:
    """The event that `as_json` wrote."""
    return VectorEvent.from_json(body) if "ask" in body else GramEvent.from_json(body)


def cost_of(event: Event) -> Cost:
    """The cost of an event, recomputed from its public parameters."""
    if isinstance(event, VectorEvent):
        vector = vector_mechanism(event.mechanism)
        return Cost.of(vector.cost(event), vector.delta_num(event))
    mechanism = mechanism_of(event.mechanism)
    return Cost.of(mechanism.cost(event), mechanism.delta_num(event))


SATURATION_FACTOR = 1 << 150
"""The bound on 1 + e^epsilon of N3 a second time: under the other relation epsilon is at most twice as large."""


def cost_under(event: Event, neighbours: Neighbours) -> Cost | None:
    """The cost of an event under a neighbouring relation, its own or the other; None if there is no guarantee.

    It follows from the parameters with which the noise was drawn, whichever relation they were calibrated for.
    Guarantee: GUARANTEE.md, R. Raises: as `cost_of`, for an event that no mechanism can have produced.
    """
    own = cost_of(event)
    if neighbours is event.neighbours:
        return own
    delta_num = SATURATION_FACTOR * own.delta_num
    if not isinstance(event, VectorEvent):
        return Cost.of(mechanism_of(event.mechanism).cost(event, neighbours), delta_num)
    if isinstance(event.query, RowsQuery):  # it reveals the number of rows
        return None
    return Cost.of(vector_mechanism(event.mechanism).cost(event, neighbours), delta_num)


def statement_under(events: Iterable[Event], neighbours: Neighbours, *, delta: Fraction) -> Statement | None:
    """The composed statement of a release under a neighbouring relation; None if an event has no guarantee under it."""
    costs = [cost_under(event, neighbours) for event in events]
    known = [cost for cost in costs if cost is not None]
    return release_statement(total(known), delta=delta) if len(known) == len(costs) else None
