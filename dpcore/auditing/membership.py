"""Membership inference on released rows: how often an attacker finds out who was in the table.

As in RON-Gauss, section 6.2, after Shokri et al.: an attack model is trained on shadow releases
of known membership and then guesses about fresh releases. The accuracy is a figure to report and
no proof: an attack may be weak, but against an epsilon-private mechanism no attack exceeds
e^epsilon / (1 + e^epsilon).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from dpcore.noise.sources import public_generator
from dpcore.records.schema import Floats

Release = Callable[[Floats], Floats]
"""A whole release: a function from rows to synthetic rows."""

SHADOWS = 10
"""Number of shadow releases, as in the paper."""

CONFIDENCE = 0.999
RIDGE = 1e-3
NEWTON_STEPS = 25
"""Newton steps for the attack model, which has six weights."""


@dataclass(frozen=True, slots=True)
class MembershipFigure:
    """How often the attacker was right, with one guess per release; random guessing is right half of the time."""

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
        """Clopper-Pearson interval of the accuracy; guesses about separate releases are independent."""
        found = stats.binomtest(self.correct, self.guesses).proportion_ci(CONFIDENCE, "exact")
        return float(found.low), float(found.high)

    @property
    def ceiling(self) -> float:
        """Largest accuracy of any attacker if half of the candidates are members: (e^eps + delta) / (1 + e^eps)."""
        return (1 + self.delta * math.exp(-self.epsilon)) / (1 + math.exp(-self.epsilon))

    @property
    def holds(self) -> bool:
        """Whether the interval of the accuracy reaches below the ceiling."""
        return self.interval[0] <= self.ceiling

    def as_json(self) -> dict[str, Any]:
        """Return the figure as JSON for command line and report."""
        return {
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "confidence": CONFIDENCE,
            "guesses": self.guesses,
            "epsilon": self.epsilon,
            "ceiling": self.ceiling,
            "holds": self.holds,
        }


def infer_membership(
    release: Release, population: Floats, *, rows: int, guesses: int, epsilon: float, delta: float = 0.0, seed: str
) -> MembershipFigure:
    """Attack `release` with tables of `rows` records drawn from a public population.

    Neighbours: replace-one; a table has the same size with and without the candidate.
    Raises: ValueError unless `rows` is at least 2 and less than the population.
    """
    if not 2 <= rows < len(population):
        raise ValueError(f"rows must lie between 2 and the population's {len(population)} less one, got {rows}")
    rng = public_generator(seed, "membership")
    model = _train(release, population, rows, rng)
    correct = sum(_guess(model, release, population, rows, rng) for _ in range(guesses))
    return MembershipFigure(correct, guesses, epsilon, delta)


def _train(release: Release, population: Floats, rows: int, rng: np.random.Generator) -> Floats:
    """Train the attack model on shadow releases, with members and non-members of each as candidates."""
    features, members = [], []
    for _ in range(SHADOWS):
        chosen = rng.permutation(len(population))
        inside, outside = chosen[:rows], chosen[rows : 2 * rows]
        candidates = population[np.concatenate([inside, outside])]
        features.append(attack_features(candidates, release(population[inside])))
        members.append(np.repeat([1.0, 0.0], [len(inside), len(outside)]))
    return fit_logistic(np.vstack(features), np.concatenate(members))


def _guess(model: Floats, release: Release, population: Floats, rows: int, rng: np.random.Generator) -> bool:
    """Release once more, guess about one candidate, and return whether the guess is right."""
    chosen, member = rng.permutation(len(population)), bool(rng.integers(2))
    candidate = population[chosen[0 if member else rows]]
    score = _with_intercept(attack_features(candidate[None, :], release(population[chosen[:rows]]))) @ model
    return bool(score[0] > 0) is member


def attack_features(candidates: Floats, synthetic: Floats) -> Floats:
    """Return the attack model's features of candidates: distances to the synthetic mean and to the nearest rows."""
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
    """Return the weights of a ridge logistic regression, fitted by Newton's method."""
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
    """Return a public population of clustered rows in [-1, 1], for attacks that need no real rows."""
    rng = public_generator(seed, "population")
    centres = rng.uniform(-0.6, 0.6, (4, features))
    return np.clip(centres[rng.integers(4, size=size)] + 0.3 * rng.standard_normal((size, features)), -1.0, 1.0)
