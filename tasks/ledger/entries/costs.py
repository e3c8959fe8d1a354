"""Privacy costs as exact text in an entry's body."""

from __future__ import annotations

from dataclasses import fields

from dpcore.accounting import Cost
from tasks.ledger.entries.fields import exact_number


def cost_to_json(cost: Cost) -> dict[str, str]:
    """A cost as exact text; a delta of its own, which few costs have, only if it is positive."""
    return {
        "epsilon": str(cost.epsilon),
        "rho": str(cost.rho),
        "rho_of_pure": str(cost.rho_of_pure),
        "delta_num": str(cost.delta_num),
    } | ({"delta": str(cost.delta)} if cost.delta else {})


def cost_from_json(body: dict[str, str]) -> Cost:
    """The cost that `cost_to_json` wrote.

    Raises: ValueError for figures that it never writes.
    """
    return Cost(**{name: exact_number(value) for name, value in body.items()})


def larger(one: Cost, other: Cost) -> Cost:
    """The larger of two costs, figure by figure."""
    pairs = ((getattr(one, field.name), getattr(other, field.name)) for field in fields(Cost))
    return Cost(*(max(pair) for pair in pairs))


def less(one: Cost, other: Cost) -> Cost:
    """A cost without another that is part of it."""
    return Cost(
        one.epsilon - other.epsilon,
        one.rho - other.rho,
        one.rho_of_pure - other.rho_of_pure,
        one.delta_num - other.delta_num,
        one.delta - other.delta,
        one.releases - other.releases,
    )
