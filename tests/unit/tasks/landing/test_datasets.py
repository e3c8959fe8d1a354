"""Landing data: the right files of the right month, and refusals that give nothing of them away."""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import LandingError
from dpcore.records.schema import UNKNOWN
from tasks.landing.cells import cells_of
from tasks.landing.datasets import Landing, canonical_dtypes, find_landing, last_complete_month
from tasks.landing.fragments import ROWS_AT_ONCE, SHARED
from tasks.landing.structure import _shape, require_shape
from tasks.spec import ReleaseSpec, parse_spec

SPEC = """
name: small
source: {{path: '{path}'{source}}}
privacy: {{population: people, epsilon: 1, lifetime: {{epsilon: 12}}}}
expected_rows: 100
columns:
  - {{name: age, kind: numeric, bounds: [0, 100]}}
  - {{name: sex, kind: categorical, categories: [f, m]}}
schedule: {{timezone: {zone}}}
"""
PATTERN = ", period: 'small-(?P<period>[0-9]{4}-[0-9]{2})'"
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
PLANTED = "planted-secret"
GOOD_CSV = "age,sex\n41,f\n42,m\n"

BATCH_ROWS = ROWS_AT_ONCE * SHARED


def spec(path: str = "landing/*", *, source: str = "", zone: str = "UTC") -> ReleaseSpec:
    return parse_spec(SPEC.format(path=path, source=source, zone=zone))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "landing").mkdir()
    return tmp_path


def land(root: Path, *names: str, content: str = GOOD_CSV) -> list[Path]:
    paths = [root / name for name in names]
    for path in paths:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(content)
    return paths


def names(found: Landing) -> list[str]:
    return [path.name for path in found.files]


def found(root: Path, spec: ReleaseSpec, *, given: Path | None = None, period: str | None = None) -> Landing:
    return find_landing(spec, root, given=given, period=period, now=NOW).landing


def refusal(attempt: Callable[[], Any]) -> LandingError:
    with pytest.raises(LandingError) as caught:
        attempt()
    return caught.value


def assert_tells_nothing(error: LandingError, root: Path) -> None:
    """Nothing of file names, paths or rows, in whatever a log may show of the error."""
    shown = "".join(traceback.format_exception_only(error))
    shown += str(error) + repr(error) + repr(error.args) + repr(error.as_json()) + repr(vars(error))
    for secret in (PLANTED, str(root), root.name):
        assert secret not in shown
    assert error.__context__ is None
    assert error.__cause__ is None
    assert error.rule
    assert error.where
    assert error.hint


# ---------------------------------------------------------------- which files

DISCOVERIES: dict[str, tuple[str, list[str], list[str]]] = {
    "pattern": ("landing/*.csv", ["landing/b.csv", "landing/a.csv", "landing/c.txt"], ["a.csv", "b.csv"]),
    "folder": ("landing", ["landing/b.csv", "landing/a.CSV", "landing/readme.md"], ["a.CSV", "b.csv"]),
    "one-file": ("landing/a.csv", ["landing/a.csv", "landing/b.csv"], ["a.csv"]),
    "folder-elsewhere": ("inbox/new", ["inbox/new/a.csv", "landing/b.csv"], ["a.csv"]),
    "folders-by-pattern": ("inbox/*", ["inbox/1/a.csv", "inbox/2/b.csv"], ["a.csv", "b.csv"]),
    "any-depth": ("inbox/**/*.csv", ["inbox/1/a.csv", "inbox/b.csv"], ["a.csv", "b.csv"]),
    "above": ("../{root}/landing/*.csv", ["landing/a.csv"], ["a.csv"]),
}


@pytest.mark.parametrize("case", DISCOVERIES)
def test_a_path_names_a_dataset(root: Path, case: str):
    path, landed, expected = DISCOVERIES[case]
    land(root, *landed)
    assert sorted(names(found(root, spec(path.format(root=root.name))))) == expected


@pytest.mark.parametrize("rest", ["landing/*.csv", "landing", "landing/a.csv"])
def test_an_absolute_path_needs_no_workspace(root: Path, tmp_path: Path, rest: str):
    land(root, "landing/a.csv")
    assert names(found(tmp_path / "elsewhere", spec(str(root / rest)))) == ["a.csv"]


