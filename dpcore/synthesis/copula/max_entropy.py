"""The law of a table with given pair tables: column after column, each as random as its pairs allow.

A column's groups, given label and earlier columns, follow the softmax law of greatest entropy
whose expected pair tables are the measured ones, as far as these rise above their known
noise: each pair is held to its table by a penalty that follows from the noise and from how much of the
pair's spread the noise explains (empirical Bayes). First one law for all classes, then what each
class's own tables add to it. Post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpcore.synthesis.class_rows import draw_classes, rows_by_class
from dpcore.synthesis.copula.pair_tables import PairTables

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Codes = NDArray[np.int64]

PILOT_ROWS = 16_384
"""Rows on which laws are fitted, each column's on the columns drawn before."""

ITERATIONS, CURVATURES = 40, 10
"""Steps of the optimiser and the pairs of gradients that it remembers."""

SURE = 2.0
"""Standard deviations by which a pair's spread must exceed what its noise explains."""

LEAST_SHARE = 1e-6

LEAST_PENALTY = 1 / PILOT_ROWS
"""A table without noise is still met by few rows, which may lack what it holds: weights must not grow without end."""


@dataclass(frozen=True, slots=True)
class ScoreWeights:
    """Linear scores of a column's groups: one weight for each earlier indicator and group, and one for each group."""

    slopes: Floats
    offsets: Floats

    def scores(self, indicators: Singles) -> Singles:
        """Scores of every row."""
        scores: Singles = indicators @ self.slopes.astype(np.float32) + self.offsets.astype(np.float32)
        return scores


@dataclass(frozen=True, slots=True)
class ColumnLaw:
    """A column's law given label and earlier columns: common weights, and what each class adds to them."""

    common: ScoreWeights
    by_class: tuple[ScoreWeights | None, ...]

    def draw(self, classes: Codes, earlier: Singles, generator: np.random.Generator) -> Codes:
        """A group for each row."""
        of_class, slopes = np.split(self.common.slopes, [len(self.by_class)])
        scores = ScoreWeights(slopes, np.zeros(slopes.shape[1])).scores(earlier)
        scores += (of_class + self.common.offsets).astype(np.float32)[classes]
        for k, mine in rows_by_class(classes):
            weights = self.by_class[k]
            if weights is not None:
                scores[mine] += weights.scores(earlier[mine])
        return _draw_groups(scores, generator)


@dataclass(frozen=True, slots=True)
class TableLaw:
    """The law of whole rows of groups."""

    weights: Floats
    columns: tuple[ColumnLaw, ...]
    sizes: tuple[int, ...]

    def draw(self, rows: int, generator: np.random.Generator) -> tuple[Codes, Codes]:
        """Groups (rows, columns) and classes, one class after the other."""
        classes = draw_classes(rows, self.weights, generator)
        groups, indicators = np.empty((rows, len(self.columns)), dtype=np.int64), _empty_indicators(rows, self.sizes)
        stop = 0
        for index, (law, size) in enumerate(zip(self.columns, self.sizes, strict=True)):
            groups[:, index] = law.draw(classes, indicators[:, :stop], generator)
            indicators[np.arange(rows), stop + groups[:, index]] = 1.0
            stop += size
        return groups, classes


def fit_table_law(tables: PairTables, generator: np.random.Generator) -> TableLaw:
    """The law whose pair tables are the measured ones, fitted column after column on rows drawn from it."""
    with threadpool_limits(1):  # many small products: a second thread makes them slower
        return _fit_columns(tables, generator)


def _fit_columns(tables: PairTables, generator: np.random.Generator) -> TableLaw:
    weights = tables.weights
    sizes = tuple(share.shape[1] for share in tables.shares)
    classes = generator.permutation(_proportional_classes(weights, PILOT_ROWS))
    indicators, stop = _empty_indicators(len(classes), sizes), 0
    fitter, laws = _ColumnFitter(tables), []
    for index, size in enumerate(sizes):
        law = fitter.fit_column(index, classes, indicators[:, :stop])
        drawn = law.draw(classes, indicators[:, :stop], generator)
        indicators[np.arange(len(classes)), stop + drawn] = 1.0
        stop += size
        laws.append(law)
    return TableLaw(weights, tuple(laws), sizes)


