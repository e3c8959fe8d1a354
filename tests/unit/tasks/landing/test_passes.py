"""One pass over landing data: the same bits whatever the files, fragments and threads, and never of two versions."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from support.tasks.landing.readings import SPEC, SPEC_TEXT, SUM, readings, table, total

from dpcore.errors import LandingError
from tasks.boundary import PROGRESS
from tasks.landing import fragments
from tasks.landing.cells import cells_of
from tasks.landing.datasets import Landing
from tasks.landing.passes import Pass, Piece, Rows, Threads
from tasks.progress import DataRead
from tasks.spec import parse_spec


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "ROWS_AT_ONCE", 700)


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """The sum of all rows at once."""
    batch = table().combine_chunks().to_batches()[0]
    return SUM([(cells_of(batch, SPEC.schema), None)]).upper_triangles()


def written(folder: Path, layout: str) -> list[Path]:
    """The same rows in another layout of files."""
    rows = table()
    if layout == "one row group":
        pq.write_table(rows, folder / "all.parquet")
    elif layout == "many row groups":
        pq.write_table(rows, folder / "all.parquet", row_group_size=333)
    elif layout == "many files":
        for start in range(0, rows.num_rows, 450):
            pq.write_table(rows.slice(start, 450), folder / f"{start:05d}.parquet")
    elif layout == "dictionaries":
        coded = pa.table({name: rows[name].combine_chunks().dictionary_encode() for name in rows.column_names})
        pq.write_table(coded, folder / "all.parquet", row_group_size=999, compression="zstd")
    else:
        pa_csv.write_csv(rows, folder / "all.csv")
    return sorted(folder.iterdir())


LAYOUTS = ["one row group", "many row groups", "many files", "dictionaries", "text"]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_sum_has_the_same_bits_whatever_the_files_and_threads(
    layout: str, threads: int, tmp_path: Path, expected: list[list[int]]
) -> None:
    assert total(readings(*written(tmp_path, layout), threads=threads)) == expected


@pytest.mark.parametrize("size", [1, 20_000, 1 << 30])
def test_fragments_of_any_size_hold_every_row_once(size: int, tmp_path: Path) -> None:
    landing = Landing(tuple(written(tmp_path, "many row groups")), SPEC, "source.path")
    ages = [batch.column(0) for part in landing.fragments(size) for batch in part.batches(["age"])]
    assert pa.chunked_array(ages).to_pylist() == table()["age"].to_pylist()
    assert len(landing.fragments(1)) == 16, "a row group each"
    assert len(landing.fragments(1 << 30)) == 1


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    (path,) = written(tmp_path, "one row group")
    (fragment,) = Landing((path,), SPEC, "source.path").fragments(1)
    assert {name for batch in fragment.batches(["ill"]) for name in batch.schema.names} == {"ill"}


def test_a_sum_of_no_rows_is_that_of_nothing(tmp_path: Path) -> None:
    pq.write_table(table().slice(0, 0), tmp_path / "empty.parquet")
    found = readings(tmp_path / "empty.parquet")
    assert found.total("moments", SPEC.schema, list, lambda a, b: a + b) == []
    zeros = total(readings(tmp_path / "empty.parquet"))
    assert {cell for triangle in zeros for cell in triangle} == {0}


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_a_damaged_page_anywhere_refuses_the_pass(threads: int, tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    pq.write_table(table(), path, row_group_size=500, write_page_checksum=True, compression="none")
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)
    with pytest.raises(LandingError) as caught:
        total(readings(path, threads=threads))
    assert caught.value.rule == "file-unreadable"
    assert "all" not in caught.value.message.split()


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_an_error_in_a_thread_ends_the_pass(threads: int, tmp_path: Path) -> None:
    def broken(chunks: Iterator[object]) -> int:
        next(iter(chunks))
        raise ZeroDivisionError

    found = readings(*written(tmp_path, "many row groups"), threads=threads)
    with pytest.raises(ZeroDivisionError):
        found.total("moments", SPEC.schema, broken, lambda a, b: a + b)


def test_data_that_change_between_two_readings_are_refused(tmp_path: Path) -> None:
    (path,) = written(tmp_path, "one row group")
    found = readings(path)
    total(found)
    pq.write_table(table().slice(1), path)
    with pytest.raises(LandingError) as caught:
        total(found)
    assert caught.value.rule == "landing-changed"


def test_data_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    (path,) = written(tmp_path, "one row group")

    def disturbed(chunks: Iterator[object]) -> int:
        os.utime(path, ns=(1, 1))
        return sum(1 for _ in chunks)

    with pytest.raises(LandingError) as caught:
        readings(path).total("moments", SPEC.schema, disturbed, lambda a, b: a + b)
    assert caught.value.rule == "landing-changed"


def test_the_fingerprint_is_of_the_version_that_is_read(tmp_path: Path) -> None:
    (path,) = written(tmp_path, "one row group")
    found = readings(path)
    first = found.fingerprint()
    assert first == Landing((path,), SPEC, "source.path").fingerprint(b"k" * 32) == found.fingerprint()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(5, 5))
    with pytest.raises(LandingError):
        total(found)


def test_every_reading_is_counted(tmp_path: Path) -> None:
    found = readings(*written(tmp_path, "many files"))
    assert found.purposes == []
    total(found)
    total(found)
    assert found.purposes == ["moments", "moments"]


def test_what_is_told_of_the_readings_does_not_depend_on_which_of_two_threads_came_first(tmp_path: Path):
    files = written(tmp_path, "one row group")
    first, second = readings(*files), readings(*files)
    first.fingerprint()
    total(first)
    total(second)
    second.fingerprint()
    assert first.purposes != second.purposes
    assert first.summary() == second.summary() == "the landing data were read twice: for fingerprint, moments"


def test_nothing_of_the_data_is_printed(tmp_path: Path) -> None:
    found = readings(*written(tmp_path, "many files"))
    landing = Landing(tuple(written(tmp_path, "many files")), SPEC, "source.path")
    (fragment, *_), piece = landing.fragments(1), Piece(landing.fragments(1)[0])
    shown = f"{found!r} {fragment!r} {fragment.parts[0]!r} {piece!r} {SUM([])!r}"
    assert "parquet" not in shown
    assert str(tmp_path) not in shown
    assert shown.count("<private>") == 5


def test_a_pass_stops_reading_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the sums are, only a few batches wait for them."""
    monkeypatch.setattr(fragments, "SHARED", 1)
    (path,) = written(tmp_path, "one row group")
    landing = Landing((path,), SPEC, "source.path")
    read, most = 0, 0

    class Counted(Piece):
        def rows(self, columns: Sequence[str], *, threads: bool) -> Iterator[Rows]:
            nonlocal read
            for rows in Piece.rows(self, columns, threads=threads):
                read += 1
                yield rows

    summed = 0
    work = Pass(SPEC.schema, ".", lambda chunks: sum(1 for _ in chunks))
    for one in Threads(2).sums(work, [Counted(landing.fragments(1)[0])]):
        summed += one
        most = max(most, read - summed)
    assert summed == read == 8
    assert most <= 5


