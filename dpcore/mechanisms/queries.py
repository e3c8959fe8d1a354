"""Queries of rows besides second moments: public descriptions that determine the sensitivity of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np

from dpcore.mechanisms.base import UNIT, triangle_size
from dpcore.mechanisms.sensitivity import histograms_l1, histograms_l2_squared, jiang_moments_l1, rows_l1, score_sum_l1
from dpcore.records.exact_sums import GRID_BITS
from dpcore.records.schema import Floats, Neighbours

GRID = 1 << GRID_BITS
"""One, on the grid of records and on that of counts, which are fractional: a person's rows have shares."""


class Query(Protocol):
    """A public query of the rows, which determines the sensitivity of its answer."""

    @property
    def size(self) -> int:
        """The length of the answer."""

    @property
    def unit(self) -> int:
        """One, on the answer's grid."""

    def l1_sensitivity(self, neighbours: Neighbours) -> Fraction:
        """The L1 distance by which one privacy unit moves the answer, on the answer's grid.

        Raises: ValueError for a neighbouring relation under which it is not bounded.
        """

    def as_json(self) -> dict[str, Any]:
        """The query's parameters."""


class L2Query(Query, Protocol):
    """A query with an L2 sensitivity too, for Gaussian noise."""

    def squared_l2_sensitivity(self, neighbours: Neighbours) -> Fraction:
        """The squared L2 distance by which one privacy unit moves the answer, on the answer's grid."""


@dataclass(frozen=True, slots=True)
class MomentsQuery:
    """Class counts, class sums and the upper triangle of the sum of x xᵀ, in this order.

    x has `numeric` coordinates in [0, 1] and the level indicators of the categorical
    columns, whose numbers of levels are `levels`.
    """

    numeric: int
    levels: tuple[int, ...]
    classes: int = 1
    unit: ClassVar[int] = UNIT

    def __post_init__(self) -> None:
        if self.numeric < 0 or self.width < 1 or self.classes < 1 or any(count < 2 for count in self.levels):
            raise ValueError("a query needs a coordinate, a class, and two levels in every categorical column")

    @property
    def width(self) -> int:
        """The number of coordinates of x."""
        return self.numeric + sum(self.levels)

    @property
    def size(self) -> int:
        """The length of the answer."""
        return self.classes * (1 + self.width) + triangle_size(self.width)

    def l1_sensitivity(self, neighbours: Neighbours) -> Fraction:
        """GUARANTEE.md, M9, on the grid."""
        bound = jiang_moments_l1(neighbours, numeric=self.numeric, categorical=len(self.levels), classes=self.classes)
        return bound * UNIT

    def as_json(self) -> dict[str, Any]:
        """The query's parameters."""
        return {"ask": "moments", "numeric": self.numeric, "levels": list(self.levels), "classes": self.classes}


