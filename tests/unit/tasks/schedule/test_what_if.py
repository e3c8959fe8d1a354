"""Two plans side by side: the verdicts on figures, and what is said where figures cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.schedule.what_if import changed_choices, column_rows, new_reasons, release_rows


def plan(**changes: Any) -> dict[str, Any]:
    """A plan as `plan --json` has it, as far as it is compared."""
    return {
        "unit": "row",
        "span": None,
        "epsilon": 1.0,
        "delta": 0.0,
        "participation": {"epsilon": 1.0},
        "generator": "gaussian",
        "projection": "ron",
        "dimension": 4,
        "encoded_width": 9,
        "mechanism": "laplace",
        "allocation": {"moments": 1.0},
        "signal": 3.0,
        "releases_left": 12,
        "reasons": ["one"],
        "columns": [],
    } | changes


def column(most: float, **changes: Any) -> dict[str, Any]:
    return {
        "name": "age", "of": "mean", "unit": "years", "noise_sd": {"least": 0.1, "most": most}, "known": True
    } | changes  # fmt: skip


def verdict_on_column(now: dict[str, Any], then: dict[str, Any]) -> str:
    (row,) = column_rows(plan(columns=[now]), plan(columns=[then]))
    return row.verdict


@pytest.mark.parametrize(
    ("name", "changes", "verdict"),
    [
        ("epsilon", {"epsilon": 0.5}, "protects more"),
        ("epsilon", {"epsilon": 2.0}, "protects less"),
        ("delta", {"delta": 1e-6}, "protects less"),
        ("being in the data", {"participation": None}, "protects less"),
        ("protects", {"unit": "person by id (rows: weight)"}, "protects more"),
        ("protects", {"unit": "row of the query's answer"}, "changed"),
        ("months together", {"span": 12}, "protects less"),
        ("generator", {"generator": "copula"}, "changed"),
        ("projection", {"dimension": 5}, "changed"),
        ("mechanism", {"mechanism": "gaussian"}, "changed"),
        ("foreseen signal", {"signal": 4.0}, "better"),
        ("releases left", {"releases_left": None}, "better"),
        ("releases left", {"releases_left": 3}, "worse"),
    ],
)
def test_a_figure_of_the_release_gets_its_verdict_and_no_other_does(
    name: str, changes: dict[str, Any], verdict: str
) -> None:
    rows = release_rows(plan(), plan(**changes))
    assert {row.name: row.verdict for row in rows if row.verdict} == {name: verdict}


def test_months_of_persons_and_of_rows_do_not_compare() -> None:
    now = plan(unit="person by id (rows: weight)", span=12)
    rows = {row.name: row.verdict for row in release_rows(now, plan())}
    assert (rows["protects"], rows["months together"]) == ("protects less", "changed")


def test_equal_plans_have_no_verdict_and_no_choice() -> None:
    same = plan(columns=[column(2.0)])
    assert not [row for row in (*release_rows(same, same), *column_rows(same, same)) if row.verdict]
    assert changed_choices(same, same) == {}
    assert new_reasons(same, same) == []


def test_less_noise_is_better_and_the_change_is_stated() -> None:
    assert verdict_on_column(column(2.0), column(1.0)) == "better (-50 %)"
    assert verdict_on_column(column(1.0), column(2.0)) == "worse (+100 %)"


def test_what_agrees_in_three_digits_is_the_same() -> None:
    assert verdict_on_column(column(2.0), column(2.001)) == ""


def test_an_error_that_only_exceeds_the_noise_is_never_called_better_than_one_that_is_known() -> None:
    assert verdict_on_column(column(2.0), column(1.0, known=False)) == ""
    assert verdict_on_column(column(1.0), column(2.0, known=False)).startswith("worse")
    assert verdict_on_column(column(2.0, known=False), column(1.0)).startswith("better")
    assert verdict_on_column(column(1.0, known=False), column(2.0)) == ""


def test_noise_in_other_units_is_not_compared() -> None:
    rows = column_rows(plan(columns=[column(2.0)]), plan(columns=[column(24.0, unit="months")]))
    assert [(row.unit, row.verdict) for row in rows] == [("years", "left out"), ("months", "new")]


def test_columns_of_one_plan_alone_are_there() -> None:
    rows = column_rows(plan(columns=[column(2.0)]), plan(columns=[column(2.0, name="bmi")]))
    assert [(row.name, row.now, row.then, row.verdict) for row in rows] == [
        ("age", "2", "-", "left out"),
        ("bmi", "-", "2", "new"),
    ]


def test_choices_and_reasons_that_change_are_named() -> None:
    then = plan(generator="copula", reasons=["one", "two"])
    assert changed_choices(plan(), then) == {"generator": {"now": "gaussian", "then": "copula"}}
    assert new_reasons(plan(), then) == ["two"]
