"""Steps over what a bundle releases: model, rows and figures are made once more, and compared.

Everything in a bundle but times, flow runs, lineage and the description of the program is a function of
the specification, the measurements and the seeds, which the ledger fixed before there was a bundle.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from dpcore.synthesis.generators import UNNUMBERED
from tasks.audit.again import Again
from tasks.audit.agreement import may_be_odd
from tasks.audit.checks import NotShownError, require
from tasks.audit.measured import spent_faults
from tasks.audit.tables import TablePass, due_figures
from tasks.bundle.projection_text import published_output
from tasks.bundle.rebuild import Rebuilt
from tasks.bundle.record import Outcome, build_model
from tasks.bundle.staging import DATA, PROJECTED, render_json, sha256_of
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
    """Where a table holds more than the record's rows and columns: written again they give the same bytes."""
    return _shape_faults(again) or again.by_its_sampler(lambda: _hidden_faults(again))


def _hidden_faults(again: Again) -> list[str]:
    return [fault for found in again.tables for fault in _hidden_in(again, found)]


def _hidden_in(again: Again, found: TablePass) -> list[str]:
    if found.digest == sha256_of(again.folder / found.table.file):
        if found.identical or again.exact:
            return []
        raise NotShownError(f"only the {_names(again.others)} of its record can show that nothing hides in last digits")
    if {"pyarrow", "platform"} & set(again.others):
        raise NotShownError("only the pyarrow and platform that wrote the file can show that it holds nothing besides")
    return [f"{_which(found)}it holds more than its rows: written again they give other bytes"]


def _shape_faults(again: Again) -> list[str]:
    """Where tables are missing, too many, or have other rows or columns than the record says."""
    output = published_output(again.record)
    due = {DATA: output != "projected", PROJECTED: output is not None}
    odd = [file for file, published in due.items() if published != (again.folder / file).exists()]
    if odd:
        return [f"{file} is {'missing' if due[file] else 'no table of this release'}" for file in odd]
    return [fault for file, published in due.items() if published for fault in _file_faults(again, file)]


def _file_faults(again: Again, file: str) -> list[str]:
    """The columns of a projected table are compared when its rows are drawn again."""
    with open_regular(again.folder / file) as opened:
        table = pq.ParquetFile(opened)
        rows, columns = table.metadata.num_rows, table.schema_arrow.names
    stated = [column["name"] for column in again.record["specification"]["columns"]]
    return [
        *require(rows == again.record["rows"], "its number of rows is not the record's"),
        *require(file != DATA or columns == stated, "its columns are not the record's"),
    ]


def row_faults(again: Again) -> list[str]:
    """Where rows are not those that the model draws with the reserved seed."""
    return [fault for found in again.tables for fault in _odd_rows(again, found)]


def _odd_rows(again: Again, found: TablePass) -> list[str]:
    odd = [
        f"{_which(found)}{odd} of {found.compared} cells of {name!r} are not those that its model draws"
        for name, odd in found.odd.items()
        if not may_be_odd(odd, found.compared, exact=again.exact)
    ]
    projected = found.table.projection is not None
    if odd and projected and not again.exact and not again.agrees(again.model, _due_model(again.rebuilt)):
        raise NotShownError(f"its components differ by more than rounding under another {_names(again.others)}")
    return odd


def _which(found: TablePass) -> str:
    """The table that a fault is in, where it is not the one in the original columns."""
    return "" if found.table.projection is None else f"{found.table.file}: "


def row_words(again: Again) -> str:
    """How many rows were drawn again, and how alike they are."""
    found = again.tables[0]
    part = f"all {found.rows}" if found.compared == found.rows else f"{found.compared} of {found.rows}, at random,"
    how = "identical" if again.exact else f"within the tolerance for another {_names(again.others)}"
    also = " and as projected points" if len(again.tables) > 1 else ""
    return f"{part} were drawn again from model and seed{also}: {how}"


def figure_faults(again: Again) -> list[str]:
    """Where the record's utility and checks are not those of its rows, or something hides in how it is written."""
    due = due_figures(again.rebuilt, again.tables[0], again.folder / DATA, again.record["checks"])
    return [
        *require(again.text("record.json") == render_json(again.record), "the record is not written as records are"),
        *(f"its {name} differs from what rows and measurements give" for name in again.other_parts(due)),
    ]


def _names(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
