"""The papers' baselines that publish noisy rows, at their true sensitivity, on the benchmarks' arrays."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.common import Dataset, Floats
from dpcore.rowwise import BernoulliRows, JiangPca
from dpcore.schema import IntervalColumn, Kind, RecordSchema, Role

Codes = NDArray[np.int64]

COMPONENTS = 2
"""Directions along which rows are published: each one more needs more noise on all."""


def bernoulli_rows(rows: Floats, labels: Codes, classes: int, epsilon: float) -> tuple[Floats, Codes]:
    """Li et al.: noisy rows along random signs; the label is a column like the others."""
    model = BernoulliRows(
        epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS, categories={rows.shape[1]: range(classes)}
    )
    return _apart(model.fit(np.column_stack([rows, labels])).rows_)


def jiang_rows(rows: Floats, labels: Codes, classes: int, epsilon: float) -> tuple[Floats, Codes]:
    """Jiang et al., section 3.1: noisy rows along noisy components."""
    model = JiangPca(
        epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS, categories={rows.shape[1]: range(classes)}
    )
    return _apart(model.fit(np.column_stack([rows, labels])).rows_)


def _apart(rows: Floats) -> tuple[Floats, Codes]:
    return rows[:, :-1], rows[:, -1].astype(np.int64)


def bernoulli_targets(rows: Floats, targets: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Li et al. with a number to predict as one more column."""
    model = BernoulliRows(epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS)
    found = model.fit(np.column_stack([rows, targets])).rows_
    return found[:, :-1], found[:, -1]


def jiang_targets(rows: Floats, targets: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Jiang et al. with a number to predict as one more column."""
    model = JiangPca(epsilon=epsilon, bounds=(-1.0, 1.0), n_components=COMPONENTS)
    found = model.fit(np.column_stack([rows, targets])).rows_
    return found[:, :-1], found[:, -1]


def small_pictures(data: Dataset) -> Dataset:
    """MNIST at 14 x 14: means of 2 x 2 pixels, a public map that keeps a draw of Wishart noise within seconds."""
    names = [f"px{row:02d}_{column:02d}" for row in range(14) for column in range(14)]
    columns = tuple(IntervalColumn(name=name, kind=Kind.NUMERIC, lower=0, upper=255) for name in names)
    label = next(column for column in data.schema.columns if column.role is Role.LABEL)

    def halved(frame: pd.DataFrame) -> pd.DataFrame:
        pixels = frame.drop(columns=label.name).to_numpy(np.float64).reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
        return pd.DataFrame(pixels.reshape(-1, 196), columns=names).assign(**{label.name: frame[label.name].to_numpy()})

    return Dataset(f"{data.name} 14 x 14", RecordSchema((*columns, label)), halved(data.train), halved(data.test))
