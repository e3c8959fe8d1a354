"""The rules of a specification as expectations: a column for each rule holds its truth in every row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpcore.records.rules.rule import Rule
from dpcore.records.rules.views import UNKNOWN
from dpcore.records.schema import Cells
from expectations.extremes import Extremes
from expectations.quiet import quietly
from expectations.verdicts import Verdict, label, neutral_name, validate

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

RULE = "rule"
"""The name of the verdict on a rule; its words stand where other verdicts name a column."""


def rule_column(index: int) -> str:
    """The column of a rule's truth; no column of data has a control character in its name."""
    return f"\x00{index}"


def rule_truths(cells: Cells, rules: Sequence[Rule]) -> dict[str, NDArray[np.generic]]:
    """The truth of each rule in every row: 0 false, 1 unknown, 2 true."""
    rows = len(next(iter(cells.values())))
    return {
        rule_column(index): np.broadcast_to(rule.condition.truth(cells), (rows,)).astype(np.int64)
        for index, rule in enumerate(rules)
    }


def rule_expectations(rules: Sequence[Rule]) -> Iterator[Expectation]:
    """No row breaks a rule: it is true or unknown in each, as in a CHECK constraint."""
    from great_expectations import expectations as gxe

    for index, rule in enumerate(rules):
        yield gxe.ExpectColumnValuesToBeBetween(
            column=neutral_name(rule_column(index)), min_value=int(UNKNOWN), meta=label(rule.words, RULE)
        )


def rule_verdicts(truths: Extremes, rules: Sequence[Rule]) -> tuple[Verdict, ...]:
    """The verdicts on all rows that these truths are the extremes of."""
    with quietly():
        import great_expectations as gx

        suite = gx.ExpectationSuite(name="rules", expectations=list(rule_expectations(rules)))
    return validate(truths.frame(), suite)
