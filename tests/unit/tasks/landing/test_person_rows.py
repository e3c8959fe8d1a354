"""Units: what a row counts depends on its person's rows alone, wherever they lie and however they are read."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpcore.errors import LandingError, WorkspaceError
from dpcore.records.schema import PrivacyUnit, RowRule
from tasks.landing.datasets import Landing
from tasks.landing.person_rows import PersonRows, identifiers, person_rows
from tasks.landing.readings import Readings
from tasks.landing.sql_cells import column_of
from tasks.spec import parse_spec

WEIGHT = PrivacyUnit(person="id")
PLANTED = "planted-7781"


def at_most(rows: int) -> PrivacyUnit:
    return PrivacyUnit(person="id", row_rule=RowRule.AT_MOST, most_rows=rows)


def counts(unit: PrivacyUnit, scratch: Path, *fragments: Any) -> list[Any]:
    """What the rows of all fragments count; a fragment is one list of ids."""
    arrays = [[ids if isinstance(ids, pa.Array) else pa.array(ids)] for ids in fragments]
    persons = person_rows(arrays, unit, scratch)
    return [value for index in range(len(arrays)) for value in persons.of(index).tolist()]


def plain_spelling(cell: Any) -> str:
    """What an identifier is, one cell at a time: the oracle. None is what the empty text is."""
    if isinstance(cell, bytes):
        return cell.decode(errors="replace").strip()
    return "" if cell is None else str(cell).strip()


def plain_counts(unit: PrivacyUnit, cells: list[Any]) -> list[Any]:
    """What rows count, by counting in memory: the oracle."""
    names = [plain_spelling(cell) for cell in cells]
    if unit.row_rule is RowRule.WEIGHT:
        total = Counter(names)
        return [total[name] for name in names]
    seen: Counter[str] = Counter()
    admitted = []
    for name in names:
        seen[name] += 1
        admitted.append(seen[name] <= unit.most_rows)
    return admitted


# ---------------------------------------------------------------- what rows count


def test_k_is_counted_over_all_fragments(tmp_path: Path):
    assert counts(WEIGHT, tmp_path, ["a", "b", "a"], ["a", "c"], [], ["b", "a"]) == [4, 2, 4, 4, 1, 2, 4]


def test_k_is_counted_over_all_batches_of_the_sorts(tmp_path: Path):
    rows, people = 200_000, 30_000
    ids = np.random.default_rng(1).integers(0, people, rows)
    ids[rng_places := np.arange(0, rows, 2)] = 7  # a person with more rows than a batch
    shares = 1 / np.array(counts(WEIGHT, tmp_path, ids[:150_000], ids[150_000:]))
    present = np.unique(ids)
    assert np.bincount(ids, weights=shares)[present] == pytest.approx(1)
    assert np.all(1 / shares[rng_places] == np.count_nonzero(ids == 7))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_first_rows_of_a_person_count_over_all_fragments(tmp_path: Path, rows: int):
    admitted = counts(at_most(rows), tmp_path, ["a", "b", "a"], ["a", "c"], ["b", "a", "a"])
    expected = {1: [0, 1, 4], 2: [0, 1, 2, 4, 5], 3: [0, 1, 2, 3, 4, 5]}
    assert np.flatnonzero(admitted).tolist() == expected[rows]


def test_no_person_has_more_rows_than_allowed_over_all_batches(tmp_path: Path):
    ids = np.arange(140_000) % 1000
    admitted = np.array(counts(at_most(3), tmp_path, ids))
    assert admitted[:3000].all()
    assert not admitted[3000:].any()


def test_which_rows_of_a_person_count_does_not_depend_on_others(tmp_path: Path):
    mine = [row for row, person in enumerate("abaacab") if person == "a"]
    admitted = counts(at_most(2), tmp_path, list("abaacab"))
    assert [row for row in mine if admitted[row]] == mine[:2]
    assert counts(at_most(2), tmp_path, ["a"] * len(mine)) == [True, True, False, False]


BLANK = ["", " ", "  \t", "\r\n", "\x1c", "\x85", "\u00a0", "\u2003\u3000", None]
"""Cells that identify nobody; \\u200b is not among them, as it is no white space to anybody."""


def test_rows_without_an_id_are_one_person_null_or_blank(tmp_path: Path):
    fragments = pa.array(["a", None, None, ""]), pa.array([None, "a", " "])
    assert counts(WEIGHT, tmp_path, *fragments) == [2, 5, 5, 5, 5, 2, 5]
    assert counts(at_most(1), tmp_path, *fragments) == [True, True, False, False, False, False, False]


@pytest.mark.parametrize("rows", [1, 3])
def test_blank_cells_of_every_type_are_one_person(tmp_path: Path, rows: int):
    texts = pa.array(BLANK)
    columns = [
        texts,
        texts.cast(pa.large_string()),
        texts.cast(pa.string_view()),
        texts.cast(pa.binary()),
        texts.dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, ""])),
        pa.array([None, None], pa.int64()),
        pa.array([None, float("nan"), -float("nan")]),
        pa.nulls(2),
    ]
    blank = sum(map(len, columns))
    assert counts(WEIGHT, tmp_path, *columns, ["a"]) == [blank] * blank + [1]
    assert counts(at_most(rows), tmp_path, *columns, ["a"]) == [True] * rows + [False] * (blank - rows) + [True]


PERSONS = """
name: persons
source: {path: "landing/*"}
privacy:
  population: people
  unit: {person: id, rows: RULE}
  neighbours: replace-one
  epsilon: 1
  delta: 0
  lifetime: {epsilon: 12, delta: 0, delta_num: 1.0e-9}
