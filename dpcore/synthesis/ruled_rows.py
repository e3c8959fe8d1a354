"""Rows that obey rules: those that break one are drawn again, by themselves, from the law of their class.

What is left is the model's law given that the rules hold, class by class. No value is moved and no row is left out.
The number of draws that this takes tells how much of the model obeys the rules, and nothing about the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import CORRECT_RULES, CheckFailedError
from dpcore.noise.sources import bulk_generator
from dpcore.records.binning import ColumnCells
from dpcore.records.rules.allowed import allowed_cells, widest
from dpcore.records.rules.rule import broken_rows
from dpcore.records.schema import MISSING, Cells, Codes, Floats, RecordSchema
from dpcore.synthesis.class_rows import draw_classes
from dpcore.synthesis.even_points import Chunk

LEAST_RATE = 2.0**-15
"""The least share of a class's rows that must obey the rules, so that drawing ends."""

DRAWS_AT_ONCE = 1 << 15
"""Number of rows that are drawn at once in place of others."""

PATIENCE = 20
"""A class is given up if by the least share so many draws more than twice those that obey were due to."""


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Synthetic rows: the points that were drawn, and the cells that they were decoded to."""

    points: NDArray[Any]
    cells: Cells


class RowSource(Protocol):
    """What draws the chunks of a synthetic table."""

    def draw(self, chunk: Chunk) -> DrawnRows:
        """Return the points and cells of one chunk, its rows in random order."""


Propose = Callable[[Codes, np.random.Generator], DrawnRows]
"""Draws a row of each given class, independently."""


def class_cells(schema: RecordSchema, classes: Codes) -> Cells:
    """The label's cells of rows of these classes; none without a label."""
    label = schema.label
    return {} if label is None else {label.name: np.where(classes < len(label.levels), classes, MISSING)}


def classes_of(schema: RecordSchema, cells: Cells, rows: int) -> Codes:
    """The classes of rows whose label is known."""
    label = schema.label
    if label is None:
        return np.zeros(rows, dtype=np.int64)
    codes = np.asarray(cells[label.name], dtype=np.int64)
    return np.where(codes == MISSING, len(label.levels), codes)


def allowed_class_weights(schema: RecordSchema, weights: Floats) -> Floats:
    """The shares of the classes without those of which no row obeys the rules, as bounds and levels tell.

    All shares stay if that leaves none: then no row is found, and drawing says so.
    """
    label = schema.label
    parts = [part for rule in schema.rules for part in rule.parts()]
    if label is None or not parts:
        return weights
    others = {column.name: widest(column) for column in schema.columns if column is not label}
    mine = [part for part in parts if label.name in part.columns]
    allowed = allowed_cells(mine, ColumnCells(label), {}, 1, others)
    left = weights * (allowed.portions[0] > 0)
    return left / left.sum() if left.sum() > 0 else weights


def redraw_broken(
    drawn: DrawnRows, schema: RecordSchema, propose: Propose, generator: np.random.Generator
) -> DrawnRows:
    """Return the rows, those that break a rule replaced by others of their class that break none.

    Raises: CheckFailedError with the share of draws that obey, if that is too small.
    """
    waiting = np.flatnonzero(broken_rows(schema.rules, drawn.cells))
    if not len(waiting):
        return drawn
    points, cells = drawn.points.copy(), {name: values.copy() for name, values in drawn.cells.items()}
    classes, times = classes_of(schema, cells, len(points))[waiting], 1
    tried = obeying = np.zeros(schema.class_count, dtype=np.int64)
    while len(waiting):
        times = max(1, min(2 * times, DRAWS_AT_ONCE // len(waiting)))
        found = propose(np.repeat(classes, times), generator)
        obey = ~broken_rows(schema.rules, found.cells).reshape(len(waiting), times)
        tried = tried + times * np.bincount(classes, minlength=len(tried))
        obeying = obeying + np.bincount(classes, weights=obey.sum(axis=1), minlength=len(tried)).astype(np.int64)
        _require_rate(tried, obeying, np.unique(classes))
        done, first = obey.any(axis=1), np.argmax(obey, axis=1)
        source = (np.arange(len(waiting)) * times + first)[done]
        points[waiting[done]] = found.points[source]
        for name, values in cells.items():
            values[waiting[done]] = found.cells[name][source]
        waiting, classes = waiting[~done], classes[~done]
    return DrawnRows(points, cells)


def _require_rate(tried: Codes, obeying: Codes, needed: Codes) -> None:
    """Refuse a class of which, as its draws show beyond doubt, less than the least share obeys."""
    hopeless = [k for k in needed.tolist() if tried[k] * LEAST_RATE > 2 * obeying[k] + PATIENCE]
    if hopeless:
        rate = max(float(obeying[k] / tried[k]) for k in hopeless)
        at_most = f"{rate:.1g}" if rate else f"less than 1 in {int(tried[hopeless].min()):,}"
        raise CheckFailedError(
            f"the rules hold for too little of the model: the share of draws that obey them is {at_most}, and below "
            f"{LEAST_RATE:.1g} rows cannot be drawn; compare the rules with each other and with the columns' bounds",
            hint=CORRECT_RULES,
        )


@dataclass(frozen=True, slots=True)
class RuledRows:
    """Draws rows that obey the rules of a schema: where a row breaks one, another of its class takes its place."""

    source: RowSource
    schema: RecordSchema
    propose: Propose

    def draw(self, chunk: Chunk) -> DrawnRows:
        """Return the points and cells of one chunk."""
        again = bulk_generator(chunk.seed, f"rules {chunk.index}")
        return redraw_broken(self.source.draw(chunk), self.schema, self.propose, again)


@dataclass(frozen=True, slots=True)
class ProposedRows:
    """Draws every row independently, of classes by their shares."""

    weights: Floats
    propose: Propose

    def draw(self, chunk: Chunk) -> DrawnRows:
        """Return the points and cells of one chunk, its rows in random order."""
        generator = chunk.generator()
        return self.propose(generator.permutation(draw_classes(chunk.rows, self.weights, generator)), generator)
