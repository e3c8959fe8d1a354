"""Forecasts from public constants: how long a cap lasts, how much noise each column carries, what is left of a table.

The accountant composes the costs: with Gaussian noise, the cost of a year is not twelve times that
of a month. The noise of a column is the noise of the planned measurements, converted through the
encoding to the column's unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting import Balance, Cost, Statement, month_number
from dpcore.measurements.groups import cells_of_columns, least_group_size
from dpcore.mechanisms.expected_noise import count_and_sum_noise, operator_noise
from dpcore.mechanisms.names import SPREAD
from dpcore.mechanisms.queries import HistogramsQuery
from dpcore.mechanisms.registry import vector_mechanism
from dpcore.planning.class_structure import STRONG_DIRECTION
from dpcore.planning.plan import Plan
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Column, IntervalColumn, NominalColumn, Role

FACTORS = tuple(Fraction(quarters, 4) for quarters in (1, 2, 3, 4, 6, 8))
"""Multiples of an epsilon that are shown as alternatives to it."""

_PER_DECADE = 90
"""Numbers of two significant digits between one power of ten and the next."""

_SMALLEST = Fraction(1, 1000)


@dataclass(frozen=True, slots=True)
class ForecastRelease:
    """One coming release, and the population's privacy statement after it, for the most expensive window of months.

    `counted` releases are already charged in the ledger. A release that is not `allowed` spends nothing.
    """

    period: str
    counted: bool
    allowed: bool
    spent: Statement


def burn_down(balance: Balance, each: Cost, periods: Iterable[tuple[str, bool]]) -> list[ForecastRelease]:
    """Return the coming releases in order; each period comes with whether the balance includes its cost already."""
    steps = []
    for period, counted in periods:
        after = balance if counted else balance.adding(month_number(period), each)
        allowed = counted or after.is_admitted
        balance = after if allowed else balance
        steps.append(ForecastRelease(period, counted, allowed, balance.statement))
    return steps


# -- other epsilons ----------------------------------------------------------------


def nice_below(value: Fraction) -> Fraction:
    """Return the largest number of two significant digits at or below a positive value."""
    step = Fraction(10) ** (math.floor(math.log10(value)) - 1)
    while value < 10 * step:  # the logarithm of a float may err by one at a power of ten
        step /= 10
    return value // step * step


def alternative_epsilons(epsilon: Fraction, *, at_most: Fraction) -> list[Fraction]:
    """Return epsilons around the present one, which is included, in ascending order."""
    others = {nice_below(factor * epsilon) for factor in FACTORS if factor != 1}
    return sorted({epsilon} | {other for other in others if other <= at_most})


def largest_fitting(fits: Callable[[Fraction], bool], *, at_most: Fraction) -> Fraction | None:
    """Return the largest epsilon of two significant digits, at least 0.001, that fits; None if none does.

    `fits` must be monotone: if it holds for an epsilon, it holds for every smaller one. It is called about ten times.
    """
    low, high = -1, _nice_count(at_most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(_nice(middle)) else (low, middle)
    return _nice(low) if low >= 0 else None


def _nice(index: int) -> Fraction:
    """Return the number of two significant digits with this index, counted from 0.001."""
    decade, place = divmod(index, _PER_DECADE)
    return _SMALLEST / 10 * (10 + place) * Fraction(10) ** decade


def _nice_count(at_most: Fraction) -> int:
    """Return how many numbers of two significant digits lie between 0.001 and a value."""
    if at_most < _SMALLEST:
        return 0
    largest, decade = nice_below(at_most) / _SMALLEST * 10, 0
    while largest >= 100:
        largest, decade = largest / 10, decade + 1
    return decade * _PER_DECADE + int(largest) - 9


# -- noise of columns --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnNoise:
    """Standard deviation of the noise on a column's mean, in its unit, or on the share of a level.

    The count is noisy too, so the noise grows with the distance of a mean from the middle of the
    bounds, or of a share from the uniform one: `least` is the noise there, `most` the noise at a
    bound, or if one level has all rows. `known` is false if a projection drops a part of the mean,
    whose error is then larger than the noise.
    """

    column: Column
    least: float
    most: float
    known: bool

    @property
    def is_share(self) -> bool:
        """Whether the figures are shares of levels."""
        return isinstance(self.column, NominalColumn)

    @property
    def part_of_range(self) -> float:
        """The largest noise relative to the distance between the bounds; of a share, the noise itself."""
        return self.most / (2 * self.column.half_width) if isinstance(self.column, IntervalColumn) else self.most


def column_noise(plan: Plan) -> list[ColumnNoise]:
    """Return the expected noise of every column, for the expected rows and without missing values."""
    encoding = Encoding(plan.schema)
    class_part = count_and_sum_noise(plan.event, plan.mean_event)[0] / plan.expected_rows
    count_part = class_part * math.sqrt(plan.event.layout.classes)
    every_mean = not plan.normalise and (plan.knows_centre or _kept_part(plan, encoding) == 1)
    result = []
    for column in plan.schema.columns:
        if column.role is Role.LABEL and isinstance(column, NominalColumn):
            result.append(_label_noise(column, class_part))
        elif plan.marginals_event is not None:
            result.append(_histogram_noise(column, plan))
        else:
            known = every_mean or column.role is Role.TARGET
            result.append(_encoded_noise(column, _position_sd(plan, encoding, column.role), count_part, known))
    return result


def _label_noise(column: NominalColumn, class_part: float) -> ColumnNoise:
    """Return the noise on a class's share: with share s of k classes, 1 - 2 s + k s² times one count's variance."""
    classes = column.level_count
    least, most = math.sqrt(1 - 1 / classes), math.sqrt(max(1, classes - 1))
    return ColumnNoise(column, least * class_part, most * class_part, known=True)


def _histogram_noise(column: Column, plan: Plan) -> ColumnNoise:
    """Return the noise of a column's histogram: on one cell's share, or on the mean over all cells."""
    event = plan.marginals_event
    assert event is not None and isinstance(event.query, HistogramsQuery)  # noqa: S101, PT018  as it was planned
    weight = float(event.query.weights[plan.schema.encoded_columns.index(column)])
    cell = vector_mechanism(event.mechanism).deviation(event) / event.query.unit / weight / plan.expected_rows
    if isinstance(column, NominalColumn):
        return ColumnNoise(column, cell, cell, known=True)
    positions, _ = cells_of_columns([column], event.query.grouping)[0].positions()
    mean = column.half_width * cell * math.sqrt(float(positions @ positions))
    return ColumnNoise(column, mean, mean, known=True)


def _encoded_noise(column: Column, position_sd: float, count_part: float, known: bool) -> ColumnNoise:
    """Return the noise of a column from that on its position: in [-1, 1], or along the vertex of a level."""
    unit = column.half_width if isinstance(column, IntervalColumn) else 1 - 1 / column.level_count
    return ColumnNoise(column, unit * position_sd, unit * math.hypot(position_sd, count_part), known)


def _position_sd(plan: Plan, encoding: Encoding, role: Role) -> float:
    """Return the noise on one column's mean position, for a mean of 0.

    A projection keeps, on average, the share of a coordinate's noise that it keeps of the coordinates.
    If a centre replaces the rest, so does the noise of that centre.
    """
    kept = 1.0 if role is Role.TARGET else _kept_part(plan, encoding)
    measured = plan.expected_error()["mean_sd"]
    return encoding.scale * math.hypot(math.sqrt(kept) * measured, math.sqrt(1 - kept) * _centre_sd(plan, measured))


def _kept_part(plan: Plan, encoding: Encoding) -> float:
    return 1.0 if plan.projection == "none" else plan.dimension / encoding.feature_width


def _centre_sd(plan: Plan, mean_sd: float) -> float:
    """Return the noise on one coordinate of the centre that replaces what the projection drops."""
    if not plan.knows_centre:
        return 0.0
    if plan.projection_event is None:
        return mean_sd
    return count_and_sum_noise(plan.projection_event)[1] / plan.expected_rows


# -- signal ------------------------------------------------------------------------

LEAST_SIGNAL = 2.0
"""A release with less of a signal is called mostly noise.

