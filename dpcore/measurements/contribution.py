"""How many principal components to keep: the contribution rate of a released spectrum.

Imtiaz and Sarwate keep the components that capture 90 % of the variance, Xu et al. those that reach a
contribution rate. Both papers read the number off the exact spectrum, which costs privacy that they do not
count; here the spectrum must be public or released, and the number is post-processing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpcore.records.schema import Floats

TOLERANCE = 1e-9
"""A share counts as reached this far below it: equal eigenvalues give ties, and rounding must not decide them."""


def components_for_share(eigenvalues: Sequence[float] | Floats, share: float | Fraction) -> int:
    """Return the smallest number of leading components that carry `share` of a released spectrum.

    Negative eigenvalues, which noise causes, count as 0: the sum is that of the others. A share is reached up to
    `TOLERANCE`. The result is at least 1, also for a spectrum without a positive eigenvalue.
    Guarantee: post-processing of the spectrum (GUARANTEE.md, P2).
    Raises: ValueError for a share outside (0, 1], or a spectrum that is empty or not finite.

        >>> components_for_share([6.0, 3.0, 1.0, -0.5], 0.9)
        2
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie above 0 and be at most 1, got {share}")
    values = np.asarray(eigenvalues, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise ValueError("a spectrum must be a list of one or more finite eigenvalues")
    return int(np.argmax(held_shares(values) >= float(share) - TOLERANCE)) + 1


def held_shares(eigenvalues: Floats) -> Floats:
    """Return which share of a spectrum its leading components hold together: one, two, and so on.

    Without a positive eigenvalue the first component holds everything.
    """
    values = np.maximum(np.sort(eigenvalues)[::-1], 0.0)
    total = float(values.sum())
    shares: Floats = np.cumsum(values) / total if total > 0 else np.ones(len(values))
    return shares