def test_files_come_in_the_order_of_their_names(root: Path):
    land(root, *(f"landing/{name}.csv" for name in ("c", "a", "b")))
    assert names(found(root, spec())) == ["a.csv", "b.csv", "c.csv"]


def test_no_file_is_counted_twice(root: Path):
    """A row that counts twice would break every bound on what a person adds."""
    land(root, "inbox/a.csv", "inbox/deep/b.csv")
    assert sorted(names(found(root, spec("inbox/**")))) == ["a.csv", "b.csv"]


def test_folders_that_look_like_data_are_not_files(root: Path):
    (root / "landing" / "folder.csv").mkdir()
    land(root, "landing/a.csv")
    assert names(found(root, spec("landing/*.csv"))) == ["a.csv"]


@pytest.mark.parametrize("given", ["other/a.csv", "other"])
def test_a_given_input_is_taken_instead_of_the_source(root: Path, given: str):
    land(root, "landing/x.csv", "other/a.csv")
    landing = found(root, spec(), given=root / given)
    assert (names(landing), landing.where) == (["a.csv"], "--input")


def test_a_given_input_whose_names_carry_no_month_is_of_the_given_one(root: Path):
    land(root, "other/a.csv", "other/small-2026-05.csv")
    arrival = find_landing(spec(source=PATTERN), root, given=root / "other", period="2026-05", now=NOW)
    assert (names(arrival.landing), arrival.period) == (["a.csv", "small-2026-05.csv"], "2026-05")


@pytest.mark.parametrize(
    ("file", "given", "period", "rule"),
    [
        ("landing/a.csv", None, "2026-05", "period-missing"),
        ("landing/a.csv", None, None, "period-missing"),
        ("landing/small-2026-04.csv", None, "2026-05", "landing-missing"),
        ("other/a.csv", "other", None, "period-missing"),
        ("other/small-2026-04.csv", "other", "2026-05", "period-differs"),
    ],
)
def test_where_names_carry_the_month_no_other_file_is_released_as_it(
    root: Path, file: str, given: str | None, period: str | None, rule: str
):
    land(root, file)
    with pytest.raises(LandingError) as refusal:
        find_landing(spec(source=PATTERN), root, given=root / given if given else None, period=period, now=NOW)
    assert refusal.value.rule == rule


def test_a_pipe_in_place_of_a_landing_file_is_refused_at_once(root: Path):
    os.mkfifo(root / "landing" / "small-2026-05.csv")
    with pytest.raises(LandingError) as refusal:
        find_landing(spec(source=PATTERN), root, given=None, period="2026-05", now=NOW)
    assert refusal.value.rule == "file-irregular"


def test_a_file_with_a_hundred_thousand_columns_is_judged_by_the_declared_ones_and_one_more(root: Path):
    names_ = ["age", "sex", *(f"c{number}" for number in range(100_000))]
    (root / "landing" / "wide.csv").write_text(f"{','.join(names_)}\n{','.join('1' for _ in names_)}\n")
    landing = find_landing(spec(), root, given=None, period=None, now=NOW).landing
    known = set(landing.spec.schema.by_name)
    assert all(len(list(_shape(canonical_dtypes(s, landing.spec.schema), known))) <= 3 for s in landing.schemas())
    with pytest.raises(LandingError) as refusal:
        require_shape(landing)
    assert refusal.value.rule == "column-undeclared"


# ---------------------------------------------------------------- which month

MONTHS = [f"landing/small-2026-{month:02d}.csv" for month in (9, 8, 10)]


def test_the_period_is_the_one_given(root: Path):
    land(root, *MONTHS)
    arrival = find_landing(spec(source=PATTERN), root, given=None, period="2026-08", now=NOW)
    assert (names(arrival.landing), arrival.period) == (["small-2026-08.csv"], "2026-08")


def test_the_period_is_else_the_latest_in_the_names_and_all_its_files_belong(root: Path):
    land(root, *MONTHS, "landing/small-2026-10-north.csv", "landing/without.csv")
    arrival = find_landing(spec(source=PATTERN), root, given=None, period=None, now=NOW)
    assert sorted(names(arrival.landing)) == ["small-2026-10-north.csv", "small-2026-10.csv"]
    assert arrival.period == "2026-10"


