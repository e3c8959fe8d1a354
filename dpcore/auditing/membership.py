"""Membership inference on released rows: how often an attacker tells who was in the table.

As in RON-Gauss, section 6.2, after Shokri et al.: shadow releases of known membership
train an attack model, which then guesses about fresh releases. A figure to report, not a
proof: a strong guarantee may be attacked badly, but no attack beats the ceiling
e^epsilon / (1 + e^epsilon) of a mechanism that keeps its promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpcore.noise.sources import public_generator

Floats = NDArray[np.float64]
Release = Callable[[Floats], Floats]
"""Rows to synthetic rows: one whole release."""

SHADOWS = 10
"""Shadow releases, as many as in the paper."""

CONFIDENCE = 0.999
RIDGE = 1e-3
NEWTON_STEPS = 25
"""Newton steps of the attack model; it has five weights."""


@dataclass(frozen=True, slots=True)
class MembershipFigure:
    """How often the attacker was right, one guess a release; random guessing is right half of the time."""

    correct: int
    guesses: int
    epsilon: float
    delta: float

    @property
    def accuracy(self) -> float:
        """Share of correct guesses."""
        return self.correct / self.guesses

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson interval of the accuracy; guesses about different releases are independent."""
        found = stats.binomtest(self.correct, self.guesses).proportion_ci(CONFIDENCE, "exact")
        return float(found.low), float(found.high)

    @property
    def ceiling(self) -> float:
        """What no attacker exceeds, of members and others in equal number: (e^epsilon + delta) / (1 + e^epsilon)."""
        return (1 + self.delta * math.exp(-self.epsilon)) / (1 + math.exp(-self.epsilon))

    @property
    def holds(self) -> bool:
        """Whether the accuracy may lie under the ceiling."""
        return self.interval[0] <= self.ceiling

    def as_json(self) -> dict[str, Any]:
        """The figure for command line and report."""
        return {
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "confidence": CONFIDENCE,
            "guesses": self.guesses,
            "epsilon": self.epsilon,
            "ceiling": self.ceiling,
            "holds": self.holds,
        }


def membership_inference(
    release: Release, population: Floats, *, rows: int, guesses: int, epsilon: float, delta: float = 0.0, seed: str
) -> MembershipFigure:
    """Attack `release` with tables of `rows` records drawn from a public population.

    Neighbours: replace-one; tables have the same size whether the candidate is in or not.
    Raises: ValueError for a population that leaves nobody out.
    """
    if not 2 <= rows < len(population):
        raise ValueError(f"rows must lie between 2 and the population's {len(population)} less one, got {rows}")
    rng = public_generator(seed, "membership")
    model = _train(release, population, rows, rng)
    correct = sum(_guess(model, release, population, rows, rng) for _ in range(guesses))
    return MembershipFigure(correct, guesses, epsilon, delta)


def _train(release: Release, population: Floats, rows: int, rng: np.random.Generator) -> Floats:
    """An attack model from shadow releases: everyone of the population, in or out."""
    features, members = [], []
    for _ in range(SHADOWS):
        chosen = rng.permutation(len(population))
        inside, outside = chosen[:rows], chosen[rows : 2 * rows]
        candidates = population[np.concatenate([inside, outside])]
        features.append(attack_features(candidates, release(population[inside])))
        members.append(np.repeat([1.0, 0.0], [len(inside), len(outside)]))
    return fit_logistic(np.vstack(features), np.concatenate(members))


def _guess(model: Floats, release: Release, population: Floats, rows: int, rng: np.random.Generator) -> bool:
    """Whether the attacker is right about one candidate of one fresh release."""
    chosen, member = rng.permutation(len(population)), bool(rng.integers(2))
    candidate = population[chosen[0 if member else rows]]
    score = _with_intercept(attack_features(candidate[None, :], release(population[chosen[:rows]]))) @ model
    return bool(score[0] > 0) is member


def attack_features(candidates: Floats, synthetic: Floats) -> Floats:
    """What synthetic rows tell about candidates: distances to their mean and to the nearest, and likelihoods."""
    centred, mean = synthetic - synthetic.mean(axis=0), synthetic.mean(axis=0)
    covariance = centred.T @ centred / len(synthetic) + 1e-6 * np.eye(synthetic.shape[1])
    apart = candidates - mean
    mahalanobis = np.einsum("ij,ij->i", apart @ np.linalg.inv(covariance), apart)
    squared = ((candidates[:, None, :] - synthetic[None, :, :]) ** 2).sum(axis=2)
    nearest = np.sqrt(np.sort(squared, axis=1)[:, : min(5, len(synthetic))])
    return np.column_stack(
        [
            np.sqrt(mahalanobis),
            np.log1p(mahalanobis),
            np.linalg.norm(apart, axis=1),
            nearest[:, 0],
            nearest.mean(axis=1),
        ]
    )


def fit_logistic(features: Floats, members: Floats) -> Floats:
    """Weights of a logistic regression with a small ridge, by Newton's method."""
    design = _with_intercept(features)
    scale = np.maximum(design.std(axis=0), 1e-9)
    scale[0] = 1.0
    scaled, weights = design / scale, np.zeros(design.shape[1])
    for _ in range(NEWTON_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(scaled @ weights, -30, 30)))
        slope = scaled.T @ (members - chances) / len(members) - RIDGE * weights
        curve = (scaled.T * (chances * (1 - chances))) @ scaled / len(members) + RIDGE * np.eye(len(weights))
        weights = weights + np.linalg.solve(curve, slope)
    result: Floats = weights / scale
    return result


def _with_intercept(features: Floats) -> Floats:
    return np.column_stack([np.ones(len(features)), features])


def public_population(size: int, features: int, seed: str) -> Floats:
    """A public population of rows in [-1, 1], clustered a little, for attacks that need no real rows."""
    rng = public_generator(seed, "population")
    centres = rng.uniform(-0.6, 0.6, (4, features))
    return np.clip(centres[rng.integers(4, size=size)] + 0.3 * rng.standard_normal((size, features)), -1.0, 1.0)