# ---- partitioned folders ---------------------------------------------------------------------------


def partitioned(folder: Path, *, column: str = "sex") -> Landing:
    rows = table()
    plain = rows.drop_columns([column])
    for word in ("f", "m", "?"):
        part = folder / f"{column}={'%3F' if word == '?' else word}"
        part.mkdir(parents=True)
        pq.write_table(plain.filter(pa.compute.equal(rows[column], word)), part / "part-0.parquet")
    from tasks.landing.file_names import data_files

    return Landing(tuple(data_files(folder)), SPEC, "source.path")


def test_folders_give_the_columns_that_their_names_say(tmp_path: Path, expected: list[list[int]]) -> None:
    landing = partitioned(tmp_path / "visits")
    assert set(landing.schemas()[0].names) == set(table().column_names)
    assert total(readings(*landing.files)) == expected


def test_a_partition_without_a_cell_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "visits" / "visits=__HIVE_DEFAULT_PARTITION__"
    folder.mkdir(parents=True)
    pq.write_table(table().drop_columns(["visits"]), folder / "a.parquet")
    (fragment,) = Landing((folder / "a.parquet",), SPEC, "source.path").fragments(1)
    cells = [cells_of(batch, SPEC.schema)["visits"] for batch in fragment.batches(SPEC.schema.by_name)]
    assert np.isnan(np.concatenate(cells)).all()


def test_a_column_of_a_folder_must_be_declared_like_any_other(tmp_path: Path) -> None:
    from tasks.landing.structure import require_shape

    folder = tmp_path / "visits" / "address=here"
    folder.mkdir(parents=True)
    pq.write_table(table(), folder / "a.parquet")
    with pytest.raises(LandingError) as caught:
        require_shape(Landing((folder / "a.parquet",), SPEC, "source.path"))
    assert caught.value.rule == "column-undeclared"


