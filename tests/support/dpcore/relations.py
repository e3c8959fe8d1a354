"""Helpers that the unit and statistical tests of neighbouring relations share."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.auditing.attack_table import ATTACKS
from dpcore.auditing.simulated_attacks import DELTA
from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.registry import cost_of, statement_under
from dpcore.noise.sources import SeededNoise
from dpcore.records.schema import Neighbours

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
OTHER = {ADD: REPLACE, REPLACE: ADD}


def trace(change: NDArray[np.object_]) -> float:
    return float(sum(int(block[i, i]) for block in change for i in range(len(block)))) / UNIT


SEVERAL_NUMBERS = ("eigenvalues-only", "jiang-laplace")
"""Mechanisms whose costs differ between the relations only with two eigenvalues or two classes."""


def crossed(name: str, own: Neighbours, *, draws: int) -> tuple[float, float]:
    """The cost under the other relation, and the measured loss of an attack on a pair of that relation."""
    other = OTHER[own]
    tables = ATTACKS["wishart-difference" if name.endswith("trace") else name](other, name in SEVERAL_NUMBERS).tables
    attack = replace(ATTACKS[name](own, name in SEVERAL_NUMBERS), tables=tables)
    noise = SeededNoise(8)
    first, second = (attack.draw(table, draws, noise) for table in attack.tables)
    claimed = statement_under([attack.event], other, delta=DELTA if cost_of(attack.event).rho else Fraction(0))
    assert claimed is not None
    return float(claimed.epsilon), attack.judge(attack, first, second)