@dataclass(frozen=True, slots=True)
class HistogramsQuery:
    """The number of units in each cell of some columns, times the column's weight: one histogram per column.

    All numbers get the same noise, so a column of small weight has a larger relative error and costs less.
    """

    cells: tuple[int, ...]
    weights: tuple[Fraction, ...]
    rows_per_unit: int = 1
    grouping: int = 1
    """The number of the public rule by which cells are grouped once they are measured (`measurements.groups`)."""
    unit: ClassVar[int] = GRID

    def __post_init__(self) -> None:
        if not self.cells or any(count < 1 for count in self.cells) or self.rows_per_unit < 1:
            raise ValueError("histograms need a column, a cell in each, and at least one row per unit")
        whole = all(0 < weight <= 1 and (weight * GRID).denominator == 1 for weight in self.weights)
        if len(self.weights) != len(self.cells) or not whole:
            raise ValueError("every histogram needs a positive weight on the grid, at most 1")

    @property
    def size(self) -> int:
        """The length of the answer."""
        return sum(self.cells)

    def l1_sensitivity(self, neighbours: Neighbours) -> Fraction:
        """GUARANTEE.md, S7: L1 norm, on the grid."""
        return histograms_l1(neighbours, weights=self.weights, rows=self.rows_per_unit) * GRID

    def squared_l2_sensitivity(self, neighbours: Neighbours) -> Fraction:
        """GUARANTEE.md, S7: squared L2 norm, on the grid."""
        return histograms_l2_squared(neighbours, weights=self.weights, rows=self.rows_per_unit) * GRID**2

    def as_json(self) -> dict[str, Any]:
        """The query's parameters."""
        return {
            "ask": "histograms",
            "cells": list(self.cells),
            "weights": [str(weight) for weight in self.weights],
            "rows_per_unit": self.rows_per_unit,
            **({"grouping": self.grouping} if self.grouping > 1 else {}),
        }

    def split(self, answer: Floats) -> list[Floats]:
        """The histograms, one per column, each divided by its weight."""
        parts = np.split(answer, np.cumsum(self.cells)[:-1])
        return [part / float(weight) for part, weight in zip(parts, self.weights, strict=True)]


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """The points of all rows, in the unit ball of `dimension` coordinates; the number of rows is public."""

    rows: int
    dimension: int
    unit: ClassVar[int] = GRID

    def __post_init__(self) -> None:
        if self.rows < 1 or self.dimension < 1:
            raise ValueError("a query of rows needs at least one row and one coordinate")

    @property
    def size(self) -> int:
        """The length of the answer."""
        return self.rows * self.dimension

    def l1_sensitivity(self, neighbours: Neighbours) -> Fraction:
        """GUARANTEE.md, M10, on the grid: one row moves by at most the L1 diameter of the ball."""
        if neighbours is not Neighbours.REPLACE_ONE:
            raise ValueError("rows are published under replace-one only: their number is not hidden")
        return rows_l1(dimension=self.dimension) * GRID

    def as_json(self) -> dict[str, Any]:
        """The query's parameters."""
        return {"ask": "rows", "rows": self.rows, "dimension": self.dimension}


@dataclass(frozen=True, slots=True)
class ScoreQuery:
    """The sum over all units of a score between 0 and 1 per record, which rates a model of released rows.

    `score` names the scoring rule, `of` the predicted column, and `clusters` the number of centres.
    """

    score: str
    of: str | None = None
    clusters: int | None = None
    rows_per_unit: int = 1
    size: ClassVar[int] = 1
    unit: ClassVar[int] = GRID

    def __post_init__(self) -> None:
        if self.rows_per_unit < 1 or (self.clusters is not None and self.clusters < 2):
            raise ValueError("a score needs at least one row per unit, and at least two clusters if it has any")

    def l1_sensitivity(self, neighbours: Neighbours) -> Fraction:
        """GUARANTEE.md, S8, on the grid."""
        return score_sum_l1(neighbours, rows=self.rows_per_unit) * GRID

    def squared_l2_sensitivity(self, neighbours: Neighbours) -> Fraction:
        """GUARANTEE.md, S8, squared: for a single number the L1 and L2 norms agree."""
        return self.l1_sensitivity(neighbours) ** 2

    def as_json(self) -> dict[str, Any]:
        """The query's parameters."""
        optional = {"of": self.of, "clusters": self.clusters}
        return {
            "ask": "score",
            "score": self.score,
            **{name: value for name, value in optional.items() if value is not None},
            "rows_per_unit": self.rows_per_unit,
        }


def query_from_json(body: dict[str, Any]) -> Query:
    """The query that `as_json` wrote.

    Raises: KeyError for an unknown kind of query.
    """
    if body["ask"] == "histograms":
        weights = tuple(map(Fraction, body["weights"]))
        return HistogramsQuery(tuple(body["cells"]), weights, body["rows_per_unit"], body.get("grouping", 1))
    if body["ask"] == "score":
        return ScoreQuery(body["score"], body.get("of"), body.get("clusters"), body["rows_per_unit"])
    if body["ask"] == "rows":
        return RowsQuery(body["rows"], body["dimension"])
    return MomentsQuery(body["numeric"], tuple(body["levels"]), body["classes"])
