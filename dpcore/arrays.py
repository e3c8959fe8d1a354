"""What estimators with categorical features share: arrays of numbers to cells and back, and what was spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.accounting import compose, total
from dpcore.encoding import Encoding
from dpcore.levels import ClassRules, LevelRule
from dpcore.mechanisms.base import GramEvent
from dpcore.registry import BY_NAME, cost_of
from dpcore.schema import UNKNOWN, Cells, Column, IntervalColumn, Kind, NominalColumn
from dpcore.vectors import VectorEvent

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Categories = Mapping[int, Sequence[float]]
"""Public values of the categorical features, by the feature's index."""


def feature_name(index: int) -> str:
    """The column that stands for a feature."""
    return f"x{index}"


def feature_columns(features: int, bounds: tuple[ArrayLike, ArrayLike], categories: Categories) -> list[Column]:
    """One column a feature: nominal where its categories are listed, else between the bounds.

    Raises: ValueError for bounds that do not increase or categories of no feature.
    """
    strangers = [index for index in categories if index not in range(features)]
    if strangers:
        raise ValueError(f"categories must name features by index, 0 to {features - 1}, got {strangers[0]}")
    lower, upper = (np.broadcast_to(np.asarray(side, dtype=np.float64), (features,)) for side in bounds)
    columns: list[Column] = []
    for i in range(features):
        name = feature_name(i)
        if i in categories:
            levels = tuple(range(len(set(categories[i]))))
            columns.append(NominalColumn(name=name, kind=Kind.CATEGORICAL, levels=levels))
        else:
            column = IntervalColumn(name=name, kind=Kind.NUMERIC, lower=float(lower[i]), upper=float(upper[i]))
            columns.append(column)
    return columns


def feature_cells(rows: Floats, categories: Categories) -> Cells:
    """The cells of an array's rows."""
    columns = ((i, rows[:, i]) for i in range(rows.shape[1]))
    return {feature_name(i): codes_of(values, categories[i]) if i in categories else values for i, values in columns}


def codes_of(values: NDArray[Any], known: Sequence[Any]) -> Codes:
    """Each value's place among the known ones; `UNKNOWN` where it is none of them."""
    codes = np.full(len(values), UNKNOWN, dtype=np.int64)
    for index, value in enumerate(known):
        codes[values == value] = index
    return codes


def feature_rows(points: Floats, encoding: Encoding, categories: Categories) -> Floats:
    """Encoded points as an array in the original units: inside the bounds, the nearest level of each column."""
    levels = {code.column.name: code.column for code in encoding.codes if isinstance(code.column, NominalColumn)}
    plain = {name: LevelRule((0.0,) * column.level_count) for name, column in levels.items()}
    cells = encoding.decode(points, ClassRules(0, plain, {}))
    features = len(encoding.codes)
    columns = [
        np.asarray(categories[i], dtype=np.float64)[cells[feature_name(i)].astype(np.int64)]
        if i in categories
        else cells[feature_name(i)].astype(np.float64)
        for i in range(features)
    ]
    return np.column_stack(columns)


def stated_privacy(
    events: Mapping[str, GramEvent | VectorEvent], *, delta: Fraction, neighbours: str
) -> dict[str, Any]:
    """What the events cost together, and why that holds."""
    cost = total(cost_of(event) for event in events.values())
    return {
        **compose(cost, delta=delta).as_json(),
        "neighbours": neighbours,
        "unit": "row",
        "measurements": {name: event.as_json() for name, event in events.items()},
        "why": [BY_NAME[event.mechanism].reason for event in events.values()],
    }
