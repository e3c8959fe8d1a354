"""The audit that a build must pass before it may release: attacks, the size of its noise, a replay.

Nothing here sees the data: attacks run on fixed public tables, noise is drawn for an
empty table, and the replay runs on invented neighbours of the specification's columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.auditing.attack_table import has_several
from dpcore.auditing.attacks import Finding, attack
from dpcore.auditing.known_noise import NoiseSize, entry_deviations, noisy_entries, released_values
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.components.exponential_pca import mean_overlap
from dpcore.mechanisms.components.orthonormal import FRAME_UNIT, points_width
from dpcore.mechanisms.components.power_method import POWER, draw_noisy_product
from dpcore.mechanisms.registry import Event, mechanism_of, vector_mechanism
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout, GramSum

Floats = NDArray[np.float64]

ATTACK_DRAWS, SINGLE_DRAWS = 1_200, 6_000
"""Draws of the gate's attack on each of its two tables, some seconds; and where a draw is a single number."""

SCALE_ENTRIES, SCALE_DIMENSION = 8_000, 4
"""Noise entries that are compared with their planned size, and the most dimensions of a drawn block."""

DIRECTION_POINTS, DIRECTION_LOSS, DIRECTION_ENTRIES = 8, 40.0, 24_000
"""Coordinates of points, times the concentration, and entries for the law of a direction.

Its squares are inverse to the concentration itself, not to its square: they need more entries.
"""


def noise_size(event: Event, noise: Noise) -> NoiseSize:
    """Mean square of noise drawn for an empty table over what is planned; of directions, of what leads away from them.

    Blocks are cut to one of few dimensions: the parameter of the noise does not depend on them.
    """
    if isinstance(event, VectorEvent):
        return _vector_size(event, noise)
    dimension = min(event.layout.dimension, SCALE_DIMENSION)
    small = replace(event.layout, dimension=dimension, blocks=1, labels=0)
    drawn = replace(event, layout=small, components=min(event.components, dimension - 1))
    if event.mechanism == POWER.name:
        return _size(partial(_product_noise, drawn, noise))
    if mechanism_of(event.mechanism).output is Output.BASIS:
        return _size(partial(_direction_noise, drawn, noise), DIRECTION_ENTRIES)
    return _size(partial(_added_noise, drawn, noise))


def _size(draw: Callable[[], Floats], entries: int = SCALE_ENTRIES) -> NoiseSize:
    """The size of some thousand entries, from draws in units of their planned standard deviation."""
    first = draw()
    return NoiseSize.of(np.array([first, *(draw() for _ in range(math.ceil(entries / len(first)) - 1))]))


def _vector_size(event: VectorEvent, noise: Noise) -> NoiseSize:
    """The noise on a vector's numbers is independent, so that each tells of it, however many were planned."""
    mechanism = vector_mechanism(event.mechanism)
    values = mechanism.draw([0] * max(event.query.size, SCALE_ENTRIES), event, noise)
    return NoiseSize.of(np.array(values, dtype=np.float64)[:, None] / mechanism.deviation(event))


def _release_empty(event: GramEvent, noise: Noise) -> Released:
    return measure_gram(PrivateGram(GramSum(event.layout)), event, noise)


def _added_noise(event: GramEvent, noise: Noise) -> Floats:
    """What is released of an empty table."""
    drawn: Floats = noisy_entries(event, released_values(_release_empty(event, noise))[None])[0] / entry_deviations(
        event
    )
    return drawn


def _direction_noise(event: GramEvent, noise: Noise) -> Floats:
    """One direction of the exponential mechanism where all points lie along the first axis: its other coordinates.

    With second moments g e1 e1ᵀ and loss = c g the squared first coordinate is a Beta(1/2, (p-1)/2)
    variable tilted by exp(loss b), whose mean is a quotient of Kummer's functions. c does not depend on
    the number of points' coordinates or of directions.
    """
    layout = GramLayout(DIRECTION_POINTS + 1, 1, event.layout.count_weight, event.layout.rows_per_unit)
    along = GramSum(layout)
    along.blocks[0, 1, 1] = round(Fraction(DIRECTION_LOSS) / event.noise * UNIT)
    direction = measure_gram(PrivateGram(along), replace(event, layout=layout, components=1), noise).basis()[:, 0]
    planned = (1 - mean_overlap(DIRECTION_POINTS, 1, DIRECTION_LOSS)) / (DIRECTION_POINTS - 1)
    drawn: Floats = direction[1:] / math.sqrt(planned)
    return drawn


def _product_noise(event: GramEvent, noise: Noise) -> Floats:
    """One noisy product of the power method, with second moments 0."""
    width = points_width(event.layout)
    frame = np.zeros((width, event.components), dtype=np.int64)
    product = draw_noisy_product([[0] * width for _ in range(width)], frame, event.noise, noise)
    drawn: Floats = product.ravel() / (float(event.noise) * FRAME_UNIT)
    return drawn


@dataclass(frozen=True, slots=True)
class EventAudit:
    """What the gate found about one planned measurement."""

    finding: Finding
    size: NoiseSize

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the claim."""
        return self.finding.holds and self.size.holds

    def as_json(self) -> dict[str, Any]:
        """The audit for ledger and record."""
        return {
            "attack": self.finding.as_json(),
            "noise": self.size.as_json(),
            "holds": self.holds,
        }


def attack_arguments(event: Event) -> dict[str, Any]:
    """What the attack on an event depends on: not on its budget or its shape, so that many events share one attack.

    An event of several classes is attacked by a record that changes its class, one of several
    directions by directions.
    """
    single = isinstance(event, VectorEvent) and event.query.size == 1
    return {
        "name": event.mechanism,
        "neighbours": event.neighbours,
        "several": has_several(event),
        "draws": SINGLE_DRAWS if single else ATTACK_DRAWS,
    }


def attack_event(event: Event, noise: Noise) -> Finding:
    """Attack the event's mechanism; of the findings the one that comes closest to the claim counts."""
    return max(attack(**attack_arguments(event), noise=noise), key=lambda finding: finding.measured)


def audit_event(event: Event, noise: Noise, finding: Finding | None = None) -> EventAudit:
    """Attack the event's mechanism, unless that was done, and compare its noise with what the event promises.

    Guarantee: an honest build fails with probability at most 3e-6, an attack's error for each of its findings
    and for the size of the noise. Noise or a sensitivity 10 % too small fails almost surely.
    """
    return EventAudit(finding or attack_event(event, noise), noise_size(event, noise))
