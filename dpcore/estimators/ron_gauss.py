"""RON-Gauss: random orthonormal projection."""

from __future__ import annotations

from typing import ClassVar

from dpcore.estimators.projected_mixture import ProjectedMixture


class RonGauss(ProjectedMixture):
    """RON-Gauss, corrected: a random orthonormal (Haar) projection, then noisy moments at the true sensitivity.

    `n_components` may also be "dfm", the paper's rule: the largest number below 2 log m / log log m. It speaks of how
    Gaussian the projections are, not of noise.

    >>> model = RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2)
    >>> X = model.fit([[0.1, 0.2, 0.3]] * 50).sample(10)
    >>> X.shape, model.privacy_["epsilon"]
    ((10, 3), 1.0)
    """

    projection_kind: ClassVar[str] = "ron"
