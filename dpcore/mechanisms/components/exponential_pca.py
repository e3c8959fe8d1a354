"""The exponential mechanism for principal components: a frame from the matrix Bingham distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.accounting import Budget, Epsilon
from dpcore.mechanisms.base import UNIT, GramEvent, Output, Triangles, require_budget
from dpcore.mechanisms.components.orthonormal import on_grid, orthonormal, pooled_points, require_components
from dpcore.noise.sources import Noise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Floats, Neighbours

GIBBS_SWEEPS = 30
"""Sweeps of the Gibbs sampler, a public constant.

An update replaces one random direction of k, so the start's influence after s sweeps
of k updates is about (1 - 1/k)^(sk) <= e^-s. That is a rule of thumb, not a bound.
"""

PROPOSALS_AT_ONCE = 32
"""In the worst case about 0.86 / sqrt(m) of the proposals are accepted: one in nine at m = 64."""

BISECTIONS = 20
"""Bisection steps to the most efficient envelope; every envelope gives the same law."""


@dataclass(frozen=True, slots=True)
class BinghamMechanism:
    """A frame V of k directions with density proportional to exp(c tr VᵀGV), G the points' second moments.

    Guarantee: pure epsilon = c r (add-remove) or 2 c r (replace-one) for a frame of exactly
    that law (GUARANTEE.md, M8); Chaudhuri, Sarwate and Sinha's PPCA. Approximate:
    the sampler is exact in real arithmetic for one direction, for all but one and for all,
    by rejection; between them a Gibbs sampler makes a fixed number of sweeps of exact
    conditionals, which is not proved to have mixed. Either is computed in double precision
    without a certified bound on its error.
    """

    name: str = "exponential-pca"
    output: Output = Output.BASIS

    def calibrate(self, layout: GramLayout, neighbours: Neighbours, budget: Budget, *, components: int) -> GramEvent:
        """The event that spends the whole epsilon.

        Raises: ValueError for a budget that is no epsilon, or more directions than coordinates.
        """
        epsilon = require_budget(self.name, budget, Epsilon)
        require_components(self.name, layout, components)
        return GramEvent(
            mechanism=self.name,
            neighbours=neighbours,
            layout=layout,
            noise=epsilon / score_range(layout, neighbours),
            step=1,
            components=components,
        )

    def cost(self, event: GramEvent, neighbours: Neighbours | None = None) -> Budget:
        """Epsilon = c times the range of the score's change."""
        require_components(self.name, event.layout, event.components)
        return Epsilon(event.noise * score_range(event.layout, neighbours or event.neighbours))

    def draw(self, sums: Triangles, event: GramEvent, noise: Noise) -> list[list[int]]:
        """Draw the frame on the grid of projections, one list per direction."""
        rate = event.noise / UNIT
        moments = [[float(cell * rate) for cell in row] for row in pooled_points(sums, event.layout)]
        frame = sample_bingham_frame(np.array(moments), event.components, noise.generator())
        return [[int(cell) for cell in column] for column in on_grid(frame).T]

    def delta_num(self, event: GramEvent) -> Fraction:
        """Zero, but not certified, which is why the mechanism is called approximate."""
        return Fraction(0)


def score_range(layout: GramLayout, neighbours: Neighbours) -> Fraction:
    """Largest minus smallest change of tr VᵀGV over all frames V when one unit changes (GUARANTEE.md, M8).

    An added unit adds between 0 and r to every score; a replaced unit adds and subtracts as much.
    """
    r = Fraction(layout.rows_per_unit)
    return r if neighbours is Neighbours.ADD_REMOVE else 2 * r


def mean_overlap(width: int, components: int, loss: float) -> float:
    """E tr VᵀxxᵀV for a frame with density proportional to exp(loss tr VᵀxxᵀV), x any unit vector.

    The overlap of a uniform frame is a Beta(k/2, (m-k)/2) variable; its mean under the tilt is
    (k/m) M(k/2 + 1, m/2 + 1, loss) / M(k/2, m/2, loss), where M is Kummer's function.
    """
    from scipy.special import hyp1f1

    a, b = components / 2, width / 2
    return float(a / b * hyp1f1(a + 1, b + 1, loss) / hyp1f1(a, b, loss))


