"""The choice of how classes are modelled, from public constants only.

Class blocks give every class its own covariance, but each block carries the full noise. One block
with labels gives class means and one shared covariance. If the noise hides every direction, only
class means and the variances of the columns can be estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LEAST_BLOCK_SIGNAL = 1.0
"""Class blocks are chosen if a class's average eigenvalue is at least this many times the noise's operator norm."""

STRONG_DIRECTION = 0.3
"""The largest share of the total variance that the leading direction of a table usually has."""


def about(number: float, digits: int = 2) -> str:
    """Return a figure with few digits for a sentence, large ones in full.

    >>> about(0.0782), about(3.31), about(217.4), about(1234)
    ('0.078', '3.3', '220', '1,200')
    """
    return f"{float(f'{number:.{digits}g}'):,g}"


class Structure(StrEnum):
    """What is estimated: a covariance of each class, one that all classes share, or column variances only."""

    BLOCKS = "blocks"
    POOLED = "pooled"
    DIAGONAL = "diagonal"


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureInputs:
    """The public constants of the choice: rows, classes, coordinates, and operator norms of the noise, in records."""

    rows: float
    classes: int
    size: int
    block_noise: float
    pooled_noise: float

    @property
    def block_signal_to_noise(self) -> float:
        """Average eigenvalue of a class block over its noise, for equally large classes of points of length 1."""
        return self.rows / self.classes / self.size / self.block_noise

    @property
    def direction_signal_to_noise(self) -> float:
        """Largest eigenvalue to expect of all classes together, over the noise."""
        return STRONG_DIRECTION * self.rows / self.pooled_noise


def choose_structure(scale: StructureInputs) -> tuple[Structure, str]:
    """Return the structure and the reason for it."""
    ratio = f"the average eigenvalue of a class is about {about(scale.block_signal_to_noise)} times the noise "
    ratio += "on its block"
    if scale.block_signal_to_noise >= LEAST_BLOCK_SIGNAL:
        return Structure.BLOCKS, f"class blocks, which together cost as much as one block; {ratio}"
    if scale.direction_signal_to_noise >= 1:
        return Structure.POOLED, f"class means and one covariance that all classes share; {ratio}"
    return (
        Structure.DIAGONAL,
        "class means and the columns' own variances; even the strongest direction of all rows together is expected "
        f"to be only about {about(scale.direction_signal_to_noise)} times the noise",
    )
