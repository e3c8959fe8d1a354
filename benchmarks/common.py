"""Common parts of the benchmarks: data sets with public schemas, intervals over runs, tables and plots.

The data sets are not part of the project: the environment variable DPRELEASE_DATA names their folder.
Bounds and categories are constants of this file. They come from the documentation of the data sets and are never
computed from rows: values outside the bounds are clamped, and a missing category becomes `unknown`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

from dpcore.noise.sources import public_generator
from dpcore.records.schema import Cells, Column, IntervalColumn, Kind, NominalColumn, RecordSchema, Role

Floats = NDArray[np.float64]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SPLIT_SEED = "5eed"
"""Public seed of every split into training and test rows and of every subsample."""

TEST_SHARE = 0.25
UNKNOWN = "unknown"
CONFIDENCE = 0.95


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


# ---- public schemas -------------------------------------------------------------------------------


def _number(name: str, lower: float, upper: float, role: Role = Role.FEATURE) -> IntervalColumn:
    return IntervalColumn(name=name, kind=Kind.NUMERIC, lower=lower, upper=upper, role=role)


def _whole(name: str, lower: float, upper: float, role: Role = Role.FEATURE) -> IntervalColumn:
    return IntervalColumn(name=name, kind=Kind.INTEGER, lower=lower, upper=upper, role=role)


def _nominal(name: str, levels: Iterable[str], role: Role = Role.FEATURE) -> NominalColumn:
    return NominalColumn(name=name, kind=Kind.CATEGORICAL, levels=tuple(levels), role=role)


def _label(name: str, levels: Iterable[str]) -> NominalColumn:
    return _nominal(name, levels, Role.LABEL)


def _words(text: str) -> list[str]:
    return text.split()


def _codes(first: int, last: int) -> list[str]:
    return [str(code) for code in range(first, last + 1)]


def _pixels(side: int, upper: float) -> list[Column]:
    return [_number(f"px{row:02d}_{column:02d}", 0, upper) for row in range(side) for column in range(side)]


COUNTRIES = _words(
    "United-States Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany "
    "Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan Laos "
    "Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan "
    "Thailand Trinadad&Tobago Vietnam Yugoslavia"
)

ADULT: tuple[Column, ...] = (
    _whole("age", 17, 90),
    _whole("education_num", 1, 16),
    _whole("capital_gain", 0, 99_999),
    _whole("capital_loss", 0, 4_356),
    _whole("hours_per_week", 1, 99),
    _nominal(
        "workclass",
        _words(
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked unknown"
        ),
    ),
    _nominal(
        "marital_status",
        _words("Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"),
    ),
    _nominal(
        "occupation",
        _words(
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
            "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
            "Armed-Forces unknown"
        ),
    ),
    _nominal("relationship", _words("Wife Own-child Husband Not-in-family Other-relative Unmarried")),
    _nominal("race", _words("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black")),
    _nominal("sex", _words("Female Male")),
    _nominal("native_country", [*COUNTRIES, UNKNOWN]),
    _label("income", ["<=50K", ">50K"]),
)

BANK: tuple[Column, ...] = (
    _whole("age", 18, 95),
    _nominal(
        "job",
        _words(
            "admin. blue-collar entrepreneur housemaid management retired self-employed services student technician "
            "unemployed unknown"
        ),
    ),
    _nominal("marital", _words("divorced married single")),
    _nominal("education", _words("primary secondary tertiary unknown")),
    _nominal("default", _words("no yes")),
    _whole("balance", -10_000, 110_000),
    _nominal("housing", _words("no yes")),
    _nominal("loan", _words("no yes")),
    _nominal("contact", _words("cellular telephone unknown")),
    _whole("day", 1, 31),
    _nominal("month", _words("jan feb mar apr may jun jul aug sep oct nov dec")),
    _whole("duration", 0, 5_000),
    _whole("campaign", 1, 63),
    _whole("pdays", -1, 900),
    _whole("previous", 0, 300),
    _nominal("poutcome", _words("failure other success unknown")),
    _label("y", _words("no yes")),
)

MONTHS_BACK = (0, 2, 3, 4, 5, 6)
CREDIT: tuple[Column, ...] = (
    _whole("limit_bal", 0, 1_000_000),
    _nominal("sex", _codes(1, 2)),
    _nominal("education", _codes(0, 6)),
    _nominal("marriage", _codes(0, 3)),
    _whole("age", 18, 80),
    *(_whole(f"pay_{month}", -2, 9) for month in MONTHS_BACK),
    *(_whole(f"bill_amt{month}", -350_000, 1_700_000) for month in range(1, 7)),
    *(_whole(f"pay_amt{month}", 0, 1_700_000) for month in range(1, 7)),
    _label("default_payment_next_month", _codes(0, 1)),
)

ACS_FEATURES: tuple[Column, ...] = (
    _whole("agep", 0, 99),
    _nominal("sex", _codes(1, 2)),
    _nominal("msp", [*_codes(1, 6), UNKNOWN]),
    _nominal("hisp", _codes(0, 4)),
    _nominal("rac1p", _codes(1, 9)),
    _whole("noc", 0, 14),
    _whole("npf", 0, 20),
    _nominal("housing_type", _codes(1, 3)),
    _nominal("own_rent", _codes(0, 2)),
    _number("density", 0, 60_000),
    _nominal("indp_cat", [*_codes(0, 18), UNKNOWN]),
    _nominal("edu", [*_codes(1, 12), UNKNOWN]),
    _whole("povpip", 0, 501),
    _nominal("dvet", [*_codes(1, 6), UNKNOWN]),
    _nominal("drem", [*_codes(1, 2), UNKNOWN]),
    _nominal("dphy", [*_codes(1, 2), UNKNOWN]),
    _nominal("deye", _codes(1, 2)),
    _nominal("dear", _codes(1, 2)),
)
"""Columns of the NIST excerpts; `povpip` (income over the poverty line) is dropped if income is the target."""

INCOME_TOP = 200_000
"""Upper bound to which incomes are clamped in the regression, in training and test rows alike."""

ACS_INCOME: tuple[Column, ...] = (
    *(column for column in ACS_FEATURES if column.name != "povpip"),
    _whole("pincp", 0, INCOME_TOP, Role.TARGET),
)

COVERTYPE: tuple[Column, ...] = (
    _whole("elevation", 1_800, 4_000),
    _whole("aspect", 0, 360),
    _whole("slope", 0, 90),
    _whole("horizontal_distance_to_hydrology", 0, 1_400),
    _whole("vertical_distance_to_hydrology", -200, 700),
    _whole("horizontal_distance_to_roadways", 0, 7_200),
    _whole("hillshade_9am", 0, 255),
    _whole("hillshade_noon", 0, 255),
    _whole("hillshade_3pm", 0, 255),
    _whole("horizontal_distance_to_fire_points", 0, 7_200),
    _nominal("wilderness_area", _codes(1, 4)),
    _nominal("soil_type", _codes(1, 40)),
    _label("cover_type", _codes(1, 7)),
)

HOUSING: tuple[Column, ...] = (
    _number("med_inc", 0, 15),
    _number("house_age", 0, 52),
    _number("ave_rooms", 0, 15),
    _number("ave_bedrms", 0, 3),
    _number("population", 0, 6_000),
    _number("ave_occup", 0, 8),
    _number("latitude", 32, 42),
    _number("longitude", -125, -114),
    _number("med_house_val", 0, 5, Role.TARGET),
)

GFE_BOUNDS = {"x": (0.0, 640.0), "y": (0.0, 480.0), "z": (0.0, 2_000.0)}
"""Coordinates of a facial point: pixels in the picture, and the distance in millimetres."""

GFE: tuple[Column, ...] = (
    *(_number(f"p{point:02d}_{axis}", *GFE_BOUNDS[axis]) for point in range(100) for axis in "xyz"),
    _label("label", _codes(0, 1)),
)

WAVEFORM: tuple[Column, ...] = (
    *(_number(f"x{i}", -4, 10) if i <= 21 else _number(f"x{i}", -4, 4) for i in range(1, 41)),
    _label("label", _codes(0, 2)),
)
"""Bounds of a triangle of height 6 plus unit noise in the first 21 columns, and of unit noise in the others."""

MNIST: tuple[Column, ...] = (*_pixels(28, 255), _label("label", _codes(0, 9)))
SEMEION: tuple[Column, ...] = (*_pixels(16, 1), _label("label", _codes(0, 9)))
DIGITS: tuple[Column, ...] = (*_pixels(8, 16), _label("label", _codes(0, 9)))


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


SOURCES: dict[str, Source] = {
    "adult": Source("adult", ADULT),
    "bank_marketing": Source("bank_marketing", BANK),
    "credit_default": Source("credit_default", CREDIT),
    "acs_nist": Source("acs_nist_excerpts2019", (*ACS_FEATURES, _label("income", ["lower", "upper"])), _adults),
    "acs_nist_income": Source("acs_nist_excerpts2019", ACS_INCOME, _adults),
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


# ---- intervals over runs --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Summary:
    """The mean over runs and its 95 % interval by Student's t."""

    mean: float
    low: float
    high: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.runs < 2 else f"{self.mean:.3f} ± {(self.high - self.low) / 2:.3f}"


