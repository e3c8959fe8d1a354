"""The audit that a build must pass before it may release: attacks, the size of its noise, a replay.

Nothing here sees the data: attacks run on fixed public tables, noise is drawn for an
empty table, and the replay runs on invented neighbours of the specification's columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.attacks import Finding, attack
from dpcore.exactgram import GramSum
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.mechanisms.base import Gives, GramEvent, is_diagonal
from dpcore.mechanisms.frames import FRAME_UNIT, points_width
from dpcore.mechanisms.power import POWER, noisy_product
from dpcore.noise import Noise
from dpcore.registry import Event, gram_mechanism, mechanism_of, vector_mechanism
from dpcore.vectors import VectorEvent

Floats = NDArray[np.float64]

ATTACK_DRAWS = 2_000
"""Draws of the gate's attack on each of its two tables: some seconds."""

SCALE_ENTRIES, SCALE_DIMENSION = 4_000, 4
"""Noise entries that are compared with their planned size, and the most dimensions of a drawn block."""

TOLERANCE = 6.0
"""Standard errors that the drawn noise may fall short of the planned one."""


@dataclass(frozen=True, slots=True)
class NoiseSize:
    """Noise really drawn, as a share of what the event promises; 1 is as planned."""

    share: float
    error: float
    entries: int

    @property
    def holds(self) -> bool:
        """Whether the noise is as large as planned, as far as so many entries tell."""
        return self.share + TOLERANCE * self.error >= 1

    def as_json(self) -> dict[str, Any]:
        """The figure for ledger and record."""
        return {"share": self.share, "error": self.error, "entries": self.entries, "holds": self.holds}


def noise_size(event: Event, noise: Noise) -> NoiseSize | None:
    """Mean square of noise drawn for an empty table over what is planned; None where nothing is added to anything.

    Blocks are cut to few dimensions: the parameter of the noise does not depend on them.
    """
    if isinstance(event, VectorEvent):
        return _vector_size(event, noise)
    dimension = min(event.layout.dimension, SCALE_DIMENSION)
    small = replace(event.layout, dimension=dimension, blocks=1, labels=0)
    drawn = replace(event, layout=small, components=min(event.components, dimension - 1))
    gives = mechanism_of(event.mechanism).gives
    if gives is Gives.GRAM:
        return _size(partial(_gram_noise, drawn, noise))
    if gives in (Gives.SUMS, Gives.SPECTRUM):
        return _size(partial(_laplace_noise, drawn, noise))
    return _size(partial(_product_noise, drawn, noise)) if event.mechanism == POWER.name else None


def _size(draw: Callable[[], Floats]) -> NoiseSize:
    """The size of some thousand entries, from draws in units of their planned standard deviation."""
    first = draw()
    draws = math.ceil(SCALE_ENTRIES / len(first))
    squares = np.array([(entries**2).mean() for entries in (first, *(draw() for _ in range(draws - 1)))])
    return NoiseSize(float(squares.mean()), float(squares.std() / math.sqrt(draws)), draws * len(first))


def _vector_size(event: VectorEvent, noise: Noise) -> NoiseSize:
    """The noise on a vector's numbers is independent, so that each tells of it, however many were planned."""
    mechanism = vector_mechanism(event.mechanism)
    values = mechanism.draw([0] * max(event.query.size, SCALE_ENTRIES), event, noise)
    squares = (np.array(values, dtype=np.float64) / mechanism.deviation(event)) ** 2
    return NoiseSize(float(squares.mean()), float(squares.std() / math.sqrt(len(squares))), len(squares))


def _released(event: GramEvent, noise: Noise) -> Released:
    return measure_gram(PrivateGram(GramSum(event.layout)), event, noise)


def _gram_noise(event: GramEvent, noise: Noise) -> Floats:
    expected = gram_mechanism(event.mechanism).expected_error(event)
    pattern = is_diagonal(event.layout.dimension)
    planned = np.array([expected.diagonal_sd if d else expected.off_diagonal_sd for d in pattern])
    drawn: Floats = _released(event, noise).matrices()[0][np.triu_indices(event.layout.dimension)] / planned
    return drawn


def _laplace_noise(event: GramEvent, noise: Noise) -> Floats:
    """What is released of an empty table in whole numbers: discrete Laplace noise of the event's scale."""
    return np.array(_released(event, noise).values[0], dtype=np.float64) / (math.sqrt(2) * float(event.noise))


def _product_noise(event: GramEvent, noise: Noise) -> Floats:
    """One noisy product of the power method, with second moments 0."""
    width = points_width(event.layout)
    frame = np.zeros((width, event.components), dtype=np.int64)
    product = noisy_product([[0] * width for _ in range(width)], frame, event.noise, noise)
    drawn: Floats = product.ravel() / (float(event.noise) * FRAME_UNIT)
    return drawn


@dataclass(frozen=True, slots=True)
class EventAudit:
    """What the gate found about one planned measurement."""

    finding: Finding
    size: NoiseSize | None

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the claim."""
        return self.finding.holds and (self.size is None or self.size.holds)

    def as_json(self) -> dict[str, Any]:
        """The audit for ledger and record."""
        return {
            "attack": self.finding.as_json(),
            "noise": self.size.as_json() if self.size else None,
            "holds": self.holds,
        }


def audit_event(event: Event, noise: Noise) -> EventAudit:
    """Attack the event's mechanism and compare its noise with what the event promises."""
    finding = attack(event.mechanism, event.neighbours, draws=ATTACK_DRAWS, noise=noise)
    return EventAudit(finding, noise_size(event, noise))
