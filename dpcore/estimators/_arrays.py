"""Helpers of the estimators: conversion between arrays and cells, public parameters, the privacy statement.

Each cell is read on its own. A cell that is not a number is missing, and one that is not a known label
is unknown, whatever the other rows hold: an error, or an array whose type is decided by one row,
would reveal that row. The type of an array that the caller made is public, like a column's type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from dpcore.accounting import release_statement, total
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.registry import cost_of
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.noise.sources import seed_of
from dpcore.records.decoding import ClassRules, LevelRule
from dpcore.records.encoding import Encoding
from dpcore.records.schema import UNKNOWN, Cells, Codes, Column, Floats, IntervalColumn, Kind, NominalColumn, Role

Bounds = tuple[ArrayLike, ArrayLike]
Categories = Mapping[int, Sequence[float]]
"""Public values of the categorical features, by the feature's index."""

LABEL = "label"
"""The name of the column of classes."""


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of all estimators: scikit-learn's tags say that any cell is accepted and that fits are random.

    The fields of an estimator are its parameters; scikit-learn reads them from the signature of `__init__`.
    """

    epsilon: float | Fraction
    bounds: Bounds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True  # mapped by a public rule; an error would leak
        tags.non_deterministic = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class SamplingEstimator(PrivateEstimator):
    """Base of the estimators that sample synthetic rows from what they measured."""

    neighbours: str = "replace-one"
    random_state: str | int | None = None

    def _sampling_seed(self, rows: int) -> str:
        """Return the seed of a sample of that many rows; only a fitted estimator has one."""
        check_is_fitted(self, "privacy_")
        if rows < 1:
            raise ValueError(f"n must be at least 1, got {rows}")
        return seed_of(self.random_state)


def feature_name(index: int) -> str:
    """Return the column name of a feature."""
    return f"x{index}"


def feature_columns(features: int, bounds: Bounds, categories: Categories) -> list[Column]:
    """Return one column per feature: nominal if its categories are listed, else numeric between the bounds.

    Raises: ValueError for bounds that do not increase, or for categories of a feature that does not exist.
    """
    strangers = [index for index in categories if index not in range(features)]
    if strangers:
        raise ValueError(f"categories must name features by index, 0 to {features - 1}, got {strangers[0]}")
    lower, upper = feature_bounds(features, bounds)
    columns: list[Column] = []
    for i in range(features):
        name = feature_name(i)
        if i in categories:
            levels = level_indices(f"categories of feature {i}", categories[i])
            columns.append(NominalColumn(name=name, kind=Kind.CATEGORICAL, levels=levels))
        else:
            columns.append(IntervalColumn(name=name, kind=Kind.NUMERIC, lower=lower[i], upper=upper[i]))
    return columns


def feature_bounds(features: int, bounds: Bounds) -> tuple[list[float], list[float]]:
    """Return the lower and the upper bounds of all features.

    Raises: ValueError unless there are two sides, each a number or one number per feature.
    """
    try:
        lower, upper = (np.broadcast_to(np.asarray(side, dtype=np.float64), (features,)).tolist() for side in bounds)
    except (TypeError, ValueError):
        rule = f"bounds must be (lower, upper), each a number or one for each of {features} features"
        raise ValueError(f"{rule}, got {bounds!r}") from None
    return lower, upper


def label_column(classes: Sequence[Any]) -> NominalColumn:
    """Return the column of the public classes.

    Raises: ValueError for a class that is listed twice.
    """
    levels = level_indices("classes", classes)
    return NominalColumn(name=LABEL, kind=Kind.CATEGORICAL, levels=levels, role=Role.LABEL)


def level_indices(name: str, values: Sequence[Any]) -> tuple[int, ...]:
    """Return one level per public value.

    Raises: ValueError for a value that is listed twice.
    """
    if len(set(values)) != len(values):
        raise ValueError(f"{name} must all be different, got {list(values)!r}")
    return tuple(range(len(values)))


def finite_fraction(name: str, value: float | Fraction) -> Fraction:
    """Return a number as the fraction that it is written as: 0.1 is one tenth.

    Raises: ValueError unless it is a finite number.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return value if isinstance(value, Fraction) else Fraction(str(value))


def exact_delta(value: float | Fraction) -> Fraction:
    """Return a delta as the fraction that it is written as.

    Raises: ValueError outside [0, 1).
    """
    delta = finite_fraction("delta", value)
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {value}")
    return delta


