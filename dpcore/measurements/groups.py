"""Groups of cells whose counts exceed the noise: post-processing of released histograms.

Pairs of columns are measured by groups, so a group must hold enough units for its cells in a
pair table to exceed the noise. The groups of a numeric column are ranges of neighbouring cells with
about equal counts; a cell with many units is a group of its own, and no group crosses a public break
unless one side of it holds too few units. The rare levels of a nominal column share one group. The
distribution inside a group comes from the histograms alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.measure import ReleasedVector
from dpcore.measurements.noisy_moments import onto_simplex
from dpcore.measurements.within_group import shares_within
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.expected_noise import entry_noise
from dpcore.mechanisms.queries import HistogramsQuery
from dpcore.records.binning import UNCOUNTED, ColumnCells
from dpcore.records.schema import Cells, Codes, Column, Floats, NominalColumn

SURE = 2.0
"""Standard deviations of noise by which a count must exceed its threshold."""

FEWER = 1.25
"""Factor by which the least group size grows until all groups fit into the coordinates."""


USUAL_LENGTH = 0.6
"""A typical record's squared length per column, assumed before the histograms are measured."""

LEAST_DEVIATIONS = 3.0
"""The least group size, in standard deviations of the noise on a pair of groups."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """A public rule for groups; the event of the histograms names it by its number in `GROUPINGS`."""

    room: float
    """Ratio of the unit ball's squared radius to a typical record's squared length."""
    constant: int | None = None
    """The target number of an interval column's groups; None for the number with the least expected error."""
    round_edges: bool = True
    """Whether the cells of amounts begin at round numbers."""
    gradual: bool = True
    """Whether the distribution inside a group follows its counts the more, the more they exceed their noise."""

    def most_groups(self, counts: Floats, least: float) -> int:
        """Return the target number of an interval column's groups, which hold about equal shares of the units.

        Coarse groups lose what happens inside them, in proportion to 1 / groups. The noise on a pair of columns grows
        with the number of their pairs of groups. The sum of both is least at a multiple of the cube root of the
        number of units over the noise. Of a column with few cells, each that holds enough units is a group.
        """
        if self.constant is not None:
            return self.constant
        units = max(float(counts.sum()), 1.0) / least
        if len(counts) <= FEW_CELLS:
            return max(2, math.ceil(units))
        return max(2, round(groups_of_units(units)))


FEW_CELLS = 16
"""A column with at most this many cells keeps each that holds enough units."""

GROUPS_PER_ROOT = 1.25
"""Groups per cube root of the number of units over the noise on a pair of groups."""

GROUPING = 2
"""The number of the rule by which new releases are grouped."""
GROUPINGS = {
    1: Grouping(room=1.0, constant=10, round_edges=False, gradual=False),
    GROUPING: Grouping(room=1.25),
}
"""Every rule of a published release. A change of any constant or step that changes a group needs a new number.

The constants were chosen on the training rows of bank_marketing and credit_default, at epsilon 1 and delta 1e-5, among
10, 14 and 20 groups, rooms of 0.7 to 2, and 6 or 10 coordinates per column. Records whose vectors are longer than the
radius are clipped; in a room of 1 this distorted their tables more than the grouping does.
"""


def groups_of_units(units: float) -> float:
    """Return the number of groups with the least expected error, for so many times the least group size."""
    return GROUPS_PER_ROOT * math.cbrt(LEAST_DEVIATIONS * units)


def least_group_size(event: GramEvent, columns: int) -> float:
    """Return the number of units that a group must hold; a function of public constants alone."""
    return LEAST_DEVIATIONS * entry_noise(event) * USUAL_LENGTH * columns


@dataclass(frozen=True, slots=True)
class ColumnGroups:
    """The groups of one column: the group of each cell, and the noisy counts of the groups."""

    cells: ColumnCells
    group: Codes
    within: Floats
    """Share of each cell within its group."""
    counts: Floats
    variances: Floats

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.counts)

    @property
    def portions(self) -> Floats:
        """Share of each group, projected onto the probability simplex."""
        return onto_simplex(self.counts / max(float(self.counts.sum()), 1.0), 1.0)

    def codes(self, cells: Cells) -> Codes:
        """Return the group of each record, or `UNCOUNTED` if its cell is unknown."""
        found = self.cells.codes(cells[self.cells.column.name])
        return np.append(self.group, UNCOUNTED)[found]

    def values(self, groups: Codes, generator: np.random.Generator) -> NDArray[np.generic]:
        """Draw a value from each given group: first its cell by share, then a value in the cell."""
        order = np.argsort(self.group, kind="stable")
        mass = np.cumsum(self.within[order])  # group g lies between g and g + 1
        place = np.searchsorted(mass, np.minimum(groups + generator.random(len(groups)), mass[-1] * (1 - 1e-12)))
        return self.cells.values(order[np.minimum(place, len(order) - 1)], generator)

    def values_at(self, groups: Codes, points: Floats) -> NDArray[np.generic]:
        """Return the value at a point of each given group: points from 0 to below 1 give the group's distribution."""
        order = np.argsort(self.group, kind="stable")
        share, edges = self.within[order], np.searchsorted(self.group[order], np.arange(self.size + 1))
        mass = np.cumsum(share)  # group g lies between g and g + 1
        place = np.searchsorted(mass, groups + points, side="right")
        place = np.clip(place, edges[groups], edges[groups + 1] - 1)  # rounding does not lead to another group
        inside = (groups + points - mass[place] + share[place]) / np.where(share[place] > 0, share[place], 1.0)
        return self.cells.values_at(order[place], np.clip(inside, 0.0, 1.0 - 2.0**-53))