def test_the_period_is_else_the_last_complete_month_over_all_files(root: Path):
    land(root, *MONTHS)
    arrival = find_landing(spec(), root, given=None, period=None, now=NOW)
    assert (len(arrival.landing.files), arrival.period) == (3, "2026-10")


def test_a_given_period_without_a_pattern_takes_all_files(root: Path):
    land(root, *MONTHS)
    arrival = find_landing(spec(), root, given=None, period="2020-02", now=NOW)
    assert (len(arrival.landing.files), arrival.period) == (3, "2020-02")


@pytest.mark.parametrize(
    ("now", "zone", "month"),
    [
        ("2026-11-16T12:00:00+00:00", "UTC", "2026-10"),
        ("2026-01-01T00:00:00+00:00", "UTC", "2025-12"),
        ("2026-01-31T23:59:59+00:00", "UTC", "2025-12"),
        ("2026-03-31T12:00:00+00:00", "UTC", "2026-02"),
        ("2024-03-01T00:00:00+00:00", "UTC", "2024-02"),
        ("2026-10-31T23:30:00+00:00", "UTC", "2026-09"),
        ("2026-10-31T23:30:00+00:00", "Europe/Berlin", "2026-10"),
        ("2026-11-01T03:30:00+00:00", "America/New_York", "2026-09"),
        ("2026-11-01T04:30:00+00:00", "America/New_York", "2026-10"),
        ("2025-12-31T10:30:00+00:00", "Pacific/Kiritimati", "2025-12"),
        ("2026-01-01T10:30:00+00:00", "Pacific/Pago_Pago", "2025-11"),
        ("2026-03-29T01:30:00+00:00", "Europe/Berlin", "2026-02"),
        ("2026-11-01T00:30:00+02:00", "UTC", "2026-09"),
    ],
)
def test_the_last_complete_month_is_that_of_the_schedules_time_zone(now: str, zone: str, month: str):
    assert last_complete_month(spec(zone=zone), datetime.fromisoformat(now)) == month


@pytest.mark.parametrize(
    "period", ["2026", "2026-1", "2026-13", "2026-00", "26-01", "2026-01-01", "2026-01\n", " 2026-01", "٢٠٢٦-٠١", ""]
)
def test_a_period_that_is_no_month_is_refused(root: Path, period: str):
    land(root, "landing/a.csv")
    error = refusal(lambda: found(root, spec(), period=period))
    assert (error.rule, error.where) == ("period-malformed", "--period")


@pytest.mark.parametrize("name", [f"small-{PLANTED}.csv", "small-2026-99.csv", "small-2026-1.csv"])
def test_a_file_name_whose_period_is_no_month_is_refused_without_its_text(root: Path, name: str):
    land(root, f"landing/{name}", "landing/small-2026-01.csv")
    loose = spec(source=", period: 'small-(?P<period>.+)[.]csv'")
    error = refusal(lambda: found(root, loose))
    assert (error.rule, error.where) == ("period-malformed", "source.period")
    assert_tells_nothing(error, root)


# ---------------------------------------------------------------- refusals: nothing to read

ABSENT: dict[str, tuple[list[str], dict[str, Any], str, str]] = {
    # landed files, how to look, rule, where
    "nothing-landed": ([], {}, "landing-missing", "source.path"),
    "nothing-for-the-month": (
        [f"landing/small-2026-01-{PLANTED}.csv"],
        {"spec": spec(source=PATTERN), "period": "2026-02"},
        "landing-missing",
        "source.path",
    ),
    "given-not-there": ([], {"given": f"{PLANTED}.csv"}, "landing-missing", "--input"),
    "given-empty-folder": ([f"{PLANTED}/note.txt"], {"given": PLANTED}, "landing-missing", "--input"),
    "formats-mixed": (
        [f"landing/{PLANTED}.csv", f"landing/{PLANTED}.parquet"],
        {},
        "formats-mixed",
        "source.path",
    ),
    "unknown-ending": ([f"landing/{PLANTED}.xlsx"], {}, "format-unknown", "source.path"),
    "unknown-ending-given": ([f"{PLANTED}.json"], {"given": f"{PLANTED}.json"}, "format-unknown", "--input"),
}


