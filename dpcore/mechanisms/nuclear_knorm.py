"""Nuclear K-norm noise: pure epsilon, with the least noise of the exact mechanisms on small blocks."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

from dpcore.accounting import Budget, Epsilon
from dpcore.mechanisms.base import (
    STEP_SHARE_BITS,
    UNIT,
    CertifiedNoise,
    ExpectedError,
    GramEvent,
    Output,
    Triangles,
    require_budget,
    triangle_size,
)
from dpcore.mechanisms.sensitivity import gram_nuclear
from dpcore.noise.nuclear import NuclearNoise
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

if TYPE_CHECKING:
    from flint import fmpq_poly

LARGEST_DIMENSION = 8
"""A block of this size is accepted once in about 1500 draws; each further dimension makes that ten times rarer."""


@dataclass(frozen=True, slots=True)
class NuclearMechanism(CertifiedNoise):
    """Noise of density proportional to exp(-c |Z|) on the blocks, where |Z| is the sum of their nuclear norms.

    Under replace-one the density is proportional to exp(-2c max(tr Z₊, tr Z₋)), over all blocks together.
    Guarantee: pure epsilon = c times the nuclear sensitivity (GUARANTEE.md, M5).
    A draw takes about 1 ms at dimension 2, 6 ms at 4 and 5 s at 8 for each block under
    add-remove, and the same for a single block under replace-one; three blocks under
    replace-one take 8 ms, 0.15 s and some minutes.
    """

    name: str = "nuclear-k-norm"
    output: Output = Output.GRAM

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget) -> GramEvent:
        """The event that spends the whole epsilon.

        Raises: ValueError for blocks of more than `LARGEST_DIMENSION` dimensions.
        """
        epsilon = require_budget(self.name, budget, Epsilon)
        rate = epsilon / self._sensitivity(layout, neighbours)
        step = _nuclear_step(layout, neighbours, rate)
        return GramEvent(mechanism=self.name, neighbours=neighbours, layout=layout, noise=rate, step=step)

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """Epsilon = c times the sensitivity; noise with the trace factor costs the same under either relation."""
        tied = event.neighbours is Neighbours.REPLACE_ONE
        relation = event.neighbours if tied else neighbours or event.neighbours
        return Epsilon(event.noise * self._sensitivity(event.layout, relation))

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> Triangles:
        """Draw noisy triangles in whole steps, rounded without error."""
        source = NuclearNoise(
            dimension=event.layout.dimension,
            blocks=event.layout.blocks,
            rate=event.noise,
            trace_factor=event.neighbours is Neighbours.REPLACE_ONE,
            noise=noise,
        )
        return source.add_and_round(sums, unit=UNIT, step=event.step)

    def expected_error(self, event: GramEvent) -> ExpectedError:
        """Exact root mean squares; the operator norm's large-dimension limit, π p / (2c) (GUARANTEE.md, M5)."""
        p, rate = event.layout.dimension, float(event.noise)
        squared, off_diagonal = mean_squares(p, event.layout.blocks, event.neighbours)
        frobenius = math.sqrt(squared) / rate
        return ExpectedError(
            frobenius=frobenius,
            operator=min(math.pi * p / (2 * rate), frobenius),
            off_diagonal_sd=math.sqrt(off_diagonal) / rate,
            diagonal_sd=math.sqrt((squared - p * (p - 1) * off_diagonal) / p) / rate,
        )

    def _sensitivity(self, layout: GramLayout, neighbours: Neighbours) -> Fraction:
        if layout.dimension > LARGEST_DIMENSION:
            raise ValueError(
                f"{self.name} needs blocks of dimension at most {LARGEST_DIMENSION}, the count's coordinate among "
                f"them, got {layout.dimension}"
            )
        return gram_nuclear(neighbours, squared_norm=layout.squared_norm)


def _nuclear_step(layout: GramLayout, neighbours: Neighbours, rate: Fraction) -> int:
    """The output step: a power of two that is small relative to the off-diagonal standard deviation."""
    _, variance = mean_squares(layout.dimension, layout.blocks, neighbours)
    deviation = math.isqrt(math.floor(variance * (UNIT / rate) ** 2))
    return 1 << max(0, deviation.bit_length() - 1 - STEP_SHARE_BITS)


