"""Passes over the rows of one month: rows of other months change no sum, no histogram and no person's share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tasks.landing.months import month_of_value
from support.tasks.landing.readings import SPEC_TEXT, SUM, table

from dpcore.errors import LandingError
from dpcore.measure import PrivateGram, gram_sum, measure_gram
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import count_cells
from dpcore.measurements.projection import no_projection
from dpcore.mechanisms.queries import HistogramsQuery
from dpcore.noise.sources import SeededNoise
from dpcore.planning.plan import Plan
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramSum
from tasks.draw_once import add_counts
from tasks.landing import fragments
from tasks.landing.cells import cells_of
from tasks.landing.column_faults import column_faults, require_none
from tasks.landing.datasets import Landing
from tasks.landing.passes import Threads
from tasks.landing.readings import Readings
from tasks.landing.structure import require_shape, require_sound
from tasks.spec import ReleaseSpec, parse_spec
from tasks.spec.plan import plan_release

MONTHS = ("2026-07", "2026-08", "2026-09")
UNITS = {"row": "row", "weight": "{person: who, rows: weight}", "at-most": "{person: who, rows: at-most 2}"}


def specified(unit: str = "row", *, more: str = "") -> ReleaseSpec:
    text = SPEC_TEXT.replace('path: "landing/*"', 'path: "landing/*", period_column: seen')
    return parse_spec(text.replace("unit: row", f"unit: {UNITS[unit]}") + more)


def readings(
    *files: Path, unit: str = "row", period: str = "2026-09", threads: int = 2, size: int = 1 << 26
) -> Readings:
    spec, runner = specified(unit), Threads(threads)
    landing = Landing(files, spec, "source.path")
    found = Readings(landing, spec.unit, key=lambda: b"k" * 32, scratch=files[0].parent, period=period)
    runner.size = size
    found.read_with(runner, lambda _purpose, _share: None)
    return found


def total(found: Readings) -> list[list[int]]:
    gram: GramSum = found.total("moments", specified().schema, SUM, GramSum.with_sum)
    return gram.upper_triangles()


def dated(rows: int = 3000) -> pa.Table:
    """Rows of several months in no order, some without a month, of persons who are in several months."""
    dice = np.random.default_rng(11)
    days = dice.integers(
        np.datetime64("2026-06-20", "D").astype(int), np.datetime64("2026-10-10", "D").astype(int), rows
    )
    moments = days.astype("datetime64[D]").astype("datetime64[us]") + dice.integers(0, 86_400_000_000, rows)
    people = pa.array([f"p{number}" for number in dice.integers(0, rows // 4, rows)])
    seen = pa.array(moments, pa.timestamp("us"), mask=dice.random(rows) < 0.05)
    return table(rows).append_column("seen", seen).append_column("who", people)


def of_month(rows: pa.Table, period: str | None) -> pa.Table:
    """The rows of a month, one by one: the oracle."""
    return rows.filter(pa.array([month_of_value(seen, "UTC") == period for seen in rows["seen"].to_pylist()]))


def exact(rows: pa.Table, shares: np.ndarray | None = None) -> list[list[int]]:
    """The sum of all rows at once."""
    (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    return SUM([(cells_of(batch, specified().schema), shares)]).upper_triangles()


def exact_of_unit(rows: pa.Table, unit: str) -> list[list[int]]:
    """The sum of a month's rows, whose persons are counted in memory."""
    people = rows["who"].to_pylist()
    if unit == "weight":
        counts = Counter(people)
        return exact(rows, np.array([1 / counts[person] for person in people]))
    if unit == "at-most":
        earlier = Counter[str]()
        first = [earlier.update([person]) or earlier[person] <= 2 for person in people]
        return exact(rows.filter(pa.array(first)))
    return exact(rows)


LAYOUTS = ["one row group", "many row groups", "many files", "dictionaries", "text of dates", "text"]


