"""The best known attack on each Gram mechanism: a worst pair of tables, a statistic, a bound.

Both tables are Gram matrices on the integer grid, measured by the real mechanism through
the real door. What the attack finds is a lower bound on epsilon; what is claimed must
not lie below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting import Budget, Epsilon, Rho, epsilon_of_rho
from dpcore.auditing import audit
from dpcore.exactgram import GramSum, Layout
from dpcore.measure import PrivateGram, measure_gram
from dpcore.mechanisms.base import UNIT, GramEvent
from dpcore.noise import Noise
from dpcore.registry import ENTRIES, Entry, gram_mechanism
from dpcore.schema import Neighbours
from dpcore.sensitivity import best_l1_weight

Floats = NDArray[np.float64]

LAYOUT = Layout(2, 1, Fraction(1))
"""Records (1, y) with |y| at most 1: squared norm 2."""

PURE, CONCENTRATED = Epsilon(Fraction(2)), Rho(Fraction(1, 2))
"""Budgets of the attacked mechanisms; large enough for the attacks to reach most of the claim."""

DELTA = 0.01
ERROR = 1e-6
"""Probability with which an honest mechanism may look guilty."""

PLUS, MINUS = np.array([1.0, 1.0]), np.array([1.0, -1.0])
"""Orthogonal records of full length."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an attack found: at least `measured` of the `claimed` epsilon is really lost."""

    mechanism: str
    neighbours: str
    claimed: float
    delta: float
    measured: float
    draws: int

    @property
    def holds(self) -> bool:
        """Whether the claim survived."""
        return self.measured <= self.claimed

    def as_json(self) -> dict[str, Any]:
        """The finding for record, ledger and command line."""
        return {
            "mechanism": self.mechanism,
            "neighbours": self.neighbours,
            "claimed": self.claimed,
            "delta": self.delta,
            "measured": self.measured,
            "draws": self.draws,
            "error": ERROR,
            "holds": self.holds,
        }


def targets() -> list[tuple[Entry, Neighbours]]:
    """Every releasable Gram mechanism under every neighbour relation it is proved for."""
    return [(entry, relation) for entry in ENTRIES if entry.mechanism for relation in entry.neighbours]


def attack(name: str, neighbours: Neighbours, *, draws: int, noise: Noise) -> Finding:
    """Draw from the mechanism on both tables and bound its epsilon from below.

    Guarantee: an honest mechanism's finding exceeds its claim with probability at most `ERROR`.
    """
    mechanism = gram_mechanism(name)
    budget: Budget = CONCENTRATED if name == "gaussian" else PURE
    event = mechanism.calibrate(LAYOUT, neighbours, budget)
    claimed, delta = _claim(mechanism.cost(event))
    tables = _worst_pair(name, neighbours)
    samples = [_statistic(_released(table, event, draws, noise), event, tables) for table in tables]
    measured = audit(*samples, delta=delta, error=ERROR)
    return Finding(name, neighbours.value, claimed, delta, measured, draws)


def _claim(cost: Budget) -> tuple[float, float]:
    if isinstance(cost, Epsilon):
        return float(cost.value), 0.0
    return epsilon_of_rho(float(cost.value), delta=DELTA), DELTA


def _worst_pair(name: str, neighbours: Neighbours) -> tuple[Floats, Floats]:
    """Second moments of the tables: a record there or not, or one of two that differ most."""
    if neighbours is Neighbours.ADD_REMOVE:
        return np.outer(PLUS, PLUS), np.zeros((2, 2))
    if name != "laplace":
        return np.outer(PLUS, PLUS), np.outer(MINUS, MINUS)
    half = math.atan(float(best_l1_weight(neighbours)) / 2) / 2  # attains the weighted L1 bound in the plane
    x, y = np.array([math.cos(half), math.sin(half)]), np.array([-math.sin(half), math.cos(half)])
    return 2 * np.outer(x, x), 2 * np.outer(y, y)


def _released(table: Floats, event: GramEvent, draws: int, noise: Noise) -> Floats:
    """What the door releases of a table, many times over."""
    total = GramSum(event.layout)
    total.blocks[0] = np.rint(table * UNIT).astype(np.int64).astype(object)
    gram = PrivateGram(total)
    return np.array([measure_gram(gram, event, noise).matrices()[0] for _ in range(draws)])


def _statistic(matrices: Floats, event: GramEvent, tables: tuple[Floats, Floats]) -> Floats:
    """What the attacker looks at: the likelihood ratio for Laplace noise, else how much lies along the change."""
    one, two = tables
    if event.mechanism != "laplace":
        along: Floats = np.einsum("nij,ij->n", matrices, one - two)
        return along
    scale = float(event.noise) / UNIT
    scales = np.array([[scale, scale / float(best_l1_weight(event.neighbours))], [math.inf, scale]])
    ratio: Floats = ((np.abs(matrices - two) - np.abs(matrices - one)) / scales).sum(axis=(1, 2))
    return np.round(ratio, 9)  # sums of floats have last bits that say nothing about the mechanism
