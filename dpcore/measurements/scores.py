"""Scores of models trained on synthetic rows and tested on real ones: one number in [0, 1] per record.

A model follows a fixed public recipe and is trained on released rows alone, so training costs no
budget and the model does not depend on the real rows. Its weights and centres are integers: the score
of a record is a pure function of that record, whatever its position (GUARANTEE.md, N1), and the sum of
all scores is exact.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dpcore.mechanisms.queries import GRID, ScoreQuery
from dpcore.mechanisms.vectors import PrivateVector
from dpcore.noise.sources import public_generator
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import POINT_BITS, PROJECTION_BITS, require_exact_product, whole_points
from dpcore.records.schema import Cells, Floats, IntervalColumn, RecordSchema, Role

Chunks = Iterable[tuple[Cells, Floats | None]]
"""Chunks of rows, each with the rows' shares of their persons (None: all 1)."""

ACCURACY, RMSE, SILHOUETTE = "accuracy", "rmse", "silhouette"

TRAINING_ROWS = 20_000
"""The most synthetic rows that a model is trained on; it uses the first ones."""

MOST_STEPS, PENALTY, STARTS = 300, 1.0, 4
"""Iterations of the logistic regression; penalty of both regressions; starts of K-means."""

POINT, WHOLE = 1 << POINT_BITS, 1 << (POINT_BITS + PROJECTION_BITS)
"""The integers that represent 1: for points, and for products of points and weights."""

LEAST = -float(1 << 51)
"""The offset of a class without training rows."""


class Scorer(Protocol):
    """A model that scores records."""

    def scores(self, cells: Cells) -> Floats:
        """Return integers between 0 and `GRID`, one per record: a pure function of each record."""


def exact_score(chunks: Chunks, scorer: Scorer, query: ScoreQuery) -> PrivateVector:
    """Return the exact sum of all records' scores."""
    return PrivateVector(query, [sum_scores(chunks, scorer)])


def sum_scores(chunks: Chunks, scorer: Scorer) -> int:
    """Return the sum behind `exact_score` as a plain integer, for synthetic rows and for parts of a table."""
    require_exact_product()
    total = 0
    for cells, shares in chunks:
        scores = scorer.scores(cells)
        total += int((scores if shares is None else np.trunc(scores * shares)).sum())  # exact below 2^53
    return total


def scored_schema(schema: RecordSchema, query: ScoreQuery) -> RecordSchema:
    """Return the schema with the predicted column as label or target, whatever its role in the release."""
    role = {ACCURACY: Role.LABEL, RMSE: Role.TARGET}.get(query.score)
    if role is None:
        return schema
    columns = tuple(replace(c, role=role) if c.name == query.of else c for c in schema.columns)
    return replace(schema, columns=columns)


def train_scorer(query: ScoreQuery, schema: RecordSchema, cells: Cells, seed: str) -> Scorer:
    """Train the model that a query tests on synthetic rows.

    Raises: KeyError for an unknown score.
    """
    encoding = Encoding(scored_schema(schema, query))
    first = {name: values[:TRAINING_ROWS] for name, values in cells.items()}
    if query.score == SILHOUETTE:
        return _train_clusters(encoding, first, int(query.clusters or 2), seed)
    recipes: dict[str, Callable[[Encoding, Cells], Scorer]] = {ACCURACY: _train_classifier, RMSE: _train_ridge}
    return recipes[query.score](encoding, first)


def readable_score(query: ScoreQuery, schema: RecordSchema, mean: float) -> float:
    """Convert a mean score to an accuracy, a silhouette, or a root mean squared error in the target's unit."""
    inside = min(max(mean, 0.0), 1.0)
    if query.score != RMSE:
        return inside
    column = schema.by_name[str(query.of)]
    assert isinstance(column, IntervalColumn)  # noqa: S101  as every target is
    return (column.upper - column.lower) * math.sqrt(inside)


# ---- classification --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClassScorer:
    """Scores 1 if the class with the highest linear score is the record's class, else 0."""

    encoding: Encoding
    weights: Floats
    offsets: Floats

    def scores(self, cells: Cells) -> Floats:
        """Return the scores as integers on the grid."""
        found = np.argmax(whole_points(self.encoding.encode(cells)) @ self.weights + self.offsets, axis=1)
        return np.where(found == self.encoding.classes(cells), float(GRID), 0.0)


