"""Encoding of rows as points of the unit ball, and its inverse.

Every encoded column contributes a vector of length at most 1, and the point is
their concatenation divided by the root of the number of columns:

* an interval column is encoded as its position between the bounds, in [-1, 1]; if
  missing cells have their own level, a second coordinate indicates them;
* a nominal column is encoded as indicators of its levels, centred and scaled to length 1
  (a boolean one as -1 or 1): all levels are equally far apart, none is dropped as the
  reference, and a value without a level is the centre, 0.

The encoding of a record depends on that record and on public constants only,
through operations that IEEE 754 rounds correctly at every position of an array
(+ - x / sqrt and comparisons). No record is ever dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dpcore.records.bounded_marginal import BoundedShape
from dpcore.records.decoding import ClassRules, PresentValues
from dpcore.records.schema import (
    MISSING,
    Cells,
    Codes,
    Column,
    Floats,
    IntervalColumn,
    Kind,
    NominalColumn,
    RecordSchema,
    Role,
)


def level_corners(column: NominalColumn) -> Floats:
    """The unit vectors that encode a column's levels, one per row, with mean zero.

    They are indicator vectors, centred and scaled to length 1: the corners of a regular simplex.
    The two levels of a boolean column need only one coordinate, -1 or 1.
    """
    count = column.level_count
    if column.kind is Kind.BOOLEAN and count == 2:
        return np.array([[-1.0], [1.0]])
    return (np.eye(count) - 1 / count) * math.sqrt(count / (count - 1))


def level_of(codes: Codes, column: NominalColumn) -> Codes:
    """The level as which each code counts; -1 for none.

    Missing cells count as their own level (the last), else as the imputed level, else
    as `other`; unknown categories count as `other`.
    """
    other = -1 if column.other is None else column.other
    missing = len(column.levels) if column.missing_level else other if column.impute is None else column.impute
    known = (codes >= 0) & (codes < len(column.levels))
    return np.where(known, codes, np.where(codes == MISSING, missing, other)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ColumnCode:
    """The encoding of one column as coordinates `start` to `stop` of the point."""

    column: Column
    start: int
    stop: int

    def encode(self, cells: NDArray[np.generic]) -> Floats:
        """Vectors of length at most 1, one per cell."""
        alone = ColumnCode(self.column, 0, self.stop - self.start)
        return _Coordinates([alone]).of({self.column.name: cells}).T

    def scores(self, vectors: Floats) -> Floats | None:
        """The score of each level for each vector; None for a column without levels."""
        if isinstance(self.column, NominalColumn):
            return (level_corners(self.column) @ vectors.T).T
        if self.column.missing_level:  # level 0 is "present", level 1 "missing"
            return np.column_stack([np.zeros(len(vectors)), vectors[:, 1] - 0.5])
        return None

    def positions(self, vectors: Floats, present: PresentValues | None) -> Floats:
        """Positions between the bounds as if every cell were present."""
        return present.restore(vectors[:, 0], vectors[:, 1]) if present else vectors[:, 0]

    def decode(
        self, vectors: Floats, levels: Codes | None, present: PresentValues | None, shape: BoundedShape | None
    ) -> NDArray[np.generic]:
        """Cells nearest to the vectors, inside the bounds; `levels` are the chosen levels."""
        column = self.column
        if isinstance(column, NominalColumn):
            assert levels is not None  # noqa: S101  a nominal column always has scores
            return np.where(levels < len(column.levels), levels, MISSING) if column.missing_level else levels
        position = self.positions(vectors, present)
        if shape is not None:
            position = shape.transform(position)
        values = np.clip(column.middle + column.half_width * position, column.lower, column.upper)
        if column.is_whole:
            values = np.clip(np.rint(values), math.ceil(column.lower), math.floor(column.upper))
        return values if levels is None else np.where(levels == 1, np.nan, values)


class _Coordinates:
    """The coordinates of records, one row per coordinate, computed in a few operations on blocks of cells."""

    def __init__(self, codes: Sequence[ColumnCode]) -> None:
        self._codes = codes
        self._intervals = [(code, code.column) for code in codes if isinstance(code.column, IntervalColumn)]
        columns = [column for _, column in self._intervals]
        bounds = np.array([(c.lower, c.upper, c.middle, c.half_width) for c in columns]).reshape(-1, 4)
        self._lower, self._upper, self._middle, self._half_width = bounds.T[:, :, None]
        self._places = [code.start for code, _ in self._intervals]

    def of(self, cells: Cells, *, clip: bool = True) -> Floats:
        """The coordinates, one column per record: vectors of length at most 1 for each schema column if `clip`."""
        rows = len(cells[self._codes[0].column.name])
        coordinates = np.empty((self._codes[-1].stop, rows))
        self._fill_intervals(cells, coordinates, clip)
        for code in self._codes:
            if isinstance(code.column, NominalColumn):
                coordinates[code.start : code.stop] = _corner_coordinates(cells[code.column.name], code.column)
        return coordinates

    def _fill_intervals(self, cells: Cells, coordinates: Floats, clip: bool) -> None:
        """Write the positions, clipped to [-1, 1] or not, and the indicators of missing cells that have a level."""
        all_are = len(self._intervals) == len(coordinates)
        values = coordinates if all_are else np.empty((len(self._intervals), coordinates.shape[1]))
        for own, (code, column) in zip(values, self._intervals, strict=True):
            own[:] = cells[column.name]
            missing = np.isnan(own)
            if missing.any():
                own[missing] = column.middle if column.impute is None or column.missing_level else column.impute
            if column.missing_level:
                coordinates[code.start + 1] = missing
        if clip:
            np.clip(values, self._lower, self._upper, out=values)
        values -= self._middle
        values /= self._half_width
        if clip:
            np.clip(values, -1.0, 1.0, out=values)
        if not all_are:
            coordinates[self._places] = values


def _corner_coordinates(cells: NDArray[np.generic], column: NominalColumn) -> Floats:
    """The corners of the cells' levels, one column per cell."""
    corners = level_corners(column)
    table = np.vstack([corners, np.zeros(corners.shape[1])]).T  # index -1 is the centre
    return table[:, level_of(np.asarray(cells, dtype=np.int64), column)]


