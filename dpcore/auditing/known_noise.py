"""The privacy loss of a pair of tables, if the shape of the noise is known and its scale is estimated.

A bound that assumes nothing about the noise (`dpcore.auditing.lower_bounds`) needs some hundred thousand
draws to detect an error of 10 %. If the shape of the noise is known, a thousand draws are enough: they
give its scale, and the privacy loss at that scale follows from the difference D of the tables:

* independent Laplace noise of scales b: the sum of |D| / b;
* independent normal noise of standard deviations s: rho, half the sum of (D / s)²;
* Wishart differences and nuclear K-norm noise of rate c: c times the nuclear norm of D over all
  blocks, plus c |tr D| if the law has the trace factor.

None of these uses a declared sensitivity, so a sensitivity that is too small for the pair is detected too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.measure import Released
from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.registry import Event, cost_of, gram_mechanism, mechanism_of, vector_mechanism
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.records.exact_sums import upper_triangle
from dpcore.records.schema import Floats, Neighbours

SIZE_TOLERANCE = 6.0
"""Standard errors by which the mean square of the noise may fall short of the planned variance.

A normal mean falls short of it with probability 10^-9. Means of squares are skewed: for the sample sizes
used here the probability stays below 10^-7 (first term of Edgeworth's expansion), within the error of an attack.
"""

WITH_RATE = ("wishart-difference-trace", "wishart-difference", "nuclear-k-norm")
"""Mechanisms whose noise is a matrix of dependent entries with a rate instead of a scale."""


@dataclass(frozen=True, slots=True)
class NoiseSize:
    """Mean square of the drawn noise relative to the planned variance, which is 1."""

    share: float
    error: float
    entries: int

    @staticmethod
    def of(noise: Floats) -> NoiseSize:
        """Return the size of independent draws, one per row, in units of their planned standard deviations."""
        squares = (noise**2).mean(axis=1)
        return NoiseSize(float(squares.mean()), float(squares.std() / math.sqrt(len(noise))), noise.size)

    @property
    def most(self) -> float:
        """The largest share that is consistent with the draws."""
        return self.share + SIZE_TOLERANCE * self.error

    @property
    def holds(self) -> bool:
        """Whether the draws are consistent with noise as large as planned."""
        return self.most >= 1

    def as_json(self) -> dict[str, Any]:
        """Return the size as JSON for ledger and record."""
        return {"share": self.share, "error": self.error, "entries": self.entries, "holds": self.holds}


def released_values(released: Released) -> Floats:
    """Return the released values in records: matrices, directions as columns, or lists of numbers."""
    output = mechanism_of(released.event.mechanism).output
    if output is Output.BASIS:
        return released.basis()
    if output is Output.GRAM:
        return released.matrices()
    return np.array(released.values, dtype=np.float64) * (released.event.step / UNIT)


def exact_values(event: Event, table: Floats) -> Floats:
    """Return what would be released of a table of exact second moments, or answers, without noise."""
    if isinstance(event, VectorEvent):
        return table
    output = mechanism_of(event.mechanism).output
    if output is Output.SUMS:
        return table[:, 0, :]
    if output is Output.SPECTRUM:
        points = table[:, event.layout.heads :, event.layout.heads :]
        return np.asarray(np.linalg.eigvalsh(points)[:, ::-1][:, : event.components], dtype=np.float64)
    return table


def noisy_entries(event: Event, views: Floats) -> Floats:
    """Return the entries with noise of their own, one row per view; a symmetric matrix gives its upper triangle."""
    if not isinstance(event, VectorEvent) and mechanism_of(event.mechanism).output is Output.GRAM:
        rows, columns = upper_triangle(event.layout.dimension)
        views = views[..., rows, columns]
    return views.reshape(len(views), -1)


def entry_deviations(event: Event) -> Floats:
    """Return the planned standard deviation of the noise on each of the `noisy_entries`, in records."""
    if isinstance(event, VectorEvent):
        return np.full(event.query.size, vector_mechanism(event.mechanism).deviation(event) / event.query.unit)
    blocks, size = event.layout.blocks, event.layout.dimension
    if mechanism_of(event.mechanism).output is not Output.GRAM:
        return np.full(event.components or blocks * size, math.sqrt(2) * float(event.noise) / UNIT)
    expected = gram_mechanism(event.mechanism).expected_error(event)
    block = np.where(np.eye(size, dtype=bool), expected.diagonal_sd, expected.off_diagonal_sd)
    return np.tile(block[upper_triangle(size)], blocks)


def planned_loss(event: Event, one: Floats, two: Floats) -> Budget:
    """Return the privacy loss of a pair of tables at the planned scale: the largest loss, or rho for normal noise."""
    change = exact_values(event, one) - exact_values(event, two)
    if event.mechanism in WITH_RATE:
        assert isinstance(event, GramEvent)  # noqa: S101  vectors have scales
        return _at_rate(event, change)
    shares = noisy_entries(event, change[None])[0] / entry_deviations(event)
    if cost_of(event).rho:
        return Rho(Fraction(float(np.sum(shares**2)) / 2))
    return Epsilon(Fraction(math.sqrt(2) * float(np.abs(shares).sum())))


def _at_rate(event: GramEvent, change: Floats) -> Epsilon:
    plain = event.mechanism == "wishart-difference" or event.neighbours is Neighbours.ADD_REMOVE
    nuclear, trace = np.abs(np.linalg.eigvalsh(change)).sum(), np.einsum("kii->", change)
    return Epsilon(event.noise * Fraction(float(nuclear if plain else nuclear + abs(trace))))


def loss_at(size: NoiseSize, planned: Budget) -> Budget:
    """Return the least privacy loss that is consistent with the size of the noise, from the planned one."""
    if isinstance(planned, Rho):
        return Rho(planned.value / Fraction(size.most))
    return Epsilon(planned.value / Fraction(math.sqrt(size.most)))