def group_columns(
    released: ReleasedVector, columns: Sequence[ColumnCells], *, least: float, coordinates: int
) -> list[ColumnGroups]:
    """Return the groups of every column, each of about `least` units or more, that fit into the coordinates."""
    query = histograms_of(released)
    rule = GROUPINGS[query.grouping]
    deviations = [released.deviation() / float(weight) for weight in query.weights]
    parts = zip(query.split(released.numbers()), deviations, strict=True)
    histograms = _with_common_total([Histogram(counts, deviation) for counts, deviation in parts], columns)
    both = list(zip(columns, histograms, strict=True))
    while sum(_group_count(c, h, rule, least) - 1 for c, h in both) > coordinates:
        least *= FEWER
    return [_group_column(c, h, rule, least) for c, h in both]


def grouping_of(released: ReleasedVector) -> Grouping:
    """Return the rule by which released histograms are grouped."""
    return GROUPINGS[histograms_of(released).grouping]


def cells_of_columns(columns: Sequence[Column], grouping: int = GROUPING) -> list[ColumnCells]:
    """Return the public cells of encoded columns under a rule for groups."""
    return [ColumnCells(column, GROUPINGS[grouping].round_edges) for column in columns]


def histograms_of(released: ReleasedVector) -> HistogramsQuery:
    """Return the query that released histograms answer."""
    query = released.event.query
    assert isinstance(query, HistogramsQuery)  # noqa: S101  the only vectors that a release measures
    return query


@dataclass(frozen=True, slots=True)
class Histogram:
    """Noisy counts of a column's cells, and the noise of sums of them.

    `total_variance` is the variance of the total once it was reconciled with the other columns, else None.
    """

    counts: Floats
    deviation: float
    total_variance: float | None = None

    def noise(self, cells: int) -> float:
        """Return the standard deviation of the noise on the sum of this many cells."""
        if self.total_variance is None:
            return self.deviation * math.sqrt(cells)
        part = cells / len(self.counts)
        return math.sqrt(self.deviation**2 * cells * (1 - part) + part**2 * self.total_variance)


def _with_common_total(histograms: Sequence[Histogram], columns: Sequence[ColumnCells]) -> list[Histogram]:
    """Return the histograms adjusted to a common total, the precision-weighted mean of their own totals.

    Only columns that count every record take part. The count of a wide range then has the noise of the column's
    remaining cells, if these are fewer.
    """
    whole = [cells.counts_all for cells in columns]
    variances = [h.deviation**2 * len(h.counts) for h in histograms]
    precision = sum(1 / variance for variance, all_counted in zip(variances, whole, strict=True) if all_counted)
    if not precision:
        return list(histograms)
    weighted = (
        float(h.counts.sum()) / variance
        for h, variance, all_counted in zip(histograms, variances, whole, strict=True)
        if all_counted
    )
    total = sum(weighted) / precision
    return [
        Histogram(h.counts + (total - h.counts.sum()) / len(h.counts), h.deviation, 1 / precision) if all_counted else h
        for h, all_counted in zip(histograms, whole, strict=True)
    ]


def _group_count(cells: ColumnCells, histogram: Histogram, rule: Grouping, least: float) -> int:
    """Return the number of groups that `_group_column` makes, without computing shares."""
    counts = histogram.counts
    if isinstance(cells.column, NominalColumn):
        kept = _kept_levels(counts, least)
        return kept + (kept < len(counts))
    present = counts[: len(cells.edges) - 1]
    missing_apart = len(present) < len(counts) and bool(counts[-1] >= least)
    return len(_joined_ranges(cells, present, histogram, rule, least)) + missing_apart