def numeric_rows(estimator: BaseEstimator, X: ArrayLike, *, reset: bool = True) -> Floats:
    """Return the rows of X as floats, NaN for cells that are no numbers; scikit-learn checks shape and names."""
    return numbers_of(validate_data(estimator, _as_array(X), dtype=None, ensure_all_finite=False, reset=reset))


def plain_rows(name: str, rows: ArrayLike, features: int) -> Floats:
    """Return public rows as floats, NaN for cells that are no numbers.

    Raises: ValueError unless there is at least one row, each with as many cells as there are features.
    """
    cells = np.asarray(_as_array(rows))
    if cells.ndim != 2 or not len(cells) or cells.shape[1] != features:
        raise ValueError(f"{name} must hold at least one row of {features} features, got an array of {cells.shape}")
    return numbers_of(cells)


def target_values(y: ArrayLike | None, rows: int) -> NDArray[Any]:
    """Return the values of y unchanged, one per row.

    Raises: ValueError for another shape.
    """
    values: NDArray[Any] = np.asarray(_as_array(y))
    if values.shape != (rows,):
        raise ValueError("y must have one value a row of X")
    return values


def numbers_of(cells: NDArray[Any]) -> Floats:
    """Return the cells as floats, NaN for cells that are no numbers.

    Raises: ValueError for an array whose type holds neither numbers, text nor objects.
    """
    if cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    if cells.dtype.kind not in "OUST":
        raise ValueError(f"an array of type {cells.dtype} holds no numbers")
    return np.array([_number_or_nan(cell) for cell in cells.ravel().tolist()], dtype=np.float64).reshape(cells.shape)


def _number_or_nan(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _as_array(values: Any) -> Any:
    """Return values without a type as an array of objects, so that no row decides how the others are read."""
    typed = any(hasattr(values, name) for name in ("dtype", "dtypes", "__array__"))
    return values if typed else np.array(values, dtype=object)


def feature_cells(rows: Floats, categories: Categories) -> Cells:
    """Return the cells of an array's rows, by column."""
    columns = ((i, rows[:, i]) for i in range(rows.shape[1]))
    return {feature_name(i): codes_of(values, categories[i]) if i in categories else values for i, values in columns}


def codes_of(values: NDArray[Any], known: Sequence[Any]) -> Codes:
    """Return the index of each value among the known ones, and `UNKNOWN` for other values."""
    if values.dtype.kind == "O":
        places = {value: index for index, value in enumerate(known)}
        return np.array([_code_or_unknown(value, places) for value in values.tolist()], dtype=np.int64)
    codes = np.full(len(values), UNKNOWN, dtype=np.int64)
    for index, value in enumerate(known):
        codes[values == value] = index
    return codes


def _code_or_unknown(value: Any, places: Mapping[Any, int]) -> int:
    try:
        return places.get(value, UNKNOWN)
    except TypeError:  # unhashable, such as a list, and so no label
        return UNKNOWN


def feature_rows(points: Floats, encoding: Encoding, categories: Categories) -> Floats:
    """Return encoded points as rows in the original units, within the bounds and with the nearest categories."""
    levels = {code.column.name: code.column for code in encoding.codes if isinstance(code.column, NominalColumn)}
    plain = {name: LevelRule((0.0,) * column.level_count) for name, column in levels.items()}
    cells = encoding.decode(points, ClassRules(0, plain, {}))
    columns = [
        np.asarray(categories[i], dtype=np.float64)[cells[feature_name(i)].astype(np.int64)]
        if i in categories
        else cells[feature_name(i)].astype(np.float64)
        for i in range(len(encoding.codes))
    ]
    return np.column_stack(columns)


def privacy_statement(
    events: Mapping[str, GramEvent | VectorEvent], *, delta: Fraction, neighbours: str
) -> dict[str, Any]:
    """Return the total cost of the events, the reasons for it, and the mechanisms that are only approximate."""
    cost = total(cost_of(event) for event in events.values())
    names = dict.fromkeys(event.mechanism for event in events.values())
    return {
        **release_statement(cost, delta=delta).as_json(),
        "neighbours": neighbours,
        "unit": "row",
        "measurements": {name: event.as_json() for name, event in events.items()},
        "why": [BY_NAME[event.mechanism].reason for event in events.values()],
        "approximate": [name for name in names if BY_NAME[name].status is Status.APPROXIMATE],
    }
