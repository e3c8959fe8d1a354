"""Shapes of measurements, from public constants: coordinates, blocks, and the weight of the count."""

from __future__ import annotations

import math
from fractions import Fraction

from dpcore.mechanisms.names import MEAN
from dpcore.planning.request import DIAGONAL, LDA, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GRID_BITS, GramLayout
from dpcore.records.schema import RowRule

WEIGHT_GRID = 64
"""The count's weight is rounded to multiples of 1/64."""

SUMS_WEIGHT, NO_WEIGHT = Fraction(1, 4), Fraction(1, 1 << GRID_BITS)
"""Weights of the count where counts and sums are measured apart: in that measurement, and in the moments'."""


def count_weight(size: int, labels: int = 1) -> Fraction:
    """The weight s of the count in (s, y) that balances the errors of means and second moment.

    s² = q solves 2 (size + 1) q² + k q = k; rounded to 1/64. k is the square of the
    number of labels in one block: a class's mean has that many times fewer rows.
    """
    k = labels**2
    q = (math.sqrt(k**2 + 8 * k * (size + 1)) - k) / (4 * (size + 1))
    return Fraction(max(1, round(math.sqrt(q) * WEIGHT_GRID)), WEIGHT_GRID)


def unit_rows(request: PlanRequest) -> int:
    """The most rows that count of one privacy unit."""
    return request.unit.most_rows if request.unit.person and request.unit.row_rule is RowRule.AT_MOST else 1


def components_layout(request: PlanRequest, size: int) -> GramLayout:
    """The shape of a measurement for components: all classes together, with the mean."""
    return GramLayout(size + 1, 1, count_weight(size), unit_rows(request))


def moments_layout(request: PlanRequest, size: int, blocks: int) -> GramLayout:
    """The shape of the moments' measurement."""
    rows_per_unit = unit_rows(request)
    if request.generator in (LDA, DIAGONAL) and blocks > 1:  # classes are labels in one block, whose points they share
        weight = Fraction(1) if request.generator == DIAGONAL else count_weight(size, blocks)
        return GramLayout(size + blocks, 1, weight, rows_per_unit, labels=blocks)
    apart = MEAN in (request.allocation or {})
    return GramLayout(size + 1, blocks, NO_WEIGHT if apart else count_weight(size), rows_per_unit)


def projected_size(request: PlanRequest, encoding: Encoding, dimension: int) -> int:
    """Coordinates of a projected point: the target's are kept beside the features'."""
    return encoding.width if request.projection == "none" else dimension + encoding.target_width