def _group_column(cells: ColumnCells, histogram: Histogram, rule: Grouping, least: float) -> ColumnGroups:
    if isinstance(cells.column, NominalColumn):
        group, within = _group_levels(histogram, least)
    else:
        group, within = _group_neighbours(cells, histogram, rule, least)
    size = int(group.max()) + 1
    sums: Floats = np.bincount(group, weights=histogram.counts, minlength=size).astype(np.float64)
    variances = [histogram.noise(int(members)) ** 2 for members in np.bincount(group, minlength=size)]
    return ColumnGroups(cells, group, within, sums, np.array(variances))


def _group_levels(histogram: Histogram, least: float) -> tuple[Codes, Floats]:
    """Return one group per level with enough units, one group of all other levels, and the shares within groups."""
    counts, deviation = histogram.counts, histogram.deviation
    order, kept = np.argsort(-counts, kind="stable"), _kept_levels(counts, least)
    group = np.full(len(counts), kept, dtype=np.int64)
    group[np.sort(order[:kept])] = np.arange(kept)
    within = np.ones(len(counts))
    if kept < len(counts):
        rest = group == kept
        size = max(float(counts[rest].sum()), deviation, 1.0)
        within[rest] = onto_simplex(counts[rest], size) / size
    return group, within


def _kept_levels(counts: Floats, least: float) -> int:
    """Return how many levels keep a group of their own such that the other levels together hold `least` units."""
    order, kept = np.argsort(-counts, kind="stable"), int(np.count_nonzero(counts >= least))
    while 0 < kept < len(counts) and counts[order[kept:]].sum() < least:
        kept -= 1
    return kept


def _group_neighbours(cells: ColumnCells, histogram: Histogram, rule: Grouping, least: float) -> tuple[Codes, Floats]:
    """Return groups of neighbouring cells of an interval column, and the shares within them.

    The cell of missing values, if there is one, is the last and a group of its own when it has enough units.
    """
    counts, edges = histogram.counts, cells.edges
    present = counts[: len(edges) - 1]
    apart = len(present) < len(counts)
    ranges = _joined_ranges(cells, present, histogram, rule, least)
    group, within = np.empty(len(counts), dtype=np.int64), np.ones(len(counts))
    for number, (start, stop) in enumerate(ranges):
        group[start:stop] = number
        within[start:stop] = shares_within(present, edges, start, stop, histogram.deviation, gradual=rule.gradual)
    if apart and counts[-1] >= least:
        group[-1] = len(ranges)
    elif apart:
        group[-1] = len(ranges) - 1  # too few to tell from noise: part of the last group
        last = group == len(ranges) - 1
        share = max(float(counts[-1]), 0.0) / max(float(counts[last].sum()), 1.0)
        within[last] *= 1 - min(share, 1.0)
        within[-1] = min(share, 1.0)
    return group, within


Range = tuple[int, int]


def _equal_count_ranges(
    counts: Floats, breaks: set[int], histogram: Histogram, rule: Grouping, least: float
) -> list[Range]:
    """Return ranges of cells from left to right: cells with many units alone, the others in about equal counts.

    A range also ends where a public break follows.
    """
    most = rule.most_groups(counts, least)
    alone = counts >= max(counts.sum() / most, least)
    target = max(least, counts[~alone].sum() / max(1, most - np.count_nonzero(alone)))
    ranges, start = [], 0
    for cell in range(len(counts)):
        if cell in breaks and start < cell:
            ranges.append((start, cell))
            start = cell
        if alone[cell]:
            ranges += [(start, cell)] * (start < cell) + [(cell, cell + 1)]
            start = cell + 1
        elif counts[start : cell + 1].sum() >= target + SURE * histogram.noise(cell + 1 - start):
            ranges.append((start, cell + 1))
            start = cell + 1
    return ranges + [(start, len(counts))] * (start < len(counts))


def _joined_ranges(
    cells: ColumnCells, counts: Floats, histogram: Histogram, rule: Grouping, least: float
) -> list[Range]:
    """Return the ranges after joining each that may hold fewer than `least` units with a neighbour.

    A neighbour on the same side of public breaks is preferred, then a range of several cells over a single cell, then
    the smaller count.
    """
    breaks = cells.breaks
    ranges = _equal_count_ranges(counts, breaks, histogram, rule, least)

    def lower_bound(part: Range) -> float:
        return float(counts[slice(*part)].sum()) - SURE * histogram.noise(part[1] - part[0])

    while len(ranges) > 1:
        worst = min(range(len(ranges)), key=lambda i: lower_bound(ranges[i]))
        if lower_bound(ranges[worst]) >= least:
            break
        beside = [i for i in (worst - 1, worst + 1) if 0 <= i < len(ranges)]
        other = min(
            beside,
            key=lambda i: (
                ranges[max(i, worst)][0] in breaks,
                ranges[i][1] - ranges[i][0] == 1,
                lower_bound(ranges[i]),
            ),
        )
        first, second = sorted((worst, other))
        ranges[first : second + 1] = [(ranges[first][0], ranges[second][1])]
    return ranges
