"""Attacks on simulated noise: as tight as the best event allows, at any dimension.

The noise along the two records of the worst pair has a law in closed form, so millions of draws
take a second. The parameters are those of the calibrated mechanisms; attacks on real draws and
two-sample tests check that the mechanisms draw from the same laws.

* Wishart difference: the contrast xᵀMx - yᵀMy of orthonormal x and y is a difference of two
  Gamma(P + 1, rate c) variables, and xᵀMx one of two Gamma((P + 1) / 2, rate c) variables. The
  loss is epsilon - O(P / threshold), so the attack needs rare events: it draws from an
  exponentially tilted law and undoes the tilt by rejection.
* Gaussian: the inner product with the change is normal, and it is a sufficient statistic.
* Laplace: the entries are independent, so the bounds of single entries add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.accounting import Budget, Cost, Epsilon, Rho, release_statement
from dpcore.auditing.lower_bounds import lower_bound_of_parts, sample_lower_bound, weighted_lower_bound
from dpcore.auditing.worst_pairs import steep_pair
from dpcore.mechanisms.base import UNIT, GramEvent
from dpcore.mechanisms.registry import cost_of, gram_mechanism
from dpcore.mechanisms.sensitivity import best_l1_weight
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Floats, Neighbours

SIMULATED = ("wishart-difference-trace", "wishart-difference", "gaussian", "laplace")
"""Mechanisms whose noise along the worst pair has a law in closed form."""

DIMENSIONS = (2, 3, 4, 8)
"""Dimensions P of the attacked records (1, y)."""

SIMULATED_EPSILON, SIMULATED_RHO = Epsilon(Fraction(4)), Rho(Fraction(1, 2))
LAPLACE_EPSILON_PER_ENTRY = Fraction(1, 2)
"""Budgets at which a sample of a given size reaches the largest share of the claim."""

DELTA = Fraction(1, 100)
"""The delta at which Gaussian noise is attacked."""

FAR_THRESHOLD = 10.0
"""Threshold of the tilted attacks, in units of the mean of the Gamma laws."""


def far_with_trace(draws: int) -> float:
    """Return the threshold of attacks on the trace factor, which rejects more draws at larger thresholds."""
    return max(2.0, 4 * math.cbrt(draws / 400_000))


@dataclass(frozen=True, slots=True)
class Tail:
    """The tail of Wishart-difference noise Z along the worst pair, in units of 1/c.

    The contrast of the two records, here called the trace, is a difference of two Gamma(`shape`)
    variables. With `rest`, the noise has the trace factor: draws are also accepted with probability
    exp(-c |tr Z|), where `rest` is the shape of the diagonal outside the two records.
    """

    shape: float
    rest: float | None = None

    def draw(self, tilt: float, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw traces from the law tilted by exp(tilt trace), and tr Z for each (0 without the trace factor)."""
        gained, lost = (rng.gamma(self.shape, 1 / rate, draws) for rate in (1 - tilt, 1 + tilt))
        return gained - lost, np.zeros(draws) if self.rest is None else self._whole_trace(gained, lost, rng)

    def _whole_trace(self, gained: Floats, lost: Floats, rng: np.random.Generator) -> Floats:
        """Draw tr Z of Z = A - B given xᵀAx + yᵀBy (gained) and xᵀBx + yᵀAy (lost); A's share of each is a Beta."""
        sides = [total * (2 * rng.beta(self.shape / 2, self.shape / 2, len(total)) - 1) for total in (gained, lost)]
        outside = [rng.gamma(self.rest, size=len(gained)) if self.rest else np.zeros(len(gained)) for _ in range(2)]
        return sides[0] + sides[1] + outside[0] - outside[1]

    def count_hits(self, threshold: float, tilt: float, draws: int, rng: np.random.Generator) -> int:
        """Count draws beyond the threshold; each is accepted with probability exp(-tilt (trace - threshold))."""
        traces, whole = self.draw(tilt, draws, rng)
        beyond = traces > threshold
        thinning = tilt * (traces[beyond] - threshold) + np.abs(whole[beyond])
        return int(np.count_nonzero(rng.random(len(thinning)) < np.exp(-thinning)))

    def certify_epsilon(self, shift: float, *, draws: int, rng: np.random.Generator) -> float:
        """Attack two tables that differ by `shift` in the trace, in units of 1/c; return a lower bound on epsilon."""
        middle = self.shape * (FAR_THRESHOLD if self.rest is None else far_with_trace(draws))
        tilt = 1 - self.shape / middle
        near, far = middle - shift / 2, middle + shift / 2
        hits = [self.count_hits(threshold, tilt, draws, rng) for threshold in (near, far)]
        return weighted_lower_bound(hits=hits[0], hits_neighbour=hits[1], trials=draws, log_weights=tilt * (far - near))


