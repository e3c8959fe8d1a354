"""The audit that a build must pass before it may release: attacks and the scale of its noise.

No private data are read: attacks run on fixed public tables, and noise is drawn for an empty table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dpcore.auditing.attack_table import has_several
from dpcore.auditing.attacks import Finding, attack
from dpcore.auditing.known_noise import NoiseSize, entry_deviations, noisy_entries, released_values
from dpcore.measure import PrivateGram, measure_gram
from dpcore.mechanisms.base import UNIT, GramEvent, Output
from dpcore.mechanisms.components.exponential_pca import mean_overlap
from dpcore.mechanisms.components.orthonormal import FRAME_UNIT, points_width
from dpcore.mechanisms.components.power_method import POWER, draw_noisy_product
from dpcore.mechanisms.registry import Event, mechanism_of, vector_mechanism
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Floats

ATTACK_DRAWS, SINGLE_DRAWS = 1_200, 6_000
"""Draws of an attack on each of its two tables, a matter of seconds; the second if a draw is a single number."""

SCALE_ENTRIES, SCALE_DIMENSION = 8_000, 4
"""Number of noise entries that are compared with their planned scale, and the largest dimension of a drawn block."""

DIRECTION_POINTS, DIRECTION_LOSS, DIRECTION_ENTRIES = 8, 40.0, 24_000
"""Dimension, concentration times second moment, and number of entries for the law of a released direction.

Its squared entries fall as 1/concentration instead of 1/concentration², so more of them are needed.
"""


def draw_noise_size(event: Event, noise: Noise) -> NoiseSize:
    """Return the mean square of noise drawn for an empty table, relative to the planned variance.

    For released directions, the entries off the true direction are taken instead. Only one block of few dimensions
    is drawn, because the parameter of the noise does not depend on the layout.
    """
    if isinstance(event, VectorEvent):
        return _draw_vector_size(event, noise)
    dimension = min(event.layout.dimension, SCALE_DIMENSION)
    small = replace(event.layout, dimension=dimension, blocks=1, labels=0)
    drawn = replace(event, layout=small, components=min(event.components, dimension - 1))
    if event.mechanism == POWER.name:
        return _draw_size(partial(_draw_product_noise, drawn, noise))
    if mechanism_of(event.mechanism).output is Output.BASIS:
        return _draw_size(partial(_draw_direction_noise, drawn, noise), DIRECTION_ENTRIES)
    return _draw_size(partial(_draw_added_noise, drawn, noise))


def _draw_size(draw: Callable[[], Floats], entries: int = SCALE_ENTRIES) -> NoiseSize:
    """Return the size of at least `entries` entries, drawn in units of their planned standard deviation."""
    first = draw()
    return NoiseSize.of(np.array([first, *(draw() for _ in range(math.ceil(entries / len(first)) - 1))]))


def _draw_vector_size(event: VectorEvent, noise: Noise) -> NoiseSize:
    """Return the size of the noise on a vector; its entries are independent, so more are drawn than were planned."""
    mechanism = vector_mechanism(event.mechanism)
    values = mechanism.draw([0] * max(event.query.size, SCALE_ENTRIES), event, noise)
    return NoiseSize.of(np.array(values, dtype=np.float64)[:, None] / mechanism.deviation(event))


def _draw_added_noise(event: GramEvent, noise: Noise) -> Floats:
    """Draw the noise of a release, from an empty table."""
    released = measure_gram(PrivateGram(GramSum(event.layout)), event, noise)
    return noisy_entries(event, released_values(released)[None]).ravel() / entry_deviations(event)


def _draw_direction_noise(event: GramEvent, noise: Noise) -> Floats:
    """Draw a direction of the exponential mechanism for points along the first axis; return its other coordinates.

    With second moments g e1 e1ᵀ and loss = c g, the squared first coordinate b is a Beta(1/2, (p-1)/2)
    variable tilted by exp(loss b), whose mean is a ratio of Kummer's functions. c does not depend on
    the dimension of the points or the number of directions.
    """
    layout = GramLayout(DIRECTION_POINTS + 1, 1, event.layout.count_weight, event.layout.rows_per_unit)
    along = GramSum(layout)
    along.blocks[0, 1, 1] = round(Fraction(DIRECTION_LOSS) / event.noise * UNIT)
    direction = measure_gram(PrivateGram(along), replace(event, layout=layout, components=1), noise).basis()[:, 0]
    planned = (1 - mean_overlap(DIRECTION_POINTS, 1, DIRECTION_LOSS)) / (DIRECTION_POINTS - 1)
    return direction[1:] / math.sqrt(planned)


def _draw_product_noise(event: GramEvent, noise: Noise) -> Floats:
    """Draw the noise of one product of the power method, with second moments 0."""
    width = points_width(event.layout)
    frame = np.zeros((width, event.components), dtype=np.int64)
    product = draw_noisy_product([[0] * width for _ in range(width)], frame, event.noise, noise)
    return product.ravel() / (float(event.noise) * FRAME_UNIT)


@dataclass(frozen=True, slots=True)
class EventAudit:
    """The audit's result for one planned measurement."""

    finding: Finding
    size: NoiseSize

    @property
    def holds(self) -> bool:
        """Whether neither the attack nor the scale of the noise contradicts the claim."""
        return self.finding.holds and self.size.holds

    def as_json(self) -> dict[str, Any]:
        """Return the audit as JSON for ledger and record."""
        return {
            "attack": self.finding.as_json(),
            "noise": self.size.as_json(),
            "holds": self.holds,
        }


def attack_arguments(event: Event) -> dict[str, Any]:
    """Return the arguments of the attack on an event; events that differ in budget or size only share one attack.

    An event with several classes is attacked by a record that changes its class, one with several
    directions or eigenvalues on several of these.
    """
    single = isinstance(event, VectorEvent) and event.query.size == 1
    return {
        "name": event.mechanism,
        "neighbours": event.neighbours,
        "several": has_several(event),
        "draws": SINGLE_DRAWS if single else ATTACK_DRAWS,
    }


def attack_event(event: Event, noise: Noise) -> Finding:
    """Attack the event's mechanism and return the finding with the largest lower bound."""
    return max(attack(**attack_arguments(event), noise=noise), key=lambda finding: finding.measured)


def audit_event(event: Event, noise: Noise, finding: Finding | None = None) -> EventAudit:
    """Attack the event's mechanism, unless a finding is given, and compare its noise with the planned scale.

    Guarantee: an honest build fails with probability at most 3e-6, which is an attack's error for each of its two
    findings and for the scale of the noise. Noise that is 10 % too small fails almost surely. A sensitivity that is
    10 % too small fails in most attacks, if the attacked pair attains its bound; the pairs of `exponential-pca` and of
    `laplace-sums` under replace-one with one class do not.
    """
    return EventAudit(finding or attack_event(event, noise), draw_noise_size(event, noise))
