"""What several caps promise together."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpcore.accounting import Cap, CapKind, Statement, statement_of_any_changes, total_delta

MILLIONTH = Fraction(1, 10**6)


def cap(epsilon: int, kind: CapKind | None, delta: Fraction = MILLIONTH) -> Cap:
    return Cap(Fraction(epsilon), delta, Fraction(1, 10**12), kind)


@pytest.mark.parametrize(
    ("caps", "millionths"),
    [
        ([], 0),
        ([cap(3, CapKind.PURE)], 1),
        ([cap(3, None)], 2),
        ([cap(3, CapKind.PURE), cap(4, CapKind.PURE)], 2),
        ([cap(3, CapKind.GAUSSIAN), cap(3, CapKind.ZCDP, 5 * MILLIONTH), cap(3, CapKind.GAUSSIAN)], 6),
        ([cap(3, None), cap(4, None), cap(4, CapKind.ZCDP)], 5),
        ([cap(3, CapKind.PURE, Fraction(0)), cap(4, CapKind.PURE, Fraction(0))], 0),
    ],
)
def test_every_cap_that_differs_adds_its_delta(caps: list[Cap], millionths: int) -> None:
    assert total_delta(iter(caps)) == millionths * MILLIONTH


def test_after_any_changes_all_promises_add() -> None:
    split = Cap.split(Fraction(5), MILLIONTH, Fraction(0), pure=Fraction(2))
    found = statement_of_any_changes(iter([cap(3, None), split, cap(3, None)]))
    assert found.delta == 5 * MILLIONTH
    assert found.delta_num == Fraction(2, 10**12)
    assert float(found.epsilon) == pytest.approx(11, rel=1e-6)
    assert found.epsilon >= 6 + split.stated.epsilon
    assert statement_of_any_changes([]) == Statement(Fraction(0), Fraction(0), Fraction(0))