LR and GNB were trained on 160 releases by the planner's own choices: of the smaller sets of `dpcore.planning.defaults`,
iris, wine, german_credit, and 1,000 to 8,000 training rows of the larger ones; at epsilon 0.1, 0.25, 1 and 4, pure and
with delta 1e-5. Below a signal of 2, the better of the two areas under the curve exceeded 1/2 by less than half as much
as with real rows in 51 of 57 releases; above it, in 36 of 103.
"""

FEW_DIRECTIONS = 4
"""Fewer random directions than this say little about a table that has more, however well they are measured."""

USUAL_PART = 0.25
"""The squared length, over that of their bounds, of numbers that no frame is measured for; they seldom fill them."""

LEVELS_PART = Fraction(1, 3)
"""How much a column of levels adds to the strongest direction of a table, beside a column of numbers."""

GROUPS_AT_HAND = {True: 8.0, False: 2.0}
"""How many groups above the noise the columns of a copula can have where its signal is 1, with an outcome or without.

Models that predict an outcome from releases of german_credit, bank_marketing, credit_default and covertype, 750 to
8,000 training rows each, gained a half of what real rows give from about 16 groups on. Without an outcome the
histograms say most, and four groups are as many as `dpcore.planning.copula_plan` asks for.
"""


def expected_signal(plan: Plan) -> float:
    """Return how many times the noise the strongest direction of a usual table is, from public constants alone.

    For a copula, how many groups of a column rise above the noise, over `GROUPS_AT_HAND`.
    """
    if plan.marginals_event is not None:
        predicts = any(column.role is not Role.FEATURE for column in plan.schema.columns)
        least = least_group_size(plan.event, len(plan.schema.encoded_columns))
        return plan.expected_rows / least / GROUPS_AT_HAND[predicts]
    noise = math.sqrt(plan.event.layout.blocks) * operator_noise(plan.event)  # of all blocks together
    encoding = Encoding(plan.schema)
    told = min(1.0, plan.dimension / min(FEW_DIRECTIONS, encoding.feature_width))
    told *= _mean_part(encoding, numbers=1.0, levels=float(LEVELS_PART))
    return STRONG_DIRECTION * plan.expected_rows / noise * told * _usual_length(plan, encoding)


def _mean_part(encoding: Encoding, *, numbers: float, levels: float) -> float:
    """Return the mean over the encoded columns of a part for each column of numbers, or of levels."""
    columns = encoding.schema.encoded_columns
    return sum(levels if isinstance(column, NominalColumn) else numbers for column in columns) / len(columns)


def _usual_length(plan: Plan, encoding: Encoding) -> float:
    """Return the squared length of usual points in the ball that they are measured in."""
    if SPREAD in plan.frame_events or plan.normalise:
        return 1.0
    part = _mean_part(encoding, numbers=USUAL_PART, levels=1.0)
    kept = plan.dimension / encoding.feature_width if plan.projection == "ron" else 1.0
    return min(1.0, part * kept / float(plan.radius) ** 2)