class Encoding:
    """The map between the cells of a table and points of the unit ball.

    The features' coordinates come first and may be projected; those of the target, if
    there is one, come last and are never projected.

        >>> age = IntervalColumn(name="age", kind=Kind.INTEGER, lower=0.0, upper=100.0)
        >>> smoker = NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True))
        >>> encoding = Encoding(RecordSchema((age, smoker)))
        >>> points = encoding.encode({"age": np.array([100.0, 50.0, np.nan]), "smoker": np.array([1, 0, MISSING])})
        >>> (points * encoding.scale).round(12)
        array([[ 1.,  1.],
               [ 0., -1.],
               [ 0.,  0.]])
    """

    def __init__(self, schema: RecordSchema) -> None:
        self.schema = schema
        edges = [0, *accumulate(_coordinate_count(column) for column in schema.encoded_columns)]
        self.codes = [ColumnCode(*code) for code in zip(schema.encoded_columns, edges[:-1], edges[1:], strict=True)]
        self.width = edges[-1]
        self.target_width = sum(c.stop - c.start for c in self.codes if c.column.role is Role.TARGET)
        self.feature_width = self.width - self.target_width
        self.scale = math.sqrt(len(self.codes))
        self._coordinates = _Coordinates(self.codes)

    def encode(self, cells: Cells) -> Floats:
        """Points of the unit ball, one per record; stored coordinate by coordinate."""
        coordinates = self._coordinates.of(cells)
        coordinates /= self.scale
        return coordinates.T

    def unclipped_lengths(self, cells: Cells) -> Floats:
        """The length of each record's point if no cell were clamped to its bounds; it may be infinite.

        A length above 1 means that at least one cell is outside its bounds. No release depends on it.
        """
        with np.errstate(over="ignore"):
            coordinates = self._coordinates.of(cells, clip=False)
            lengths: Floats = np.sqrt(np.einsum("ij,ij->j", coordinates, coordinates)) / self.scale
        return lengths

    def classes(self, cells: Cells) -> Codes:
        """The class block of each record; 0 for all without a label.

        A label cell that maps to no level falls into the first class, because every
        record must fall into some class.
        """
        label = self.schema.label
        if label is None:
            return np.zeros(len(next(iter(cells.values()))), dtype=np.int64)
        return np.maximum(level_of(np.asarray(cells[label.name], dtype=np.int64), label), 0)

    def level_scores(self, points: Floats) -> dict[str, Floats]:
        """The scores of each column's levels for each point."""
        scores = {code.column.name: code.scores(self._vectors(points, code)) for code in self.codes}
        return {name: score for name, score in scores.items() if score is not None}

    def level_shares(self, mean: Floats) -> dict[str, Floats]:
        """The share of each level that a mean point implies, clipped at 0 and normalised."""
        shares = {}
        for code in self.codes:
            vector = mean[code.start : code.stop] * self.scale
            if isinstance(code.column, NominalColumn):
                count = code.column.level_count
                raw = (1 + (count - 1) * level_corners(code.column) @ vector) / count
            elif code.column.missing_level:
                raw = np.array([1 - vector[1], vector[1]])
            else:
                continue
            positive = np.maximum(raw, 0.0)
            shares[code.column.name] = positive / positive.sum()
        return shares

    def present_values(self, mean: Floats) -> dict[str, PresentValues]:
        """The present values that a mean point implies, for each interval column with a missing level."""
        shares = self.level_shares(mean)
        result = {}
        for code in self.codes:
            if isinstance(code.column, IntervalColumn) and code.column.missing_level:
                share = max(float(shares[code.column.name][0]), 1e-9)
                position = float(mean[code.start]) * self.scale / share
                result[code.column.name] = PresentValues(min(1.0, max(-1.0, position)), share)
        return result

    def shapes(self, pilot: Floats, mean: Floats, *, shared_spread: bool = False) -> dict[str, BoundedShape]:
        """The shape of each interval column, with the mean of a mean point and the spread of a pilot sample.

        With a spread that is shared with other classes the shape is a clipped Gaussian, else a Beta distribution.
        """
        present = self.present_values(mean)
        result = {}
        for code in self.codes:
            name = code.column.name
            if isinstance(code.column, IntervalColumn):
                known = present.get(name)
                centre = known.mean if known else float(mean[code.start]) * self.scale
                spread = float(np.std(code.positions(self._vectors(pilot, code), known)))
                result[name] = (BoundedShape.clipped_gaussian if shared_spread else BoundedShape.fit)(centre, spread)
        return result

    def decode(self, points: Floats, rules: ClassRules) -> Cells:
        """The decoded cells of all columns, in the order of the schema."""
        cells: Cells = {}
        for code in self.codes:
            name, vectors = code.column.name, self._vectors(points, code)
            scores = code.scores(vectors)
            levels = None if scores is None else rules.levels[name].choose(scores)
            cells[name] = code.decode(vectors, levels, rules.present.get(name), rules.shapes.get(name))
        label = self.schema.label
        if label is not None:
            value = rules.class_index if rules.class_index < len(label.levels) else MISSING
            cells[label.name] = np.full(len(points), value, dtype=np.int64)
        return {column.name: cells[column.name] for column in self.schema.columns}

    def _vectors(self, points: Floats, code: ColumnCode) -> Floats:
        return points[:, code.start : code.stop] * self.scale

    def coordinate_names(self) -> list[str]:
        """A name for each coordinate, for plots and model files."""
        names: list[str] = []
        for code in self.codes:
            width = code.stop - code.start
            names += [code.column.name] if width == 1 else [f"{code.column.name}[{i}]" for i in range(width)]
        return names


def _coordinate_count(column: Column) -> int:
    return level_corners(column).shape[1] if isinstance(column, NominalColumn) else 1 + column.missing_level
