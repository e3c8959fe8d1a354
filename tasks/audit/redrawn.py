"""Steps over what a bundle releases: model, rows and figures are made once more, and compared.

Everything in a bundle but times, flow runs, lineage and the description of the program is a function of
the specification, the measurements and the seeds, which the ledger fixed before there was a bundle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpcore.synthesis.generators import UNNUMBERED
from tasks.audit.again import Again
from tasks.audit.agreement import may_be_odd
from tasks.audit.checks import NotShownError, require
from tasks.audit.measured import spent_faults
from tasks.audit.tables import due_figures
from tasks.bundle.rebuild import Rebuilt
from tasks.bundle.record import Outcome, build_model
from tasks.bundle.staging import render_json, sha256_of
from tasks.workspace.reading import open_regular


def model_faults(again: Again) -> list[str]:
    """Where measurements are not those that were paid for, or the rest does not follow from them and the seeds."""
    return spent_faults(again.model, again.release) or again.by_its_sampler(lambda: _derived_faults(again))


def _derived_faults(again: Again) -> list[str]:
    rebuilt = again.rebuilt
    same, kind = again.agrees(again.model, _due_model(rebuilt)), rebuilt.projection.kind
    if not same and not again.exact and kind == "private-pca":
        raise NotShownError(f"its components differ by more than rounding under another {_names(again.others)}")
    found = require(same, "its projection, frame or moments do not follow from its measurements and seeds")
    found += require(again.text("model.json") == render_json(again.model), "it is not written as models are")
    if not found and kind == "public-pca":
        raise NotShownError("its projection comes from public data, which are not in the bundle")
    return found


def _due_model(rebuilt: Rebuilt) -> dict[str, Any]:
    """The model file's content; without a number it stated no centre of its projection either."""
    outcome = Outcome(0, rebuilt.moments, rebuilt.projection, {}, [])
    due = build_model(rebuilt.encoding, outcome, rebuilt.measurements) | {"sampler": rebuilt.sampler}
    if rebuilt.sampler == UNNUMBERED:
        del due["sampler"]
        (due["projection"] or {}).pop("centre", None)
    return due


def data_faults(again: Again) -> list[str]:
    """Where the file holds more than the record's rows and columns: written again they give the same bytes."""
    return _shape_faults(again.folder, again.record) or again.by_its_sampler(lambda: _hidden_faults(again))


def _hidden_faults(again: Again) -> list[str]:
    if again.table.digest == sha256_of(again.folder / "data.parquet"):
        if again.table.identical or again.exact:
            return []
        raise NotShownError(f"only the {_names(again.others)} of its record can show that nothing hides in last digits")
    if {"pyarrow", "platform"} & set(again.others):
        raise NotShownError("only the pyarrow and platform that wrote the file can show that it holds nothing besides")
    return ["it holds more than its rows: written again they give other bytes"]


def _shape_faults(folder: Path, record: dict[str, Any]) -> list[str]:
    with open_regular(folder / "data.parquet") as file:
        table = pq.ParquetFile(file)
        rows, columns = table.metadata.num_rows, table.schema_arrow.names
    stated = [column["name"] for column in record["specification"]["columns"]]
    return [
        *require(rows == record["rows"], "its number of rows is not the record's"),
        *require(columns == stated, "its columns are not the record's"),
    ]


def row_faults(again: Again) -> list[str]:
    """Where rows are not those that the model draws with the reserved seed."""
    found = again.table
    return [
        f"{odd} of {found.compared} cells of {name!r} are not those that its model draws"
        for name, odd in found.odd.items()
        if not may_be_odd(odd, found.compared, exact=again.exact)
    ]


def row_words(again: Again) -> str:
    """How many rows were drawn again, and how alike they are."""
    found = again.table
    part = f"all {found.rows}" if found.compared == found.rows else f"{found.compared} of {found.rows}, at random,"
    how = "identical" if again.exact else f"within the tolerance for another {_names(again.others)}"
    return f"{part} were drawn again from model and seed: {how}"


def figure_faults(again: Again) -> list[str]:
    """Where the record's utility and checks are not those of its rows, or something hides in how it is written."""
    due = due_figures(again.rebuilt, again.table, again.folder / "data.parquet", again.record["checks"])
    return [
        *require(again.text("record.json") == render_json(again.record), "the record is not written as records are"),
        *(f"its {name} differs from what rows and measurements give" for name in again.other_parts(due)),
    ]


def _names(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