@pytest.mark.parametrize("case", ABSENT)
def test_data_that_are_not_there_are_refused_by_rule_and_place(root: Path, case: str):
    landed, look, rule, where = ABSENT[case]
    land(root, *landed)
    given = root / look["given"] if "given" in look else None
    error = refusal(lambda: found(root, look.get("spec", spec()), given=given, period=look.get("period")))
    assert (error.rule, error.where) == (rule, where)
    assert_tells_nothing(error, root)


# ---------------------------------------------------------------- refusals: what cannot be read


def parquet(path: Path, **columns: Any) -> None:
    table = pa.table(columns or {"age": [41.5] * 5000, "sex": [PLANTED] * 5000})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)


def parquet_cut(path: Path) -> None:
    parquet(path)
    path.write_bytes(path.read_bytes()[:-20])


def parquet_without_middle(path: Path) -> None:
    parquet(path)
    content = path.read_bytes()
    path.write_bytes(content[:1000] + b"\xff" * 4000 + content[5000:])


def parquet_compressed_without_middle(path: Path) -> None:
    table = pa.table({"age": list(range(50_000)), "sex": [PLANTED] * 50_000})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
    content = path.read_bytes()
    middle = len(content) // 3
    path.write_bytes(content[:middle] + b"\x00" * 400 + content[middle + 400 :])


def text(content: str | bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content) and None