def wishart_tail(dimension: int, neighbours: Neighbours, *, trace_factor: bool) -> Tail:
    """Return the tail along the worst pair: two orthogonal records, or one record and none."""
    p = dimension
    if neighbours is Neighbours.ADD_REMOVE:
        return Tail((p + 1) / 2)
    return Tail(p + 1, (p - 2) * (p + 1) / 2 if trace_factor else None)


def simulate(
    name: str, neighbours: Neighbours, dimension: int, *, draws: int, rng: np.random.Generator, noise: float = 1.0
) -> tuple[float, float, float]:
    """Attack the simulated noise of a calibrated mechanism; return claimed epsilon, delta and the lower bound.

    `noise` multiplies the noise that is drawn; below 1 the claim is false.
    """
    layout = GramLayout(dimension, 1, Fraction(1))
    event = gram_mechanism(name).calibrate(layout, neighbours, _attacked_budget(name, dimension))
    measure = {"gaussian": _attack_gaussian, "laplace": _attack_laplace}.get(name, _attack_wishart)
    return *claim_of(event), measure(event, draws, rng, noise)


def claim_of(event: GramEvent | VectorEvent) -> tuple[float, float]:
    """Return the epsilon and delta that an event claims by its cost."""
    return epsilon_and_delta(cost_of(event))


def epsilon_and_delta(cost: Cost) -> tuple[float, float]:
    """Return the epsilon and delta of a cost, at `DELTA` if it includes Gaussian noise and at 0 otherwise."""
    statement = release_statement(cost, delta=DELTA if cost.rho else Fraction(0))
    return float(statement.epsilon), float(statement.delta)


def _attacked_budget(name: str, dimension: int) -> Budget:
    if name == "gaussian":
        return SIMULATED_RHO
    if name == "laplace":
        return Epsilon(LAPLACE_EPSILON_PER_ENTRY * dimension * (dimension + 1) / 2)
    return SIMULATED_EPSILON


def _attack_wishart(event: GramEvent, draws: int, rng: np.random.Generator, noise: float) -> float:
    trace_factor = event.mechanism == "wishart-difference-trace"
    tail = wishart_tail(event.layout.dimension, event.neighbours, trace_factor=trace_factor)
    apart = float(event.layout.squared_norm) * (1 if event.neighbours is Neighbours.ADD_REMOVE else 2)
    return tail.certify_epsilon(float(event.noise) / noise * apart, draws=draws, rng=rng)


def _attack_gaussian(event: GramEvent, draws: int, rng: np.random.Generator, noise: float) -> float:
    single = event.neighbours is Neighbours.ADD_REMOVE
    apart = float(event.layout.squared_norm) * (1 if single else math.sqrt(2))
    shift = apart * UNIT / float(event.noise) / noise
    return sample_lower_bound(shift + rng.standard_normal(draws), rng.standard_normal(draws), delta=float(DELTA))


def _attack_laplace(event: GramEvent, draws: int, rng: np.random.Generator, noise: float) -> float:
    """Add up the bounds of all entries; the event of an entry is that it lies at or beyond both tables' values."""
    p, weight = event.layout.dimension, float(best_l1_weight(event.neighbours))
    x, y = steep_pair(p, weight)
    single = event.neighbours is Neighbours.ADD_REMOVE
    change = np.ones((p, p)) / p if single else np.outer(x, x) - np.outer(y, y)
    scale = float(event.noise) / UNIT * noise
    counts = []
    for i, j in zip(*np.triu_indices(p), strict=True):
        shift = abs(change[i, j]) * float(event.layout.squared_norm) * (1.0 if i == j else weight) / scale
        counts.append(tuple(int(np.count_nonzero(rng.laplace(size=draws) >= x)) for x in (0.0, shift)))
    return lower_bound_of_parts([(a, b) for a, b in counts], trials=draws)
