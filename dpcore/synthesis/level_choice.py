"""Rules that choose levels for sampled points so that the shares match the measured ones.

Post-processing: it sees sampled points and released shares, never rows.
"""

from __future__ import annotations

import numpy as np

from dpcore.records.decoding import LevelRule
from dpcore.records.schema import Floats

SWEEPS = 30
CLOSE = 1e-3
"""Sweeps end when every share is matched to this tolerance."""


def fit_level_rule(scores: Floats, shares: Floats) -> LevelRule:
    """Return the rule under which a sample's levels have the given shares.

    The offsets minimise the convex function E max_j(score_j + offset_j) - sum_j
    share_j offset_j, whose gradient is (chosen share - wanted share): the dual of a
    transport problem. Each step solves one coordinate exactly, by a quantile.
    A level of share 0 is never chosen.
    """
    live = np.flatnonzero(shares > 0)
    offsets = np.full(len(shares), -np.inf)
    offsets[live] = 0.0
    for _ in range(SWEEPS if len(live) > 1 else 0):
        for j in live[1:]:  # one offset is redundant: only differences matter
            others = [i for i in live if i != j]
            lead = np.max(scores[:, others] + offsets[others], axis=1) - scores[:, j]
            offsets[j] = np.quantile(lead, shares[j])
        chosen = np.bincount(np.argmax(scores + offsets, axis=1), minlength=len(shares)) / len(scores)
        if np.max(np.abs(chosen - shares)) <= CLOSE:
            break
    return LevelRule(tuple(float(x) for x in offsets))
