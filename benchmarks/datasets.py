"""The data sets of the benchmarks, with public schemas.

The data sets are not part of the project: the environment variable DPRELEASE_DATA names their folder.
Bounds and categories are constants of schemas.py. They come from the documentation of the data sets and are never
computed from rows: values outside the bounds are clamped, and a missing category becomes `unknown`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.schemas import (
    ACS,
    ACS_INCOME,
    ADULT,
    BANK,
    COVERTYPE,
    CREDIT,
    DIGITS,
    GFE,
    HOUSING,
    INCOME_TOP,
    MNIST,
    SDNIST,
    SEMEION,
    UNKNOWN,
    WAVEFORM,
)
from dpcore.noise.sources import public_generator
from dpcore.records.schema import Cells, Column, IntervalColumn, NominalColumn, RecordSchema, Role

Floats = NDArray[np.float64]

SPLIT_SEED = "5eed"
"""Public seed of every split into training and test rows and of every subsample."""

TEST_SHARE = 0.25


# ---- where the data are ---------------------------------------------------------------------------


class DataAbsentError(SystemExit):
    """The data sets are not on this machine; the command exits with this message."""


def data_folder() -> Path:
    """Return the folder of the data sets.

    Raises: DataAbsentError if DPRELEASE_DATA names no folder.
    """
    named = os.environ.get("DPRELEASE_DATA", "")
    if not named or not Path(named).is_dir():
        found = f"there is no folder {named}" if named else "DPRELEASE_DATA is not set"
        raise DataAbsentError(f"{found}: set DPRELEASE_DATA to the folder with the data sets' Parquet files")
    return Path(named)


def has_data(*names: str) -> bool:
    """Return whether all these data sets are available; tests skip without them."""
    try:
        return all(name in BUNDLED or (data_folder() / f"{SOURCES[name].file}.parquet").is_file() for name in names)
    except DataAbsentError:
        return False


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the data folder with its public schema."""

    file: str
    columns: tuple[Column, ...]
    prepare: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame


