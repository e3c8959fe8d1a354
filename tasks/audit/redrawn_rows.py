"""Checks of a bundle's content: model, rows and figures are computed again and compared.

Everything in a bundle except times, flow runs, lineage and the description of the program is a function of
the specification, the measurements and the seeds, which the ledger fixed before the bundle was made.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from dpcore.synthesis.generators import ROUNDED, UNNUMBERED
from tasks.audit.agreement import may_be_odd
from tasks.audit.checks import NotShownError, require
from tasks.audit.measured import spent_faults
from tasks.audit.recomputed import RecomputedBundle
from tasks.audit.tables import TablePass, due_figures
from tasks.bundle.projection_text import published_output
from tasks.bundle.record import Outcome, build_model
from tasks.bundle.staging import DATA, PROJECTED, render_json, sha256_of
from tasks.workspace.reading import open_regular


def model_faults(bundle: RecomputedBundle) -> list[str]:
    """Where measurements are not those of the spends, or the rest does not follow from them and the seeds."""
    return spent_faults(bundle.model, bundle.release) or bundle.by_its_sampler(lambda: _derived_faults(bundle))


def _derived_faults(bundle: RecomputedBundle) -> list[str]:
    rebuilt = bundle.rebuilt
    same, kind = bundle.agrees(bundle.model, _due_model(bundle)), rebuilt.projection.kind
    if not same and not bundle.exact and kind == "private-pca":
        raise NotShownError(f"its components differ by more than rounding under another {_names(bundle.others)}")
    found = require(same, "its projection, frame or moments do not follow from its measurements and seeds")
    found += require(bundle.text("model.json") == render_json(bundle.model), "it is not written as models are")
    if not found and kind == "public-pca":
        raise NotShownError("its projection comes from public data, which are not in the bundle")
    return found


def _due_model(bundle: RecomputedBundle) -> dict[str, Any]:
    """The model file's content; models without a sampler number lack the centre of the projection too."""
    rebuilt, sampling = bundle.rebuilt, bundle.record["model"].get("sampling")
    outcome = Outcome(0, rebuilt.moments, rebuilt.projection, {}, [])
    due = build_model(rebuilt.encoding, outcome, rebuilt.measurements, sampling or rebuilt.spec.model.row_sampling)
    if sampling is None and rebuilt.sampler < ROUNDED:  # earlier records do not say how rows were drawn
        due["sampler"] = rebuilt.sampler
    if rebuilt.sampler == UNNUMBERED:
        del due["sampler"]
        (due["projection"] or {}).pop("centre", None)
    return due


def data_faults(bundle: RecomputedBundle) -> list[str]:
    """Where a table contains more than the record's rows and columns, which give the same bytes when written again."""
    return _shape_faults(bundle) or bundle.by_its_sampler(lambda: _hidden_faults(bundle))


def _hidden_faults(bundle: RecomputedBundle) -> list[str]:
    return [fault for found in bundle.tables for fault in _hidden_in(bundle, found)]


def _hidden_in(bundle: RecomputedBundle, found: TablePass) -> list[str]:
    if found.digest == sha256_of(bundle.folder / found.table.file):
        if found.identical or bundle.exact:
            return []
        raise NotShownError(
            f"only the {_names(bundle.others)} of its record can show that nothing hides in last digits"
        )
    if {"pyarrow", "platform"} & set(bundle.others):
        raise NotShownError("only the pyarrow and platform that wrote the file can show that it holds nothing besides")
    return [f"{_which(found)}it holds more than its rows: written again they give other bytes"]


def _shape_faults(bundle: RecomputedBundle) -> list[str]:
    """Where tables are missing, too many, or have other rows or columns than the record says."""
    output = published_output(bundle.record)
    due = {DATA: output != "projected", PROJECTED: output is not None}
    odd = [file for file, published in due.items() if published != (bundle.folder / file).exists()]
    if odd:
        return [f"{file} is {'missing' if due[file] else 'no table of this release'}" for file in odd]
    return [fault for file, published in due.items() if published for fault in _file_faults(bundle, file)]


def _file_faults(bundle: RecomputedBundle, file: str) -> list[str]:
    """The columns of a projected table are compared when its rows are redrawn."""
    with open_regular(bundle.folder / file) as opened:
        table = pq.ParquetFile(opened)
        rows, columns = table.metadata.num_rows, table.schema_arrow.names
    stated = [column["name"] for column in bundle.record["specification"]["columns"]]
    return [
        *require(rows == bundle.record["rows"], "its number of rows is not the record's"),
        *require(file != DATA or columns == stated, "its columns are not the record's"),
    ]


def row_faults(bundle: RecomputedBundle) -> list[str]:
    """Where rows differ from those that the model draws with the reserved seed."""
    return [fault for found in bundle.tables for fault in _odd_rows(bundle, found)]


def rule_faults(bundle: RecomputedBundle) -> list[str]:
    """Where a released row breaks a rule of the record's specification; of projected points, the row behind them."""
    return [
        f"{found.broken} of {found.rows} rows break a rule of its specification"
        for found in bundle.tables
        if found.broken
    ]


def rule_words(bundle: RecomputedBundle) -> str:
    """How many rules the rows obey."""
    count = len(bundle.rebuilt.schema.rules)
    return f"no row breaks any of the specification's {count} rules" if count > 1 else "no row breaks its rule"


def _odd_rows(bundle: RecomputedBundle, found: TablePass) -> list[str]:
    odd = [
        f"{_which(found)}{odd} of {found.compared} cells of {name!r} are not those that its model draws"
        for name, odd in found.odd.items()
        if not may_be_odd(odd, found.compared, exact=bundle.exact)
    ]
    projected = found.table.projection is not None
    if odd and projected and not bundle.exact and not bundle.agrees(bundle.model, _due_model(bundle)):
        raise NotShownError(f"its components differ by more than rounding under another {_names(bundle.others)}")
    if odd and not bundle.exact and bundle.rebuilt.moments.marginals is not None:
        raise NotShownError(
            f"its law is fitted step by step, and rounding grows from step to step under another "
            f"{_names(bundle.others)}; only those of its record can show that its rows follow from it"
        )
    return odd


def _which(found: TablePass) -> str:
    """The table that a fault is in, where it is not the one in the original columns."""
    return "" if found.table.projection is None else f"{found.table.file}: "


def row_words(bundle: RecomputedBundle) -> str:
    """How many rows were redrawn, and how closely they agree."""
    found = bundle.tables[0]
    part = f"all {found.rows}" if found.compared == found.rows else f"{found.compared} of {found.rows}, at random,"
    how = "identical" if bundle.exact else f"within the tolerance for another {_names(bundle.others)}"
    also = " and as projected points" if len(bundle.tables) > 1 else ""
    return f"{part} were drawn again from model and seed{also}: {how}"


def figure_faults(bundle: RecomputedBundle) -> list[str]:
    """Where the record's utility and checks do not follow from its rows, or its form could hide information."""
    due = due_figures(bundle.rebuilt, bundle.tables[0], bundle.folder / DATA, bundle.record["checks"])
    return [
        *require(bundle.text("record.json") == render_json(bundle.record), "the record is not written as records are"),
        *(f"its {name} differs from what rows and measurements give" for name in bundle.other_parts(due)),
    ]


def _names(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