@functools.cache
def mean_squares(p: int, blocks: int, neighbours: Neighbours) -> tuple[Fraction, Fraction]:
    """Exact means of one block's squared Frobenius norm and of a squared off-diagonal entry, at rate 1.

    The mass of a block, as a function of the rates α of tr Z₊ and β of tr Z₋, is a sum of
    terms α^-j β^-m (`_mass`), and so are the integrals of |Z|² and of (tr Z)²
    (GUARANTEE.md, M5); the masses of the other blocks are factors.
    """
    size = triangle_size(p)
    mass, squares = _mass(p), _mass_of_squares(p)
    others, rest = mass ** (blocks - 1), size * (blocks - 1)

    def mean(numerator: fmpq_poly) -> Fraction:
        return _total(numerator * others, size + 2 + rest, neighbours) / _total(mass * others, size + rest, neighbours)

    frobenius, trace = mean(squares), mean(_mass_of_squared_trace(mass, size))
    return frobenius, (frobenius - trace / p) / ((p - 1) * (p + 2)) if p > 1 else Fraction(0)


def _total(poly: fmpq_poly, degree: int, neighbours: Neighbours) -> Fraction:
    """The integral of a mass: a term α^-j β^-m contributes 1, or C(j+m, j) 2^-(j+m) under replace-one."""
    terms, below = [int(c) for c in poly.numer().coeffs()], int(poly.denom())
    if neighbours is Neighbours.ADD_REMOVE:
        return Fraction(sum(terms), below)
    binomials = accumulate(range(degree), lambda before, j: before * (degree - j) // (j + 1), initial=1)
    return Fraction(sum(map(mul, terms, binomials)), below << degree)


def _mass(p: int) -> fmpq_poly:
    """Integral of the eigenvalues' density with rates α and β, in 1/α at β = 1, up to a constant."""
    return _pfaffian(_pairings(p), tuple(range(p + p % 2)))


def _mass_of_squares(p: int) -> fmpq_poly:
    """`_mass` with the sum of squared eigenvalues in the integrand: each weight in turn times the squared value."""
    matrix, rows = _pairings(p), tuple(range(p + p % 2))
    total = 0 * matrix[0][0]
    for i in rows:
        for j in rows[i + 1 :]:
            minor = _pfaffian(matrix, tuple(k for k in rows if k not in (i, j)))
            total += (-1) ** (i + j + 1) * _squared_pairing(i, j, p) * minor
    return total


def _mass_of_squared_trace(mass: fmpq_poly, size: int) -> fmpq_poly:
    """`_mass` with (tr Z₊ - tr Z₋)² in the integrand: second derivatives in the rates."""
    from flint import fmpq_poly

    x = fmpq_poly([0, 1])
    total = fmpq_poly()
    for j, weight in enumerate(mass.coeffs()):
        m = size - j
        total += weight * x**j * (j * (j + 1) * x**2 - 2 * j * m * x + m * (m + 1))
    return total


def _pairings(p: int) -> list[list[fmpq_poly]]:
    """De Bruijn's matrix of double integrals of sgn(y - x) xⁱ yʲ, bordered by single integrals if p is odd."""
    even = p + p % 2
    return [[_pairing(i, j) if j < p else _moment(i) for j in range(even)] for i in range(even)]


def _squared_pairing(i: int, j: int, p: int) -> fmpq_poly:
    """An entry of the matrix with x² + y² in the integrand."""
    return _pairing(i + 2, j) + _pairing(i, j + 2) if j < p else _moment(i + 2)


def _pfaffian(matrix: list[list[fmpq_poly]], rows: tuple[int, ...]) -> fmpq_poly:
    """The Pfaffian of some rows and the same columns, expanded along the first row; uses the upper triangle."""
    from flint import fmpq_poly

    if not rows:
        return fmpq_poly([1])
    first, rest = rows[0], rows[1:]
    terms = ((-1) ** k * matrix[first][j] * _pfaffian(matrix, rest[:k] + rest[k + 1 :]) for k, j in enumerate(rest))
    return sum(terms, fmpq_poly())


def _moment(a: int) -> fmpq_poly:
    """Integral of λᵃ exp(-α λ₊ - β λ₋)."""
    from flint import fmpq_poly

    x = fmpq_poly([0, 1])
    return math.factorial(a) * (x ** (a + 1) + (-1) ** a)


def _pairing(a: int, b: int) -> fmpq_poly:
    """Integral of sgn(y - x) xᵃ yᵇ exp(-α x₊ - β x₋ - α y₊ - β y₋), quadrant by quadrant."""
    from flint import fmpq, fmpq_poly

    x, across = fmpq_poly([0, 1]), math.factorial(a) * math.factorial(b)
    tail = sum((Fraction(math.comb(b + k, k), 2 ** (b + k)) for k in range(a + 1)), Fraction(0))
    inside = across * (1 - tail)  # both positive, at rate 1
    same = fmpq(inside.numerator, inside.denominator) * (x ** (a + b + 2) - (-1) ** (a + b))
    return same + across * ((-1) ** a * x ** (b + 1) - (-1) ** b * x ** (a + 1))


NUCLEAR = NuclearMechanism()
