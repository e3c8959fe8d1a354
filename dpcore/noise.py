"""The only door to randomness.

* `SystemNoise` draws the noise of every release: operating-system entropy, no seed.
* `SeededNoise` exists for tests and replays; whatever is made with it says so, and
  publishing refuses it.
* `public_generator` gives the reproducible stream of a public seed, for projections
  and sampling, which need no secrecy; `fresh_seed` draws such a seed.
"""

from __future__ import annotations

import functools
import random
import secrets
import string
from collections.abc import Callable, Sequence
from fractions import Fraction
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from flint import arb, arb_mat

FIRST_BITS = 128
"""Binary places of each uniform number before more are asked for."""

GUARD_BITS = 64
"""Working precision beyond the known places of the uniform numbers."""

QUICK_BITS = 64
"""Working precision at which a rounding or a yes or no is tried first; nearly always it is enough."""


def fresh_seed() -> str:
    """A new public seed, 128 bits of operating-system entropy in hexadecimal."""
    return secrets.token_hex(16)


def seed_of(random_state: str | int | None) -> str:
    """The public seed that a caller names, as hexadecimal text or as a number; a fresh one for None.

    Raises: ValueError for anything else.
    """
    if random_state is None:
        return fresh_seed()
    if isinstance(random_state, Integral) and random_state >= 0:
        return f"{int(random_state):x}"
    if isinstance(random_state, str) and random_state and set(random_state) <= set(string.hexdigits):
        return random_state
    raise ValueError(f"random_state must be None, hexadecimal digits or a number from 0 on, got {random_state!r}")


def public_generator(seed: str, purpose: str) -> np.random.Generator:
    """The reproducible stream of a public seed; different purposes get independent streams."""
    from randomgen import ChaCha

    words = [int(seed, 16), int.from_bytes(purpose.encode(), "big")]
    return np.random.Generator(ChaCha(seed=np.random.SeedSequence(words)))


def bulk_generator(seed: str, purpose: str) -> np.random.Generator:
    """As `public_generator`, three times as fast: for synthetic rows, of which there may be very many.

    Its state can be told from what it draws, which tells no more than the public seed does.
    """
    words = [int(seed, 16), int.from_bytes(purpose.encode(), "big")]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words)))


class Noise(Protocol):
    """What a mechanism may draw."""

    @property
    def seeded(self) -> bool:
        """Whether the draws can be repeated: true in tests only."""

    def bits(self, count: int) -> int:
        """A uniform integer of that many bits."""

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Independent integers with mass proportional to exp(-|x| / scale)."""

    def generator(self) -> np.random.Generator:
        """A stream of floating-point draws.

        For what needs no secrecy, such as a random start, and for mechanisms whose entry in
        the registry says `approximate`: nothing bounds the error of these draws, so no
        proved guarantee may rest on them.
        """


class SystemNoise:
    """Operating-system entropy: OpenDP's exact samplers, and `secrets` for raw bits."""

    seeded = False

    def bits(self, count: int) -> int:
        """A uniform integer of that many bits."""
        return secrets.randbits(count)

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Independent integers with mass proportional to exp(-|x| / scale)."""
        return list(_laplace_on_zeros(scale)([0] * size))

    def generator(self) -> np.random.Generator:
        """A new ChaCha stream under a key of operating-system entropy."""
        from randomgen import ChaCha

        return np.random.Generator(ChaCha(key=secrets.randbits(256)))


@functools.lru_cache(maxsize=64)  # making one takes longer than the few draws it is asked for
def _laplace_on_zeros(scale: float) -> Callable[[list[int]], list[int]]:
    """OpenDP's exact sampler; it holds no state between draws."""
    from opendp import domains, measurements, metrics, mod  # its prelude would load scikit-learn and pandas

    mod.enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")
    sampler: Callable[[list[int]], list[int]] = measurements.make_laplace(*space, scale=scale)
    return sampler


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

    def generator(self) -> np.random.Generator:
        """The repeatable stream itself."""
        return self._generator


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

    def precisions(self) -> tuple[int, int]:
        """Working precisions at which a rounding is tried before more places are asked for."""
        return QUICK_BITS, self.known_bits + GUARD_BITS