def test_a_column_of_file_and_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "sex=f"
    folder.mkdir()
    pq.write_table(table(), folder / "a.parquet")
    with pytest.raises(LandingError) as caught:
        Landing((folder / "a.parquet",), SPEC, "source.path").schemas()
    assert caught.value.rule == "column-repeated"


def test_what_a_compressed_file_pretends_to_be_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(gzip.compress(b"x" * 100))
    with pytest.raises(LandingError) as caught:
        Landing((path,), SPEC, "source.path").fragments(1)
    assert caught.value.rule == "file-unreadable"


def test_a_long_reading_says_how_far_it_is_and_never_how_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(0, 1000, 11))
    found, runner = readings(*written(tmp_path, "many row groups")), Threads(1)
    runner.size = 1
    said: list[str] = []
    monkeypatch.setattr(PROGRESS, "info", said.append)
    found.read_with(runner, DataRead(clock=lambda: float(next(moments))))
    total(found)
    assert said[0] == "read 0% of the landing data for moments"
    assert len(said) == 16
    assert all(re.fullmatch(r"read \d+% of the landing data for moments", share) for share in said)


def test_a_folder_that_gives_all_columns_asked_for_still_counts_rows(tmp_path: Path) -> None:
    for ending in ("parquet", "csv"):
        folder = tmp_path / ending / "sex=f"
        folder.mkdir(parents=True)
        rows = table(10_000).drop_columns(["sex"])
        if ending == "csv":
            pa_csv.write_csv(rows, folder / "a.csv")
            with (folder / "a.csv").open("a") as file:
                file.write("n/a,n/a,n/a\n")
        else:
            pq.write_table(rows, folder / "a.parquet")
        (fragment,) = Landing((folder / f"a.{ending}",), SPEC, "source.path").fragments(1)
        batches = list(fragment.batches(["sex"]))
        assert {tuple(batch.schema.names) for batch in batches} == {("sex",)}
        assert sum(batch.num_rows for batch in batches) == 10_000 + (ending == "csv")


def test_batches_of_wide_or_long_rows_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "ROWS_AT_ONCE", 8192)
    wide = pa.table({f"x{index}": np.zeros(4000) for index in range(1000)})
    long = pa.table({"x": pa.array([f"{index}" + "x" * 20_000 for index in range(4000)])})
    pq.write_table(wide, tmp_path / "wide.parquet")
    pq.write_table(long, tmp_path / "long.parquet", use_dictionary=False)
    for name, columns, most in (("wide", wide.column_names, 1100), ("long", ["x"], 2000)):
        part = fragments.Part(tmp_path / f"{name}.parquet", SPEC.source.csv)
        assert max(batch.num_rows for batch in part.batches(columns, threads=False)) <= most


def test_a_text_that_many_rows_share_is_held_once(tmp_path: Path) -> None:
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["f" * 1_000_000]))
    pq.write_table(pa.table({"sex": shared}), tmp_path / "a.parquet", store_schema=False)
    part = fragments.Part(tmp_path / "a.parquet", SPEC.source.csv)
    assert max(batch.nbytes for batch in part.batches(["sex"], threads=False)) < 20_000_000


def test_a_file_that_is_gone_has_no_version(tmp_path: Path) -> None:
    found = readings(tmp_path / "nowhere.parquet")
    with pytest.raises(LandingError) as caught:
        found.require_same()
    assert caught.value.rule == "landing-unversioned"


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.landing.datasets.LONGEST_LINE", 1 << 20)
    monkeypatch.setattr("tasks.landing.datasets.TEXT_AT_ONCE", 1 << 18)
    (tmp_path / "a.csv").write_text("age,visits,sex,ill\n" + "x" * (3 << 20))
    with pytest.raises(LandingError) as caught:
        Landing((tmp_path / "a.csv",), SPEC, "source.path").schemas()
    assert caught.value.rule == "file-unreadable"


def test_persons_are_not_told_by_folders(tmp_path: Path) -> None:
    from tasks.landing.structure import require_shape

    spec = parse_spec(SPEC_TEXT.replace("unit: row", "unit: {person: patient, rows: weight}"))
    folder = tmp_path / "patient=7"
    folder.mkdir()
    for ending in ("parquet", "csv"):
        (pa_csv.write_csv if ending == "csv" else pq.write_table)(table(), folder / f"a.{ending}")
        with pytest.raises(LandingError) as caught:
            require_shape(Landing((folder / f"a.{ending}",), spec, "source.path"))
        assert caught.value.rule == "person-type"