class _ColumnFitter:
    """The measured tables in the form in which laws are fitted to them."""

    def __init__(self, tables: PairTables) -> None:
        self._tables, self._weights = tables, tables.weights
        self._edges = np.cumsum([0, *(share.shape[1] for share in tables.shares)])
        self._joint = np.hstack([self._weights[:, None] * share for share in tables.shares])  # of class and group
        self._shares = np.maximum(self._joint.sum(axis=0), LEAST_SHARE)
        between = np.einsum("ka,kb,k->ab", self._joint, self._joint, 1 / self._weights)
        self._pooled = tables.excess.sum(axis=0) + between - np.outer(self._shares, self._shares)

    def fit_column(self, index: int, classes: Codes, earlier: Singles) -> ColumnLaw:
        """The law of one column, given drawn rows of label and earlier columns."""
        place = self._place(index)
        shares = self._shares[place]
        indicators = np.hstack([_indicators(classes, len(self._weights)), earlier])
        targets = np.vstack([self._label_excess(index), self._pooled[: place.start, place]])
        penalties = np.vstack([self._label_penalty(index), *(self._pair_penalty(b, index) for b in range(index))])
        mean = indicators.mean(axis=0, dtype=np.float64)
        common = _fit_weights(indicators, targets + np.outer(mean, shares), shares, penalties)
        scores, by_class = common.scores(indicators), []
        for k in range(len(self._weights)):
            mine = classes == k
            by_class.append(self._class_weights(k, index, earlier[mine], scores[mine]) if index else None)
        return ColumnLaw(common, tuple(by_class))

    def _place(self, index: int) -> slice:
        return slice(int(self._edges[index]), int(self._edges[index + 1]))

    def _label_excess(self, index: int) -> Floats:
        place = self._place(index)
        excess: Floats = self._joint[:, place] - np.outer(self._weights, self._shares[place])
        return excess

    def _label_penalty(self, index: int) -> Floats:
        expected = np.outer(self._weights, self._shares[self._place(index)])
        variance = float(self._tables.variances[index]) / self._tables.total**2
        return _penalty(self._label_excess(index), expected, variance)

    def _pair_penalty(self, first: int, second: int) -> Floats:
        a, b = self._place(first), self._place(second)
        variance = len(self._weights) * self._tables.excess_variance
        return _penalty(self._pooled[a, b], np.outer(self._shares[a], self._shares[b]), variance)

    def _class_weights(self, k: int, index: int, earlier: Singles, scores: Singles) -> ScoreWeights | None:
        """What class k's own tables add to the common scores; None where they add nothing that is not noise."""
        if len(earlier) == 0:
            return None
        place, share = self._place(index), float(self._weights[k])
        expected = _softmax(scores)
        shares = np.maximum(self._class_shares(k, index, expected.mean(axis=0, dtype=np.float64)), LEAST_SHARE)
        mean = earlier.mean(axis=0, dtype=np.float64)
        targets = np.outer(mean, shares) + self._tables.excess[k][: place.start, place] / share
        residual = targets - (earlier.T @ expected).astype(np.float64) / len(earlier)
        variance = self._tables.excess_variance / share**2
        penalties = np.vstack(
            [
                _penalty(residual[a], np.outer(np.maximum(mean[a], LEAST_SHARE), shares), variance)
                for a in (self._place(b) for b in range(index))
            ]
        )
        if not np.isfinite(penalties).any():
            return None
        return _fit_weights(earlier, targets, shares, penalties, scores)

    def _class_shares(self, k: int, index: int, common: Floats) -> Floats:
        """Shares of a column's groups in class k: the common law's, and as much of the measured as is not noise.

        Taken as measured they would bring back, with no penalty, the label's noise (James and Stein's estimate).
        """
        share = float(self._weights[k])
        offset = self._joint[k, self._place(index)] / share - common
        noise = len(common) * float(self._tables.variances[index]) / (self._tables.total * share) ** 2
        shares: Floats = common + offset * max(0.0, 1 - noise / max(float(offset @ offset), 1e-300))
        return shares