def summary(values: ArrayLike) -> Summary:
    """Return mean and interval of independent runs; a single run has no interval."""
    numbers = np.asarray(values, dtype=np.float64)
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return Summary(mean, -math.inf, math.inf, len(numbers))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1) * stats.sem(numbers))
    return Summary(mean, mean - half, mean + half, len(numbers))


def paired(ours: ArrayLike, theirs: ArrayLike) -> Summary:
    """Return the mean of the differences ours minus theirs, paired by run."""
    return summary(np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64))


# ---- running and showing --------------------------------------------------------------------------


def arguments(doc: str | None, *, runs: int = 10, sets: Sequence[str] = ()) -> argparse.Namespace:
    """Parse `--runs`, `--quick` and `--full`, which every benchmark accepts, and the data sets if there are several."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if sets:
        parser.add_argument("sets", nargs="*", default=list(sets), help=f"data sets: {', '.join(sets)} (all)")
    parser.add_argument("--runs", type=int, default=runs, help=f"independent runs of everything random ({runs})")
    parser.add_argument("--quick", action="store_true", help="two runs on few rows, to see that it works")
    parser.add_argument("--full", action="store_true", help="all rows; may take hours")
    asked = parser.parse_args()
    if asked.quick:
        asked.runs = min(asked.runs, 2)
    return asked


def progress(items: Sequence[Any], what: str) -> Iterator[Any]:
    """Yield the items and print a line on standard error for each one done."""
    start = time.perf_counter()
    for count, item in enumerate(items, 1):
        yield item
        print(f"{what}: {count} of {len(items)}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def run_seed(name: str, run: int) -> str:
    """Return the public seed of a run's sampling and models, never of its noise."""
    return (f"{name} {run}".encode()).hex()


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, notes: Sequence[str] = ()) -> None:
    """Print a table, and notes below it."""
    console = Console(width=int(os.environ.get("COLUMNS", "140")))
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    console.print(table)
    for note in notes:
        console.print(f"  {note}", highlight=False)


