"""Persons: all of one person's rows together weigh what one row weighs, wherever they lie."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import LandingError
from dpcore.schema import PrivacyUnit, RowRule
from tasks.stores.fragments import ROWS_AT_ONCE as BATCH_ROWS
from tasks.stores.landing import Landing
from tasks.stores.persons import PersonRows
from tasks.stores.spec import parse_spec

SPEC = """
name: small
source: {path: landing}
privacy: {population: people, unit: {person: id}, epsilon: 1, lifetime: {epsilon: 12}}
expected_rows: 100
columns: [{name: age, kind: numeric, bounds: [0, 100]}]
"""
WEIGHT = PrivacyUnit(person="id")


def at_most(rows: int) -> PrivacyUnit:
    return PrivacyUnit(person="id", row_rule=RowRule.AT_MOST, most_rows=rows)


def landing(folder: Path, *files: Any) -> Landing:
    """A dataset with one Parquet file for each list of ids; ages number the rows of all files."""
    paths, start = [], 0
    for index, ids in enumerate(files):
        paths.append(folder / f"{index}.parquet")
        pq.write_table(pa.table({"age": np.arange(start, start + len(ids)), "id": ids}), paths[-1])
        start += len(ids)
    return Landing(tuple(paths), parse_spec(SPEC), "source.path")


def selected(data: Landing, unit: PrivacyUnit) -> tuple[list[int], list[float]]:
    """The rows that count, by their age, and their shares."""
    persons = PersonRows(data, unit)
    ages: list[int] = []
    shares: list[float] = []
    for batch in data.batches(["age", "id"]):
        kept, share = persons.select(batch)
        ages += kept.column("age").to_pylist()
        shares += [1.0] * kept.num_rows if share is None else share.tolist()
    assert len(ages) == len(shares)
    return ages, shares


def test_each_of_k_rows_weighs_one_kth_over_all_files(tmp_path: Path):
    data = landing(tmp_path, ["a", "b", "a"], ["a", "c"], ["b", "a"])
    _, shares = selected(data, WEIGHT)
    assert shares == [1 / 4, 1 / 2, 1 / 4, 1 / 4, 1.0, 1 / 2, 1 / 4]


def test_each_of_k_rows_weighs_one_kth_over_all_batches(tmp_path: Path):
    rows = 2 * BATCH_ROWS + 10
    ids = np.arange(rows) % (BATCH_ROWS // 2)  # every person has rows in several batches
    data = landing(tmp_path, ids, ids[::-1])
    ages, shares = selected(data, WEIGHT)
    assert ages == list(range(2 * rows)), "no row is left out"
    everybody = np.concatenate([ids, ids[::-1]])
    assert np.bincount(everybody, weights=shares) == pytest.approx(1)
    counts = Counter(everybody.tolist())
    assert shares == [1 / counts[person] for person in everybody.tolist()]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_first_rows_of_a_person_count_over_all_files(tmp_path: Path, rows: int):
    data = landing(tmp_path, ["a", "b", "a"], ["a", "c"], ["b", "a", "a"])
    ages, shares = selected(data, at_most(rows))
    expected = {1: [0, 1, 4], 2: [0, 1, 2, 4, 5], 3: [0, 1, 2, 3, 4, 5]}
    assert ages == expected[rows]
    assert set(shares) == {1.0}


def test_no_person_has_more_rows_than_allowed_over_all_batches(tmp_path: Path):
    ids = np.arange(2 * BATCH_ROWS) % 1000
    ages, _ = selected(landing(tmp_path, ids), at_most(3))
    assert Counter(ids[ages].tolist()) == dict.fromkeys(range(1000), 3)


def test_which_rows_of_a_person_count_does_not_depend_on_others(tmp_path: Path):
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    mine = [row for row, person in enumerate("abaacab") if person == "a"]
    ages, _ = selected(landing(tmp_path / "with", list("abaacab")), at_most(2))
    assert [row for row in ages if row in mine] == mine[:2]
    alone, _ = selected(landing(tmp_path / "without", ["a"] * len(mine)), at_most(2))
    assert alone == [0, 1]


def test_rows_without_an_id_are_one_person(tmp_path: Path):
    data = landing(tmp_path, pa.array(["a", None, None]), pa.array([None, "a"]))
    assert selected(data, WEIGHT)[1] == [1 / 2, 1 / 3, 1 / 3, 1 / 3, 1 / 2]
    assert selected(data, at_most(1))[0] == [0, 1]


def test_a_dataset_without_any_id_is_one_person(tmp_path: Path):
    data = landing(tmp_path, pa.nulls(4))
    assert selected(data, WEIGHT)[1] == [1 / 4] * 4
    assert selected(data, at_most(2))[0] == [0, 1]


ID_TYPES = {
    "text": pa.array(["7", "8", "7", None]),
    "large-text": pa.array(["7", "8", "7", None], type=pa.large_string()),
    "dictionary": pa.array(["7", "8", "7", None]).dictionary_encode(),
    "dictionary-of-integers": pa.array([7, 8, 7, None]).dictionary_encode(),
    "int64": pa.array([7, 8, 7, None]),
    "uint8": pa.array([7, 8, 7, None], type=pa.uint8()),
}


@pytest.mark.parametrize("kind", ID_TYPES)
@pytest.mark.parametrize("other", ["text", "int64"])
def test_an_id_is_the_same_person_in_any_type(tmp_path: Path, kind: str, other: str):
    data = landing(tmp_path, ID_TYPES[kind], ID_TYPES[other])
    assert selected(data, WEIGHT)[1] == [1 / 4, 1 / 2, 1 / 4, 1 / 2] * 2
    assert selected(data, at_most(1))[0] == [0, 1, 3]


def test_spaces_do_not_make_another_person(tmp_path: Path):
    data = landing(tmp_path, ["7", " 7", "7 ", "77"])
    assert selected(data, WEIGHT)[1] == [1 / 3, 1 / 3, 1 / 3, 1.0]


def test_data_that_change_between_the_two_readings_are_refused(tmp_path: Path):
    data = landing(tmp_path, ["a", "b", "a"])
    persons = PersonRows(data, WEIGHT)
    landing(tmp_path, ["a", "a", "a"])
    for batch in data.batches(["age", "id"]):
        persons.select(batch)
    with pytest.raises(LandingError) as caught:
        persons.require_unchanged()
    assert (caught.value.rule, caught.value.where) == ("landing-changed", "source.path")


def test_data_that_stay_are_not_refused(tmp_path: Path):
    data = landing(tmp_path, ["a", "b", "a"], ["a"])
    for unit in (WEIGHT, at_most(1)):
        persons = PersonRows(data, unit)
        kept = [len(persons.select(batch)[0]) for batch in data.batches(["age", "id"])]
        persons.require_unchanged()
        assert sum(kept) == (4 if unit == WEIGHT else 2)


def test_large_integers_stay_different_persons(tmp_path: Path):
    data = landing(tmp_path, pa.array([2**53, 2**53 + 1]))
    assert selected(data, WEIGHT)[1] == [1.0, 1.0]


def test_csv_ids_are_text_and_empty_ones_one_person(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("id,age\n007,1\n7,2\n,3\n,4\n007,5\n")
    data = Landing((path,), parse_spec(SPEC), "source.path")
    persons = PersonRows(data, WEIGHT)
    (batch,) = data.batches(["age", "id"])
    kept, shares = persons.select(batch)
    assert (kept.num_rows, shares.tolist()) == (5, [1 / 2, 1, 1 / 2, 1 / 2, 1 / 2])


def test_persons_show_nothing_of_themselves(tmp_path: Path):
    assert repr(PersonRows(landing(tmp_path, ["secret"]), WEIGHT)) == "PersonRows(<private>)"


def test_a_unit_without_persons_has_no_person_rows(tmp_path: Path):
    with pytest.raises(ValueError, match="no person column"):
        PersonRows(landing(tmp_path, ["a"]), PrivacyUnit())
