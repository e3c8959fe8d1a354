"""How far the marginals of synthetic rows are from those of the real rows, in public bins.

    python -m benchmarks.marginals [adult bank_marketing credit_default acs_nist sdnist] [--runs 10] [--rows 10]

Each run releases the training rows anew through the program's own stages, with a specification that names no model,
and compares the synthetic rows with the rows that were released:

- 1-way, 2-way, 3-way: mean total variation distance over all columns, all pairs, and 120 triples under a public seed
- label 3-way: the same over all pairs of columns together with the label
- K: for SDNist's excerpt, 1000 times one minus the mean distance over all pairs, in SDNist's bins, without regions
- LR, GNB, HGB: the area under the ROC curve of `benchmarks.mixed`, on real test rows
- broken: rows that break a rule of SDNist, where its excerpt is released under `--rules` or without them

`--rows 10` draws ten times as many rows as were released, which shows the error of the model without that of drawing.
`--relation replace-one` and `--delta 0` change the privacy parameters; the default is epsilon 1, delta 1e-5 and
add-remove, as other libraries use.

Bins are constants. Those of adult are rounded groups of years, amounts and hours. Those of the other sets hold about
equal numbers of the training rows, because nobody else has used them for this; they serve evaluation alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from benchmarks.common import show, write_results
from benchmarks.datasets import Dataset, level_codes, load
from benchmarks.mixed import MODELS, scores
from benchmarks.repeated import Runs, Scores
from benchmarks.schemas import SDNIST_RULES
from dpcore.noise.sources import public_generator
from dpcore.records.schema import IntervalColumn, NominalColumn, Role
from flows.recipe import release_directly
from tasks.release.context import RunRequest
from tasks.workspace.folders import Workspace

Codes = NDArray[np.int64]

SETS = ("adult", "bank_marketing", "credit_default", "acs_nist", "sdnist")
TRIPLES, TRIPLES_SEED = 120, "7219"
CELLS_OF_EQUAL_SIZE = 12
"""Evaluation cells of a number where no public bins exist."""

BREAKS: dict[str, dict[str, Sequence[float]]] = {
    "adult": {
        "age": range(20, 90, 5),
        "education_num": range(2, 17),
        "capital_gain": (1, 2_000, 4_000, 6_000, 8_000, 10_000, 20_000),
        "capital_loss": (1, 1_500, 1_750, 2_000, 2_250),
        "hours_per_week": (10, 20, 30, 35, 40, 41, 45, 50, 55, 60, 70),
    },
    "sdnist": {"agep": range(5, 99, 5)},
}
"""The lower edges of all bins but the first."""

RULES: dict[str, list[Any]] = {"sdnist": SDNIST_RULES}

PEERS = {
    "adult": (
        ("SWIFT, 2-way workload", ".0030", ".0177", ".0473", ".0270", "", ".900", ".842", ".907", ""),
        ("SWIFT, 3-way workload", ".0039", ".0199", ".0529", ".0294", "", ".899", ".838", ".905", ""),
        ("dpmm AIM", ".0127", ".0336", ".0687", ".0456", "", ".896", ".834", ".899", ""),
        ("dpmm MST", ".0112", ".0476", ".0982", ".0925", "", ".828", ".820", ".832", ""),
    ),
    "sdnist": (
        ("SWIFT, 2-way workload", "", "", "", "", "981.7", "", "", "", "870"),
        ("SmartNoise AIM", "", "", "", "", "976", "", "", "", "1672"),
        ("SmartNoise MST", "", "", "", "", "958", "", "", "", ""),
    ),
}
"""Figures of other libraries on the same rows and bins, under add-remove at epsilon 1 and delta 1e-5."""

SCORES = ("1-way", "2-way", "3-way", "label 3-way", "K", *MODELS, "broken")


# ---- bins and distances ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bins:
    """The evaluation cell of every value."""

    data: Dataset
    breaks: dict[str, NDArray[np.float64]]

    @staticmethod
    def of(data: Dataset) -> Bins:
        """Return the public bins of a data set, and cells of equal size where there are none."""
        known, breaks = BREAKS.get(data.name, {}), {}
        shares = np.arange(1, CELLS_OF_EQUAL_SIZE) / CELLS_OF_EQUAL_SIZE
        for column in data.schema.columns:
            if isinstance(column, IntervalColumn):
                values = data.train[column.name].dropna()
                breaks[column.name] = np.unique(np.asarray(known.get(column.name, np.quantile(values, shares)), float))
        return Bins(data, breaks)

    def codes(self, frame: pd.DataFrame) -> Codes:
        """Return the cell of every value, one column for each column of the table."""
        found = []
        for column in self.data.schema.columns:
            if isinstance(column, NominalColumn):
                found.append(level_codes(frame, column) + 1)
            else:
                values = frame[column.name].to_numpy(np.float64)
                cell = 1 + np.searchsorted(self.breaks[column.name], values, side="right")
                found.append(np.where(np.isnan(values), 0, cell))
        return np.array(found, dtype=np.int64).T


def distance(real: Codes, drawn: Codes, columns: Sequence[int]) -> float:
    """Return the total variation distance between the tables of some columns."""
    both = np.zeros(len(real) + len(drawn), dtype=np.int64)
    for column in columns:
        values = np.concatenate([real[:, column], drawn[:, column]])
        both = np.unique(both * (values.max() + 1) + values, return_inverse=True)[1].astype(np.int64)
    cells = int(both.max()) + 1
    one, other = np.bincount(both[: len(real)], minlength=cells), np.bincount(both[len(real) :], minlength=cells)
    return float(np.abs(one / len(real) - other / len(drawn)).sum() / 2)


def distances(data: Dataset, bins: Bins, rows: pd.DataFrame) -> Scores:
    """Return the mean distances over tables of one, two and three columns."""
    real, drawn = bins.codes(data.train), bins.codes(rows)
    count = len(data.schema.columns)
    labels = [i for i, column in enumerate(data.schema.columns) if column.role is Role.LABEL]
    pairs, triples = list(combinations(range(count), 2)), list(combinations(range(count), 3))
    if len(triples) > TRIPLES:
        order = public_generator(TRIPLES_SEED, "triples").permutation(len(triples))
        triples = [triples[i] for i in order[:TRIPLES]]
    tables: dict[str, list[tuple[int, ...]]] = {
        "1-way": [(i,) for i in range(count)],
        "2-way": list(pairs),
        "3-way": list(triples),
        "label 3-way": [(*pair, label) for label in labels for pair in pairs if label not in pair],
    }
    found = {name: [distance(real, drawn, columns) for columns in kind] for name, kind in tables.items() if kind}
    means = {name: float(np.mean(values)) for name, values in found.items()}
    return means | (
        {"K": 1000 * (1 - means["2-way"]), "broken": float(inconsistent(rows).sum())} if data.name == "sdnist" else {}
    )


def inconsistent(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether each row breaks one of the rules that SDNist publishes about these columns."""
    age = rows["agep"].to_numpy(np.float64)
    own = {name: rows[name].astype(str).to_numpy() for name in ("msp", "edu", "pincp_decile", "dvet", "own_rent")}
    level = np.where(own["edu"] == "N", "0", own["edu"]).astype(int)
    child = (own["dvet"] != "N") | (own["msp"] != "N") | (own["pincp_decile"] != "N") | (level >= 12)
    quarters = rows["housing_type"].astype(str).to_numpy() != "1"
    return np.asarray(
        ((age < 15) & child)
        | ((age < 5) & (level >= 5))
        | ((age < 3) & (level > 0))
        | (quarters != (own["own_rent"] == "0"))
    )