def _train_classifier(encoding: Encoding, cells: Cells) -> ClassScorer:
    """Fit a logistic regression on the encoded columns."""
    from sklearn.linear_model import LogisticRegression

    points, classes = encoding.encode(cells) * encoding.scale, encoding.classes(cells)
    known, count = np.unique(classes), encoding.schema.class_count
    weights, offsets = np.zeros((encoding.width, count)), np.full(count, -math.inf)
    if len(known) == 1:
        offsets[known[0]] = 0.0
        return _integer_classifier(encoding, weights, offsets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is a valid model too
        model = LogisticRegression(C=1 / PENALTY, max_iter=MOST_STEPS).fit(points, classes)
    two = len(known) == 2
    weights[:, known] = np.vstack([0 * model.coef_, model.coef_]).T if two else model.coef_.T
    offsets[known] = [0.0, *model.intercept_] if two else model.intercept_
    return _integer_classifier(encoding, weights * encoding.scale, offsets)


def _integer_classifier(encoding: Encoding, weights: Floats, offsets: Floats) -> ClassScorer:
    """Round the weights and offsets to integers that order the classes alike, up to the grid."""
    largest = max(float(np.abs(weights).max()), float(np.abs(offsets[np.isfinite(offsets)]).max()) / 1024, 1e-9)
    whole = np.where(np.isfinite(offsets), np.rint(offsets / largest * WHOLE), LEAST)
    return ClassScorer(encoding, np.rint(weights / largest * (1 << PROJECTION_BITS)), whole)


# ---- regression ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetScorer:
    """Scores the squared error of a linear prediction clipped to the bounds, over their squared distance."""

    encoding: Encoding
    weights: Floats
    unit: float
    offset: float

    def scores(self, cells: Cells) -> Floats:
        """Return the scores as integers on the grid."""
        points, target = self.encoding.encode(cells), self.encoding.feature_width
        product = whole_points(points[:, :target]) @ self.weights
        predicted = np.clip(product * self.unit + self.offset, -1.0, 1.0)
        error = (np.clip(points[:, target] * self.encoding.scale, -1.0, 1.0) - predicted) / 2
        return np.trunc(error * error * GRID)


def _train_ridge(encoding: Encoding, cells: Cells) -> TargetScorer:
    """Fit a ridge regression of the target's position on the encoded features."""
    points, target = encoding.encode(cells) * encoding.scale, encoding.feature_width
    features, positions = points[:, :target], points[:, target]
    mean, middle = features.mean(axis=0), float(positions.mean())
    centred = features - mean
    weights = np.linalg.solve(centred.T @ centred + PENALTY * np.eye(target), centred.T @ (positions - middle))
    largest = max(float(np.abs(weights).max()), 1e-9)
    whole = np.rint(weights / largest * (1 << PROJECTION_BITS))
    return TargetScorer(encoding, whole, largest * encoding.scale / WHOLE, middle - float(mean @ weights))


# ---- clusters --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterScorer:
    """Scores 1 - a / b for the distances a and b to the nearest two centres; 0 if both are 0."""

    encoding: Encoding
    centres: Floats

    def scores(self, cells: Cells) -> Floats:
        """Return the scores as integers on the grid; squared distances are exact integers."""
        points = whole_points(self.encoding.encode(cells))
        own = np.einsum("ij,ij->i", points, points)[:, None] + np.einsum("ij,ij->i", self.centres, self.centres)
        squares = np.partition(own - 2 * (points @ self.centres.T), 1, axis=1)[:, :2]
        nearest, second = squares[:, 0], np.maximum(squares[:, 1], 1.0)
        inside = np.where(squares[:, 1] > 0, 1 - np.sqrt(nearest / second), 0.0)
        scores: Floats = np.trunc(np.clip(inside, 0.0, 1.0) * GRID)
        return scores


def _train_clusters(encoding: Encoding, cells: Cells, count: int, seed: str) -> ClusterScorer:
    """Fit K-means on the encoded columns; with fewer rows than clusters, centres are repeated."""
    from sklearn.cluster import KMeans

    points = encoding.encode(cells)
    start = int(public_generator(seed, "clusters").integers(1 << 31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct rows than clusters
        model = KMeans(min(count, len(points)), n_init=STARTS, random_state=start).fit(points)
    centres = np.resize(model.cluster_centers_, (count, encoding.width))
    return ClusterScorer(encoding, np.rint(centres * POINT))
