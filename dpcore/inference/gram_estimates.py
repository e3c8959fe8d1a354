"""Noisy sums of products of functionals out of a released measurement, and draws of the noise on them."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from dpcore.inference.functionals import Functional, NotIdentifiedError
from dpcore.measure import Released
from dpcore.measurements.noise_law import draw_gram_noise, draw_sums_noise
from dpcore.mechanisms.base import GramEvent
from dpcore.records.exact_sums import GRID_BITS, POINT_BITS

Floats = NDArray[np.float64]

CLOSE = 1e-5
"""A functional that the projection misses by less than this share of its length is one that it knows."""

OUTSIDE = (
    "the projection leaves a part of it out: it takes a release that keeps every coordinate, such as one with "
    "`projection: none`"
)


class NoisyProducts:
    """A noisy Gram measurement, asked for sums over all records of the product of two functionals.

    A term is a functional as coefficients of the measured records z, one row a block. `basis` is what the points
    passed before they were measured; `sums` are counts and sums that were measured apart and stand in for the
    blocks' own; `refusal` says why a functional outside of the basis is not known.
    """

    def __init__(
        self,
        released: Released,
        *,
        classes: int,
        draws: int,
        basis: Floats | None = None,
        sums: Released | None = None,
        refusal: str = OUTSIDE,
    ) -> None:
        self.layout, self._event = released.event.layout, released.event
        self._classes, self._basis, self._sums, self._draws = classes, basis, sums, draws
        self._refusal = refusal
        self._weight = 1.0 if sums else float(self.layout.count_weight)
        self._blocks = released.matrices()
        if sums is not None:
            counts, totals = sums.counts_and_sums()
            self._blocks[:, 0, :] = self._blocks[:, :, 0] = np.column_stack([counts, totals])
        self._blocks *= _label_mask(self.layout.heads, self.layout.dimension)

    @property
    def separates_classes(self) -> bool:
        """Whether second moments are known class by class."""
        return self.layout.blocks == self._classes

    def term(self, functional: Functional) -> Floats:
        """The functional as a term.

        Raises: NotIdentifiedError where the projection or the layout does not know it.
        """
        heads = self.layout.heads
        term = np.zeros((self.layout.blocks, self.layout.dimension))
        constants = functional.constants / self._weight
        if self.layout.labels:
            term[0, :heads] = constants
        elif self.separates_classes:
            term[:, 0] = constants
        elif np.all(constants == constants[0]):
            term[:, 0] = constants[0]
        else:
            raise NotIdentifiedError("the measurement that knows the column holds all classes together")
        term[:, heads:] = self._projected(functional.weights)
        return term

    def _projected(self, weights: Floats) -> Floats:
        if self._basis is None:
            return weights
        solution = np.asarray(np.linalg.lstsq(self._basis, weights, rcond=None)[0], dtype=np.float64)
        if np.linalg.norm(self._basis @ solution - weights) > CLOSE * np.linalg.norm(weights):
            raise NotIdentifiedError(self._refusal)
        return solution

    def in_class(self, terms: Floats, index: int) -> Floats:
        """The terms among the records of one class, 0 elsewhere.

        Raises: NotIdentifiedError where classes are not measured apart.
        """
        if not self.separates_classes:
            raise NotIdentifiedError("this release knows products of two columns for all classes together only")
        own = np.zeros_like(terms)
        own[:, index] = terms[:, index]
        return own

    def noisy(self, terms: Floats) -> Floats:
        """The noisy sums of every two terms' product."""
        by_block = np.swapaxes(terms, 0, 1)
        sums: Floats = np.sum(by_block @ self._blocks @ np.swapaxes(by_block, 1, 2), axis=0)
        return sums

    def noise(self, terms: Floats) -> Floats:
        """Draws of the noise on these sums, one matrix each."""
        apart = None if self._sums is None else self._sums.event
        return _draw_product_noise(self._event, apart, np.ascontiguousarray(terms).tobytes(), len(terms), self._draws)

    def rounding_bound(self, term: Floats) -> float:
        """The most by which the grids move a term's value in a record."""
        fine = 0.0 if self._basis is None else float(np.abs(self._basis).sum(axis=0).max()) * 2.0**-POINT_BITS
        coefficients = np.abs(term[:, self.layout.heads :]).sum(axis=1).max()
        return float(coefficients) * (2.0**-GRID_BITS + fine)


@functools.lru_cache(maxsize=12)  # an analyst asks for the same quantity of table and population
def _draw_product_noise(
    event: GramEvent, apart: GramEvent | None, terms_bytes: bytes, count: int, draws: int
) -> Floats:
    """Draws of the noise on the sums of every two terms' product."""
    layout = event.layout
    terms = np.frombuffer(terms_bytes).reshape(count, layout.blocks, layout.dimension)
    basis = _spanning_basis(terms, layout.heads)
    noise = draw_gram_noise(event, basis, draws)
    if apart is not None:
        noise[:, :, 0, :] = draw_sums_noise(apart, basis[layout.heads :, layout.heads :], len(noise))
        noise[:, :, :, 0] = noise[:, :, 0, :]
    noise *= _label_mask(layout.heads, basis.shape[1])
    inside = terms @ basis
    products = np.einsum("iba,jbc->bacij", inside, inside).reshape(-1, count**2)
    drawn: Floats = (noise.reshape(len(noise), -1) @ products).reshape(-1, count, count)
    drawn.setflags(write=False)
    return drawn


def _spanning_basis(terms: Floats, heads: int) -> Floats:
    """Orthonormal columns that span the terms: the heads one by one, then what is needed of the points."""
    size = terms.shape[2]
    _, lengths, directions = np.linalg.svd(terms[:, :, heads:].reshape(-1, size - heads), full_matrices=False)
    kept = directions[lengths > CLOSE * lengths.max()] if lengths.max() > 0 else directions[:0]
    basis = np.zeros((size, heads + len(kept)))
    basis[:heads, :heads], basis[heads:, heads:] = np.eye(heads), kept.T
    return basis


def _label_mask(heads: int, size: int) -> Floats:
    """1, and 0 between two labels: no record has both."""
    mask = np.ones((size, size))
    mask[:heads, :heads] = np.eye(heads)
    return mask
