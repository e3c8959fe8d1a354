"""Months and windows: against brute force over every window."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting import (
    Cap,
    CapKind,
    Cost,
    Epsilon,
    Months,
    Rho,
    month_name,
    month_number,
    most_in_a_window,
    total,
)
from dpcore.accounting.costs import FIGURES

figures = st.fractions(Fraction(0), Fraction(3), max_denominator=6)
any_costs = st.builds(Cost, figures, figures, figures, figures, figures)
spans = st.one_of(st.none(), st.integers(1, 8))
months = st.integers(24_300, 24_315)
spends = st.lists(st.tuples(st.one_of(st.none(), months), any_costs), max_size=8)


def of_window(spent: list[tuple[int | None, Cost]], first: int, span: int | None) -> list[Cost]:
    """What was spent in the months from one on, and on no single month."""
    return [cost for month, cost in spent if month is None or span is None or first <= month < first + span]


def every_window(spent: list[tuple[int | None, Cost]], span: int | None) -> list[Cost]:
    return [total(of_window(spent, first, span)) for first in range(24_280, 24_330)]


@given(spent=spends, span=spans)
def test_the_largest_window_is_that_of_trying_them_all_figure_by_figure(
    spent: list[tuple[int | None, Cost]], span: int | None
) -> None:
    found = Months()
    for month, cost in spent:
        found = found.adding(month, cost)
    windows = every_window(spent, span)
    assert found.largest(span) == Cost(*(max(getattr(window, name) for window in windows) for name in FIGURES))


@given(counts=st.dictionaries(months, st.integers(0, 5), max_size=8), span=spans)
def test_the_most_releases_in_a_window_are_those_of_trying_them_all(
    counts: Mapping[int, int], span: int | None
) -> None:
    def held(first: int) -> int:
        return sum(count for month, count in counts.items() if span is None or first <= month < first + span)

    assert most_in_a_window(counts, span) == max(held(first) for first in range(24_280, 24_330))


def test_a_span_of_all_counts_everything_and_a_month_only_itself() -> None:
    pure, noise = Cost.of(Epsilon(Fraction(1, 10))), Cost.of(Rho(Fraction(1, 100)))
    year = Months(always=noise)
    for month in range(month_number("2026-01"), month_number("2027-01")):
        year = year.adding(month, pure)
    assert year.largest(None).epsilon == Fraction(12, 10)
    assert year.largest(12) == year.largest(None) == year.largest(1200)
    assert year.largest(3).epsilon == Fraction(3, 10)
    assert year.largest(1) == pure + noise
    assert year.adding(month_number("2026-05"), pure).largest(1).epsilon == Fraction(2, 10), "a release supersedes one"
    assert Months().largest(1) == Months().largest(None) == Cost()


@given(st.integers(0, 12 * 10_000 - 1))
def test_the_name_of_a_month_is_read_back(number: int) -> None:
    assert month_number(month_name(number)) == number


@pytest.mark.parametrize(
    "name", ["2026-13", "2026-00", "2026-1", "26-01", "2026-01-01", " 2026-01", "2026-01\n", "٢٠٢٦-٠١"]
)
def test_what_names_no_month_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="YYYY-MM"):
        month_number(name)


@pytest.mark.parametrize("number", [-1, 12 * 10_000])
def test_a_number_beyond_the_years_has_no_name(number: int) -> None:
    with pytest.raises(ValueError, match="years"):
        month_name(number)


@pytest.mark.parametrize("span", [0, -3])
def test_a_span_is_at_least_a_month(span: int) -> None:
    with pytest.raises(ValueError, match="span"):
        Months().adding(1, Cost()).largest(span)


MILLIONTH = Fraction(1, 10**6)
every_cap = st.sampled_from(
    [
        Cap(Fraction(3), MILLIONTH, Fraction(1, 100), None),
        Cap(Fraction(3), MILLIONTH, Fraction(1, 100), CapKind.PURE, thresholds=MILLIONTH / 2),
        Cap(Fraction(3), MILLIONTH, Fraction(1, 100), CapKind.GAUSSIAN),
        Cap(Fraction(3), MILLIONTH, Fraction(1, 100), CapKind.ZCDP),
        Cap.split(Fraction(3), MILLIONTH, Fraction(1, 100), pure=Fraction(1)),
        Cap.of_slots(Fraction(3), MILLIONTH, Fraction(1, 100), each=Fraction(1, 2)),
    ]
)
events = st.one_of(
    st.builds(Cost.of, st.builds(Epsilon, st.fractions(Fraction(1, 20), Fraction(1, 2), max_denominator=20))),
    st.builds(Cost.of, st.builds(Rho, st.fractions(Fraction(1, 200), Fraction(1, 10), max_denominator=200))),
    st.just(Cost(delta_num=Fraction(1, 300))),
    st.just(Cost(delta=MILLIONTH / 5)),
)


@given(cap=every_cap, spent=st.lists(st.tuples(months, events), max_size=6), span=st.integers(1, 4))
def test_a_cap_that_admits_the_largest_window_admits_each(
    cap: Cap, spent: list[tuple[int | None, Cost]], span: int
) -> None:
    kept, counts = Months(), dict[int, int]()
    for month, cost in spent:
        kept, counts = kept.adding(month, cost), counts | {month: counts.get(month, 0) + 1}  # type: ignore[arg-type,dict-item]
    if cap.admits(kept.largest(span), releases=most_in_a_window(counts, span)):
        for first in range(24_290, 24_320):
            held = of_window(spent, first, span)
            assert cap.admits(total(held), releases=len(held))
