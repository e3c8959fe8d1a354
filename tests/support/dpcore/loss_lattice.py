"""Pure releases that somebody chooses one after another while watching their loss: exact, on a lattice of losses.

Randomised response is the worst pure release: its loss is plus or minus its epsilon.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction


def gain(epsilon: float, loss: float) -> float:
    """What the best event gains at the end: the positive part of 1 - e^(epsilon - loss)."""
    return -math.expm1(min(epsilon - loss, 0.0))


def response(value: Callable[[float], float], loss: float, epsilon: float) -> float:
    """The value before a randomised response."""
    right = 1 / (1 + math.exp(-epsilon))
    return right * value(loss + epsilon) + (1 - right) * value(loss - epsilon)


def best_stop(epsilon: float, count: int, each: float, rest: Callable[[int], float]) -> float:
    """The largest gain of somebody who makes up to `count` responses of `each` and then, whenever it pays, one more.

    `rest` is the epsilon of the last one after a number of responses.
    """

    @functools.cache
    def value(done: int, wrong: int) -> float:
        loss = (done - 2 * wrong) * each
        stopped = response(functools.partial(gain, epsilon), loss, rest(done))
        if done == count:
            return stopped
        right = 1 / (1 + math.exp(-each))
        return max(stopped, right * value(done + 1, wrong) + (1 - right) * value(done + 1, wrong + 1))

    return value(0, 0)


def best_choice(epsilon: float, slots: int, choices: Sequence[Fraction]) -> float:
    """The largest gain of somebody who fills each slot with a response of one of the choices, as the loss suggests."""

    @functools.cache
    def value(left: int, loss: Fraction) -> float:
        if not left:
            return gain(epsilon, float(loss))
        return max(mean(left - 1, loss, choice) for choice in choices)

    def mean(left: int, loss: Fraction, choice: Fraction) -> float:
        right = 1 / (1 + math.exp(-choice))
        return right * value(left, loss + choice) + (1 - right) * value(left, loss - choice)

    return value(slots, Fraction(0))
