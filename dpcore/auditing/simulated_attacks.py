"""Attacks on the laws of the noise, simulated in bulk: as tight as the best event allows, at any dimension.

What an attacker sees along the two records of the worst pair has a law known in closed
form, so that millions of draws cost a second. Parameters are those that the real
mechanisms calibrated; that these draw the same laws is checked apart, by attacks
through the real door and by two-sample tests.

* Wishart difference: the contrast xᵀMx - yᵀMy of orthonormal x and y is a difference of two
  Gamma(P + 1, rate c); the presence xᵀMx one of two Gamma((P + 1) / 2, rate c). Their tails
  come close to the claim only far out (the loss is epsilon - O(P / threshold)), so the
  draws are tilted there and thinned by what the tilt distorts.
* Gaussian: the inner product with the change is normal; no other direction tells anything.
* Laplace: the entries are independent, so the bounds of single entries add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting import Budget, Cost, Epsilon, Rho, release_statement
from dpcore.auditing.lower_bounds import lower_bound_of_parts, sample_lower_bound, weighted_lower_bound
from dpcore.auditing.worst_pairs import steep_pair
from dpcore.mechanisms.base import UNIT, GramEvent
from dpcore.mechanisms.registry import cost_of, gram_mechanism
from dpcore.mechanisms.sensitivity import best_l1_weight
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

Floats = NDArray[np.float64]

SIMULATED = ("wishart-difference-trace", "wishart-difference", "gaussian", "laplace")
"""Mechanisms whose attacked law is known in closed form."""

DIMENSIONS = (2, 3, 4, 8)
"""Dimensions P of the attacked records (1, y)."""

SIMULATED_EPSILON, SIMULATED_RHO = Epsilon(Fraction(4)), Rho(Fraction(1, 2))
LAPLACE_EPSILON_PER_ENTRY = Fraction(1, 2)
"""Attacked budgets: where a sample of a given size reaches the largest share of the claim."""

DELTA = Fraction(1, 100)
"""The delta at which Gaussian noise is attacked."""

FAR_THRESHOLD = 10.0
"""Threshold of the tilted attacks, in means of the Gamma laws."""


def far_with_trace(draws: int) -> float:
    """The threshold where the trace factor thins the draws, the more the farther out: more draws may go farther."""
    return max(2.0, 4 * math.cbrt(draws / 400_000))


@dataclass(frozen=True, slots=True)
class Tail:
    """How often a record's trace in Wishart-difference noise lies beyond a threshold, in units of 1/c.

    The trace is a difference of two Gamma(`shape`) variables. With `rest` the noise has the
    trace factor: draws are also thinned by exp(-c |tr Z|), where `rest` is the shape of the
    diagonal outside the two records.
    """

    shape: float
    rest: float | None = None

    def draw(self, tilt: float, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Traces from the law tilted by exp(tilt trace), and tr Z beside each (0 without the trace factor)."""
        gained, lost = (rng.gamma(self.shape, 1 / rate, draws) for rate in (1 - tilt, 1 + tilt))
        return gained - lost, np.zeros(draws) if self.rest is None else self._whole_trace(gained, lost, rng)

    def _whole_trace(self, gained: Floats, lost: Floats, rng: np.random.Generator) -> Floats:
        """tr Z, given what x gains over y, xᵀAx + yᵀBy, and loses, xᵀBx + yᵀAy: A's share of either is a Beta."""
        sides = [total * (2 * rng.beta(self.shape / 2, self.shape / 2, len(total)) - 1) for total in (gained, lost)]
        outside = [rng.gamma(self.rest, size=len(gained)) if self.rest else np.zeros(len(gained)) for _ in range(2)]
        whole: Floats = sides[0] + sides[1] + outside[0] - outside[1]
        return whole

    def count_hits(self, threshold: float, tilt: float, draws: int, rng: np.random.Generator) -> int:
        """Draws beyond the threshold, kept with probability exp(-tilt (trace - threshold)): tilted back."""
        traces, whole = self.draw(tilt, draws, rng)
        beyond = traces > threshold
        thinning = tilt * (traces[beyond] - threshold) + np.abs(whole[beyond])
        return int(np.count_nonzero(rng.random(len(thinning)) < np.exp(-thinning)))

    def bound_epsilon(self, shift: float, *, draws: int, rng: np.random.Generator) -> float:
        """A bound below epsilon, where the two tables move the trace by `shift` (in units of 1/c)."""
        middle = self.shape * (FAR_THRESHOLD if self.rest is None else far_with_trace(draws))
        tilt = 1 - self.shape / middle
        near, far = middle - shift / 2, middle + shift / 2
        hits = [self.count_hits(threshold, tilt, draws, rng) for threshold in (near, far)]
        return weighted_lower_bound(hits=hits[0], hits_neighbour=hits[1], trials=draws, log_weights=tilt * (far - near))


