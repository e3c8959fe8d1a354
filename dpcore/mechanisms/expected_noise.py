"""Expected size of an event's noise, in records."""

from __future__ import annotations

from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.registry import gram_mechanism


def operator_noise(event: GramEvent) -> float:
    """The expected operator norm of the noise, in records."""
    return gram_mechanism(event.mechanism).expected_error(event).operator


def entry_noise(event: GramEvent) -> float:
    """The standard deviation of the noise on an off-diagonal entry, in records."""
    return gram_mechanism(event.mechanism).expected_error(event).off_diagonal_sd


def count_and_sum_noise(moments: GramEvent, mean: GramEvent | None = None) -> tuple[float, float]:
    """Standard deviations of the noise on a class's count and on one coordinate of its sum, in records."""
    if mean is not None:
        return LAPLACE_SUMS.deviations(mean)
    expected, weight = gram_mechanism(moments.mechanism).expected_error(moments), float(moments.layout.count_weight)
    return expected.diagonal_sd / weight**2, expected.off_diagonal_sd / weight
