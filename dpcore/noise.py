"""The only door to randomness.

* `SystemNoise` draws the noise of every release: operating-system entropy, no seed.
* `SeededNoise` exists for tests and replays; whatever is made with it says so, and
  publishing refuses it.
* `public_generator` gives the reproducible stream of a public seed, for projections
  and sampling, which need no secrecy; `fresh_seed` draws such a seed.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from flint import arb, arb_mat

FIRST_BITS = 128
"""Binary places of each uniform number before more are asked for."""

GUARD_BITS = 64
"""Working precision beyond the known places of the uniform numbers."""


def fresh_seed() -> str:
    """A new public seed, 128 bits of operating-system entropy in hexadecimal."""
    return secrets.token_hex(16)


def public_generator(seed: str, purpose: str) -> np.random.Generator:
    """The reproducible stream of a public seed; different purposes get independent streams."""
    from randomgen import ChaCha

    words = [int(seed, 16), int.from_bytes(purpose.encode(), "big")]
    return np.random.Generator(ChaCha(seed=np.random.SeedSequence(words)))


class Noise(Protocol):
    """What a mechanism may draw."""

    @property
    def seeded(self) -> bool:
        """Whether the draws can be repeated: true in tests only."""

    def bits(self, count: int) -> int:
        """A uniform integer of that many bits."""

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Independent integers with mass proportional to exp(-|x| / scale)."""

    def discrete_gaussian(self, scale: float, size: int) -> list[int]:
        """Independent integers with mass proportional to exp(-x² / (2 scale²))."""


class SystemNoise:
    """Operating-system entropy: OpenDP's exact samplers, and `secrets` for raw bits."""

    seeded = False

    def bits(self, count: int) -> int:
        """A uniform integer of that many bits."""
        return secrets.randbits(count)

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Independent integers with mass proportional to exp(-|x| / scale)."""
        dp = _opendp()
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return list(dp.m.make_laplace(*space, scale=scale)([0] * size))

    def discrete_gaussian(self, scale: float, size: int) -> list[int]:
        """Independent integers with mass proportional to exp(-x² / (2 scale²))."""
        dp = _opendp()
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
        return list(dp.m.make_gaussian(*space, scale=scale)([0] * size))


def _opendp() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


class SeededNoise:
    """Repeatable noise for tests: the same distributions to double precision, no secrecy at all."""

    seeded = True

    def __init__(self, seed: int) -> None:
        self._bits = random.Random(seed)  # noqa: S311  not for releases
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def bits(self, count: int) -> int:
        """A repeatable integer of that many bits."""
        return self._bits.getrandbits(count)

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Rounded continuous draws; close enough where the scale is large."""
        return [round(x) for x in self._generator.laplace(scale=scale, size=size).tolist()]

    def discrete_gaussian(self, scale: float, size: int) -> list[int]:
        """Rounded continuous draws; close enough where the scale is large."""
        return [round(x) for x in self._generator.normal(scale=scale, size=size).tolist()]


class LazyUniforms:
    """Independent uniform numbers in (0, 1), known to some binary places; more can be asked for.

    Each is given as a ball that holds every number with the known places, so what is
    computed from the balls holds what the ideal real numbers would have given.
    """

    def __init__(self, count: int, noise: Noise) -> None:
        self._noise = noise
        self.known_bits = FIRST_BITS
        self._places = [noise.bits(FIRST_BITS) for _ in range(count)]

    def extend(self) -> None:
        """Double the known places; those already known stay."""
        more = self.known_bits
        self._places = [(known << more) | self._noise.bits(more) for known in self._places]
        self.known_bits += more

    def balls(self) -> list[arb]:
        """One ball a number."""
        from flint import arb

        unit = arb(2) ** -(self.known_bits + 1)
        return [arb(2 * known + 1, 1) * unit for known in self._places]


class WishartDifference:
    """One draw of symmetric noise Z = A - B, in blocks, as certified balls.

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

    def rounded_sums(self, offsets: Sequence[Sequence[int]], *, unit: int, step: int) -> list[list[int]]:
        """The upper triangles of (offset + unit Z) / step, rounded to whole numbers without error.

        A rounding that the balls cannot decide asks for more places of the same
        uniform numbers, so the result is what exact real arithmetic would give.
        """
        while True:
            rows = self._try_rounding(offsets, Fraction(unit, step), step)
            if rows is not None:
                return rows
            self._normals.extend()
            self._traces.extend()

    def _try_rounding(self, offsets: Sequence[Sequence[int]], scale: Fraction, step: int) -> list[list[int]] | None:
        from flint import arb, ctx, fmpq

        with ctx.workprec(self._normals.known_bits + GUARD_BITS):
            factor = arb(fmpq(scale.numerator, scale.denominator))
            result = []
            for block, offset in zip(self._difference(), offsets, strict=True):
                cells = [block[i, j] for i in range(self.dimension) for j in range(i, self.dimension)]
                row = [
                    (cell * factor + arb(fmpq(2 * base + step, 2 * step))).floor().unique_fmpz()
                    for cell, base in zip(cells, offset, strict=True)
                ]
                if any(whole is None for whole in row):
                    return None
                result.append([int(whole) for whole in row])
            return result

    def _difference(self) -> list[arb_mat]:
        """The blocks of Z at the present working precision."""
        from flint import arb, fmpq

        plus, minus = self._wisharts()
        if not self.trace_factor:
            scale = arb(fmpq(self.rate.denominator, 2 * self.rate.numerator))
            return [(a - b) * scale for a, b in zip(plus, minus, strict=True)]
        trace_plus, trace_minus = self._trace_pair()
        ratio_plus, ratio_minus = trace_plus / _trace(plus), trace_minus / _trace(minus)
        return [a * ratio_plus - b * ratio_minus for a, b in zip(plus, minus, strict=True)]

    def _wisharts(self) -> tuple[list[arb_mat], list[arb_mat]]:
        from flint import arb, arb_mat

        root = arb(2).sqrt()
        normals = [(2 * u - 1).erfinv() * root for u in self._normals.balls()]
        size = self.dimension * (self.dimension + 1)
        products = []
        for start in range(0, len(normals), size):
            factor = arb_mat(self.dimension, self.dimension + 1, normals[start : start + size])
            products.append(factor * factor.transpose())
        return products[: self.blocks], products[self.blocks :]

    def _trace_pair(self) -> tuple[arb, arb]:
        """tr A and tr B: the larger is Gamma(2N, rate 2c), the smaller that times U^(1/N), a coin says which."""
        from flint import arb, fmpq

        first, *rest = self._traces.balls()
        gamma = -sum((u.log() for u in rest), arb(0))
        larger = gamma * arb(fmpq(self.rate.denominator, 2 * self.rate.numerator))
        smaller = larger * (first.log() / self._shape).exp()
        return (larger, smaller) if self._coin else (smaller, larger)


def _trace(blocks: list[arb_mat]) -> arb:
    from flint import arb

    return sum((block[i, i] for block in blocks for i in range(block.nrows())), arb(0))