def _penalty(excess: Floats, expected: Floats, variance: float) -> Floats:
    """What a weight of each pair of groups costs: the ratio of a table's noise to the spread that is not noise.

    Infinite, for no weights at all, where the noise explains the whole spread.
    """
    rows, columns = excess.shape
    free = max((rows - 1) * (columns - 1), 1)
    noise = variance * free / (rows * columns)
    allowed = noise * rows * columns * (1 + SURE * math.sqrt(2 / free))
    spread = (float((excess**2).sum()) - allowed) / max(float((expected**2).sum()), 1e-300)
    if spread <= 0:
        return np.full(excess.shape, np.inf)
    penalty: Floats = np.maximum(noise / spread / expected, LEAST_PENALTY)
    return penalty


def _fit_weights(
    indicators: Singles, targets: Floats, shares: Floats, penalties: Floats, base: Singles | None = None
) -> ScoreWeights:
    """Weights of the softmax law under which the indicators' expected tables are the targets, up to their penalties.

    Minimises the convex mean log-sum-exp less the targets' part plus half the penalties times squared weights.
    `base` are scores that the weights add to. Coordinates are whitened, so that few steps are enough.
    """
    shares = np.maximum(shares, LEAST_SHARE) / np.maximum(shares, LEAST_SHARE).sum()
    used = np.isfinite(penalties).all(axis=1)
    slopes, start = np.zeros(targets.shape), np.log(shares) if base is None else np.zeros(len(shares))
    if not used.any() and base is None:
        return ScoreWeights(slopes, start)
    problem = _SoftmaxFit(indicators[:, used], targets[used], shares, penalties[used], base, start)
    slopes[used], offsets = problem.solve()
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
    ) -> None:
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

    def solve(self) -> tuple[Floats, Floats]:
        """Slopes and offsets of the indicators themselves."""
        from scipy.optimize import minimize

        size = (self._points.shape[1] + 1) * len(self._shares)
        options = {"maxiter": ITERATIONS, "maxcor": CURVATURES}
        found = minimize(self._value, np.zeros(size), jac=True, method="L-BFGS-B", options=options).x
        slopes, offsets = self._parts(found)
        slopes = self._white @ slopes
        return slopes, offsets - self._mean @ slopes

    def _parts(self, variables: Floats) -> tuple[Floats, Floats]:
        scaled = variables.reshape(-1, len(self._shares)) * self._scale
        return scaled[:-1], scaled[-1] + self._start

    def _value(self, variables: Floats) -> tuple[float, Floats]:
        slopes, offsets = self._parts(variables)
        scores = self._points @ slopes.astype(np.float32) + offsets.astype(np.float32)
        if self._base is not None:
            scores += self._base
        top = scores.max(axis=1, keepdims=True)
        scores -= top
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1, keepdims=True)
        entropy = float(np.log(sums, dtype=np.float64).mean() + top.mean(dtype=np.float64))
        scores /= sums
        plain = self._white @ slopes
        pulled = self._penalties * plain
        gained = float((self._targets * slopes).sum() + self._shares @ offsets)
        value = entropy - gained + float((pulled * plain).sum()) / 2
        by_slope = (self._points.T @ scores).astype(np.float64) / len(scores) - self._targets + self._white.T @ pulled
        by_offset = scores.mean(axis=0, dtype=np.float64) - self._shares
        return value, (np.vstack([by_slope, by_offset]) * self._scale).ravel()


def _indicators(classes: Codes, count: int) -> Singles:
    return np.eye(count, dtype=np.float32)[classes]


def _empty_indicators(rows: int, sizes: Sequence[int]) -> Singles:
    return np.zeros((rows, sum(sizes)), dtype=np.float32)


def _proportional_classes(weights: Floats, rows: int) -> Codes:
    """Classes of so many rows, each as often as its share says."""
    edges = np.round(np.concatenate([[0.0], np.cumsum(weights)]) * rows).astype(np.int64)
    return np.repeat(np.arange(len(weights)), np.diff(edges))


def _softmax(scores: Singles) -> Singles:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Singles = raised / raised.sum(axis=1, keepdims=True)
    return shares


def _draw_groups(scores: Singles, generator: np.random.Generator) -> Codes:
    """A group for each row, by the softmax of its scores."""
    mass = np.ascontiguousarray(scores.T)  # few long rows are summed much faster than many short ones
    mass -= mass.max(axis=0)
    np.exp(mass, out=mass)
    for below, above in pairwise(mass):
        above += below
    point = generator.random(len(scores), dtype=np.float32) * mass[-1]
    return np.asarray((mass[:-1] <= point).sum(axis=0), dtype=np.int64)