def written(folder: Path, layout: str, rows: pa.Table) -> list[Path]:
    """The same rows in another layout of files."""
    folder.mkdir(exist_ok=True)
    if layout == "many row groups":
        pq.write_table(rows, folder / "all.parquet", row_group_size=171)
    elif layout == "many files":
        for start in range(0, rows.num_rows, 450):
            pq.write_table(rows.slice(start, 450), folder / f"{start:05d}.parquet")
    elif layout == "dictionaries":
        coded = pa.table({name: rows[name].combine_chunks().dictionary_encode() for name in rows.column_names})
        pq.write_table(coded, folder / "all.parquet", row_group_size=999)
    elif layout == "text of dates":
        texts = pa.array([seen and seen.isoformat() for seen in rows["seen"].to_pylist()])
        pq.write_table(rows.set_column(rows.column_names.index("seen"), "seen", texts), folder / "all.parquet")
    elif layout == "text":
        pa_csv.write_csv(rows, folder / "all.csv")
    else:
        pq.write_table(rows, folder / "all.parquet")
    return sorted(folder.iterdir())


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "ROWS_AT_ONCE", 700)


# ---------------------------------------------------------------- the sums of a month


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_sum_of_a_month_is_that_of_its_rows_alone(tmp_path: Path, layout: str, unit: str) -> None:
    rows = dated()
    files = written(tmp_path / "landed", layout, rows)
    for threads, size in ((1, 1), (2, 20_000), (5, 1 << 26)):
        found = readings(*files, unit=unit, threads=threads, size=size)
        assert total(found) == exact_of_unit(of_month(rows, "2026-09"), unit) != exact_of_unit(rows, unit)


def test_every_row_counts_in_one_month_or_in_none(tmp_path: Path) -> None:
    rows = dated()
    (path,) = written(tmp_path / "landed", "many row groups", rows)
    months = sorted({f"{seen:%Y-%m}" for seen in rows["seen"].to_pylist() if seen})
    parts = [total(readings(path, period=month)) for month in months] + [exact(of_month(rows, None))]
    assert len(months) == 5
    assert [[sum(cells) for cells in zip(*blocks, strict=True)] for blocks in zip(*parts, strict=True)] == exact(rows)


def test_months_of_several_files_in_any_order_are_put_together(tmp_path: Path) -> None:
    """The files of a year's end: late rows of one month lie in the file of the next."""
    rows, folder = dated(), tmp_path / "landed"
    folder.mkdir()
    for number, place in enumerate(np.array_split(np.random.default_rng(2).permutation(rows.num_rows), 4)):
        pq.write_table(rows.take(place), folder / f"{number}.parquet")
    for month in reversed(MONTHS):
        assert total(readings(*sorted(folder.iterdir()), period=month)) == exact(of_month(rows, month))


@pytest.mark.parametrize("unit", UNITS)
def test_a_file_that_landed_twice_counts_twice_in_its_month_alone(tmp_path: Path, unit: str) -> None:
    rows = dated()
    old, new = of_month(rows, "2026-08"), of_month(rows, "2026-09")
    paths = [tmp_path / f"{name}.parquet" for name in ("august", "september", "august-again")]
    for path, part in zip(paths, (old, new, old), strict=True):
        pq.write_table(part, path)
    assert total(readings(*paths, unit=unit)) == exact_of_unit(new, unit)
    assert total(readings(*paths, unit=unit, period="2026-08")) == exact_of_unit(pa.concat_tables([old, old]), unit)


def test_a_month_without_rows_is_summed_as_nothing(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "landed", "one row group", dated())
    for unit in UNITS:
        found = readings(path, unit=unit, period="2031-01")
        assert {cell for triangle in total(found) for cell in triangle} == {0}


def test_a_declared_column_keeps_its_bounds_and_tells_the_month_of_values_beyond_them(tmp_path: Path) -> None:
    """Bounds that no row keeps: every row is clamped to them, and none changes its month for that."""
    declared = "  - {name: seen, kind: timestamp, bounds: [2020-01-01, 2020-02-01], timezone: America/New_York}\n"
    spec = parse_spec(
        SPEC_TEXT.replace('path: "landing/*"', 'path: "landing/*", period_column: seen, drop: [who]') + declared
    )
    rows = dated()
    (path,) = written(tmp_path / "landed", "one row group", rows)
    landing = Landing((path,), spec, "source.path")
    found = Readings(landing, spec.unit, key=lambda: b"k", scratch=tmp_path, period="2026-09")
    seen = np.concatenate([cells["seen"] for cells, _ in found.chunks(spec.schema)])
    assert len(seen) == of_month(rows, "2026-09").num_rows
    assert seen.min() > spec.schema.by_name["seen"].upper  # type: ignore[union-attr]


