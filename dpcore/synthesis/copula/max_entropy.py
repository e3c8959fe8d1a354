"""The maximum-entropy law of a table with given pair tables, fitted column by column.

Given the label and earlier columns, a column's groups follow the softmax law of maximum entropy
whose expected pair tables match the measured ones, as far as these exceed their known noise: the
penalty on a pair's weights follows from the noise and from the share of the pair's spread that noise
explains (empirical Bayes). One law is fitted to all classes, then a correction to each class's own
tables. Post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from dpcore.records.schema import Codes, Floats
from dpcore.synthesis.class_rows import draw_classes, rows_by_class
from dpcore.synthesis.copula.fit_rule import FIT_RULE, FitRule, weight_penalty
from dpcore.synthesis.copula.pair_tables import PairTables
from dpcore.synthesis.copula.pilot_rows import PILOT_ROWS, PilotRows
from dpcore.synthesis.copula.rows_so_far import Singles
from dpcore.synthesis.copula.ruled_columns import RuledColumns
from dpcore.synthesis.copula.softmax_fit import LEAST_SHARE, ScoreWeights, fit_weights, largest_in_rows


@dataclass(frozen=True, slots=True)
class ColumnLaw:
    """A column's law given the label and earlier columns: common weights, and corrections per class."""

    common: ScoreWeights
    by_class: tuple[ScoreWeights | None, ...]

    def draw(
        self, classes: Codes, earlier: Singles, generator: np.random.Generator, base: Singles | None = None
    ) -> Codes:
        """Draw a group for each row; `base` are scores that are added, as for groups that rules forbid."""
        of_class, slopes = np.split(self.common.slopes, [len(self.by_class)])
        scores = ScoreWeights(slopes, np.zeros(slopes.shape[1])).scores(earlier)
        scores += (of_class + self.common.offsets).astype(np.float32)[classes]
        for k, mine in rows_by_class(classes):
            weights = self.by_class[k]
            if weights is not None:
                scores[mine] += weights.scores(earlier[mine])
        if base is not None:
            scores += base
        return _draw_groups(scores, generator)


@dataclass(frozen=True, slots=True)
class TableLaw:
    """The law of whole rows of groups."""

    weights: Floats
    columns: tuple[ColumnLaw, ...]
    sizes: tuple[int, ...]
    shares: tuple[Floats, ...]
    """Share of each column's groups over all classes, as measured."""
    tilts: tuple[Floats | None, ...] = ()
    """How values within groups are tilted where rules restrict them (see `fit_tilt`), by column; none without rules."""

    def draw(self, rows: int, generator: np.random.Generator) -> tuple[Codes, Codes]:
        """Draw groups of shape (rows, columns), and classes; rows are sorted by class."""
        classes = draw_classes(rows, self.weights, generator)
        groups = np.empty((rows, len(self.columns)), dtype=np.int64)
        indicators, stop = np.zeros((rows, sum(self.sizes)), dtype=np.float32), 0
        for index, (law, size) in enumerate(zip(self.columns, self.sizes, strict=True)):
            groups[:, index] = law.draw(classes, indicators[:, :stop], generator)
            indicators[np.arange(rows), stop + groups[:, index]] = 1.0
            stop += size
        return groups, classes


def fit_table_law(
    tables: PairTables,
    generator: np.random.Generator,
    rules: RuledColumns | None = None,
    rule: FitRule = FIT_RULE,
) -> TableLaw:
    """Fit the law to the measured pair tables, column by column, on rows drawn from the columns before.

    Where rules forbid groups to a row, the law is fitted as it will be drawn: without them.
    """
    weights = tables.weights if rules is None else rules.class_weights(tables.weights)
    sizes = tuple(share.shape[1] for share in tables.shares)
    pilot = PilotRows(generator.permutation(_proportional_classes(weights, PILOT_ROWS)), sizes, rules)
    laws = []
    with threadpool_limits(1):  # many small products: more threads are slower
        fitter = _ColumnFitter(tables, rule)
        for index in range(len(sizes)):
            base = pilot.base(index, generator)
            law = fitter.fit_column(index, pilot.classes, pilot.earlier, base)
            pilot.add(index, law.draw(pilot.classes, pilot.earlier, generator, base), generator)
            laws.append(law)
    shares = tuple(fitter.shares_of(index) for index in range(len(sizes)))
    return TableLaw(weights, tuple(laws), sizes, shares, tuple(pilot.tilts) if rules else ())


