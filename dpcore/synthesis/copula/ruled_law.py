"""Independent rows of a table law under rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcore.records.schema import Cells, Codes
from dpcore.synthesis.copula.max_entropy import TableLaw
from dpcore.synthesis.copula.ruled_columns import RuledColumns
from dpcore.synthesis.ruled_rows import DrawnRows


@dataclass(frozen=True, slots=True)
class RuledLaw:
    """Draws rows column by column, each among the values that the rules leave to it."""

    law: TableLaw
    rules: RuledColumns

    def propose(self, classes: Codes, generator: np.random.Generator) -> DrawnRows:
        """Draw the groups and cells of a row of each class; a row to which the rules leave nothing breaks one."""
        rows, sizes = len(classes), self.law.sizes
        cells: Cells = self.rules.class_cells(classes)
        groups = np.empty((rows, len(sizes)), dtype=np.int64)
        indicators, width = np.zeros((rows, sum(sizes)), dtype=np.float32), 0
        for index, (law, size) in enumerate(zip(self.law.columns, sizes, strict=True)):
            column, allowed = self.rules.groups[index], self.rules.allowed(index, cells, rows, self.law.tilts[index])
            base = None if allowed is None else allowed.scores.astype(np.float32)[allowed.contexts]
            drawn = law.draw(classes, indicators[:, :width], generator, base)
            points = generator.random(rows)
            values = (
                column.values_at(drawn, points) if allowed is None else allowed.values_at(slice(None), drawn, points)
            )
            cells[column.cells.column.name] = values
            groups[:, index] = drawn
            indicators[np.arange(rows), width + drawn] = 1.0
            width += size
        return DrawnRows(groups, {column.name: cells[column.name] for column in self.rules.schema.columns})
