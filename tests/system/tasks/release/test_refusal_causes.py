"""How a single record can refuse a run: as GUARANTEE.md lists it under "Structure refuses", and in no other way.

Each cause is a sentence of that list with files that show it; what the list says not to refuse is read to its end.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import ROOT

from dpcore.errors import LandingError
from tasks.landing.datasets import Landing
from tasks.landing.readings import Readings
from tasks.landing.structure import require_sound
from tasks.spec import ReleaseSpec, parse_spec

SPEC = """
name: small
source: {path: "landing/*", csv: {encoding: ENCODING}}
privacy:
  population: people
  unit: {person: id, rows: weight}
  neighbours: replace-one
  epsilon: 1
  delta: 0
  lifetime: {epsilon: 12, delta: 0, delta_num: 1.0e-9}
expected_rows: 5000
columns:
  - {name: age, kind: numeric, bounds: [0, 120]}
  - {name: visits, kind: integer, bounds: [0, 50]}
  - {name: sex, kind: categorical, categories: [f, m], other: m}
  - {name: ill, kind: boolean}
  - {name: day, kind: date, bounds: [2020-01-01, 2030-01-01]}
  - {name: at, kind: timestamp, bounds: ["2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"], timezone: Europe/Berlin}
"""
CELLS = {
    "id": "7",
    "age": "41",
    "visits": "3",
    "sex": "f",
    "ill": "true",
    "day": "2024-01-01",
    "at": "2024-01-01T10:00",
}
LONGEST = 1 << 24


def limits() -> str:
    """The list of GUARANTEE.md, as one line."""
    text = (ROOT / "dpcore" / "GUARANTEE.md").read_text()
    found = re.search(r"- \*\*Structure refuses\.\*\*(.*?)\n- \*\*", text, re.DOTALL)
    assert found is not None
    return " ".join(found[1].split())


def spec(encoding: str = "utf-8") -> ReleaseSpec:
    return parse_spec(SPEC.replace("ENCODING", encoding))


def line(**cells: bytes) -> bytes:
    return b",".join(cells.get(name, cell.encode()) for name, cell in CELLS.items())


def text_file(folder: Path, *lines: bytes, header: bytes = ",".join(CELLS).encode()) -> Path:
    path = folder / "small.csv"
    path.write_bytes(b"".join(one + b"\n" for one in (header, line(), *lines, line()) if one is not None))
    return path


def read(path: Path, known: ReleaseSpec) -> int:
    """Do with a file all that a run does before it measures; the rows that count."""
    landing = Landing((path,), known, "source.path")
    require_sound(landing)
    readings = Readings(landing, known.unit, key=lambda: b"k" * 32, scratch=path.parent)
    return sum(len(cells["age"]) for cells, _ in readings.chunks(known.schema))


# ---------------------------------------------------------------- text

REFUSED_LINES: dict[str, list[bytes]] = {
    "another number of fields": [line() + b",1", b"7,41"],
    "a lone carriage return": [line(sex=b"a\rb")],
    "a line of blanks": [b"  "],
    "a line of more than 16 MiB": [line(sex=b"x" * (LONGEST + 1 - len(line(sex=b""))))],
    "a quote that does not close on its line": [line(sex=b'"f'), line(sex=b'"a\nb"')],
    "inside an unquoted field": [line(sex=b'a"b')],
    "or before more text": [line(sex=b'"a"b')],
}


@pytest.mark.parametrize("cause", REFUSED_LINES)
def test_a_line_that_the_guarantee_names_refuses(tmp_path: Path, cause: str):
    assert cause in limits()
    for bad in REFUSED_LINES[cause]:
        with pytest.raises(LandingError) as caught:
            read(text_file(tmp_path, bad), spec())
        assert caught.value.rule == "file-unreadable"


@pytest.mark.parametrize("before", [0, 1 << 19, LONGEST - 50])
def test_a_line_of_16_mib_is_read_wherever_it_lies_and_a_longer_one_is_not(tmp_path: Path, before: int):
    room = LONGEST - len(line(sex=b""))
    padded = [line(sex=b"y" * min(before, room))] if before else []
    for letter in (b"x", "€".encode()):
        cell = letter * (room // len(letter)) + b"x" * (room % len(letter))
        assert read(text_file(tmp_path, *padded, line(sex=cell)), spec()) == len(padded) + 3
        with pytest.raises(LandingError):
            read(text_file(tmp_path, *padded, line(sex=cell + b"x")), spec())


def test_a_first_line_that_is_taken_for_the_header_refuses(tmp_path: Path):
    assert "as the first line of a file without a header" in limits()
    with pytest.raises(LandingError) as caught:
        read(text_file(tmp_path, header=line(id=b"8")), spec())
    assert caught.value.rule in ("column-undeclared", "column-missing", "column-repeated")


HARMLESS: dict[str, list[bytes]] = {
    "undecodable bytes": [b"\xff", b"a\xed\xa0\x80", b"\xc0\xaf", b'"\xff"'],
    "NUL bytes": [b"\0", b"1\0"],
    "numbers and times out of every range": [
        b"9" * 5000, b"-1e999", b"1e-999", b"10000-01-01", b"0001-01-01T00:00:00+23:59", b"9999-12-31T23:59:59-23:59",
    ],
    "NaN and infinity": [b"nan", b"-inf", b"NaN", b"1e309"],
}  # fmt: skip


@pytest.mark.parametrize("column", CELLS)
@pytest.mark.parametrize("cause", HARMLESS)
def test_no_cell_of_a_text_refuses(tmp_path: Path, cause: str, column: str):
    assert cause in limits()
    lines = [line(**{column: cell}) for cell in HARMLESS[cause]]
    assert read(text_file(tmp_path, *lines), spec()) == len(lines) + 2


ENCODED = {"ascii": b"\xff", "cp1252": b"\x81", "utf-16-le": b"\x00\xd8", "shift_jis": b"\xff", "utf-8-sig": b"\xff"}


@pytest.mark.parametrize("encoding", ENCODED)
def test_bytes_that_are_no_text_in_the_declared_encoding_do_not_refuse(tmp_path: Path, encoding: str):
    mark = "QQ".encode(encoding)
    rows = ["\n".join([",".join(CELLS), line(sex=b"QQ").decode(), *[line().decode()] * 20_000, ""]).encode(encoding)]
    path = tmp_path / "small.csv"
    path.write_bytes(rows[0].replace(mark, ENCODED[encoding]))
    assert read(path, spec(encoding)) == 20_001


def test_a_text_in_another_encoding_is_read_as_the_same_text_in_utf_8(tmp_path: Path):
    """Characters of several bytes lie across every place at which a stream is cut."""
    words = [f"{'äß€' * (number % 7)}{number}" for number in range(40_000)]
    content = "\n".join([",".join(CELLS), *(line(id=word.encode()).decode() for word in words), ""])
    found = []
    for encoding in ("utf-8", "utf-16"):
        path = tmp_path / f"{encoding}.csv"
        path.write_bytes(content.encode(encoding))
        batches = Landing((path,), spec(encoding), "source.path").batches(["id"])
        found.append([cell for batch in batches for cell in batch.column("id").to_pylist()])
    assert found[0] == found[1] == words


# ---------------------------------------------------------------- Parquet


def frame(**columns: Any) -> pa.Table:
    plain: dict[str, Any] = {
        "id": ["7", "8"],
        "age": [41.0, 1.0],
        "visits": [3, 4],
        "sex": ["f", "m"],
        "ill": [True, False],
        "day": [date(2024, 1, 1)] * 2,
        "at": [datetime(2024, 1, 1, 10)] * 2,
    }
    return pa.table({**plain, **columns})


def not_text(*cells: bytes) -> pa.Array:
    raw = pa.array(cells, pa.binary())
    return pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:])


def times(unit: str, value: int, zone: str | None = None) -> pa.Array:
    return pa.array([0, value], pa.int64()).cast(pa.timestamp(unit, zone))


HUGE = np.iinfo(np.int64).max
VALUES: dict[str, dict[str, Any]] = {
    "text that is none": {"sex": not_text(b"f", b"\xff"), "id": not_text(b"7", b"\xff\0")},
    "codes of text that is none": {"sex": not_text(b"f", b"\xff").dictionary_encode()},
    "numbers": {"age": [float("nan"), -float("inf")], "visits": pa.array([1, 2**64 - 1], pa.uint64())},
    "decimals": {"age": pa.array([Decimal(1), Decimal(10) ** 60], pa.decimal256(76, 0))},
    "last times": {"at": times("us", HUGE), "day": times("ns", HUGE)},
    "first times": {"at": times("us", -HUGE), "day": times("ms", -HUGE // 1000, "America/New_York")},
    "the smallest integer as a time": {"at": times("ns", -HUGE - 1, "UTC")},
    "last days": {"day": pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())},
    "days as times": {"at": pa.array([0, -(2**31)], pa.int32()).cast(pa.date32())},
    "a long text": {"sex": ["f", "x" * (LONGEST + 1)]},
    "nothing": {"id": pa.array([None, " "]), "age": pa.nulls(2), "sex": pa.nulls(2), "ill": pa.nulls(2)},
}


@pytest.mark.parametrize("case", VALUES)
def test_no_value_of_a_parquet_cell_refuses(tmp_path: Path, case: str):
    pq.write_table(frame(**VALUES[case]), tmp_path / "small.parquet")
    assert read(tmp_path / "small.parquet", spec()) == 2


def test_a_value_that_makes_a_writer_choose_another_type_refuses(tmp_path: Path):
    """As pandas does: it has no whole numbers with missing ones, and a word among numbers makes them objects."""
    cases = {
        "one word in a column of numbers": ("age", ["41", "unknown"], "column-type"),
        "one missing identifier that turns whole numbers into floats": ("id", [7, None], "person-type"),
    }
    for cause, (column, cells, rule) in cases.items():
        assert cause in limits()
        frame().to_pandas().assign(**{column: pd.Series(cells)}).to_parquet(tmp_path / "small.parquet")
        with pytest.raises(LandingError) as caught:
            read(tmp_path / "small.parquet", spec())
        assert caught.value.rule == rule


def test_damaged_pages_refuse(tmp_path: Path):
    assert "Damaged pages refuse too" in limits()
    path = tmp_path / "small.parquet"
    pq.write_table(
        frame(), path, write_page_checksum=True, compression="none", use_dictionary=False, write_statistics=False
    )
    content = path.read_bytes()
    place = content.index(np.float64(41.0).tobytes())
    path.write_bytes(content[:place] + b"\x01" + content[place + 1 :])
    with pytest.raises(LandingError) as caught:
        read(path, spec())
    assert caught.value.rule == "file-unreadable"
