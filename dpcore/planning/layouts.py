"""Layouts of measurements from public constants: coordinates, blocks, and the weight of the count."""

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
"""Count weights if counts and sums are measured separately: in that measurement, and in the moments' measurement."""


def count_weight(size: int, labels: int = 1) -> Fraction:
    """Return the weight s of the count in (s, y) that balances the errors of means and second moments.

    s² = q solves 2 (size + 1) q² + k q = k, and s is rounded to 1/64. k is the square of the number
    of labels in a block, because a class has only 1/labels of the rows.
    """
    k = labels**2
    q = (math.sqrt(k**2 + 8 * k * (size + 1)) - k) / (4 * (size + 1))
    return Fraction(max(1, round(math.sqrt(q) * WEIGHT_GRID)), WEIGHT_GRID)


def unit_rows(request: PlanRequest) -> int:
    """Return the largest number of rows that one privacy unit contributes."""
    return request.unit.most_rows if request.unit.person and request.unit.row_rule is RowRule.AT_MOST else 1


def components_layout(request: PlanRequest, size: int) -> GramLayout:
    """Return the layout of the measurement for principal components: all classes in one block, with the count."""
    return GramLayout(size + 1, 1, count_weight(size), unit_rows(request))


def moments_layout(request: PlanRequest, size: int, blocks: int) -> GramLayout:
    """Return the layout of the moments' measurement."""
    rows_per_unit = unit_rows(request)
    if request.generator in (LDA, DIAGONAL) and blocks > 1:  # one block with a label per class
        weight = Fraction(1) if request.generator == DIAGONAL else count_weight(size, blocks)
        return GramLayout(size + blocks, 1, weight, rows_per_unit, labels=blocks)
    apart = MEAN in (request.allocation or {})
    return GramLayout(size + 1, blocks, NO_WEIGHT if apart else count_weight(size), rows_per_unit)


def projected_size(request: PlanRequest, encoding: Encoding, dimension: int) -> int:
    """Return the number of coordinates of a projected point; the target's coordinates are never projected."""
    return encoding.width if request.projection == "none" else dimension + encoding.target_width
