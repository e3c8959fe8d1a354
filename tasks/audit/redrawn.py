"""Steps over what a bundle releases: model, rows and figures are made once more, and compared.

Everything in a bundle but times, flow runs, lineage and the description of the program is a function of
the specification, the measurements and the seeds, which the ledger fixed before there was a bundle.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpcore.synthesis.generators import UNNUMBERED
from tasks.audit.again import Again
from tasks.audit.agreement import may_be_odd
from tasks.audit.checks import Check, NotShownError, check, require
from tasks.audit.measured import spent_faults
from tasks.audit.tables import due_figures
from tasks.bundle.rebuild import Rebuilt
from tasks.bundle.record import Outcome, build_model
from tasks.bundle.staging import render_json, sha256_of
from tasks.workspace.reading import open_regular


def model_check(again: Again) -> Check:
    """The measurements are those that were paid for; all the rest follows from these and from the reserved seeds."""
    words = "holds exactly the measurements that were spent"
    return check(f"{again.record['release_id']}: model", lambda: _model_faults(again), words)


def _model_faults(again: Again) -> list[str]:
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


def data_check(again: Again) -> Check:
    """The file holds the record's rows and columns and nothing besides: written again they give the same bytes."""
    return check(f"{again.record['release_id']}: data", lambda: _data_faults(again), lambda: _data_words(again))


def _data_words(again: Again) -> str:
    return f"{again.record['rows']} rows in the declared columns, and nothing besides"


def _data_faults(again: Again) -> list[str]:
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


def rows_check(again: Again) -> Check:
    """The rows are those that the model draws with the reserved seed."""
    return check(
        f"{again.record['release_id']}: rows",
        partial(again.by_its_sampler, partial(_row_faults, again)),
        partial(_row_words, again),
    )


def _row_faults(again: Again) -> list[str]:
    found = again.table
    return [
        f"{odd} of {found.compared} cells of {name!r} are not those that its model draws"
        for name, odd in found.odd.items()
        if not may_be_odd(odd, found.compared, exact=again.exact)
    ]


def _row_words(again: Again) -> str:
    found = again.table
    part = f"all {found.rows}" if found.compared == found.rows else f"{found.compared} of {found.rows}, at random,"
    how = "identical" if again.exact else f"within the tolerance for another {_names(again.others)}"
    return f"{part} were drawn again from model and seed: {how}"


def figures_check(again: Again) -> Check:
    """The record's utility and checks are those of its rows, and nothing hides in how it is written."""
    words = "utility and checks are those of rows and measurements"
    find = partial(again.by_this_program, partial(_figure_faults, again))
    return check(f"{again.record['release_id']}: figures", find, words)


def _figure_faults(again: Again) -> list[str]:
    due = due_figures(again.rebuilt, again.table, again.folder / "data.parquet", again.record["checks"])
    found = require(again.text("record.json") == render_json(again.record), "the record is not written as records are")
    for name, value in due.items():
        same = again.agrees(again.record[name], value)
        found += require(same, f"its {name.replace('_', ' ')} differs from what rows and measurements give")
    return found


def _names(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