UNREADABLE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "csv-empty": ("csv", text(""), "file-empty"),
    "parquet-empty": ("parquet", text(""), "file-empty"),
    "csv-only-newlines": ("csv", text("\n\n\n"), "file-unreadable"),
    "csv-row-too-long": ("csv", text(f"age,sex\n1,f\n2,m,{PLANTED}\n"), "file-unreadable"),
    "csv-row-too-short": ("csv", text(f"age,sex\n1,f\n{PLANTED}\n"), "file-unreadable"),
    "csv-ragged-late": ("csv", text("age,sex\n" + "1,f\n" * 600_000 + f"{PLANTED}\n"), "file-unreadable"),
    "csv-quote-open": ("csv", text(f'age,sex\n1,"{PLANTED}\n2,f\n'), "file-unreadable"),
    "csv-quote-over-lines": ("csv", text(f'age,sex\n1,"{PLANTED}\n2",f\n'), "file-unreadable"),
    "csv-columns-repeated": ("csv", text(f"age,sex,sex\n1,{PLANTED},m\n"), "column-repeated"),
    "parquet-is-csv": ("parquet", text(GOOD_CSV + PLANTED), "file-unreadable"),
    "parquet-footer-cut": ("parquet", parquet_cut, "file-unreadable"),
    "parquet-page-corrupt": ("parquet", parquet_without_middle, "file-unreadable"),
    "parquet-page-corrupt-compressed": ("parquet", parquet_compressed_without_middle, "file-unreadable"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_that_cannot_be_read_is_refused_and_nothing_of_it_told(root: Path, case: str):
    ending, write, rule = UNREADABLE[case]
    write(root / "landing" / f"{PLANTED}.{ending}")
    landing = found(root, spec())
    error = refusal(lambda: read_all(landing))
    assert (error.rule, error.where) == (rule, "source.path")
    assert_tells_nothing(error, root)


def read_all(landing: Landing) -> list[dict[str, list[Any]]]:
    """Read as a run does: the structure first, then all rows."""
    landing.schemas()
    return [batch.to_pydict() for batch in landing.batches(["age", "sex"])]


def test_a_csv_in_a_declared_encoding_without_a_character_is_read_without_it(root: Path):
    land(root, "landing/a.csv", content=f"age,sex\n1,{PLANTED} ü\n2,f\n")
    landing = found(root, spec(source=", csv: {encoding: ascii}"))
    assert read_all(landing) == [{"age": ["1", "2"], "sex": [f"{PLANTED} \ufffd\ufffd", "f"]}]


def test_a_parquet_file_with_a_column_twice_is_refused(root: Path):
    schema = pa.schema([("age", pa.float64()), (PLANTED, pa.string()), (PLANTED, pa.string())])
    pq.write_table(pa.table([[1.0], ["f"], ["m"]], schema=schema), root / "landing" / "a.parquet")
    error = refusal(lambda: found(root, spec()).schemas())
    assert error.rule == "column-repeated"
    assert_tells_nothing(error, root)


@pytest.mark.parametrize("other", [f"age,{PLANTED}\n1,f\n", "age\n1\n", f"age,sex,{PLANTED}\n1,f,x\n"])
def test_files_of_one_dataset_with_different_columns_are_refused(root: Path, other: str):
    land(root, "landing/a.csv")
    land(root, f"landing/{PLANTED}.csv", content=other)
    error = refusal(lambda: found(root, spec()).schemas())
    assert error.rule == "files-disagree"
    assert_tells_nothing(error, root)


def test_every_file_shows_its_own_types(root: Path):
    parquet(root / "landing" / "a.parquet", age=[1.5], sex=["f"])
    parquet(root / "landing" / "b.parquet", sex=["f"], age=["1.5"])
    families = [canonical_dtypes(landed, spec().schema)["age"] for landed in found(root, spec()).schemas()]
    assert families == ["float64", "str"]


def test_a_refused_input_is_the_inputs_fault(root: Path):
    land(root, "other/a.csv", content="")
    error = refusal(lambda: found(root, spec(), given=root / "other").schemas())
    assert error.where == "--input"


def test_a_landing_shows_nothing_of_itself(root: Path):
    land(root, f"landing/{PLANTED}.csv")
    assert repr(found(root, spec())) == f"{found(root, spec())}" == "Landing(<private>)"


# ---------------------------------------------------------------- reading


def test_files_may_order_their_columns_differently(root: Path):
    land(root, "landing/a.csv", content="age,sex\n1,f\n")
    land(root, "landing/b.csv", content="sex,age\nm,2\n")
    assert read_all(found(root, spec())) == [{"age": ["1"], "sex": ["f"]}, {"age": ["2"], "sex": ["m"]}]


def test_every_cell_of_a_csv_is_text_or_null(root: Path):
    land(root, "landing/a.csv", content='age,sex\n1,\n"",NA\n true ,"f, m"\n007,"a ""b"""\n')
    (batch,) = read_all(found(root, spec()))
    assert batch == {"age": ["1", None, " true ", "007"], "sex": [None, "NA", "f, m", 'a "b"']}


def test_a_cell_that_is_no_text_does_not_stop_the_others(root: Path):
    """One record must not decide whether there is a release."""
    (root / "landing" / "a.csv").write_bytes(b"age,sex\n1,f\n2,\xff\xfe\n\xfc,m\n")
    landing = found(root, spec())
    landing.schemas()
    (batch,) = landing.batches(["age", "sex"])
    cells = cells_of(batch, landing.spec.schema)
    assert cells["sex"].tolist() == [0, UNKNOWN, 1]
    assert str(cells["age"].tolist()) == "[1.0, 2.0, nan]"


DIALECTS = {
    "semicolon": ("csv: {delimiter: ';', decimal: ','}", b"age;sex\n1,5;f\n"),
    "tab": ('csv: {delimiter: "\\t"}', b"age\tsex\n1,5\tf\n"),
    "latin-1": ("csv: {encoding: latin-1, delimiter: ';'}", "age;sex;stra\xdfe\n1,5;f;\xfc\n".encode("latin-1")),
    "utf-16": ("csv: {encoding: utf-16, delimiter: ';'}", "age;sex\n1,5;f\n".encode("utf-16")),
    "byte-order-mark": ("csv: {delimiter: ';'}", "age;sex\n1,5;f\n".encode("utf-8-sig")),
    "quote": ('csv: {quote: "\'"}', b"age,sex\n'1,5',f\n"),
    "windows-lines": ("csv: {delimiter: ';'}", b"age;sex\r\n1,5;f\r\n"),
    "no-last-newline": ("csv: {delimiter: ';'}", b"age;sex\n1,5;f"),
}


@pytest.mark.parametrize("case", DIALECTS)
def test_csv_is_read_in_its_dialect(root: Path, case: str):
    dialect, content = DIALECTS[case]
    (root / "landing" / "a.csv").write_bytes(content)
    assert read_all(found(root, spec("landing", source=f", {dialect}"))) == [{"age": ["1,5"], "sex": ["f"]}]


def test_a_csv_with_a_header_alone_has_columns_and_no_rows(root: Path):
    land(root, "landing/a.csv", content="age,sex\n")
    landing = found(root, spec())
    assert landing.schemas()[0].names == ["age", "sex"]
    assert read_all(landing) == []


def test_batches_are_bounded_and_hold_all_rows_in_order(root: Path):
    rows = 2 * BATCH_ROWS + 5
    for part in range(2):
        numbers = [float(part * rows + i) for i in range(rows)]
        pq.write_table(pa.table({"age": numbers, "sex": ["f"] * rows}), root / "landing" / f"{part}.parquet")
    batches = list(found(root, spec()).batches(["age"]))
    assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
    assert [name for batch in batches for name in batch.schema.names] == ["age"] * len(batches)
    assert [v for batch in batches for v in batch.column(0).to_pylist()] == [float(i) for i in range(2 * rows)]


def test_only_the_columns_asked_for_are_read(root: Path):
    land(root, "landing/a.csv", content=f"age,name,sex\n1,{PLANTED},f\n")
    assert read_all(found(root, spec())) == [{"age": ["1"], "sex": ["f"]}]


@pytest.mark.parametrize(("ending", "decimal"), [("csv", ","), ("parquet", ".")])
def test_the_decimal_mark_is_that_of_text_only(root: Path, ending: str, decimal: str):
    land(root, f"landing/a.{ending}")
    landing = found(root, spec(source=", csv: {delimiter: ';', decimal: ','}"))
    assert (landing.decimal, landing.is_text) == (decimal, ending == "csv")


# ---------------------------------------------------------------- families of types

FAMILIES: dict[str, list[pa.DataType]] = {
    "float64": [pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal256(40, 2)],
    "int64": [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
    "bool": [pa.bool_()],
    "str": [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    "datetime64[us]": [
        pa.date32(),
        pa.date64(),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        pa.timestamp("ms", tz="Europe/Berlin"),
    ],
    "object": [pa.binary(), pa.time64("us"), pa.duration("s"), pa.list_(pa.int8()), pa.struct([("a", pa.int8())])],
}


@pytest.mark.parametrize(("family", "kind"), [(f, k) for f, kinds in FAMILIES.items() for k in kinds], ids=str)
def test_every_type_has_its_family(family: str, kind: pa.DataType):
    landed = pa.schema([("age", kind), ("undeclared", kind)])
    assert canonical_dtypes(landed, spec().schema) == {"age": family, "undeclared": family}


def test_a_dictionary_has_the_family_of_its_values():
    landed = pa.schema([("age", pa.dictionary(pa.int8(), pa.float32())), ("sex", pa.dictionary(pa.int8(), pa.bool_()))])
    assert canonical_dtypes(landed, spec().schema) == {"age": "float64", "sex": "bool"}


def test_a_column_of_nulls_has_the_family_that_was_declared():
    landed = pa.schema([("age", pa.null()), ("sex", pa.null()), ("undeclared", pa.null())])
    assert canonical_dtypes(landed, spec().schema) == {"age": "int64", "sex": "str", "undeclared": "object"}


# ---------------------------------------------------------------- fingerprint


def fingerprint(root: Path, key: bytes = b"k" * 32) -> str:
    return found(root, spec()).fingerprint(key)


def test_a_fingerprint_is_that_of_the_bytes_and_the_key(root: Path):
    (path,) = land(root, "landing/a.csv")
    first = fingerprint(root)
    assert fingerprint(root) == first
    assert fingerprint(root, b"l" * 32) != first
    path.rename(path.with_name("renamed.csv"))
    assert fingerprint(root) == first, "a file may be renamed"
    land(root, "landing/renamed.csv", content=GOOD_CSV.replace("41", "40"))
    assert fingerprint(root) != first, "and one byte makes another"


def test_a_fingerprint_knows_where_a_file_ends(root: Path):
    land(root, "landing/a.csv", content="age,sex\n1,f\n")
    land(root, "landing/b.csv", content="age,sex\n2,m\n")
    two = fingerprint(root)
    (root / "landing" / "b.csv").unlink()
    land(root, "landing/a.csv", content="age,sex\n1,f\nage,sex\n2,m\n")
    assert fingerprint(root) != two


def test_a_fingerprint_is_no_plain_hash(root: Path):
    (path,) = land(root, "landing/a.csv")
    content = path.read_bytes()
    assert fingerprint(root) not in {hashlib.sha256(content + end).hexdigest() for end in (b"", b"\0")}
