"""What a population promises whose cap was changed after something had been released.

Guarantee: GUARANTEE.md, "A cap that is changed".
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from dpcore.accounting.caps import Cap
from dpcore.accounting.statements import Statement


def total_delta(caps: Iterable[Cap]) -> Fraction:
    """The delta of a population at the largest epsilon of its caps: every cap that differs adds its own.

    It holds if no released value decided what figures these caps have; released values may have decided whether and
    when one replaced another. Otherwise every cap must be given that could have been written instead.

        >>> from dpcore.accounting import CapKind
        >>> first = Cap(Fraction(3), Fraction(1, 10**6), Fraction(0), CapKind.GAUSSIAN)
        >>> second = Cap(Fraction(3), Fraction(1, 10**6), Fraction(0), CapKind.ZCDP)
        >>> float(total_delta([first, second, first]))
        2e-06
    """
    return sum((cap.stated.delta for cap in set(caps)), Fraction(0))


def statement_of_any_changes(caps: Iterable[Cap]) -> Statement:
    """What holds even if released values decided what figures the later caps have: all that was promised adds.

    A cap that returns is a new one here, because its figures may have been chosen again.
    """
    stated = [cap.stated for cap in caps]
    return Statement(
        epsilon=sum((one.epsilon for one in stated), Fraction(0)),
        delta=sum((one.delta for one in stated), Fraction(0)),
        delta_num=sum((one.delta_num for one in stated), Fraction(0)),
    )