class NormalSums:
    """Independent normal numbers as certified balls, to be added to whole numbers."""

    def __init__(self, count: int, noise: Noise) -> None:
        self._uniforms = LazyUniforms(count, noise)

    def rounded(self, offsets: Sequence[int], variances: Sequence[Fraction]) -> list[int]:
        """Each offset plus a normal number of its variance, rounded to a whole number without error.

        A rounding that a ball cannot decide asks for more places of the same uniform
        numbers, so the result is what exact real arithmetic would give.
        """
        whole: list[Any] = [None] * len(offsets)
        while True:
            for bits in self._uniforms.precisions():
                self._round_open(whole, variances, bits)
                if all(number is not None for number in whole):
                    return [base + int(number) for base, number in zip(offsets, whole, strict=True)]
            self._uniforms.extend()

    def _round_open(self, whole: list[Any], variances: Sequence[Fraction], bits: int) -> None:
        """Round the normal numbers that no ball has decided yet."""
        from flint import arb, ctx, fmpq

        with ctx.workprec(bits):
            half = arb(1) / 2
            roots = {v: arb(fmpq(2 * v.numerator, v.denominator)).sqrt() for v in set(variances)}
            for k, (u, v) in enumerate(zip(self._uniforms.balls(), variances, strict=True)):
                if whole[k] is None:
                    whole[k] = ((2 * u - 1).erfinv() * roots[v] + half).floor().unique_fmpz()


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
        self._computed: tuple[tuple[int, ...], tuple[list[arb_mat], list[arb_mat]]] | None = None

    def rounded_sums(self, offsets: Sequence[Sequence[int]], *, unit: int, step: int) -> list[list[int]]:
        """The upper triangles of (offset + unit Z) / step, rounded to whole numbers without error.

        A rounding that the balls cannot decide asks for more places of the same
        uniform numbers, so the result is what exact real arithmetic would give.
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
            for block, offset in zip(self._difference(), offsets, strict=True):
                cells = [block[i, j] for i in range(self.dimension) for j in range(i, self.dimension)]
                row = [
                    (cell * factor + arb(fmpq(2 * (base % step) + step, 2 * step))).floor().unique_fmpz()
                    for cell, base in zip(cells, offset, strict=True)
                ]
                if any(whole is None for whole in row):
                    return None
                result.append([base // step + int(whole) for base, whole in zip(offset, row, strict=True)])
            return result

    def _difference(self) -> list[arb_mat]:
        """The blocks of Z at the present working precision."""
        return [a - b for a, b in zip(*self.terms(), strict=True)]

    def terms(self) -> tuple[list[arb_mat], list[arb_mat]]:
        """The blocks of A and of B at the present working precision."""
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
            ratio_plus, ratio_minus = trace_plus / _trace(plus), trace_minus / _trace(minus)
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


class NuclearNoise:
    """One draw of symmetric noise Z, in blocks, of density proportional to exp(-c |Z|), nuclear norms added.

    Each block is a Wishart difference A - B, drawn again until A + B - |A - B| is
    positive semidefinite. With `trace_factor` the density is multiplied by
    exp(-c |tr Z|), the trace over all blocks: a single block starts from the Wishart
    difference with that factor; several are kept with that probability, or all drawn
    again (GUARANTEE.md, M5). Every decision is certified.
    """

    def __init__(self, *, dimension: int, blocks: int, rate: Fraction, trace_factor: bool, noise: Noise) -> None:
        self._noise, self._dimension, self._rate = noise, dimension, rate
        self._factor_at_once = trace_factor and blocks == 1
        self._blocks = self._draw(blocks)
        while trace_factor and not self._factor_at_once and not self._kept():
            self._blocks = self._draw(blocks)

    def rounded_sums(self, offsets: Sequence[Sequence[int]], *, unit: int, step: int) -> list[list[int]]:
        """The upper triangles of (offset + unit Z) / step, rounded to whole numbers without error."""
        pairs = zip(self._blocks, offsets, strict=True)
        return [block.rounded_sums([offset], unit=unit, step=step)[0] for block, offset in pairs]

    def _draw(self, blocks: int) -> list[WishartDifference]:
        return [self._block() for _ in range(blocks)]

    def _block(self) -> WishartDifference:
        """A Wishart difference that passes the test."""
        while True:
            block = WishartDifference(
                dimension=self._dimension,
                blocks=1,
                rate=self._rate,
                trace_factor=self._factor_at_once,
                noise=self._noise,
            )
            if _decided(functools.partial(_dominates, block), block.uniforms):
                return block

    def _kept(self) -> bool:
        """True with probability exp(-c |tr Z|): an exponential number is compared with c |tr Z|."""
        from flint import arb, fmpq

        uniform = LazyUniforms(1, self._noise)

        def longer() -> bool | None:
            rate = arb(fmpq(self._rate.numerator, self._rate.denominator))
            total = _trace([z for block in self._blocks for z in block._difference()])
            return _positive(-uniform.balls()[0].log() - rate * abs(total))

        return _decided(longer, [uniform, *(part for block in self._blocks for part in block.uniforms)])


def _decided(question: Callable[[], bool | None], uniforms: Sequence[LazyUniforms]) -> bool:
    """The answer to a question about the ideal real numbers, with as many places of them as it takes."""
    from flint import ctx

    bits = QUICK_BITS
    while True:
        with ctx.workprec(bits):
            answer = question()
        if answer is not None:
            return answer
        bits *= 2
        for part in uniforms:
            if part.known_bits < bits:
                part.extend()


def _dominates(block: WishartDifference) -> bool | None:
    """Whether A + B - |A - B| is positive definite; None where the balls cannot tell."""
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
    except (ValueError, ZeroDivisionError):  # eigenvalues not told apart, or eigenvectors not known well enough
        return None


def _positive_definite(matrix: arb_mat) -> bool | None:
    """Whether every pivot of a symmetric matrix is positive; None where the balls cannot tell."""
    size, rows = matrix.nrows(), matrix.tolist()
    for k in range(size):
        sign = _positive(rows[k][k])
        if not sign:
            return sign
        for i in range(k + 1, size):
            ratio = rows[k][i] / rows[k][k]
            for j in range(i, size):
                rows[i][j] -= ratio * rows[k][j]
    return True


def _positive(ball: arb) -> bool | None:
    """The sign of a number that is not zero, if its ball shows it."""
    return True if ball > 0 else False if ball < 0 else None