expected_rows: 5000
columns:
  - {name: age, kind: numeric, bounds: [0, 120]}
"""


def landed_ids(folder: Path, form: str) -> Path:
    """A file with one row for each blank identifier and two of somebody else, as its form holds them."""
    path = folder / f"ids.{form}"
    if form == "csv":
        quoted = [f'{n},"{name or ""}"' for n, name in enumerate([*BLANK, "a", " a "]) if name != "\r\n"]
        path.write_text("\n".join(["age,id", *quoted, "41,", ""]), encoding="utf-8")
    else:
        ids = [*BLANK, None, "a", " a "]
        if form == "query.parquet":
            schema = parse_spec(PERSONS.replace("RULE", "weight")).schema
            ids = column_of([*BLANK, float("nan"), Decimal("sNaN"), b" ", "a", " a "], "id", schema)
        pq.write_table(pa.table({"age": pa.array(range(len(ids)), pa.float64()), "id": ids}), path)
    return path


@pytest.mark.parametrize("form", ["csv", "parquet", "query.parquet"])
@pytest.mark.parametrize(("rule", "most"), [("weight", 1), ("at-most 2", 2)])
def test_rows_without_an_id_weigh_no_more_than_one_person(tmp_path: Path, form: str, rule: str, most: int):
    """A person's records z / sqrt(k) have a total trace of at most (1 + s^2) `most`: their shares add up to no more."""
    spec = parse_spec(PERSONS.replace("RULE", rule))
    landing = Landing((landed_ids(tmp_path, form),), spec, "source.path")
    readings = Readings(landing, spec.unit, key=lambda: b"k" * 32, scratch=tmp_path)
    chunks = list(readings.chunks(spec.schema))
    weights = [np.ones(len(cells["age"])) if shares is None else shares for cells, shares in chunks]
    assert sum(float(np.sum(weight)) for weight in weights) == pytest.approx(2 * most), "the nameless, and a"


def test_data_without_any_id_are_one_person(tmp_path: Path):
    assert counts(WEIGHT, tmp_path, pa.nulls(4)) == [4] * 4
    assert counts(at_most(2), tmp_path, pa.nulls(4)) == [True, True, False, False]


def test_data_without_rows_have_nothing_to_count(tmp_path: Path):
    assert counts(WEIGHT, tmp_path) == []
    assert counts(at_most(1), tmp_path, pa.array([], pa.string())) == []


