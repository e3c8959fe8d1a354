"""Membership inference on released rows: how often an attacker finds out who was in the table.

As in RON-Gauss, section 6.2, after Shokri et al.: an attack model is trained on shadow releases
of known membership and then guesses about fresh releases. The attack model is a logistic regression, or
a neural network as in the paper. The accuracy is a figure to report and
no proof: an attack may be weak, but against an epsilon-private mechanism no attack exceeds
e^epsilon / (1 + e^epsilon).
"""

from __future__ import annotations

import math
import warnings
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

LEARNING_RATE, EPOCHS, HIDDEN = 0.01, 50, 50
"""The neural attack model: learning rate and epochs are the paper's, the units of its one hidden layer are ours."""

Scorer = Callable[[Floats], Floats]
"""A trained attack model: from features of candidates to scores, positive for those that it takes for members."""


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
    def advantage(self) -> float:
        """Members found less non-members accused, as shares: twice what the paper calls privacy leakage."""
        return 2 * self.accuracy - 1

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
    release: Release,
    population: Floats,
    *,
    rows: int,
    guesses: int,
    epsilon: float,
    delta: float = 0.0,
    seed: str,
    attacker: str = "logistic",
) -> MembershipFigure:
    """Attack `release` with tables of `rows` records drawn from a public population.

    `attacker` is the attack model, "logistic" or "neural".
    Neighbours: replace-one; a table has the same size with and without the candidate.
    Raises: ValueError unless `rows` is at least 2 and less than the population, and for an unknown attacker.

        >>> public = public_population(60, 2, "7")
        >>> infer_membership(lambda rows: rows, public, rows=20, guesses=40, epsilon=1.0, seed="1").holds
        False
    """
    if attacker not in ATTACKERS:
        raise ValueError(f"attacker must be {' or '.join(ATTACKERS)}, got {attacker!r}")
    if not 2 <= rows < len(population):
        raise ValueError(f"rows must lie between 2 and the population's {len(population)} less one, got {rows}")
    rng = public_generator(seed, "membership")
    model = ATTACKERS[attacker](*_shadow_candidates(release, population, rows, rng), rng)
    correct = sum(_guess(model, release, population, rows, rng) for _ in range(guesses))
    return MembershipFigure(correct, guesses, epsilon, delta)


def _shadow_candidates(
    release: Release, population: Floats, rows: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return features of members and non-members of shadow releases, and who of them are members."""
    features, members = [], []
    for _ in range(SHADOWS):
        chosen = rng.permutation(len(population))
        inside, outside = chosen[:rows], chosen[rows : 2 * rows]
        candidates = population[np.concatenate([inside, outside])]
        features.append(attack_features(candidates, release(population[inside])))
        members.append(np.repeat([1.0, 0.0], [len(inside), len(outside)]))
    return np.vstack(features), np.concatenate(members)


def _guess(model: Scorer, release: Release, population: Floats, rows: int, rng: np.random.Generator) -> bool:
    """Release once more, guess about one candidate, and return whether the guess is right."""
    chosen, member = rng.permutation(len(population)), bool(rng.integers(2))
    candidate = population[chosen[0 if member else rows]]
    score = model(attack_features(candidate[None, :], release(population[chosen[:rows]])))
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


def _train_logistic(features: Floats, members: Floats, rng: np.random.Generator) -> Scorer:
    """Return the logistic attack model; it draws nothing."""
    weights = fit_logistic(features, members)
    return lambda candidates: _with_intercept(candidates) @ weights


def _train_neural(features: Floats, members: Floats, rng: np.random.Generator) -> Scorer:
    """Return the neural attack model: one hidden layer, trained on standardised features."""
    from sklearn.neural_network import MLPClassifier

    mean, scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
    model = MLPClassifier(
        (HIDDEN,), learning_rate_init=LEARNING_RATE, max_iter=EPOCHS, random_state=int(rng.integers(1 << 31))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the number of epochs is fixed, whether or not the fit has converged
        model.fit((features - mean) / scale, members)

    def score(candidates: Floats) -> Floats:
        chances: Floats = model.predict_proba((candidates - mean) / scale)[:, 1] - 0.5
        return chances

    return score


ATTACKERS: dict[str, Callable[[Floats, Floats, np.random.Generator], Scorer]] = {
    "logistic": _train_logistic,
    "neural": _train_neural,
}
"""The attack models, by name: each is trained on features and membership, with a stream of a public seed."""


def _with_intercept(features: Floats) -> Floats:
    return np.column_stack([np.ones(len(features)), features])


def public_population(size: int, features: int, seed: str) -> Floats:
    """Return a public population of clustered rows in [-1, 1], for attacks that need no real rows."""
    rng = public_generator(seed, "population")
    centres = rng.uniform(-0.6, 0.6, (4, features))
    return np.clip(centres[rng.integers(4, size=size)] + 0.3 * rng.standard_normal((size, features)), -1.0, 1.0)
