"""Helpers that the unit and statistical tests of private PCA share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.measure import PrivateGram
from dpcore.mechanisms.base import UNIT, GramEvent
from dpcore.mechanisms.registry import basis_mechanism
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours

POWER, EXPONENTIAL = "noisy-power-method", "exponential-pca"
GRAMS = ("wishart-difference-trace", "wishart-difference", "laplace", "gaussian")
FAMILY = (*GRAMS, POWER, EXPONENTIAL)
REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE


def dice(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def table_of(moments: np.ndarray, layout: GramLayout) -> PrivateGram:
    """A table with these second moments of its points, on the integer grid."""
    total = GramSum(layout)
    total.blocks[0][layout.heads :, layout.heads :] = np.vectorize(round, otypes=[object])(moments * UNIT)
    return PrivateGram(total)


def budget_for(name: str, value: Fraction) -> Budget:
    return Rho(value) if name in (POWER, "gaussian") else Epsilon(value)


def event_of(
    name: str, layout: GramLayout, budget: Fraction, components: int, neighbours: Neighbours = REPLACE
) -> GramEvent:
    return basis_mechanism(name).calibrate(layout, neighbours, budget_for(name, budget), components=components)
