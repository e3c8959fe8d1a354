"""The audit that a build must pass before it may release: attacks, the size of its noise, a replay.

Nothing here sees the data: attacks run on fixed public tables, noise is drawn for an
empty table, and the replay runs on invented neighbours of the specification's columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcore.attacks import Finding, attack
from dpcore.exactgram import GramSum
from dpcore.measure import PrivateGram, measure_gram
from dpcore.mechanisms.base import Gives, GramEvent, is_diagonal
from dpcore.noise import Noise
from dpcore.registry import gram_mechanism, mechanism_of

ATTACK_DRAWS = 2_000
"""Draws of the gate's attack on each of its two tables: some seconds."""

SCALE_ENTRIES, SCALE_DIMENSION = 4_000, 8
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


def noise_size(event: GramEvent, noise: Noise) -> NoiseSize | None:
    """Mean square of noise drawn for an empty table over what is planned; None where no Gram is released.

    The block is cut to few dimensions: the parameter of the noise does not depend on them.
    """
    if mechanism_of(event.mechanism).gives is not Gives.GRAM:
        return None
    small = replace(event.layout, dimension=min(event.layout.dimension, SCALE_DIMENSION), blocks=1, labels=0)
    drawn = replace(event, layout=small)
    expected = gram_mechanism(event.mechanism).expected_error(drawn)
    planned = [expected.diagonal_sd if d else expected.off_diagonal_sd for d in is_diagonal(small.dimension)]
    draws = math.ceil(SCALE_ENTRIES / len(planned))
    upper = np.triu_indices(small.dimension)
    empty = PrivateGram(GramSum(small))
    samples = [measure_gram(empty, drawn, noise).matrices()[0][upper] for _ in range(draws)]
    squares = ((np.array(samples) / planned) ** 2).mean(axis=1)
    return NoiseSize(float(squares.mean()), float(squares.std() / math.sqrt(draws)), draws * len(planned))


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


def audit_event(event: GramEvent, noise: Noise) -> EventAudit:
    """Attack the event's mechanism and compare its noise with what the event promises."""
    finding = attack(event.mechanism, event.neighbours, draws=ATTACK_DRAWS, noise=noise)
    return EventAudit(finding, noise_size(event, noise))
