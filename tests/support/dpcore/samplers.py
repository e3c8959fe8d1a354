"""Fast second implementations of the noise: plain numpy, drawn in bulk for audits and two-sample tests.

They share no code with dpcore. `tests/statistical/dpcore/noise/test_noise.py` checks that they agree with the real
samplers.
"""

from __future__ import annotations

import itertools
import math
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpcore.noise.sources import SeededNoise

Floats = NDArray[np.float64]

NEVER = 1e-9
"""False-alarm probability of a test on unseeded noise; seeded ones use it too."""

SIGMAS = 6.1
"""Standard errors by which a seeded mean may be off, with probability 1e-9."""


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def seed_the_noise(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Let a module that draws noise of the system draw repeatable noise, by the next seed each time."""
    seeds = itertools.count(1)
    monkeypatch.setattr(module, "SystemNoise", lambda: SeededNoise(next(seeds)))


def wisharts(p: int, blocks: int, size: int, rng: np.random.Generator) -> Floats:
    """`size` times `blocks` matrices G Gᵀ with G of p x (p+1) standard normals."""
    factors = rng.standard_normal((size, blocks, p, p + 1))
    return np.einsum("nkij,nklj->nkil", factors, factors)


def wishart_difference(p: int, blocks: int, rate: float, size: int, rng: np.random.Generator) -> Floats:
    """Plain Wishart-difference noise, shape (size, blocks, p, p)."""
    return (wisharts(p, blocks, size, rng) - wisharts(p, blocks, size, rng)) / (2 * rate)


def wishart_trace(p: int, blocks: int, rate: float, size: int, rng: np.random.Generator) -> Floats:
    """Noise with the trace factor, by numpy's own gamma sampler."""
    plus, minus = wisharts(p, blocks, size, rng), wisharts(p, blocks, size, rng)
    n = blocks * p * (p + 1) / 2
    larger = rng.gamma(2 * n, 1 / (2 * rate), size)
    smaller = larger * rng.random(size) ** (1 / n)
    coin = rng.random(size) < 0.5
    a, b = np.where(coin, larger, smaller), np.where(coin, smaller, larger)
    scale = [t / np.einsum("nkii->n", w) for t, w in ((a, plus), (b, minus))]
    return plus * scale[0][:, None, None, None] - minus * scale[1][:, None, None, None]


def wishart_trace_by_rejection(p: int, blocks: int, rate: float, tries: int, rng: np.random.Generator) -> Floats:
    """The definition of the trace variant: plain noise, accepted with probability exp(-c |tr Z|) of the total trace."""
    plain = wishart_difference(p, blocks, rate, tries, rng)
    keep = rng.random(tries) < np.exp(-rate * np.abs(np.einsum("nkii->n", plain)))
    return plain[keep]


def laplace_triangles(p: int, scale: float, weight: float, size: int, rng: np.random.Generator) -> Floats:
    """Symmetric Laplace noise, scale b on the diagonal and b/w off it, shape (size, p, p)."""
    diagonal = np.eye(p, dtype=bool)
    draws = rng.laplace(size=(size, p, p)) * np.where(diagonal, scale, scale / weight)
    upper = np.triu(draws)
    return upper + np.triu(upper, 1).transpose(0, 2, 1)


def gaussian_triangles(p: int, scale: float, size: int, rng: np.random.Generator) -> Floats:
    """Symmetric Gaussian noise, sd s on the diagonal and s / sqrt 2 off it, shape (size, p, p)."""
    draws = np.triu(rng.standard_normal((size, p, p)) * np.where(np.eye(p, dtype=bool), scale, scale / np.sqrt(2)))
    return draws + np.triu(draws, 1).transpose(0, 2, 1)


def agrees(samples: Floats, expected: float) -> bool:
    """Whether a sample mean lies within `SIGMAS` standard errors of what is expected."""
    return bool(abs(samples.mean() - expected) <= SIGMAS * samples.std() / math.sqrt(len(samples)))


def has_scale(draws: Floats, law: str, scale: float) -> bool:
    """Whether Laplace or normal draws have this scale, by the exact two-sided tail of their sufficient statistic.

    Sums of |x| / b are Gamma(n), sums of (x / s)² / 2 are Gamma(n / 2). With 18,000 draws the right scale is rejected
    with probability `NEVER`, and a scale that is off by a tenth is accepted less often than that.
    """
    sizes, shape = (np.abs(draws / scale), 1.0) if law == "laplace" else ((draws / scale) ** 2 / 2, 0.5)
    total = stats.gamma(shape * len(draws))
    return bool(2 * min(total.cdf(sizes.sum()), total.sf(sizes.sum())) > NEVER)


def symmetric(triangles: list[list[int]], p: int, unit: float) -> Floats:
    """Upper triangles as matrices, in units of `unit`."""
    rows, columns = np.triu_indices(p)
    result = np.zeros((len(triangles), p, p))
    for block, triangle in zip(result, triangles, strict=True):
        block[rows, columns] = [cell / unit for cell in triangle]
        block[columns, rows] = block[rows, columns]
    return result
