"""Draws of Wishart differences: certified noise on symmetric matrices."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpcore.noise.certified import LazyUniforms
from dpcore.noise.sources import Noise

if TYPE_CHECKING:
    from flint import arb, arb_mat


class WishartDifference:
    """One draw of symmetric block noise Z = A - B, as certified balls.

    A and B are block-diagonal with independent positive semidefinite blocks of density
    proportional to exp(-c tr): Wishart with dimension + 1 degrees of freedom and scale
    1/(2c). With `trace_factor` the density of Z is multiplied by exp(-c |tr Z|), which
    is sampled without rejection (GUARANTEE.md, M1 and M2).
    """

    def __init__(self, *, dimension: int, blocks: int, rate: Fraction, trace_factor: bool, noise: Noise) -> None:
        self.dimension, self.blocks, self.rate, self.trace_factor = dimension, blocks, rate, trace_factor
        self._normals = LazyUniforms(2 * blocks * dimension * (dimension + 1), noise)
        self._shape = blocks * dimension * (dimension + 1) // 2  # N of GUARANTEE.md, M2
        self._traces = LazyUniforms(2 * self._shape + 1 if trace_factor else 0, noise)
        self._coin = noise.bits(1)
        self._computed: tuple[tuple[int, ...], tuple[list[arb_mat], list[arb_mat]]] | None = None

    def add_and_round(self, offsets: Sequence[Sequence[int]], *, unit: int, step: int) -> list[list[int]]:
        """Return the upper triangles of (offset + unit Z) / step, rounded to whole numbers without error.

        If the balls do not decide a rounding, more places of the same uniform numbers
        are drawn, so the result is that of exact real arithmetic.
        """
        while True:
            for bits in self._normals.precisions():
                rows = self._try_rounding(offsets, Fraction(unit, step), step, bits)
                if rows is not None:
                    return rows
            self._normals.extend()
            self._traces.extend()

    def _try_rounding(
        self, offsets: Sequence[Sequence[int]], scale: Fraction, step: int, bits: int
    ) -> list[list[int]] | None:
        from flint import arb, ctx, fmpq

        with ctx.workprec(bits):
            factor = arb(fmpq(scale.numerator, scale.denominator))
            result = []
            for block, offset in zip(self.difference(), offsets, strict=True):
                cells = [block[i, j] for i in range(self.dimension) for j in range(i, self.dimension)]
                row = [
                    (cell * factor + arb(fmpq(2 * (base % step) + step, 2 * step))).floor().unique_fmpz()
                    for cell, base in zip(cells, offset, strict=True)
                ]
                if any(whole is None for whole in row):
                    return None
                result.append([base // step + int(whole) for base, whole in zip(offset, row, strict=True)])
            return result

    def difference(self) -> list[arb_mat]:
        """The blocks of Z at the current working precision."""
        return [a - b for a, b in zip(*self.terms(), strict=True)]

    def terms(self) -> tuple[list[arb_mat], list[arb_mat]]:
        """The blocks of A and of B at the current working precision."""
        from flint import ctx

        known = ctx.prec, self._normals.known_bits, self._traces.known_bits
        if self._computed is None or self._computed[0] != known:
            self._computed = known, self._terms()
        return self._computed[1]

    def _terms(self) -> tuple[list[arb_mat], list[arb_mat]]:
        from flint import arb, fmpq

        plus, minus = self._wisharts()
        if self.trace_factor:
            trace_plus, trace_minus = self._trace_pair()
            ratio_plus, ratio_minus = trace_plus / trace(plus), trace_minus / trace(minus)
        else:
            ratio_plus = ratio_minus = arb(fmpq(self.rate.denominator, 2 * self.rate.numerator))
        return [a * ratio_plus for a in plus], [b * ratio_minus for b in minus]

    @property
    def uniforms(self) -> list[LazyUniforms]:
        """The uniform numbers behind the draw."""
        return [self._normals, self._traces]

    def _wisharts(self) -> tuple[list[arb_mat], list[arb_mat]]:
        from flint import arb, arb_mat

        root = arb(2).sqrt()
        normals = [(2 * u - 1).erfinv() * root for u in self._normals.balls()]
        size = self.dimension * (self.dimension + 1)
        parts = (normals[start : start + size] for start in range(0, len(normals), size))
        factors = [arb_mat(self.dimension, self.dimension + 1, part) for part in parts]
        products = [factor * factor.transpose() for factor in factors]
        return products[: self.blocks], products[self.blocks :]

    def _trace_pair(self) -> tuple[arb, arb]:
        """tr A and tr B: the larger is Gamma(2N, rate 2c), the smaller that times U^(1/N); a coin orders them."""
        from flint import arb, fmpq

        first, *rest = self._traces.balls()
        gamma = -sum((u.log() for u in rest), arb(0))
        larger = gamma * arb(fmpq(self.rate.denominator, 2 * self.rate.numerator))
        smaller = larger * (first.log() / self._shape).exp()
        return (larger, smaller) if self._coin else (smaller, larger)


def trace(blocks: list[arb_mat]) -> arb:
    """The trace over all blocks."""
    from flint import arb

    return sum((block[i, i] for block in blocks for i in range(block.nrows())), arb(0))
