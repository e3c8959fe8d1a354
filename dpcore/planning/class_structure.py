"""How classes are modelled, by a rule on public constants alone.

Class blocks give every class a covariance of its own, and each of them all of the noise. One
block with labels gives them class means and a covariance that they share. Where the noise hides
every direction, means and the columns' own variances are all that there is to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LEAST_BLOCK_SIGNAL = 1.0
"""Blocks are worth their noise where a class's average eigenvalue is at least so many times its operator norm."""

STRONG_DIRECTION = 0.3
"""Share of all variance that the strongest direction of a table usually has at the most."""


class Structure(StrEnum):
    """What classes have of their own."""

    BLOCKS = "blocks"
    POOLED = "pooled"
    DIAGONAL = "diagonal"


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureInputs:
    """The public constants of the choice: rows, classes, coordinates, and the noise's operator norms, in records."""

    rows: float
    classes: int
    size: int
    block_noise: float
    pooled_noise: float

    @property
    def block_signal_to_noise(self) -> float:
        """Average eigenvalue of a class's block over its noise, if classes are equally large and the ball is filled."""
        return self.rows / self.classes / self.size / self.block_noise

    @property
    def direction_signal_to_noise(self) -> float:
        """What the strongest direction of all classes together may rise to, over the noise."""
        return STRONG_DIRECTION * self.rows / self.pooled_noise


def choose_structure(scale: StructureInputs) -> tuple[Structure, str]:
    """The structure, and the reason for it."""
    clearness = f"a class's average eigenvalue is about {scale.block_signal_to_noise:.2g} times the noise of its block"
    if scale.block_signal_to_noise >= LEAST_BLOCK_SIGNAL:
        return Structure.BLOCKS, f"class blocks, which together cost as much as one: {clearness}"
    if scale.direction_signal_to_noise >= 1:
        return Structure.POOLED, f"one covariance for all classes around their own means: {clearness}"
    return (
        Structure.DIAGONAL,
        "class means and the columns' own variances: even the strongest direction of all rows together "
        f"would only be about {scale.direction_signal_to_noise:.2g} times the noise",
    )
