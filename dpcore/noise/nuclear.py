"""Draws of nuclear-norm noise: Wishart differences, accepted or rejected by certified decisions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpcore.noise.certified import LazyUniforms, decide, is_positive
from dpcore.noise.sources import Noise
from dpcore.noise.wishart import WishartDifference, trace

if TYPE_CHECKING:
    from flint import arb_mat


class NuclearNoise:
    """One draw of symmetric block noise Z of density proportional to exp(-c |Z|), the sum of the nuclear norms.

    Each block is a Wishart difference A - B, redrawn until A + B - |A - B| is
    positive semidefinite. With `trace_factor` the density is multiplied by
    exp(-c |tr Z|), the trace over all blocks: a single block starts from the Wishart
    difference with that factor; several blocks are accepted with that probability, or
    all redrawn (GUARANTEE.md, M5). Every decision is certified.
    """

    def __init__(self, *, dimension: int, blocks: int, rate: Fraction, trace_factor: bool, noise: Noise) -> None:
        self._noise, self._dimension, self._rate = noise, dimension, rate
        self._factor_at_once = trace_factor and blocks == 1
        self._blocks = self._draw_blocks(blocks)
        while trace_factor and not self._factor_at_once and not self._accept():
            self._blocks = self._draw_blocks(blocks)

    def add_and_round(self, offsets: Sequence[Sequence[int]], *, unit: int, step: int) -> list[list[int]]:
        """Return the upper triangles of (offset + unit Z) / step, rounded to whole numbers without error."""
        pairs = zip(self._blocks, offsets, strict=True)
        return [block.add_and_round([offset], unit=unit, step=step)[0] for block, offset in pairs]

    def _draw_blocks(self, blocks: int) -> list[WishartDifference]:
        return [self._draw_block() for _ in range(blocks)]

    def _draw_block(self) -> WishartDifference:
        """Draw a Wishart difference with A + B - |A - B| positive definite."""
        while True:
            block = WishartDifference(
                dimension=self._dimension,
                blocks=1,
                rate=self._rate,
                trace_factor=self._factor_at_once,
                noise=self._noise,
            )
            if decide(functools.partial(_dominates, block), block.uniforms):
                return block

    def _accept(self) -> bool:
        """Accept with probability exp(-c |tr Z|): compare an exponential number with c |tr Z|."""
        from flint import arb, fmpq

        uniform = LazyUniforms(1, self._noise)

        def exceeds_trace() -> bool | None:
            rate = arb(fmpq(self._rate.numerator, self._rate.denominator))
            total = trace([z for block in self._blocks for z in block.difference()])
            return is_positive(-uniform.balls()[0].log() - rate * abs(total))

        return decide(exceeds_trace, [uniform, *(part for block in self._blocks for part in block.uniforms)])


def _dominates(block: WishartDifference) -> bool | None:
    """Whether A + B - |A - B| is positive definite; None if the balls do not decide it."""
    (plus,), (minus,) = block.terms()
    modulus = _modulus(plus - minus)
    return None if modulus is None else _positive_definite(plus + minus - modulus)


def _modulus(matrix: arb_mat) -> arb_mat | None:
    """|Z| = R |L| R⁻¹ of a symmetric Z, from certified eigenvalues L and eigenvectors R.

    Each isolated ball holds one eigenvalue, which is real; the product does not depend
    on the lengths of the eigenvectors.
    """
    from flint import acb_mat

    size = matrix.nrows()
    try:
        values, vectors = acb_mat(matrix).eig(right=True)
        scaled = acb_mat(size, size, [vectors[i, j] * abs(values[j].real) for i in range(size) for j in range(size)])
        return (scaled * vectors.inv()).real
    except (ValueError, ZeroDivisionError):  # eigenvalues not isolated, or eigenvectors too imprecise
        return None


def _positive_definite(matrix: arb_mat) -> bool | None:
    """Whether every pivot of a symmetric matrix is positive; None if the balls do not decide it."""
    size, rows = matrix.nrows(), matrix.tolist()
    for k in range(size):
        sign = is_positive(rows[k][k])
        if not sign:
            return sign
        for i in range(k + 1, size):
            ratio = rows[k][i] / rows[k][k]
            for j in range(i, size):
                rows[i][j] -= ratio * rows[k][j]
    return True
