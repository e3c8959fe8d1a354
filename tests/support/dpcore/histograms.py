"""Fixtures shared by the unit and the statistical tests of histograms."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.mechanisms.vectors import HISTOGRAM_GAUSSIAN, HISTOGRAM_LAPLACE
from dpcore.records.schema import Neighbours

R1, AR = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
ONE = Fraction(1)
MECHANISMS: list[tuple[Any, Budget]] = [
    (HISTOGRAM_GAUSSIAN, Rho(Fraction(1, 2))),
    (HISTOGRAM_LAPLACE, Epsilon(Fraction(2))),
]
