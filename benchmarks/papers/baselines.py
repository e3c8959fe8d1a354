"""The papers' baselines that release noisy rows, calibrated to their true sensitivity."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.common import Floats
from benchmarks.datasets import Dataset
from dpcore.estimators.local_rows import BernoulliRows, JiangPca
from dpcore.records.schema import IntervalColumn, RecordSchema, Role

Codes = NDArray[np.int64]

COMPONENTS = 2
"""Number of directions along which rows are released; the noise on each grows with it."""


def bernoulli_rows(rows: Floats, labels: Codes, classes: int, epsilon: float) -> tuple[Floats, Codes]:
    """Li et al.: release noisy rows along directions of random signs; the label is a column like the others."""
    model = BernoulliRows(
        epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS, categories={rows.shape[1]: range(classes)}
    )
    return _apart(model.fit(np.column_stack([rows, labels])).rows_)


def jiang_rows(rows: Floats, labels: Codes, classes: int, epsilon: float) -> tuple[Floats, Codes]:
    """Jiang et al., section 3.1: release noisy rows along noisy components."""
    model = JiangPca(
        epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS, categories={rows.shape[1]: range(classes)}
    )
    return _apart(model.fit(np.column_stack([rows, labels])).rows_)


def _apart(rows: Floats) -> tuple[Floats, Codes]:
    return rows[:, :-1], rows[:, -1].astype(np.int64)


def bernoulli_targets(rows: Floats, targets: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Li et al. with the target as one more column."""
    model = BernoulliRows(epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS)
    found = model.fit(np.column_stack([rows, targets])).rows_
    return found[:, :-1], found[:, -1]


def jiang_targets(rows: Floats, targets: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Jiang et al. with the target as one more column."""
    model = JiangPca(epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS)
    found = model.fit(np.column_stack([rows, targets])).rows_
    return found[:, :-1], found[:, -1]


SHRUNK = {"mnist": 4, "semeion": 2}
"""Factors by which pictures are scaled down, so that a draw of noise takes well below a second."""


def small_pictures(data: Dataset, shrink: int | None = None) -> Dataset:
    """Return pictures averaged over squares of pixels, a public map, and other data sets unchanged.

    `shrink` is the side of a square, if not the usual one of the data set.
    """
    by = SHRUNK.get(data.name, 1) if shrink is None else shrink
    if by == 1:
        return data
    label = next(column for column in data.schema.columns if column.role is Role.LABEL)
    pixels = [column for column in data.schema.columns if isinstance(column, IntervalColumn)]
    side = math.isqrt(len(pixels)) // by
    names = [f"px{row:02d}_{column:02d}" for row in range(side) for column in range(side)]
    columns = tuple(replace(pixels[0], name=name) for name in names)

    def shrunk(frame: pd.DataFrame) -> pd.DataFrame:
        values = frame.drop(columns=label.name).to_numpy(np.float64).reshape(-1, side, by, side, by).mean(axis=(2, 4))
        return pd.DataFrame(values.reshape(len(frame), -1), columns=names).assign(**{label.name: frame[label.name]})

    return replace(data, schema=RecordSchema((*columns, label)), train=shrunk(data.train), test=shrunk(data.test))
