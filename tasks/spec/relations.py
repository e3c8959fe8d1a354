"""What a release promises under either relation: for the values of a unit, and for its being in the data at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from dpcore.accounting import Statement, float_above
from dpcore.mechanisms.registry import Event, statement_under
from dpcore.records.schema import Neighbours

VALUES, PARTICIPATION = "values", "participation"
RELATIONS = {VALUES: Neighbours.REPLACE_ONE, PARTICIPATION: Neighbours.ADD_REMOVE}
"""Replace-one is about what a unit's records say, add-remove about whether there is such a unit."""

RELATION_WORDS = {VALUES: "values", PARTICIPATION: "being in the data"}

Figures = dict[str, float]

UNPROVED = "approximate: not proved"

DIGITS = 6
"""Digits of a figure that people read, as Python's `g` has them."""


def relation_figures(
    events: Iterable[Event], neighbours: Neighbours, stated: Mapping[str, Any]
) -> dict[str, Figures | None]:
    """Epsilon, delta and delta_num under both relations; None where a measurement promises nothing under one.

    Under the declared relation they are those that the release states, under the other what its
    measurements give, composed at the same delta (GUARANTEE.md, R).
    """
    measured, delta = list(events), Fraction(stated["delta"])
    found = {name: statement_under(measured, relation, delta=delta) for name, relation in RELATIONS.items()}
    return {
        name: _declared(statement, stated) if RELATIONS[name] is neighbours else _rounded_up(statement)
        for name, statement in found.items()
    }


def at_most(number: float | Fraction, digits: int = DIGITS) -> str:
    """A figure with few digits, rounded up: a promise never flatters."""
    return _rounded(number, digits, ROUND_CEILING)


def at_least(number: float, digits: int = DIGITS) -> str:
    """A figure with few digits, rounded down: what was shown is not overstated."""
    return _rounded(number, digits, ROUND_FLOOR)


def _rounded(number: float | Fraction, digits: int, rounding: str) -> str:
    context = Context(prec=digits, rounding=rounding)
    figure = (
        context.divide(Decimal(number.numerator), Decimal(number.denominator))
        if isinstance(number, Fraction)
        else context.create_decimal(repr(number))
    )
    return f"{float(figure):.{digits}g}"


def in_words(privacy: Mapping[str, Any]) -> dict[str, str]:
    """Both promises as a person reads them in a list; nothing of a record that is older than they are."""
    named = {words: name for name, words in RELATION_WORDS.items()}
    mark = f" ({UNPROVED})" if is_unproved(privacy) else ""
    return {words: _pair(privacy[name]) + mark for words, name in named.items() if name in privacy}


def is_unproved(privacy: Mapping[str, Any]) -> bool:
    """Whether a record's guarantee rests on a sampler that is not proved to give it."""
    return any(measurement["status"] != "proved" for measurement in privacy.get("measurements", ()))


def _pair(figures: Figures | None) -> str:
    if figures is None:
        return "not protected: the number of units is shown"
    return f"epsilon {at_most(figures['epsilon'])}, delta {at_most(figures['delta'])}"


def _declared(statement: Statement | None, stated: Mapping[str, Any]) -> Figures | None:
    if statement is None:
        return None
    return {"epsilon": stated["epsilon"], "delta": stated["delta"], "delta_num": float(statement.delta_num)}


def _rounded_up(statement: Statement | None) -> Figures | None:
    """The figures as floats; an epsilon that is not finite promises nothing."""
    if statement is None or not math.isfinite(statement.epsilon):
        return None
    exact = {"epsilon": statement.epsilon, "delta": statement.delta, "delta_num": statement.delta_num}
    return {name: float_above(Fraction(number)) for name, number in exact.items()}
