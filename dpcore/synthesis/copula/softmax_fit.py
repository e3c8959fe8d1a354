"""The convex fit of one column's softmax law to its targets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpcore.records.schema import Floats
from dpcore.synthesis.copula.fit_rule import FIT_RULE, FitRule
from dpcore.synthesis.copula.rows_so_far import Singles

CURVATURES = 10
"""The size of the memory of the optimiser (L-BFGS)."""

RULED_FIT = replace(FIT_RULE, iterations=200, share_rounds=0)
"""More iterations where rules forbid groups, since coordinates are whitened for a law without rules; and the shares
need not be reached there."""

LEAST_SHARE = 1e-6

FORBIDDEN_RIDGE = 1e-3
"""Penalty on the offset of a group, per share, where rules forbid groups: they may leave it less than its share."""


@dataclass(frozen=True, slots=True)
class ScoreWeights:
    """Linear scores of a column's groups: a slope per earlier indicator and group, and an offset per group."""

    slopes: Floats
    offsets: Floats

    def scores(self, indicators: Singles) -> Singles:
        """Return the scores of every row."""
        return indicators @ self.slopes.astype(np.float32) + self.offsets.astype(np.float32)


def fit_weights(
    indicators: Singles,
    targets: Floats,
    shares: Floats,
    penalties: Floats,
    base: Singles | None = None,
    *,
    is_whole: bool = False,
    is_ruled: bool = False,
    rule: FitRule = FIT_RULE,
) -> ScoreWeights:
    """Fit the weights of the softmax law whose expected tables match the targets, up to the penalties.

    Minimises the convex mean log-sum-exp, minus the linear part of the targets, plus half the penalties times squared
    weights. `base` are scores to which the weights add; under weights that are the whole law, they only say what
    rules leave of the groups. Whitened coordinates make few iterations sufficient, without rules; what they leave of
    the differences from the shares is taken away by rounds of proportional fitting.
    """
    shares = np.maximum(shares, LEAST_SHARE) / np.maximum(shares, LEAST_SHARE).sum()
    used = np.isfinite(penalties).all(axis=1)
    whole = base is None or is_whole
    slopes, start = np.zeros(targets.shape), np.log(shares) if whole else np.zeros(len(shares))
    if not used.any() and base is None:
        return ScoreWeights(slopes, start)
    ridge = FORBIDDEN_RIDGE if is_ruled else 0.0
    problem = _SoftmaxFit(indicators[:, used], targets[used], shares, penalties[used], base, start, ridge)
    slopes[used], offsets = problem.solve(RULED_FIT if is_ruled else rule)
    return ScoreWeights(slopes, offsets)


class _SoftmaxFit:
    """One convex fit, in whitened coordinates."""

    def __init__(
        self,
        indicators: Singles,
        targets: Floats,
        shares: Floats,
        penalties: Floats,
        base: Singles | None,
        start: Floats,
        offset_ridge: float = 0.0,
    ) -> None:
        self._offset_ridge = offset_ridge * shares
        self._shares, self._penalties, self._base, self._start = shares, penalties, base, start
        self._mean = indicators.mean(axis=0, dtype=np.float64)
        covariance = (indicators.T @ indicators).astype(np.float64) / len(indicators)
        covariance -= np.outer(self._mean, self._mean)
        ridge = np.median(penalties / shares, axis=1) + 1e-3 * np.maximum(self._mean, 1e-4)
        self._white = np.linalg.cholesky(np.linalg.inv(covariance + np.diag(ridge)))
        self._scale = 1 / np.sqrt(shares)
        centred = indicators - self._mean.astype(np.float32)
        self._points: Singles = centred @ self._white.astype(np.float32)
        self._targets = self._white.T @ (targets - np.outer(self._mean, shares))

    def solve(self, rule: FitRule) -> tuple[Floats, Floats]:
        """Return the fitted slopes and offsets in the original coordinates."""
        from scipy.optimize import minimize

        size = (self._points.shape[1] + 1) * len(self._shares)
        options = {"maxiter": rule.iterations, "maxcor": CURVATURES}
        found = minimize(self._objective, np.zeros(size), jac=True, method="L-BFGS-B", options=options).x
        slopes, offsets = self._unpack(found)
        for _ in range(rule.share_rounds):
            _, expected = self._expected(slopes, offsets)
            offsets = offsets + np.log(self._shares / np.maximum(expected.mean(axis=0, dtype=np.float64), LEAST_SHARE))
        slopes = self._white @ slopes
        return slopes, offsets - self._mean @ slopes

    def _unpack(self, variables: Floats) -> tuple[Floats, Floats]:
        """Return the slopes and offsets in whitened coordinates."""
        scaled = variables.reshape(-1, len(self._shares)) * self._scale
        return scaled[:-1], scaled[-1] + self._start

    def _objective(self, variables: Floats) -> tuple[float, Floats]:
        """Return the penalised objective and its gradient."""
        slopes, offsets = self._unpack(variables)
        entropy, scores = self._expected(slopes, offsets)
        plain = self._white @ slopes
        pulled = self._penalties * plain
        gained = float((self._targets * slopes).sum() + self._shares @ offsets)
        value = entropy - gained + float((pulled * plain).sum()) / 2
        by_slope = (self._points.T @ scores).astype(np.float64) / len(scores) - self._targets + self._white.T @ pulled
        by_offset = scores.mean(axis=0, dtype=np.float64) - self._shares
        if self._offset_ridge.any():
            moved = offsets - self._start
            value += float((self._offset_ridge * moved**2).sum()) / 2
            by_offset += self._offset_ridge * moved
        return value, (np.vstack([by_slope, by_offset]) * self._scale).ravel()

    def _expected(self, slopes: Floats, offsets: Floats) -> tuple[float, Singles]:
        """Return the mean log-sum-exp of the scores, and the probabilities of all rows' groups."""
        scores = self._points @ slopes.astype(np.float32) + offsets.astype(np.float32)
        if self._base is not None:
            scores += self._base
        top = largest_in_rows(scores)
        scores -= top
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1, keepdims=True)
        entropy = float(np.log(sums, dtype=np.float64).mean() + top.mean(dtype=np.float64))
        scores /= sums
        return entropy, scores


def largest_in_rows(scores: Singles) -> Singles:
    """Return the largest score of each row, as a column; `max` takes short rows one by one, which is far slower."""
    largest = scores[:, :1].copy()
    for column in range(1, scores.shape[1]):
        np.maximum(largest, scores[:, column : column + 1], out=largest)
    return largest
