"""Chunks of rounded rows: each follows from law, seed and its own number, and together they have the law's shares."""

from __future__ import annotations

import numpy as np
import pytest
from support.dpcore.table_laws import exact_shares, table_law

from dpcore.measurements.groups import ColumnGroups
from dpcore.records.binning import ColumnCells
from dpcore.records.schema import MISSING, IntervalColumn, Kind, NominalColumn, RecordSchema, Role
from dpcore.synthesis.copula.max_entropy import TableLaw
from dpcore.synthesis.copula.rounded_rows import RoundedTable
from dpcore.synthesis.even_points import Chunk

SEED = "0123456789abcdef" * 2
YEARS = IntervalColumn(name="years", kind=Kind.INTEGER, lower=0.0, upper=9.0)
WARD = NominalColumn(name="ward", kind=Kind.CATEGORICAL, levels=tuple("abcd"))
LABEL = NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m"), role=Role.LABEL)
WITHIN = np.array([0.5, 0.5, 0.8, 0.2, 0.0, 0.25, 0.25, 0.25, 0.25, 1.0])
"""The shares of ten years within their four groups."""


def rounded(law: TableLaw, *, label: bool = True) -> RoundedTable:
    schema = RecordSchema((YEARS, LABEL, WARD) if label else (YEARS, WARD))
    years = ColumnGroups(
        ColumnCells(YEARS), np.array([0, 0, 1, 1, 1, 2, 2, 2, 2, 3]), WITHIN, 1000 * law.shares[0], np.ones(4)
    )
    ward = ColumnGroups(ColumnCells(WARD), np.arange(4), np.ones(4), 1000 * law.shares[1], np.ones(4))
    return RoundedTable.of(law, schema, [years, ward])


LAW = table_law([[0.4, 0.3, 0.2, 0.1], [0.7, 0.2, 0.1, 0.0]], [0.75, 0.2, 0.05])


def chunks(table: RoundedTable, rows: int, size: int, seed: str = SEED) -> list[dict[str, np.ndarray]]:
    starts = range(0, rows, size)
    return [table.draw(Chunk(i, at, min(size, rows - at), seed, rows))[1] for i, at in enumerate(starts)]


def test_a_chunk_can_be_drawn_alone_and_again() -> None:
    table = rounded(LAW)
    third = table.draw(Chunk(2, 200, 100, SEED, 1000))[1]
    for name, values in chunks(table, 1000, 100)[2].items():
        assert np.array_equal(values, third[name])


def test_chunks_and_seeds_give_different_rows() -> None:
    table = rounded(LAW)
    first, second = chunks(table, 400, 200)
    other = chunks(table, 200, 200, SEED[::-1])[0]
    assert not np.array_equal(first["years"], second["years"])
    assert not np.array_equal(first["years"], other["years"])


@pytest.mark.parametrize("size", [250, 1000, 20_000])
def test_shares_of_a_table_of_many_chunks_are_the_laws_up_to_a_few_rows(size: int) -> None:
    """Independent rows would differ by up to 200; what chunks leave adds up like independent errors of about a row."""
    rows, table = 20_000, rounded(LAW)
    parts = chunks(table, rows, size)
    cells = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    joint = np.array([weight * exact_shares(LAW, k) for k, weight in enumerate(LAW.weights)])
    limit = 4 + 3 * np.sqrt(rows / size)
    label = np.bincount(np.where(cells["sex"] == MISSING, 2, cells["sex"]), minlength=3)
    assert np.all(np.abs(label - rows * LAW.weights) < 3)
    ward = np.bincount(cells["ward"], minlength=4)
    assert np.all(np.abs(ward - rows * joint.sum(axis=(0, 1))) < limit)
    years = np.bincount(cells["years"].astype(np.int64), minlength=10)
    group = joint.sum(axis=(0, 2))[[0, 0, 1, 1, 1, 2, 2, 2, 2, 3]]
    assert np.all(np.abs(years - rows * group * WITHIN) < limit)


def test_rows_come_in_random_order() -> None:
    cells = chunks(rounded(LAW), 4000, 4000)[0]
    for values in cells.values():
        early, late = np.split(values.astype(np.float64), 2)
        assert abs(early.mean() - late.mean()) < 6.1 * values.std() * np.sqrt(4 / 4000)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("label", [False, True])
def test_a_table_of_few_rows_has_all_columns_in_their_order(rows: int, label: bool) -> None:
    law = LAW if label else table_law(LAW.shares)
    table = rounded(law, label=label)
    cells = chunks(table, rows, 100)[0]
    assert list(cells) == [column.name for column in table.schema.columns]
    assert {len(values) for values in cells.values()} == {rows}
    assert set(cells["years"].tolist()) <= set(range(10)) - {4}, "a cell without a share is never drawn"
