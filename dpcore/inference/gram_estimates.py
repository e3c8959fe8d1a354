"""Noisy sums of products of functionals from a released Gram measurement, and draws of their noise."""

from __future__ import annotations

import functools

import numpy as np

from dpcore.inference.functionals import Functional, NotIdentifiedError
from dpcore.measure import Released
from dpcore.measurements.noise_law import draw_gram_noise, draw_sums_noise
from dpcore.mechanisms.base import GramEvent
from dpcore.records.exact_sums import GRID_BITS, POINT_BITS
from dpcore.records.schema import Floats

CLOSE = 1e-5
"""Relative tolerance for a functional to lie in the span of the projection."""

OUTSIDE = (
    "the projection leaves a part of it out: it takes a release that keeps every coordinate, such as one with "
    "`projection: none`"
)


class NoisyProducts:
    """Sums over all records of the product of two functionals, estimated from a noisy Gram measurement.

    A term is a functional as coefficients of the measured records z, one row per block. `basis` is the projection
    that was applied before the measurement; `sums` are separately measured counts and sums, which replace those of
    the blocks; `refusal` is the message for a functional outside the span of the basis.
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
        """Whether second moments are known per class."""
        return self.layout.blocks == self._classes

    def term(self, functional: Functional) -> Floats:
        """Return the functional as a term.

        Raises: NotIdentifiedError if the projection or the layout does not identify it.
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
        """Return the terms restricted to the records of one class.

        Raises: NotIdentifiedError if second moments were not measured per class.
        """
        if not self.separates_classes:
            raise NotIdentifiedError("this release knows products of two columns for all classes together only")
        own = np.zeros_like(terms)
        own[:, index] = terms[:, index]
        return own

    def noisy(self, terms: Floats) -> Floats:
        """Return the matrix of the noisy sums of products of every two terms."""
        by_block = np.swapaxes(terms, 0, 1)
        sums: Floats = np.sum(by_block @ self._blocks @ np.swapaxes(by_block, 1, 2), axis=0)
        return sums

    def noise(self, terms: Floats) -> Floats:
        """Draw the noise on these sums, one matrix per draw."""
        apart = None if self._sums is None else self._sums.event
        return _draw_term_noise(self._event, apart, np.ascontiguousarray(terms).tobytes(), len(terms), self._draws)

    def rounding_bound(self, term: Floats) -> float:
        """Return the most by which rounding to the grids changes a term's value in a record."""
        fine = 0.0 if self._basis is None else float(np.abs(self._basis).sum(axis=0).max()) * 2.0**-POINT_BITS
        coefficients = np.abs(term[:, self.layout.heads :]).sum(axis=1).max()
        return float(coefficients) * (2.0**-GRID_BITS + fine)


@functools.lru_cache(maxsize=12)  # both estimands of a quantity use the same draws
def _draw_term_noise(event: GramEvent, apart: GramEvent | None, terms_bytes: bytes, count: int, draws: int) -> Floats:
    """Draw the noise on the sums of products of every two terms."""
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
    """Return orthonormal columns that span the terms: one per head, then those needed for the points."""
    size = terms.shape[2]
    _, lengths, directions = np.linalg.svd(terms[:, :, heads:].reshape(-1, size - heads), full_matrices=False)
    kept = directions[lengths > CLOSE * lengths.max()] if lengths.max() > 0 else directions[:0]
    basis = np.zeros((size, heads + len(kept)))
    basis[:heads, :heads], basis[heads:, heads:] = np.eye(heads), kept.T
    return basis


def _label_mask(heads: int, size: int) -> Floats:
    """Return a mask that is 0 between two different labels, which no record has both of, and 1 elsewhere."""
    mask = np.ones((size, size))
    mask[:heads, :heads] = np.eye(heads)
    return mask