def _from_indicators(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Covertype with its two groups of indicators as two categorical columns."""
    for name, count in (("wilderness_area", 4), ("soil_type", 40)):
        indicators = [f"{name}{i}" for i in range(1, count + 1)]
        frame[name] = frame[indicators].to_numpy().argmax(axis=1) + 1
    return frame


def _adults(frame: pd.DataFrame) -> pd.DataFrame:
    """Return persons aged 15 or more, who alone have an income in the survey; a missing family size becomes 1."""
    grown = frame[frame["agep"] >= 15].copy()
    grown["income"] = np.where(grown["pincp_decile"].fillna(0) >= 5, "upper", "lower")
    grown["pincp"] = grown["pincp"].fillna(0).clip(0, INCOME_TOP)
    grown["noc"], grown["npf"] = grown["noc"].fillna(0), grown["npf"].fillna(1)
    grown["povpip"] = grown["povpip"].fillna(501)
    return grown


def _national(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the national excerpt, all of it for training; a question that does not apply has the answer N."""
    national = frame[frame["excerpt"] == "national"]
    marked = [column.name for column in SDNIST if isinstance(column, NominalColumn)]
    answers = {name: national[name].astype("Int64").astype("string").fillna("N") for name in marked}
    return national.assign(**answers, split="train")


SOURCES: dict[str, Source] = {
    "adult": Source("adult", ADULT),
    "bank_marketing": Source("bank_marketing", BANK),
    "credit_default": Source("credit_default", CREDIT),
    "acs_nist": Source("acs_nist_excerpts2019", ACS, _adults),
    "acs_nist_income": Source("acs_nist_excerpts2019", ACS_INCOME, _adults),
    "sdnist": Source("acs_nist_excerpts2019", SDNIST, _national),
    "california_housing": Source("california_housing", HOUSING),
    "covertype": Source("covertype", COVERTYPE, _from_indicators),
    "mnist": Source("mnist", MNIST),
    "semeion": Source("semeion", SEMEION),
    "waveform40": Source("waveform40", WAVEFORM),
    "gfe": Source("gfe", GFE),
    "digits": Source("", DIGITS),
}

BUNDLED = ("digits",)
"""Data sets that come with scikit-learn."""


# ---- data sets ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dataset:
    """Training and test rows under a public schema: floats in numeric columns, text in nominal ones."""

    name: str
    schema: RecordSchema
    train: pd.DataFrame
    test: pd.DataFrame

    @property
    def outcome(self) -> Column:
        """The label or the target."""
        return next(column for column in self.schema.columns if column.role is not Role.FEATURE)

    def features(self, frame: pd.DataFrame) -> Floats:
        """Return the features of models: numbers scaled to [-1, 1] by the public bounds, categories as indicators."""
        parts = []
        for column in self.schema.columns:
            if column.role is not Role.FEATURE:
                continue
            if isinstance(column, NominalColumn):
                codes = level_codes(frame, column)
                parts.append((codes[:, None] == np.arange(len(column.levels))).astype(np.float64))
            else:
                parts.append(position(frame[column.name].to_numpy(np.float64), column)[:, None])
        return np.hstack(parts)

    def outcomes(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return labels as indices of the public levels, or targets scaled to [-1, 1]."""
        column = self.outcome
        if isinstance(column, NominalColumn):
            return level_codes(frame, column)
        return position(frame[column.name].to_numpy(np.float64), column)

    def cells(self, frame: pd.DataFrame) -> Cells:
        """Return the rows as cells of dpcore."""
        return {
            column.name: level_codes(frame, column)
            if isinstance(column, NominalColumn)
            else frame[column.name].to_numpy(np.float64)
            for column in self.schema.columns
        }

    def frame(self, cells: Cells) -> pd.DataFrame:
        """Return cells of dpcore as rows of the same form as `train` and `test`."""
        columns = {}
        for column in self.schema.columns:
            values = cells[column.name]
            if isinstance(column, NominalColumn):
                known = np.asarray(column.levels, dtype=object)
                columns[column.name] = pd.Categorical(known[values.astype(np.int64)], categories=column.levels)
            else:
                columns[column.name] = values.astype(np.float64)
        return pd.DataFrame(columns)


def position(values: Floats, column: IntervalColumn) -> Floats:
    """Return values scaled from the bounds to [-1, 1]; a missing one becomes 0."""
    scaled = np.clip((values - column.middle) / column.half_width, -1.0, 1.0)
    return np.where(np.isnan(scaled), 0.0, scaled)


def level_codes(frame: pd.DataFrame, column: NominalColumn) -> NDArray[np.int64]:
    """Return the index of each cell's level, and -1 for an unknown one."""
    codes: NDArray[np.int64] = pd.Categorical(frame[column.name], categories=column.levels).codes.astype(np.int64)
    return codes


def load(name: str, *, train_rows: int | None = None, test_rows: int | None = None, split: int = 0) -> Dataset:
    """Return a data set by name, with at most so many training and test rows, in a fixed random order.

    Adult and MNIST come with their own test rows. From the others a quarter is drawn with a public seed, which
    depends on `split`.
    Raises: DataAbsentError without the data.
    """
    source = SOURCES[name]
    schema = RecordSchema(source.columns)
    raw = _digits() if name in BUNDLED else source.prepare(pd.read_parquet(data_folder() / f"{source.file}.parquet"))
    parts = _split(raw, f"split {name}" + (f" {split}" if split else ""))
    train, test = (_typed(part.iloc[:most], schema) for part, most in zip(parts, (train_rows, test_rows), strict=True))
    return Dataset(name, schema, train, test)


def _split(frame: pd.DataFrame, purpose: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return training and test rows, both in a random order by the public seed."""
    generator = public_generator(SPLIT_SEED, purpose)
    shuffled = frame.iloc[generator.permutation(len(frame))]
    if "split" in frame.columns:
        return shuffled[shuffled["split"] == "train"], shuffled[shuffled["split"] == "test"]
    held_out = math.ceil(TEST_SHARE * len(frame))
    return shuffled.iloc[held_out:], shuffled.iloc[:held_out]


def _typed(frame: pd.DataFrame, schema: RecordSchema) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for column in schema.columns:
        values = frame[column.name]
        if isinstance(column, NominalColumn):
            text = values.astype("string").fillna(UNKNOWN)
            columns[column.name] = pd.Categorical(text, categories=column.levels)
        else:
            columns[column.name] = values.to_numpy(np.float64, na_value=np.nan)
    return pd.DataFrame(columns)


def _digits() -> pd.DataFrame:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    names = [column.name for column in DIGITS[:-1]]
    return pd.DataFrame(images, columns=names).assign(label=labels)