def test_a_reading_without_a_month_is_refused(tmp_path: Path) -> None:
    spec = specified()
    landing = Landing((tmp_path / "a.parquet",), spec, "source.path")
    with pytest.raises(ValueError, match="needs a month"):
        Readings(landing, spec.unit, key=lambda: b"k", scratch=tmp_path)


# ---------------------------------------------------------------- the numbers of rows, for the vault


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_the_month_of_others_and_of_none_are_counted(tmp_path: Path, layout: str) -> None:
    rows = dated()
    found = readings(*written(tmp_path / "landed", layout, rows), unit="at-most", size=20_000)
    of_none, of_this = of_month(rows, None).num_rows, of_month(rows, "2026-09").num_rows
    counts = {"month": of_this, "other_months": rows.num_rows - of_this - of_none, "no_month": of_none}
    assert found.month_counts() == counts
    assert found.purposes == ["months"]
    assert not any(str(number) in f"{found!r} {found.summary()}" for number in counts.values())


def test_without_a_rule_nothing_is_counted(tmp_path: Path) -> None:
    spec = parse_spec(SPEC_TEXT)
    landing = Landing((tmp_path / "a.parquet",), spec, "source.path")
    found = Readings(landing, spec.unit, key=lambda: b"k", scratch=tmp_path, period="2026-09")
    assert found.month_counts() is None
    assert found.purposes == []


# ---------------------------------------------------------------- neighbours that differ in another month

OTHER_DAYS = [
    "2026-08-31",
    "2026-10-01T00:00:00",
    "2025-09-15",
    "2026-09",
    "never",
    "",
    None,
    "2026-08-31T23:59:59.999999Z",
]
DAYS = ["2026-09-01", "2026-09-30T23:59:59.999999", "2026-09-30T20:00:00-03:00", " 2026-09-15 "]

hostile_row = {
    "age": st.none() | st.floats() | st.sampled_from([0.0, 120.0, 1e308, -1e308, 5e-324]),
    "visits": st.none() | st.integers(-(2**63), 2**63 - 1),
    "sex": st.none() | st.sampled_from(["f", "m", "?", ""]),
    "ill": st.none() | st.sampled_from(["no", "yes", "maybe"]),
    "who": st.none() | st.sampled_from(["a", " a", "b", "c", ""]),
}


def rows_seen(days: list[Any], most: int = 8) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries(hostile_row | {"seen": st.sampled_from(days)}), max_size=most)


SCHEMA = pa.schema(
    {"age": pa.float64(), "visits": pa.int64(), "sex": pa.string(), "ill": pa.string(), "who": pa.string()}
    | {"seen": pa.string()}
)


def mixed(own: list[Any], others: list[Any], places: list[int]) -> pa.Table:
    """A month's rows in their order, with rows of other months at any places among them."""
    rows = list(own)
    for place, other in zip(places, others, strict=False):
        rows.insert(place % (len(rows) + 1), other)
    return pa.Table.from_pylist(rows, SCHEMA)


@cache
def plans(unit: str) -> tuple[Plan, Plan]:
    """A plan that measures moments, and one that measures histograms."""
    models = ("{projection: {kind: none}, generator: mixture}", "{generator: copula}")
    moments, histograms = (plan_release(specified(unit, more=f"model: {model}\n")) for model in models)
    return moments, histograms


def all_sums(folder: Path, rows: pa.Table, unit: str) -> Iterator[str]:
    """All that is measured of the rows, exactly, and what the noise makes of it."""
    pq.write_table(rows, folder / "rows.parquet", row_group_size=3)
    found, (plan, marginals) = readings(folder / "rows.parquet", unit=unit, size=1), plans(unit)
    encoding = Encoding(plan.schema)
    summed = partial(gram_sum, encoding=encoding, layout=plan.event.layout, projection=no_projection(encoding))
    gram = found.total("moments", plan.schema, summed, GramSum.with_sum)
    yield json.dumps(gram.upper_triangles())
    yield json.dumps(measure_gram(PrivateGram(gram), plan.event, SeededNoise(9)).values)
    assert marginals.marginals_event is not None
    query = marginals.marginals_event.query
    assert isinstance(query, HistogramsQuery)
    counted = partial(count_cells, columns=cells_of_columns(marginals.schema.encoded_columns), query=query)
    yield json.dumps(found.total("marginals", marginals.schema, counted, add_counts))
    chunks = [shares for _, shares in found.chunks(plan.schema)]
    yield json.dumps([share for shares in chunks if shares is not None for share in shares.tolist()])


