"""Distinguishers: draws on two tables, and how an attacker tells the tables apart.

A judge bounds epsilon from draws on both tables, whatever the shape of the noise is; `number_by_number` assumes
independent entries. A law estimates the scale of the noise from the draws, for a bound that assumes its shape
(`dpcore.auditing.known_noise`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.accounting import Budget, Rho
from dpcore.auditing.known_noise import (
    SIZE_TOLERANCE,
    NoiseSize,
    entry_deviations,
    exact_values,
    noisy_entries,
    planned_loss,
    released_values,
)
from dpcore.auditing.lower_bounds import entrywise_lower_bound, sample_lower_bound
from dpcore.auditing.simulated_attacks import claim_of
from dpcore.measure import PrivateGram, measure_gram, measure_vector
from dpcore.mechanisms.base import UNIT, GramEvent
from dpcore.mechanisms.components.orthonormal import FRAME_UNIT
from dpcore.mechanisms.components.power_method import POWER
from dpcore.mechanisms.vectors import PrivateVector, VectorEvent
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Floats, Neighbours

ERROR = 1e-6
"""Probability with which an attack may falsely refute an honest mechanism."""

Tables = tuple[Floats, Floats]
Judge = Callable[["Attack", Floats, Floats], float]
Law = Callable[["Attack", Floats, Floats], tuple[NoiseSize, Budget]]


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack: the event to draw, a pair of neighbouring tables, and the distinguishers.

    `tables` hold exact answers, in records; for Gram mechanisms, one matrix per class block. `judge` bounds
    epsilon from draws on both tables, whatever the shape of the noise is. `law` gives the size of the noise and the
    planned privacy loss of the pair, for a bound that assumes the shape of the noise (`dpcore.auditing.known_noise`).
    """

    event: GramEvent | VectorEvent
    tables: Tables
    judge: Judge
    law: Law | None

    def draw(self, table: Floats, count: int, noise: Noise) -> Floats:
        """Release a table `count` times through the real measurement functions."""
        event = self.event
        if isinstance(event, VectorEvent):
            vector = PrivateVector(event.query, np.rint(table * event.query.unit).astype(np.int64).tolist())
            return np.array([measure_vector(vector, event, noise).numbers() for _ in range(count)])
        if event.mechanism == POWER.name:
            return np.array([_draw_transcript(table, event, noise) for _ in range(count)])
        gram = PrivateGram(_sum_of(table, event.layout))
        return np.array([released_values(measure_gram(gram, event, noise)) for _ in range(count)])


def _sum_of(table: Floats, layout: GramLayout) -> GramSum:
    total = GramSum(layout)
    total.blocks[:] = np.rint(table * UNIT).astype(np.int64).astype(object)
    return total


def _draw_transcript(table: Floats, event: GramEvent, noise: Noise) -> Floats:
    """Return all that the power method computes with noise, of shape (steps, 2, width, directions).

    Every step has its frame and the noisy product with that frame, in records; only the last frame is released.
    """
    steps = POWER.draw_transcript(_sum_of(table, event.layout).upper_triangles(), event, noise)
    return np.array([(frame / FRAME_UNIT, product / (FRAME_UNIT * UNIT)) for frame, product in steps])


def along_the_change(attack: Attack, first: Floats, second: Floats) -> float:
    """Bound epsilon by the inner product with the tables' difference, the likelihood ratio of Gaussian noise."""
    change = attack.tables[0] - attack.tables[1]
    return _bound_by_statistic(attack, *(np.tensordot(draws, change, change.ndim) for draws in (first, second)))


def nuclear_ratio(attack: Attack, first: Floats, second: Floats) -> float:
    """Bound epsilon by the likelihood ratio of nuclear K-norm noise.

    Its norm is the nuclear norm under add-remove, and the larger of the positive and the negative part under
    replace-one.
    """

    def norm(matrices: Floats) -> Floats:
        values = np.linalg.eigvalsh(matrices).reshape(len(matrices), -1)
        up, down = np.maximum(values, 0).sum(axis=1), np.maximum(-values, 0).sum(axis=1)
        norms: Floats = up + down if attack.event.neighbours is Neighbours.ADD_REMOVE else np.maximum(up, down)
        return norms

    one, two = attack.tables
    return _bound_by_statistic(
        attack, *(np.round(norm(draws - two) - norm(draws - one), 9) for draws in (first, second))
    )


def number_by_number(attack: Attack, first: Floats, second: Floats) -> float:
    """Add up bounds of independent entries: each lies at or beyond its value on the first table."""
    event = attack.event
    one, two = (noisy_entries(event, exact_values(event, table)[None])[0] for table in attack.tables)
    return entrywise_lower_bound(one, two, noisy_entries(event, first), noisy_entries(event, second), error=ERROR)


def along_the_directions(attack: Attack, first: Floats, second: Floats) -> float:
    """Bound epsilon by how much of the difference of the second moments the released directions capture."""
    change = _points(attack.tables[0] - attack.tables[1])
    return _bound_by_statistic(attack, *(np.einsum("nik,ij,njk->n", draws, change, draws) for draws in (first, second)))


def along_the_transcript(attack: Attack, first: Floats, second: Floats) -> float:
    """Bound epsilon by the likelihood ratio of all noisy products of the power method, given the frames."""
    one, two = (_points(table) for table in attack.tables)
    middle, change = (one + two) / 2, one - two

    def ratio(draws: Floats) -> Floats:
        frames, products = draws[:, :, 0], draws[:, :, 1]
        ratios: Floats = np.einsum("nlik,nlik->n", products - middle @ frames, change @ frames)
        return ratios

    return _bound_by_statistic(attack, ratio(first), ratio(second))


def _points(table: Floats) -> Floats:
    """Return the second moments of the points, without the count's row and column."""
    return table[0, 1:, 1:]


def _bound_by_statistic(attack: Attack, first: Floats, second: Floats) -> float:
    return sample_lower_bound(first, second, delta=claim_of(attack.event)[1], error=ERROR)


def added_noise(attack: Attack, first: Floats, second: Floats) -> tuple[NoiseSize, Budget]:
    """Return the size of additive noise, which is the draws minus the exact values, and the loss of the pair."""
    event, (one, two) = attack.event, attack.tables
    noise = [noisy_entries(event, x - exact_values(event, table)) for x, table in ((first, one), (second, two))]
    return NoiseSize.of(np.concatenate(noise) / entry_deviations(event)), planned_loss(event, one, two)


def noise_of_products(attack: Attack, first: Floats, second: Floats) -> tuple[NoiseSize, Budget]:
    """Return the size of the noise on the power method's products, and a lower bound on rho.

    The mean of half the squared shifts over the squared scale is the Kullback-Leibler divergence
    of the two transcripts, which is at most rho.
    """
    assert isinstance(attack.event, GramEvent)  # noqa: S101  it gives directions of Gram blocks
    scale = float(attack.event.noise) / UNIT
    change, noise = _points(attack.tables[0] - attack.tables[1]), []
    for draws, table in zip((first, second), attack.tables, strict=True):
        noise.append((draws[:, :, 1] - _points(table) @ draws[:, :, 0]).reshape(len(draws), -1) / scale)
    shifts = ((change @ first[:, :, 0]) ** 2).sum(axis=(1, 2, 3)) / (2 * scale**2)
    surely = shifts.mean() - SIZE_TOLERANCE * shifts.std() / np.sqrt(len(shifts))
    return NoiseSize.of(np.concatenate(noise)), Rho(Fraction(float(surely)))
