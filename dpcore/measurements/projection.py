"""Projections of encoded points: random or public ones, which cost no budget, and private principal components."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpcore.measure import Released
from dpcore.measurements.contribution import components_for_share
from dpcore.measurements.measurement_frame import Frame
from dpcore.measurements.noisy_moments import pooled_moments
from dpcore.mechanisms.base import GramEvent, Output
from dpcore.mechanisms.registry import mechanism_of
from dpcore.noise.sources import public_generator
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import PROJECTION_BITS, quantised_projection
from dpcore.records.schema import Floats


def haar_basis(width: int, dimension: int, generator: np.random.Generator) -> Floats:
    """Draw `dimension` orthonormal columns in `width` dimensions, uniformly (Haar) over all such bases.

    The columns are the QR factor of a *Gaussian* matrix, with the signs of R's diagonal removed;
    a uniform matrix, as in RON-Gauss's Algorithm 2, is not rotation-invariant.
    """
    factor, triangle = np.linalg.qr(generator.standard_normal((width, dimension)))
    return factor * np.where(np.diag(triangle) < 0, -1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Projection:
    """A public linear map of encoded points, whose entries are integer multiples of 2^-20.

    `columns` is None if points are kept unchanged. `centre` is a known mean point, public or released,
    which replaces the components that the projection drops; `centre_noise` is the measurement behind a
    released centre. With a `frame`, points and `centre` are relative to the frame's centre, in units of
    its radius.
    """

    kind: str
    width: int
    dimension: int
    columns: Floats | None
    centre: Floats | None = None
    centre_noise: GramEvent | None = None
    frame: Frame | None = None

    def framed(self, points: Floats) -> tuple[Floats, float]:
        """Return encoded points relative to the frame's centre, and the radius in units of which they are measured."""
        return (points, 1.0) if self.frame is None else (self.frame.centred(points), self.frame.radius)

    def with_frame(self, frame: Frame) -> Projection:
        """Return the projection of points in a frame; its centre is converted to the frame's coordinates."""
        centre = None if self.centre is None else (self.centre - frame.centre) / frame.radius
        return replace(self, frame=frame, centre=centre)

    def project(self, points: Floats) -> Floats:
        """Return encoded points in the projection's coordinates; linear, and `lift` is its right inverse.

        Measured points are also shortened to the unit ball (GUARANTEE.md, N1); these are not.
        """
        framed = points if self.frame is None else (points - self.frame.centre) / self.frame.radius
        return framed @ self.basis()

    def lift(self, points: Floats) -> Floats:
        """Return the encoded points with these projections that are nearest to the centre (or to 0)."""
        lifted = points if self.columns is None else self._beside_centre(points @ self.basis().T)
        return lifted if self.frame is None else self.frame.to_encoded(lifted)

    def _beside_centre(self, lifted: Floats) -> Floats:
        """Return lifted points plus the centre's component orthogonal to the projection."""
        if self.centre is None:
            return lifted
        basis = self.basis()
        return lifted + (self.centre - basis @ (basis.T @ self.centre))

    @property
    def lifting(self) -> Floats:
        """The linear part of `lift`, one column per projected coordinate."""
        return self.basis() if self.frame is None else self.basis() * self.frame.units[:, None]

    @property
    def knows_every_mean(self) -> bool:
        """Whether the mean of every coordinate is known: all coordinates are kept, or a centre is known.

        The mean of directions is not that of the points.
        """
        if self.frame is not None and self.frame.directions is not None:
            return False
        known = self.frame is not None and self.frame.whole_mean
        return known or self.columns is None or self.centre is not None or self.dimension == self.width

    def basis(self) -> Floats:
        """Return the map as a real matrix, one column per projected coordinate."""
        return np.eye(self.width) if self.columns is None else self.columns / (1 << PROJECTION_BITS)


def no_projection(encoding: Encoding) -> Projection:
    """Return the projection that keeps every encoded coordinate."""
    return Projection("none", encoding.width, encoding.width, None)


def feature_projection(encoding: Encoding) -> Projection:
    """Return the projection that keeps the features and leaves the target out."""
    features = np.eye(encoding.width)[:, : encoding.feature_width]
    return Projection("features", encoding.width, encoding.feature_width, quantised_projection(features))


def ron_projection(encoding: Encoding, dimension: int, seed: str) -> Projection:
    """Return a random orthonormal projection of the features; the target's coordinates are kept.

    Guarantee: independent of the data (GUARANTEE.md, P1).
    """
    if not 1 <= dimension <= encoding.feature_width:
        raise ValueError(f"dimension must be between 1 and {encoding.feature_width}, got {dimension}")
    basis = haar_basis(encoding.feature_width, dimension, public_generator(seed, "projection"))
    return _beside_target("ron", encoding, basis)


def _beside_target(
    kind: str, encoding: Encoding, basis: Floats, centre: Floats | None = None, noise: GramEvent | None = None
) -> Projection:
    """Return a projection of the features that keeps the target's coordinates."""
    dimension = basis.shape[1]
    whole = np.zeros((encoding.width, dimension + encoding.target_width))
    whole[: encoding.feature_width, :dimension] = basis
    whole[encoding.feature_width :, dimension:] = np.eye(encoding.target_width)
    return Projection(kind, encoding.width, whole.shape[1], quantised_projection(whole), centre, noise)


def principal_projection(
    kind: str, encoding: Encoding, *, mean: Floats, covariance: Floats, dimension: int, noise: GramEvent | None = None
) -> Projection:
    """Return the projection to the features' leading principal components under public or released moments.

    Guarantee: post-processing of those moments (GUARANTEE.md, P2).
    """
    if not 1 <= dimension <= encoding.feature_width:
        raise ValueError(f"dimension must be between 1 and {encoding.feature_width}, got {dimension}")
    features = covariance[: encoding.feature_width, : encoding.feature_width]
    _, vectors = np.linalg.eigh((features + features.T) / 2)
    return _beside_target(kind, encoding, vectors[:, ::-1][:, :dimension], mean, noise)


def measured_coordinates(event: GramEvent, encoding: Encoding) -> Projection:
    """Return the coordinates measured for private components: the features' if directions are released, else all."""
    if mechanism_of(event.mechanism).output is not Output.BASIS or not encoding.target_width:
        return no_projection(encoding)
    return feature_projection(encoding)


def feature_spectrum(covariance: Floats, encoding: Encoding) -> Floats:
    """Return the eigenvalues of the features' part of a covariance, the smallest first."""
    features = covariance[: encoding.feature_width, : encoding.feature_width]
    return np.linalg.eigvalsh((features + features.T) / 2).astype(np.float64)


def private_projection(released: Released, encoding: Encoding, dimension: int | Fraction) -> Projection:
    """Return the projection to private principal components, from a noisy Gram or from released directions.

    A `dimension` that is a `Fraction` is the share of the noisy variance that the kept components hold. A noisy Gram
    also provides the mean point, which replaces the dropped components; directions come without one.
    Guarantee: post-processing of the measurement (GUARANTEE.md, P2).
    """
    if mechanism_of(released.event.mechanism).output is Output.BASIS:
        return _beside_target("private-pca", encoding, released.basis())
    pooled = pooled_moments(released)
    if isinstance(dimension, Fraction):
        dimension = components_for_share(feature_spectrum(pooled.covariance, encoding), dimension)
    return principal_projection(
        "private-pca",
        encoding,
        mean=pooled.mean,
        covariance=pooled.covariance,
        dimension=dimension,
        noise=released.event,
    )