class _ColumnFitter:
    """Fits the laws of single columns to the measured tables."""

    def __init__(self, tables: PairTables, rule: FitRule) -> None:
        self._tables, self._weights, self._rule = tables, tables.weights, rule
        self._edges = np.cumsum([0, *(share.shape[1] for share in tables.shares)])
        self._joint = np.hstack([self._weights[:, None] * share for share in tables.shares])  # of class and group
        self._shares = np.maximum(self._joint.sum(axis=0), LEAST_SHARE)
        between = np.einsum("ka,kb,k->ab", self._joint, self._joint, 1 / self._weights)
        self._pooled = tables.excess.sum(axis=0) + between - np.outer(self._shares, self._shares)

    def fit_column(self, index: int, classes: Codes, earlier: Singles, base: Singles | None = None) -> ColumnLaw:
        """Fit the law of one column, given drawn rows of the label and earlier columns, and scores that are added."""
        place = self._place(index)
        shares = self._shares[place]
        indicators = np.hstack([np.eye(len(self._weights), dtype=np.float32)[classes], earlier])
        targets = np.vstack([self._label_excess(index), self._pooled[: place.start, place]])
        penalties = np.vstack([self._label_penalty(index), *(self._pair_penalty(b, index) for b in range(index))])
        mean = indicators.mean(axis=0, dtype=np.float64)
        common = fit_weights(
            indicators,
            targets + np.outer(mean, shares),
            shares,
            penalties,
            base,
            is_whole=True,
            is_ruled=base is not None,
            rule=self._rule,
        )
        scores = common.scores(indicators)
        by_class: list[ScoreWeights | None] = []
        if base is not None:
            scores += base
        for k in range(len(self._weights) if index else 0):
            mine = classes == k
            by_class.append(self._class_weights(k, index, earlier[mine], scores[mine], is_ruled=base is not None))
        return ColumnLaw(common, tuple(by_class or [None] * len(self._weights)))

    def shares_of(self, index: int) -> Floats:
        """Return the shares of a column's groups over all classes."""
        shares: Floats = self._shares[self._place(index)]
        return shares / float(shares.sum())

    def _place(self, index: int) -> slice:
        return slice(int(self._edges[index]), int(self._edges[index + 1]))

    def _label_excess(self, index: int) -> Floats:
        place = self._place(index)
        return self._joint[:, place] - np.outer(self._weights, self._shares[place])

    def _label_penalty(self, index: int) -> Floats:
        expected = np.outer(self._weights, self._shares[self._place(index)])
        variance = float(self._tables.variances[index]) / self._tables.total**2
        return weight_penalty(self._label_excess(index), expected, variance, self._rule)

    def _pair_penalty(self, first: int, second: int) -> Floats:
        a, b = self._place(first), self._place(second)
        variance = len(self._weights) * self._tables.excess_variance
        return weight_penalty(self._pooled[a, b], np.outer(self._shares[a], self._shares[b]), variance, self._rule)

    def _class_weights(
        self, k: int, index: int, earlier: Singles, scores: Singles, *, is_ruled: bool
    ) -> ScoreWeights | None:
        """Fit the correction of class k to the common scores; None if its tables differ by no more than noise."""
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
                weight_penalty(residual[a], np.outer(np.maximum(mean[a], LEAST_SHARE), shares), variance, self._rule)
                for a in (self._place(b) for b in range(index))
            ]
        )
        if not np.isfinite(penalties).any():
            return None
        return fit_weights(earlier, targets, shares, penalties, scores, is_ruled=is_ruled, rule=self._rule)

    def _class_shares(self, k: int, index: int, common: Floats) -> Floats:
        """Return the shares of a column's groups in class k: the measured ones, shrunk towards the common law's.

        This is the James-Stein estimate; unshrunk shares would reintroduce the label's noise without a penalty.
        """
        share = float(self._weights[k])
        offset = self._joint[k, self._place(index)] / share - common
        noise = len(common) * float(self._tables.variances[index]) / (self._tables.total * share) ** 2
        return common + offset * max(0.0, 1 - noise / max(float(offset @ offset), 1e-300))


def _proportional_classes(weights: Floats, rows: int) -> Codes:
    """Return classes for this many rows in proportion to their shares, without randomness."""
    edges = np.round(np.concatenate([[0.0], np.cumsum(weights)]) * rows).astype(np.int64)
    return np.repeat(np.arange(len(weights)), np.diff(edges))


def _softmax(scores: Singles) -> Singles:
    raised = np.exp(scores - largest_in_rows(scores))
    shares: Singles = raised / raised.sum(axis=1, keepdims=True)
    return shares


def _draw_groups(scores: Singles, generator: np.random.Generator) -> Codes:
    """Draw a group for each row from the softmax of its scores."""
    mass = np.ascontiguousarray(scores.T)  # summing few long rows is faster than many short ones
    mass -= mass.max(axis=0)
    np.exp(mass, out=mass)
    for below, above in pairwise(mass):
        above += below
    point = generator.random(len(scores), dtype=np.float32) * mass[-1]
    return np.asarray((mass[:-1] <= point).sum(axis=0), dtype=np.int64)