ID_TYPES = {
    "text": pa.array(["7", "8", "7", None]),
    "large-text": pa.array(["7", "8", "7", None], type=pa.large_string()),
    "text-view": pa.array(["7", "8", "7", None], type=pa.string_view()),
    "dictionary": pa.array(["7", "8", "7", None]).dictionary_encode(),
    "dictionary-of-integers": pa.array([7, 8, 7, None]).dictionary_encode(),
    "int64": pa.array([7, 8, 7, None]),
    "uint8": pa.array([7, 8, 7, None], type=pa.uint8()),
    "whole-floats": pa.array([7.0, 8.0, 7.0, None]),
    "bytes": pa.array([b"7", b"8", b"7", None]),
    "fixed-bytes": pa.array([b"7", b"8", b"7", None], type=pa.binary(1)),
}


@pytest.mark.parametrize("kind", ID_TYPES)
@pytest.mark.parametrize("other", ["text", "int64"])
def test_an_id_is_the_same_person_in_any_type(tmp_path: Path, kind: str, other: str):
    assert counts(WEIGHT, tmp_path, ID_TYPES[kind], ID_TYPES[other]) == [4, 2, 4, 2] * 2
    assert counts(at_most(1), tmp_path, ID_TYPES[kind], ID_TYPES[other]) == [True, True, False, True] + [False] * 4


def test_large_integers_stay_different_persons(tmp_path: Path):
    assert counts(WEIGHT, tmp_path, pa.array([2**53, 2**53 + 1])) == [1, 1]


# ---------------------------------------------------------------- one spelling a person


def test_every_character_is_stripped_or_kept_as_python_does():
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    cells = [f"{character}x{character}" for character in characters]
    assert identifiers(pa.array(cells)).to_pylist() == [cell.strip() for cell in cells]
    assert identifiers(pa.array(characters)).to_pylist() == [character.strip() for character in characters]


NOT_TEXT = [
    b" \xff ",
    b"\xff",
    b"\xfe",
    b"\xed\xa0\x80",
    b"\xc2",
    b"\xe2\x80 ",
    b"\xc2\x85x",
    b"\xc0\xa0",
    b"a\0",
    b"a",
]


def test_bytes_that_are_no_text_are_replaced_one_by_one_as_python_does():
    cells = pa.array([*NOT_TEXT, None])
    invalid_text = pa.StringArray.from_buffers(len(cells), *cells.buffers()[1:], cells.buffers()[0])
    expected = [plain_spelling(cell) for cell in [*NOT_TEXT, None]]
    assert identifiers(cells).to_pylist() == expected
    assert identifiers(invalid_text).to_pylist() == expected
    assert identifiers(pa.array(NOT_TEXT).dictionary_encode()).to_pylist() == expected[:-1]


texts = st.none() | st.text(st.sampled_from("ab7 \0\x1c\x85\u2003é\U0001f600"), max_size=3)
raw = st.none() | st.sampled_from(NOT_TEXT)
columns = st.lists(texts, max_size=40) | st.lists(raw, max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cells=columns, cuts=st.lists(st.integers(0, 40), max_size=4), rows=st.integers(0, 3))
def test_rows_count_as_an_oracle_says_however_they_are_cut(tmp_path: Path, cells: list, cuts: list, rows: int):
    unit = at_most(rows) if rows else WEIGHT
    column = pa.array(cells, pa.binary() if any(isinstance(cell, bytes) for cell in cells) else pa.string())
    bounds = [0, *sorted(min(cut, len(cells)) for cut in cuts), len(cells)]
    fragments = [column[start:stop] for start, stop in pairwise(bounds)]
    assert counts(unit, tmp_path, *fragments) == plain_counts(unit, cells)
    as_batches = person_rows([fragments], unit, tmp_path)
    assert as_batches.of(0).tolist() == plain_counts(unit, cells)


# ---------------------------------------------------------------- the second reading