def wishart_tail(dimension: int, neighbours: Neighbours, *, trace_factor: bool) -> Tail:
    """The law along the worst pair: orthogonal records, or one record and nothing."""
    p = dimension
    if neighbours is Neighbours.ADD_REMOVE:
        return Tail((p + 1) / 2)
    return Tail(p + 1, (p - 2) * (p + 1) / 2 if trace_factor else None)


def simulate(
    name: str, neighbours: Neighbours, dimension: int, *, draws: int, rng: np.random.Generator, noise: float = 1.0
) -> tuple[float, float, float]:
    """Claimed epsilon, its delta, and what the attack measures on the simulated law of a calibrated mechanism.

    `noise` multiplies the noise that is really drawn: below 1 the claim is false.
    """
    layout = GramLayout(dimension, 1, Fraction(1))
    event = gram_mechanism(name).calibrate(layout, neighbours, _attacked_budget(name, dimension))
    measure = {"gaussian": _attack_gaussian, "laplace": _attack_laplace}.get(name, _attack_wishart)
    return *claim_of(event), measure(event, draws, rng, noise)


def claim_of(event: GramEvent | VectorEvent) -> tuple[float, float]:
    """The epsilon and delta that an event promises, from its own cost."""
    return epsilon_and_delta(cost_of(event))


def epsilon_and_delta(cost: Cost) -> tuple[float, float]:
    """A cost as an epsilon, at `DELTA` where there is Gaussian noise."""
    statement = release_statement(cost, delta=DELTA if cost.rho else Fraction(0))
    return float(statement.epsilon), float(statement.delta)


def _attacked_budget(name: str, dimension: int) -> Budget:
    if name == "gaussian":
        return SIMULATED_RHO
    if name == "laplace":
        return Epsilon(LAPLACE_EPSILON_PER_ENTRY * dimension * (dimension + 1) / 2)
    return SIMULATED_EPSILON


def _records_apart(event: GramEvent) -> float:
    """How far the worst pair lies apart along the attacked direction, in squared records."""
    single = event.neighbours is Neighbours.ADD_REMOVE
    return float(event.layout.squared_norm) * (1 if single else 2)


def _attack_wishart(event: GramEvent, draws: int, rng: np.random.Generator, noise: float) -> float:
    trace_factor = event.mechanism == "wishart-difference-trace"
    tail = wishart_tail(event.layout.dimension, event.neighbours, trace_factor=trace_factor)
    return tail.bound_epsilon(float(event.noise) / noise * _records_apart(event), draws=draws, rng=rng)


def _attack_gaussian(event: GramEvent, draws: int, rng: np.random.Generator, noise: float) -> float:
    single = event.neighbours is Neighbours.ADD_REMOVE
    apart = float(event.layout.squared_norm) * (1 if single else math.sqrt(2))
    shift = apart * UNIT / float(event.noise) / noise
    return sample_lower_bound(shift + rng.standard_normal(draws), rng.standard_normal(draws), delta=float(DELTA))


def _attack_laplace(event: GramEvent, draws: int, rng: np.random.Generator, noise: float) -> float:
    """One event an entry: it lies beyond both tables' values."""
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
