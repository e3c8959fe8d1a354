"""A rule is judged by its truth in every row, and nothing is said but whether it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.dpcore.ruled import levels, rules_of, whole

from dpcore.records.schema import MISSING, Cells
from expectations.extremes import Extremes
from expectations.rules import RULE, rule_column, rule_truths, rule_verdicts
from expectations.verdicts import Verdict

COLUMNS = [whole("age", 0, 99, missing=True), levels("wed", "no", "yes", missing=True)]
RULES = rules_of(["age >= 15 OR wed = 'no'", "age < 90"], COLUMNS)

GOOD: Cells = {"age": np.array([3.0, 20.0, np.nan, 3.0]), "wed": np.array([0, 1, 1, MISSING])}
BROKEN: Cells = {"age": np.array([20.0, 3.0]), "wed": np.array([0, 1])}


def verdicts(*batches: Cells) -> list[tuple[Any, bool]]:
    truths = Extremes()
    for cells in batches:
        truths.add(rule_truths(cells, RULES))
    found = rule_verdicts(truths, RULES)
    assert all(isinstance(verdict, Verdict) and verdict.rule == RULE for verdict in found)
    return [(verdict.column, verdict.ok) for verdict in found]


def test_rows_of_which_none_breaks_a_rule_pass_whether_it_is_true_or_unknown_there():
    assert verdicts(GOOD, GOOD) == [("age >= 15 OR wed = 'no'", True), ("age < 90", True)]


@pytest.mark.parametrize("batches", [(GOOD, BROKEN), (BROKEN, GOOD)])
def test_one_row_in_any_batch_breaks_a_rule_and_no_other(batches: tuple[Cells, ...]):
    assert verdicts(*batches) == [("age >= 15 OR wed = 'no'", False), ("age < 90", True)]


def test_no_rows_break_no_rule():
    nothing: Cells = {"age": np.zeros(0), "wed": np.zeros(0, dtype=np.int64)}
    assert all(ok for _, ok in verdicts(nothing))


def test_no_column_of_data_can_be_taken_for_a_rule():
    assert not rule_column(0).isprintable()
