"""The exact composition of a fixed number of pure releases of at most one epsilon each, rounded up.

The worst such releases are independent randomised responses: each gives one of two answers, with
odds e^each : 1 under one neighbour and 1 : e^each under the other (Kairouz, Oh and Viswanath).
Guarantee: GUARANTEE.md, "Kinds of caps".
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

from dpcore.accounting.curves import INFINITE

if TYPE_CHECKING:
    from flint import arb

MOST_SLOTS = 10_000
"""More are stated by their sum, which is always valid."""

WORKING_BITS = 256
"""Binary places of the balls; what they cannot decide is rounded up."""


@functools.lru_cache(maxsize=256)  # planning repeats the same conversions
def slots_delta(slots: int, each: Fraction, *, epsilon: Fraction) -> float:
    """The delta at an epsilon of that many releases of at most epsilon `each`, chosen adaptively; rounded up.

    An outcome with i wrong answers has the loss (slots - 2 i) each, and under the other neighbour it is as likely
    as slots - i wrong ones are.
    """
    from flint import arb, ctx

    if epsilon >= slots * each:
        return 0.0
    with ctx.workprec(WORKING_BITS):
        masses, factor = _wrong_answers(slots, each), _ball(epsilon).exp()
        gains = (masses[i] - factor * masses[-1 - i] for i in range(slots + 1) if (slots - 2 * i) * each > epsilon)
        return _float_above(sum(gains, arb(0)))


@functools.lru_cache(maxsize=256)
def slots_epsilon(slots: int, each: Fraction, *, delta: Fraction) -> Fraction:
    """The least epsilon at a delta of that many releases of at most epsilon `each`, rounded up.

    Between two losses delta is `above - e^epsilon below`, where these are the probabilities of the larger losses
    under the two neighbours.

        >>> round(float(slots_epsilon(24, Fraction(1, 10), delta=Fraction(1, 10**6))), 3)
        1.996
    """
    from flint import arb, ctx

    if slots > MOST_SLOTS or not delta > 0:
        return slots * each
    with ctx.workprec(WORKING_BITS):
        masses, target = _wrong_answers(slots, each), _ball(delta)
        above, below, least = arb(0), arb(0), Fraction(0)
        for i in range(slots // 2 + 1):
            loss = (slots - 2 * i) * each
            if not above - _ball(loss).exp() * below < target:  # this loss has too large a delta: more is needed
                least = loss
                break
            above, below = above + masses[i], below + masses[-1 - i]
        found = _float_above(((above - target) / below).log()) if above > target else 0.0
        return min(max(least, Fraction(found)), slots * each)


def _wrong_answers(slots: int, each: Fraction) -> list[arb]:
    """The probabilities of 0, 1, ... wrong answers of that many randomised responses."""
    odds = (-_ball(each)).exp()
    first = (1 + odds) ** -slots
    return list(accumulate(range(slots), lambda mass, i: mass * odds * (slots - i) / (i + 1), initial=first))


def _ball(value: Fraction) -> arb:
    from flint import arb, fmpq

    return arb(fmpq(value.numerator, value.denominator))


def _float_above(ball: arb) -> float:
    return math.nextafter(float(ball.upper()), INFINITE)
