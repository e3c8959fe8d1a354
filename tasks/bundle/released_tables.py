"""The tables of a release: the rows in the original columns, in the projected coordinates, or both.

Row by row, all tables of a release are the same synthetic records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcore.measurements.projection import Projection
from dpcore.records.encoding import Encoding
from dpcore.records.projected_columns import projected_schema
from dpcore.records.schema import Cells, RecordSchema
from dpcore.synthesis.ruled_rows import DrawnRows
from tasks.bundle.staging import DATA, PROJECTED
from tasks.spec import ReleaseSpec


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """One table: its file, its columns, and the projection if its rows are points of the projected space."""

    file: str
    schema: RecordSchema
    projection: Projection | None = None

    def cells(self, drawn: DrawnRows) -> Cells:
        """The cells of this table's columns.

        Points are taken before they are decoded. Those of records lie in the unit ball, so a coordinate of a
        synthetic one beyond 1 is moved there.
        """
        if self.projection is None:
            return drawn.cells
        points = np.clip(self.projection.project(drawn.points), -1.0, 1.0)
        names = [column.name for column in self.schema.columns]
        beside = {name: drawn.cells[name] for name in names if name in drawn.cells}
        coordinates = names[: len(names) - len(beside)]
        return {name: points[:, index] for index, name in enumerate(coordinates)} | beside


def released_tables(spec: ReleaseSpec, encoding: Encoding, projection: Projection) -> tuple[ReleasedTable, ...]:
    """The tables that a specification publishes, the original columns first."""
    tables = [ReleasedTable(DATA, encoding.schema)] if spec.model.publishes_original else []
    if spec.model.publishes_projected:
        schema = projected_schema(encoding.schema, projection.dimension - encoding.target_width)
        tables.append(ReleasedTable(PROJECTED, schema, projection))
    return tuple(tables)