@pytest.mark.parametrize("unit", UNITS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    own=rows_seen(DAYS),
    one=rows_seen(OTHER_DAYS),
    other=rows_seen(OTHER_DAYS),
    places=st.lists(st.integers(0, 99), min_size=16, max_size=16),
)
def test_tables_that_differ_in_another_month_have_the_same_sums_to_the_bit(
    tmp_path: Path, unit: str, own: list[Any], one: list[Any], other: list[Any], places: list[int]
) -> None:
    tables = [mixed(own, others, shift) for others, shift in (([], []), (one, places), (other, places[8:] + places))]
    alone, first, second = (list(all_sums(tmp_path, rows, unit)) for rows in tables)
    assert alone == first == second


def test_a_row_of_the_month_does_change_them(tmp_path: Path) -> None:
    row = {"age": 40.0, "visits": 3, "sex": "f", "ill": "no", "who": "a", "seen": "2026-09-09"}
    for unit in UNITS:
        none, one, later = (
            list(all_sums(tmp_path, pa.Table.from_pylist(rows, SCHEMA), unit))
            for rows in ([], [row], [row | {"seen": "2026-10-09"}])
        )
        assert none == later
        assert none[:3] != one[:3]


# ---------------------------------------------------------------- the structure

KINDS = {
    "dates": (pa.array([None], pa.date32()), None),
    "times": (pa.array([None], pa.timestamp("ns", "Europe/Berlin")), None),
    "text": (pa.array(["soon"]), None),
    "nothing but nulls": (pa.nulls(1), None),
    "numbers": (pa.array([20260901]), "period-type"),
    "booleans": (pa.array([True]), "period-type"),
    "times of day": (pa.array([1], pa.time64("us")), "period-type"),
    "no such column": (None, "column-missing"),
}


@pytest.mark.parametrize("case", KINDS)
def test_a_column_that_is_no_date_by_its_type_or_missing_is_refused_by_name(tmp_path: Path, case: str) -> None:
    values, rule = KINDS[case]
    rows = table(1) if values is None else table(1).append_column("seen", values)
    pq.write_table(rows, tmp_path / "a.parquet")
    landing = Landing((tmp_path / "a.parquet",), specified(), "source.path")
    for check in (require_shape, require_sound, lambda data: require_none(column_faults(data))):
        if rule is None:
            check(landing)
            continue
        with pytest.raises(LandingError) as caught:
            check(landing)
        assert (caught.value.rule, caught.value.where) == (rule, "columns.seen")
        assert "'seen'" in caught.value.message


def test_a_text_file_lacks_the_column_or_has_it(tmp_path: Path) -> None:
    path, spec = tmp_path / "a.csv", specified()
    path.write_text("age,visits,sex,ill\n41,1,f,no\n")
    landing = Landing((path,), spec, "source.path")
    with pytest.raises(LandingError) as caught:
        require_shape(landing)
    assert caught.value.rule == "column-missing"
    path.write_text("age,visits,sex,ill,seen\n41,1,f,no,20260901\n")
    require_shape(landing)
    with pytest.raises(LandingError) as caught:
        require_shape(replace(landing, spec=parse_spec(SPEC_TEXT)))
    assert caught.value.rule == "column-undeclared"


def test_the_names_of_folders_may_tell_the_month(tmp_path: Path) -> None:
    rows, files = table(300), []
    for number, day in enumerate(("2026-09-01", "2026-08-31", "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / f"seen={day}"
        folder.mkdir()
        files.append(folder / "a.parquet")
        pq.write_table(rows.slice(100 * number, 100), files[-1])
    require_shape(Landing(tuple(files), specified(), "source.path"))
    found = readings(*files)
    assert total(found) == exact(rows.slice(0, 100))
    assert found.month_counts() == {"month": 100, "other_months": 100, "no_month": 100}
