"""What a population's budget is counted for, and whose costs add to it.

The first cap of a population writes its basis: the neighbour relation and the unit. Costs add for a unit that every
release protects as a whole. That holds for any two specifications of persons, whatever their rules about rows and
whichever column identifies a person: each protects all rows that bear one identifier (GUARANTEE.md, "The identifier of
persons"). A cost for a row says nothing about a person, and one for rows of a query's answer nothing about rows of a
table; the relation of neighbours changes what a figure means. Those are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OF_ANSWER = " of the query's answer"
"""Ends the words for a unit that is not known outside the answer of a query."""

_PERSON = "person by "


def adds_up(known: Mapping[str, str], stated: Mapping[str, str]) -> bool:
    """Whether costs for one basis add to those for another."""
    return what_differs(known, stated) is None


def what_differs(known: Mapping[str, str], stated: Mapping[str, str]) -> str | None:
    """The part of a basis for which costs do not add; None if they do."""
    kinds = [dict(basis) | {"unit": kind_of(basis.get("unit", ""))} for basis in (known, stated)]
    return next((name for name in sorted(kinds[0] | kinds[1]) if kinds[0].get(name) != kinds[1].get(name)), None)


def specified_basis(public: dict[str, Any]) -> dict[str, str]:
    """The basis of a specification, from its public description."""
    unit = public["privacy"]["unit"]
    words = unit if isinstance(unit, str) else f"{_PERSON}{unit['person']} (rows: {unit['rows']})"
    ending = OF_ANSWER if public.get("query", {}).get("rows") == "answer" else ""
    return {"unit": words + ending, "neighbours": public["privacy"]["neighbours"]}


def kind_of(unit: str) -> str:
    """Whom a unit's words speak of, without the column and the rule about rows of one specification."""
    if not unit.startswith(_PERSON):
        return unit
    return f"person{OF_ANSWER}" if unit.endswith(OF_ANSWER) else "person"
