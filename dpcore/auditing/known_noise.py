"""What a pair of tables loses to somebody who knows the shape of the noise, and measures its scale.

A bound that assumes nothing about the noise (`dpcore.auditing.lower_bounds`) needs some hundred thousand
draws to see an error of 10 %. With the shape of the law known, a thousand are enough: they
show the scale of the noise, and the privacy loss of a pair of tables at that scale follows
from their difference D alone:

* independent Laplace noise of scales b: the sum of |D| / b;
* independent normal noise of deviations s: rho, half of the sum of (D / s)²;
* Wishart differences and nuclear K-norm noise of rate c: c times the nuclear norm of D over all
  blocks, and c |tr D| more where the law has the trace factor.

None of these uses a declared sensitivity, so a bound that is too small for the pair is seen too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.measure import Released
from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.registry import Event, cost_of, gram_mechanism, mechanism_of, vector_mechanism
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.records.exact_sums import upper_triangle
from dpcore.records.schema import Neighbours

Floats = NDArray[np.float64]

SIZE_TOLERANCE = 6.0
"""Standard errors that the drawn noise may fall short of the planned one.

A normal mean does so once in 10^9 trials. Means of squares are skewed: with the numbers that are
drawn here the chance stays below 10^-7 (a term of Edgeworth's expansion), inside the error of an attack.
"""

WITH_RATE = ("wishart-difference-trace", "wishart-difference", "nuclear-k-norm")
"""Mechanisms whose noise is a matrix of dependent numbers with a rate instead of a scale."""


@dataclass(frozen=True, slots=True)
class NoiseSize:
    """Mean square of the noise that was drawn, as a share of what the event promises; 1 is as planned."""

    share: float
    error: float
    entries: int

    @staticmethod
    def of(noise: Floats) -> NoiseSize:
        """The size of independent draws, one a row, in units of their planned standard deviations."""
        squares = (noise**2).mean(axis=1)
        return NoiseSize(float(squares.mean()), float(squares.std() / math.sqrt(len(noise))), noise.size)

    @property
    def most(self) -> float:
        """The largest share that is still in keeping with the draws."""
        return self.share + SIZE_TOLERANCE * self.error

    @property
    def holds(self) -> bool:
        """Whether the noise is as large as planned, as far as so many entries tell."""
        return self.most >= 1

    def as_json(self) -> dict[str, Any]:
        """The figure for ledger and record."""
        return {"share": self.share, "error": self.error, "entries": self.entries, "holds": self.holds}


def released_values(released: Released) -> Floats:
    """What anybody sees of a measurement, in records: matrices, directions as columns, or lists of numbers."""
    output = mechanism_of(released.event.mechanism).output
    if output is Output.BASIS:
        return released.basis()
    if output is Output.GRAM:
        return released.matrices()
    return np.array(released.values, dtype=np.float64) * (released.event.step / UNIT)


def exact_values(event: Event, table: Floats) -> Floats:
    """What would be seen of a table of exact second moments, or answers, if no noise were drawn."""
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
    """The numbers that get noise of their own, one row a view: equal entries of a matrix once."""
    if not isinstance(event, VectorEvent) and mechanism_of(event.mechanism).output is Output.GRAM:
        rows, columns = upper_triangle(event.layout.dimension)
        views = views[..., rows, columns]
    return views.reshape(len(views), -1)


def entry_deviations(event: Event) -> Floats:
    """The planned standard deviation of the noise on each of the `numbers`, in records."""
    if isinstance(event, VectorEvent):
        return np.full(event.query.size, vector_mechanism(event.mechanism).deviation(event) / event.query.unit)
    blocks, size = event.layout.blocks, event.layout.dimension
    output = mechanism_of(event.mechanism).output
    if output is not Output.GRAM:
        return np.full(event.components or blocks * size, math.sqrt(2) * float(event.noise) / UNIT)
    expected = gram_mechanism(event.mechanism).expected_error(event)
    block = np.where(np.eye(size, dtype=bool), expected.diagonal_sd, expected.off_diagonal_sd)
    return np.tile(block[upper_triangle(size)], blocks)


def planned_loss(event: Event, one: Floats, two: Floats) -> Budget:
    """What a pair of tables loses if the noise is as planned: the largest loss, or the rho of normal noise."""
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
    """The least loss that is still in keeping with the size of the noise, of what it is as planned."""
    if isinstance(planned, Rho):
        return Rho(planned.value / Fraction(size.most))
    return Epsilon(planned.value / Fraction(math.sqrt(size.most)))
