"""A rule: public knowledge that no released row breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpcore.records.rules.conditions import Condition, conjuncts
from dpcore.records.rules.numbers import Cells
from dpcore.records.rules.views import FALSE, MAY_HOLD, Flags, View


@dataclass(frozen=True)  # no slots: the columns are cached
class Rule:
    """A condition that is false in no row, as CHECK constraints are: a row where it is unknown obeys it.

    `words` say it to people.
    """

    words: str
    condition: Condition

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that it speaks of."""
        return frozenset(self.condition.columns())

    def as_json(self) -> dict[str, Any]:
        """The words, and the condition as nested lists."""
        return {"rule": self.words, "condition": self.condition.as_json()}

    def broken(self, cells: Cells) -> Flags:
        """Whether each row breaks it."""
        rows = len(next(iter(cells.values())))
        return np.broadcast_to(self.condition.truth(cells) == FALSE, (rows,))

    def can_hold(self, view: View) -> Flags:
        """Whether a row of which a view is known may obey it; False is certain, True is not."""
        return np.asarray((self.condition.outcomes(view) & MAY_HOLD) > 0)

    def parts(self) -> tuple[Rule, ...]:
        """Rules that hold together exactly if this one does."""
        return tuple(Rule(self.words, condition) for condition in conjuncts(self.condition))


def broken_rows(rules: Sequence[Rule], cells: Mapping[str, Any]) -> Flags:
    """Whether each row breaks any of the rules."""
    held = dict(cells)
    rows = len(next(iter(held.values())))
    broken = np.zeros(rows, dtype=bool)
    for rule in rules:
        broken |= rule.broken(held)
    return broken