def test_any_slice_of_a_fragment_can_be_had(tmp_path: Path):
    persons = person_rows([[pa.array(["a"])], [pa.array(["b", "a"]), pa.array(["b", "c"])]], WEIGHT, tmp_path)
    assert persons.of(1, 1, 3).tolist() == [2, 2]
    assert persons.of(1, 3).tolist() == [1]
    assert persons.of(0, 1, 1).tolist() == []
    assert (persons.rows_in(0), persons.rows_in(1)) == (1, 4)
    assert pickle.loads(pickle.dumps(persons)).of(0).tolist() == [2]  # noqa: S301  it may travel to a worker


def again(persons: PersonRows, *batches: pa.Array) -> list[Any]:
    reading = persons.reading(0)
    values = [value for batch in batches for value in reading.next(batch).tolist()]
    reading.finish()
    return values


@pytest.mark.parametrize("unit", [WEIGHT, at_most(1)], ids=str)
def test_data_that_stay_are_not_refused_whatever_the_batches(tmp_path: Path, unit: PrivacyUnit):
    ids = pa.array(["a", None, "b", "a", " b", ""])
    persons = person_rows([[ids]], unit, tmp_path)
    assert again(persons, ids[:1], ids[1:1], ids[1:]) == plain_counts(unit, ids.to_pylist())
    assert again(persons, ids.dictionary_encode()) == plain_counts(unit, ids.to_pylist())


CHANGED = {
    "another-id": ["a", "b", "b"],
    "another-order": ["b", "a", "a"],
    "fewer-rows": ["a", "b"],
    "more-rows": ["a", "b", "a", "a"],
    "null-for-an-id": ["a", "b", None],
    "other-borders": ["ab", "", "a"],
}


@pytest.mark.parametrize("case", CHANGED)
def test_data_that_change_between_the_readings_are_refused(tmp_path: Path, case: str):
    persons = person_rows([[pa.array(["a", "b", "a"])]], WEIGHT, tmp_path, where="--input")
    with pytest.raises(LandingError) as caught:
        again(persons, pa.array(CHANGED[case]))
    assert (caught.value.rule, caught.value.where) == ("landing-changed", "--input")


def test_slices_beyond_a_fragment_and_other_totals_are_refused(tmp_path: Path):
    persons = person_rows([[pa.array(["a", "b"])], [pa.array(["a"])]], WEIGHT, tmp_path)
    persons.require_rows(0, 2)
    for attempt in (lambda: persons.of(0, 1, 3), lambda: persons.require_rows(1, 2), lambda: persons.of(1, 2)):
        with pytest.raises(LandingError, match="changed while"):
            attempt()


# ---------------------------------------------------------------- privacy of the scratch space


def test_only_one_private_file_stays_and_nothing_is_shown(tmp_path: Path):
    persons = person_rows([[pa.array([PLANTED])]], WEIGHT, tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert PLANTED.encode() not in file.read_bytes()
    assert repr(persons) == "PersonRows(<private>)"
    assert repr(persons.reading(0)) == "Reading(<private>)"


def test_what_the_reader_raises_comes_out_as_it_is(tmp_path: Path):
    refusal = LandingError("cannot be read", rule="file-unreadable", where="source.path", hint="land it again")

    def cells() -> Iterator[pa.Array]:
        yield pa.array([PLANTED])
        raise refusal

    with pytest.raises(LandingError) as caught:
        person_rows([cells()], WEIGHT, tmp_path)
    assert caught.value is refusal
    assert caught.value.__context__ is None
    assert list(tmp_path.iterdir()) == []


def test_a_unit_without_persons_has_no_person_rows(tmp_path: Path):
    with pytest.raises(ValueError, match="no person column"):
        person_rows([[pa.array(["a"])]], PrivacyUnit(), tmp_path)


def test_a_vault_that_is_gone_is_refused_without_its_path(tmp_path: Path):
    with pytest.raises(WorkspaceError) as caught:
        person_rows([[pa.array([PLANTED])]], WEIGHT, tmp_path / PLANTED)
    assert caught.value.rule == "vault-full"
    assert PLANTED not in str(caught.value.as_json())
    assert caught.value.__context__ is None