def sample_bingham_frame(matrix: Floats, components: int, generator: np.random.Generator) -> Floats:
    """Draw a frame V with density proportional to exp(tr Vᵀ matrix V) on orthonormal frames.

    The choice of the sampler depends on the shape alone, never on the entries of the matrix.
    """
    width = len(matrix)
    if components == width:
        return orthonormal(generator.standard_normal(matrix.shape))
    if components == 1:
        return sample_bingham_direction(matrix, generator)[:, None]
    if components == width - 1:  # tr VᵀGV = tr G - vᵀGv for the one direction v that is left out
        return complement(sample_bingham_direction(-matrix, generator)[:, None])
    return sample_gibbs_frame(matrix, components, generator, GIBBS_SWEEPS)


def sample_gibbs_frame(matrix: Floats, components: int, generator: np.random.Generator, sweeps: int) -> Floats:
    """Draw a frame by Gibbs sweeps over the columns, each from its exact law given the others (Hoff 2009).

    The start is uniform, since one that depends on the rows would itself be a release. The density is
    invariant under rotations of the frame within its span, so a uniform rotation precedes
    every update: without it columns would only move out of their span, never within it.
    """
    frame = orthonormal(generator.standard_normal((len(matrix), components)))
    for _ in range(sweeps * components):
        turned = frame @ orthonormal(generator.standard_normal((components, components)))
        kept = turned[:, 1:]
        free = complement(kept)
        fresh = free @ sample_bingham_direction(free.T @ matrix @ free, generator)
        frame = np.column_stack([fresh, kept])
    return orthonormal(frame)


def complement(frame: Floats) -> Floats:
    """An orthonormal basis of the orthogonal complement of the frame."""
    whole: Floats = np.linalg.qr(frame, mode="complete")[0]
    return whole[:, frame.shape[1] :]


def sample_bingham_direction(matrix: Floats, generator: np.random.Generator) -> Floats:
    """Draw a direction x with density proportional to exp(xᵀ matrix x) on the unit sphere.

    Exact in real arithmetic: proposals from the angular central Gaussian distribution are
    accepted with the ratio of the densities (Kent, Ganeiber and Mardia).
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    envelope = Envelope.of(values.max() - values)
    while True:
        proposals = envelope.propose(generator, PROPOSALS_AT_ONCE)
        kept = np.log(generator.random(PROPOSALS_AT_ONCE)) < envelope.log_acceptance(proposals)
        if kept.any():
            direction: Floats = vectors @ proposals[np.argmax(kept)]
            return direction


@dataclass(frozen=True, slots=True)
class Envelope:
    """Angular central Gaussian proposals for the density exp(-Σ aᵢ xᵢ²), a >= 0, on the unit sphere.

    With u = Σ aᵢ xᵢ² the proposals' density is proportional to (1 + 2u/b)^(-m/2), and
    exp(-u) (1 + 2u/b)^(m/2) is largest at u = (m - b)/2: a bound for every b in (0, m].
    """

    losses: Floats
    spread: float

    @staticmethod
    def of(losses: Floats) -> Envelope:
        """The envelope with the largest acceptance rate: b in [1, m] with Σ 1/(b + 2aᵢ) = 1."""
        low, high = 1.0, float(len(losses))
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if np.sum(1 / (middle + 2 * losses)) > 1 else (low, middle)
        return Envelope(losses, (low + high) / 2)

    def propose(self, generator: np.random.Generator, count: int) -> Floats:
        """Draw independent proposals, one per row."""
        normals = generator.standard_normal((count, len(self.losses))) / np.sqrt(1 + 2 * self.losses / self.spread)
        proposals: Floats = normals / np.linalg.norm(normals, axis=1, keepdims=True)
        return proposals

    def log_acceptance(self, proposals: Floats) -> Floats:
        """Logarithm of the acceptance probability of each proposal."""
        m, b = len(self.losses), self.spread
        u = proposals**2 @ self.losses
        most = m / 2 * math.log(m / b) - (m - b) / 2
        return m / 2 * np.log1p(2 * u / b) - u - most


EXPONENTIAL_PCA = BinghamMechanism()
