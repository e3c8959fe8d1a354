"""Fixtures shared by the unit and the statistical tests of drift."""

from __future__ import annotations

import math

import numpy as np

from dpcore.series.drift import Change, Quantity, compare_quantities

REPEATS = 20_000


def dice(seed: int = 5) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def noises(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Noise of variance 1: the laws that releases use."""
    if kind == "laplace":
        return rng.laplace(0, 1 / math.sqrt(2), shape)
    if kind == "wishart diagonal":  # a difference of two chi-squares with three degrees of freedom
        return (rng.chisquare(3, shape) - rng.chisquare(3, shape)) / math.sqrt(12)
    if kind == "wishart off the diagonal":  # products of normals, two for each matrix
        return sum(rng.normal(size=shape) * rng.normal(size=shape) * sign for sign in (1, 1, -1, -1)) / 2
    return rng.normal(size=shape)


KINDS = ["laplace", "gaussian", "wishart diagonal", "wishart off the diagonal"]


# ---------------------------------------------------------------- false alarms


def months(
    kind: str, quantities: int, rng: np.random.Generator, *, drift: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs of months whose quantities differ by noise; the first quantity also drifts."""
    shape = (REPEATS // quantities, quantities)
    before, after = noises(kind, shape, rng), noises(kind, shape, rng)
    after[:, 0] += drift
    return before, after


def alarms(before: np.ndarray, after: np.ndarray, *, chance: float = 0.0) -> list[dict[int, Change]]:
    def month(values: np.ndarray) -> dict[int, Quantity]:
        return {i: Quantity(float(v), 1.0, chance) for i, v in enumerate(values)}

    return [compare_quantities(month(one), month(other)) for one, other in zip(before, after, strict=True)]
