"""Certified normal numbers and decisions about real numbers: every result is that of exact real arithmetic.

Uniform numbers are known to finitely many binary places, and more are drawn where these do not decide a rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpcore.noise.sources import Noise

if TYPE_CHECKING:
    from flint import arb

FIRST_BITS = 128
"""Binary places of each uniform number that are drawn first."""

GUARD_BITS = 64
"""Working precision beyond the known places of the uniform numbers."""

QUICK_BITS = 64
"""Working precision of the first attempt at a rounding or decision; it nearly always suffices."""


class LazyUniforms:
    """Independent uniform numbers in (0, 1), known to finitely many binary places; more can be drawn.

    Each is represented by a ball that contains every number with the known places, so a
    result computed from the balls contains the result for the ideal real numbers.
    """

    def __init__(self, count: int, noise: Noise) -> None:
        self._noise = noise
        self.known_bits = FIRST_BITS
        self._places = [noise.bits(FIRST_BITS) for _ in range(count)]

    def extend(self) -> None:
        """Double the known places; those already known stay as they are."""
        more = self.known_bits
        self._places = [(known << more) | self._noise.bits(more) for known in self._places]
        self.known_bits += more

    def balls(self) -> list[arb]:
        """One ball per number."""
        from flint import arb

        unit = arb(2) ** -(self.known_bits + 1)
        return [arb(2 * known + 1, 1) * unit for known in self._places]

    def precisions(self) -> tuple[int, int]:
        """Working precisions at which a rounding is tried before more places are drawn."""
        return QUICK_BITS, self.known_bits + GUARD_BITS


class NormalSums:
    """Independent normal numbers as certified balls, to be added to whole numbers."""

    def __init__(self, count: int, noise: Noise) -> None:
        self._uniforms = LazyUniforms(count, noise)

    def add_and_round(self, offsets: Sequence[int], variances: Sequence[Fraction]) -> list[int]:
        """Add a normal number of the given variance to each offset and round to a whole number without error.

        If a ball does not decide a rounding, more places of the same uniform numbers
        are drawn, so the result is that of exact real arithmetic.
        """
        whole: list[Any] = [None] * len(offsets)
        while True:
            for bits in self._uniforms.precisions():
                self._round_undecided(whole, variances, bits)
                if all(number is not None for number in whole):
                    return [base + int(number) for base, number in zip(offsets, whole, strict=True)]
            self._uniforms.extend()

    def _round_undecided(self, whole: list[Any], variances: Sequence[Fraction], bits: int) -> None:
        """Round the normal numbers that no ball has decided yet."""
        from flint import arb, ctx, fmpq

        with ctx.workprec(bits):
            half = arb(1) / 2
            roots = {v: arb(fmpq(2 * v.numerator, v.denominator)).sqrt() for v in set(variances)}
            for k, (u, v) in enumerate(zip(self._uniforms.balls(), variances, strict=True)):
                if whole[k] is None:
                    whole[k] = ((2 * u - 1).erfinv() * roots[v] + half).floor().unique_fmpz()


def decide(question: Callable[[], bool | None], uniforms: Sequence[LazyUniforms]) -> bool:
    """Answer a question about the ideal real numbers, drawing more of their places until the balls decide it."""
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


def is_positive(ball: arb) -> bool | None:
    """Whether a nonzero number is positive; None if its ball does not decide it."""
    return True if ball > 0 else False if ball < 0 else None