# ---- releases ----------------------------------------------------------------------------------------


def specification(data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """Return a specification without a model: columns, budget and number of rows alone."""
    columns: list[dict[str, Any]] = []
    for column in data.schema.columns:
        body: dict[str, Any] = {"name": column.name, "kind": column.kind.value}
        if isinstance(column, NominalColumn):
            body["categories"] = list(column.levels)
        else:
            body["bounds"] = [int(b) if column.is_whole else float(b) for b in (column.lower, column.upper)]
        if isinstance(column, IntervalColumn) and options.breaks and column.name in BREAKS.get(data.name, {}):
            edges = BREAKS[data.name][column.name]
            body["breaks"] = [int(edge) for edge in edges if column.lower < edge < column.upper]
        columns.append(body | ({} if column.role is Role.FEATURE else {"role": column.role.value}))
    population = {"population": data.name.replace("_", "-"), "unit": "row", "neighbours": options.relation}
    budget = {"epsilon": options.epsilon, "delta": options.delta}
    spec = {
        "name": data.name.replace("_", "-"),
        "source": {"path": "landing/*.parquet"},
        "privacy": population | budget | {"lifetime": budget | {"delta_num": 1e-9}},
        "expected_rows": len(data.train),
        "columns": columns,
        "rows": options.rows * len(data.train),
        "checks": {},
    }
    if options.rules and data.name in RULES:
        spec["rules"] = RULES[data.name]
    return spec | ({"model": yaml.safe_load(options.model)} if options.model else {})


def release_rows(data: Dataset, options: argparse.Namespace) -> pd.DataFrame:
    """Release the training rows once, in a workspace of their own, and return the synthetic rows."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder) / "workspace")
        workspace.create()
        workspace.spec_path.write_text(yaml.safe_dump(specification(data, options), sort_keys=False))
        frame = data.train.copy()
        for column in data.schema.columns:
            if isinstance(column, NominalColumn):
                frame[column.name] = frame[column.name].astype(str)
            elif column.is_whole:
                frame[column.name] = frame[column.name].round().astype("Int64")
        frame.to_parquet(workspace.landing / "rows.parquet", index=False)
        bundle = release_directly(workspace, RunRequest(period="2026-01")).bundle
        rows = pq.read_table(bundle / "data.parquet").to_pandas()
    return typed(data, rows)


def typed(data: Dataset, rows: pd.DataFrame) -> pd.DataFrame:
    """Return released rows in the form of the training rows."""
    return pd.DataFrame(
        {
            column.name: pd.Categorical(rows[column.name].astype(str), categories=column.levels)
            if isinstance(column, NominalColumn)
            else rows[column.name].to_numpy(np.float64, na_value=np.nan)
            for column in data.schema.columns
        }
    )


def once(data: Dataset, bins: Bins, options: argparse.Namespace) -> Scores:
    """Release and score once."""
    rows = release_rows(data, options)
    found = distances(data, bins, rows)
    if len(data.test) and options.rows == 1:
        found |= dict(zip(MODELS, scores(data, rows), strict=True))
    return found


def main() -> None:
    """Run everything and print one table per data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"data sets: {', '.join(SETS)} (all)")
    parser.add_argument("--runs", type=int, default=10, help="independent releases (10)")
    parser.add_argument("--rows", type=int, default=1, help="rows drawn for each row released (1)")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--relation", default="add-remove", choices=["add-remove", "replace-one"])
    parser.add_argument("--breaks", action="store_true", help="declare the evaluation bins as `breaks` of the columns")
    parser.add_argument("--rules", action="store_true", help="declare the rules of the survey's form")
    parser.add_argument("--model", help="a model section in YAML, to compare with the defaults")
    options = parser.parse_args()
    for name in options.sets:
        data = load(name)
        bins, runs = Bins.of(data), Runs(f"marginals-{name}", fresh=True)
        runs.add("defaults", options.runs, lambda _run, data=data, bins=bins: once(data, bins, options))
        lines = [("defaults", runs.summaries("defaults", SCORES), f"{runs.seconds('defaults'):.1f}")]
        shown = [(what, *(decimals(found.get(score)) for score in SCORES), taken) for what, found, taken in lines]
        shown += [(*peer, "") for peer in PEERS.get(name, ())]
        privacy = f"epsilon {options.epsilon:g}, delta {options.delta:g}, {options.relation}"
        show(f"{name}: {privacy}, {len(data.train):,} rows", ("rows from", *SCORES, "seconds"), shown)
        write_results(f"marginals-{name}", {what: found for what, found, _ in lines})


def decimals(found: Any) -> str:
    """Return a mean and half its interval with four decimals, or one where it is a score in the hundreds."""
    if found is None:
        return ""
    digits = 1 if abs(found.mean) > 1 else 4
    half = "" if found.runs < 2 else f" ± {(found.high - found.low) / 2:.{digits}f}"
    return f"{found.mean:.{digits}f}{half}"


if __name__ == "__main__":
    main()