def results_file(name: str) -> Path:
    """Return the path of a file of results, and make its folder."""
    path = RESULTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_results(name: str, body: Mapping[str, Any]) -> Path:
    """Write the figures of a benchmark as JSON beside its plots."""
    path = results_file(f"{name}.json")
    path.write_text(json.dumps(body, indent=1, default=_plain) + "\n")
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return path


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot: summaries over a public parameter; dashed if the stated epsilon does not hold."""

    name: str
    x: Sequence[float]
    y: Sequence[Summary]
    dashed: bool = False


MOST_INSIDE, MOST_COLOURS = 5, 10
"""The largest number of curves whose legend fits into a panel and whose colours are easily distinguished."""


def write_plot(
    name: str, panels: Mapping[str, Sequence[Curve]], *, x: str, y: str, log_x: bool = True, most_columns: int = 4
) -> Path:
    """Write a PNG with one panel per group of curves and bands for the intervals."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(most_columns, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.2 * columns + 1.6, 3.4 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for index, (title, curves) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(lines, columns, index)
        axes.set_prop_cycle(color=colormaps["tab20"].colors[:: 1 if len(curves) > MOST_COLOURS else 2])
        for curve in curves:
            (line,) = axes.plot(
                curve.x, [s.mean for s in curve.y], "--" if curve.dashed else "-", marker="o", ms=3, label=curve.name
            )
            known = [s for s in curve.y if s.runs > 1]
            if len(known) == len(curve.y):
                low, high = [s.low for s in known], [s.high for s in known]
                axes.fill_between(curve.x, low, high, alpha=0.2, color=line.get_color())
        axes.set(title=title, xlabel=x, ylabel=y)
        if log_x:
            axes.set_xscale("log")
            places = sorted({place for curve in curves for place in curve.x})
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.minorticks_off()
        axes.grid(alpha=0.3)
        if len(curves) <= MOST_INSIDE:
            axes.legend(fontsize=6)
        elif index == len(panels):
            axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.01, 0.5))  # panels share their curves
    path = results_file(f"{name}.png")
    figure.savefig(path, dpi=120)
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return path
