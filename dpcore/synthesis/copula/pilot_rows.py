"""The rows on which the laws of columns are fitted, drawn from the laws of the columns before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpcore.records.schema import Cells, Codes, Floats
from dpcore.synthesis.copula.rows_so_far import Singles
from dpcore.synthesis.copula.ruled_columns import AllowedGroups, RuledColumns

PILOT_ROWS = 16_384
"""Number of rows on which laws are fitted; they are drawn from the laws of earlier columns."""


class PilotRows:
    """Classes, indicators of groups and, where rules need them, values."""

    def __init__(self, classes: Codes, sizes: Sequence[int], rules: RuledColumns | None) -> None:
        self.classes, self._sizes, self._rules = classes, sizes, rules
        self._indicators, self._width = np.zeros((len(classes), sum(sizes)), dtype=np.float32), 0
        self._cells: Cells = {} if rules is None else rules.class_cells(classes)
        self._allowed: AllowedGroups | None = None
        self.tilts: list[Floats | None] = [None] * len(sizes)
        """How values within the groups of each column are tilted, where rules restrict it."""

    @property
    def earlier(self) -> Singles:
        """The indicators of the groups so far."""
        return self._indicators[:, : self._width]

    def base(self, index: int, generator: np.random.Generator) -> Singles | None:
        """The scores that the rules add to a column's groups; rows to which they leave nothing are replaced first."""
        self._allowed = None if self._rules is None else self._rules.allowed(index, self._cells, len(self.classes))
        if self._allowed is None:
            return None
        alive = self._allowed.shares.sum(axis=1)[self._allowed.contexts] > 0
        if alive.any() and not alive.all():
            self._replace(~alive, alive, generator)
            return self.base(index, generator)
        return self._allowed.scores.astype(np.float32)[self._allowed.contexts]

    def _replace(self, dead: NDArray[np.bool_], alive: NDArray[np.bool_], generator: np.random.Generator) -> None:
        """Replace rows by others of their class, or of any class if none is left."""
        chosen = np.arange(len(self.classes))
        for k in np.unique(self.classes[dead]):
            mine, left = dead & (self.classes == k), np.flatnonzero(alive & (self.classes == k))
            source = left if len(left) else np.flatnonzero(alive)
            chosen[mine] = source[generator.integers(0, len(source), int(mine.sum()))]
        self.classes, self._indicators = self.classes[chosen], self._indicators[chosen]
        self._cells = {name: cells[chosen] for name, cells in self._cells.items()}

    def add(self, index: int, groups: Codes, generator: np.random.Generator) -> None:
        """Add a column's groups, and its values if a rule speaks of them."""
        self._indicators[np.arange(len(groups)), self._width + groups] = 1.0
        self._width += self._sizes[index]
        if self._rules is None or not self._rules.is_used(index):
            return
        column, points = self._rules.groups[index], generator.random(len(groups))
        if self._allowed is not None:
            self.tilts[index] = self._allowed.fit_tilt(groups)
            self._allowed = replace(self._allowed, tilt=self.tilts[index])
        values = (
            column.values_at(groups, points)
            if self._allowed is None
            else self._allowed.values_at(slice(None), groups, points)
        )
        self._cells[column.cells.column.name] = values
