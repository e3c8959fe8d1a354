"""Laws of tables with known weights, their exact shares, and groups drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from dpcore.synthesis.copula.group_draws import draw_groups, masses_of
from dpcore.synthesis.copula.max_entropy import ColumnLaw, ScoreWeights, TableLaw
from dpcore.synthesis.copula.rounded_rows import ColumnScores
from dpcore.synthesis.copula.rows_so_far import RowsSoFar


def table_law(
    shares: Sequence[Sequence[float]], weights: Sequence[float] = (1.0,), *, strength: float = 1.0, seed: int = 1
) -> TableLaw:
    """Return a law with about these shares of groups, in which all columns and classes depend on each other."""
    dice, count = np.random.Generator(np.random.PCG64(seed)), len(weights)
    laws, width = [], 0
    for share in shares:
        size = len(share)
        common = ScoreWeights(strength * dice.standard_normal((count + width, size)), _logarithms(share))
        corrections = tuple(
            ScoreWeights(strength / 2 * dice.standard_normal((width, size)), np.zeros(size)) for _ in weights
        )
        laws.append(ColumnLaw(common, corrections if width else (None,) * count))
        width += size
    return TableLaw(
        np.array(weights),
        tuple(laws),
        tuple(len(share) for share in shares),
        tuple(np.array(share, dtype=np.float64) for share in shares),
    )


def _logarithms(share: Sequence[float]) -> np.ndarray:
    return np.log(np.maximum(np.array(share, dtype=np.float64), 1e-300)).clip(-1000)


def drawn_rows(law: TableLaw, classes: np.ndarray, generator: np.random.Generator) -> RowsSoFar:
    """Draw the groups of all columns for rows of these classes, as a chunk does."""
    rows = RowsSoFar(classes, len(law.weights), law.sizes)
    for index, column in enumerate(law.columns):
        scores = ColumnScores(column, law.weights, law.shares[:index])
        draw_groups(rows, scores.scores(rows), scores.nearest, generator)
    return rows


def exact_shares(law: TableLaw, k: int) -> np.ndarray:
    """Return the probability of every row of groups in class k, as an array with an axis per column."""
    found = np.zeros(law.sizes)
    every = np.array(list(product(*(range(size) for size in law.sizes))))
    rows = RowsSoFar(np.full(len(every), k), len(law.weights), law.sizes)
    mass = np.ones(len(every))
    for index, column in enumerate(law.columns):
        masses = masses_of(ColumnScores(column, law.weights, law.shares[:index]).scores(rows))
        mass *= (masses / masses.sum(axis=0))[every[:, index], np.arange(len(every))]
        rows.add(every[:, index])
    found[tuple(every.T)] = mass
    return found
