"""Data that do not land here: in an S3-compatible store, in other stores of fsspec, in a database."""

from __future__ import annotations

import io
import json
import operator
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml
from support.tasks.staged import NOW, release, run_of

from dpcore.errors import LandingError, SpecError
from tasks.audit import audit_workspace
from tasks.intake.arrivals import Arrivals
from tasks.landing.datasets import Landing, find_landing
from tasks.landing.passes import Chunk
from tasks.ledger.store import Ledger
from tasks.release.context import ReleaseRun
from tasks.spec import load_spec, parse_spec
from tasks.workspace.folders import Workspace

ROWS = 4000
SOURCE = "source: {{path: '{}', period: 'small-(?P<period>[0-9]{{4}}-[0-9]{{2}})'}}"
SPEC = """
name: small
{source}
privacy: {{population: people, epsilon: 0.1, lifetime: {{epsilon: 1.2}}}}
expected_rows: 4000
columns:
  - {{name: age, kind: numeric, bounds: [0, 100]}}
  - {{name: ill, kind: boolean}}
rows: 50
"""


def table(seed: int = 3) -> pa.Table:
    dice = np.random.Generator(np.random.PCG64(seed))
    return pa.table({"age": dice.uniform(0, 100, ROWS), "ill": dice.random(ROWS) < 0.3})


def parquet(seed: int = 3) -> bytes:
    body = io.BytesIO()
    pq.write_table(table(seed), body, row_group_size=1000)
    return body.getvalue()


def text() -> bytes:
    body = io.BytesIO()
    pa_csv.write_csv(table(), body)
    return body.getvalue()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """An S3-compatible server on loopback."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A store of its own for a test, reached by the settings that its client reads by itself."""
    import fsspec
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "invented")
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    store = fsspec.filesystem("s3")
    name = f"clinic-{abs(hash(tmp_path))}"
    store.mkdir(name)
    yield store, f"s3://{name}"
    store.rm(name, recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


def rows_in(chunks: Iterable[Chunk]) -> int:
    return sum(len(cells["age"]) for cells, _ in chunks)


def workspace_of(root: Path, source: str) -> Workspace:
    place = Workspace(root)
    place.create()
    (root / "release.yaml").write_text(SPEC.format(source=source))
    return place


def prepared(place: Workspace, scratch: Path, period: str | None = None) -> ReleaseRun:
    return run_of(place, scratch, period=period)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_release_reads_a_store(bucket: Any, ending: str, tmp_path: Path) -> None:
    from tasks.validate import validate_landing

    store, url = bucket
    store.pipe(f"{url}/visits/small-2026-01.{ending}", parquet() if ending == "parquet" else text())
    store.pipe(f"{url}/visits/small-2026-02.{ending}", parquet(4) if ending == "parquet" else text())
    place = workspace_of(tmp_path / "w", SOURCE.format(f"{url}/visits/*.{ending}"))
    run = prepared(place, tmp_path, "2026-01")
    assert [file.name for file in run.planned.arrival.landing.files] == [f"small-2026-01.{ending}"]
    validate_landing.fn(run, "small-2026-01-1")
    here = tmp_path / f"here.{ending}"
    here.write_bytes(store.cat(f"{url}/visits/small-2026-01.{ending}"))
    key = place.fingerprint_key()
    assert run.readings.fingerprint() == Landing((here,), run.planned.spec, "x").fingerprint(key)
    bundle = release(place, "2026-01")
    assert json.loads((bundle / "record.json").read_text())["period"] == "2026-01"
    told = "".join(path.read_text() for path in bundle.glob("*.json")) + place.lineage_path.read_text()
    assert url not in told
    assert "127.0.0.1" not in told


def test_a_folder_of_a_store_is_one_dataset_with_its_partitions(bucket: Any, tmp_path: Path) -> None:
    store, url = bucket
    ill = table()["ill"]
    for word in ("true", "false"):
        body = io.BytesIO()
        pq.write_table(table().filter(pa.compute.equal(ill, word == "true")).drop_columns(["ill"]), body)
        store.pipe(f"{url}/visits/ill={word}/part.parquet", body.getvalue())
    store.pipe(f"{url}/visits/_SUCCESS", b"")
    place = workspace_of(tmp_path / "w", f"source: {{path: '{url}/visits'}}")
    run = prepared(place, tmp_path, "2026-01")
    assert len(run.planned.arrival.landing.files) == 2
    found = [cells for cells, _ in run.readings.chunks(run.planned.plan.schema)]
    assert sum(int((cells["ill"] == 1).sum()) for cells in found) == ill.to_pylist().count(True)
    assert sum(len(cells["age"]) for cells in found) == ROWS


def test_an_object_that_changes_between_readings_is_noticed(bucket: Any, tmp_path: Path) -> None:
    store, url = bucket
    store.pipe(f"{url}/small-2026-01.parquet", parquet())
    run = prepared(workspace_of(tmp_path / "w", SOURCE.format(f"{url}/*.parquet")), tmp_path)
    run.readings.fingerprint()
    store.pipe(f"{url}/small-2026-01.parquet", parquet(5))
    with pytest.raises(LandingError) as caught:
        run.readings.total("moments", run.planned.plan.schema, rows_in, operator.add)
    assert caught.value.rule == "landing-changed"


def test_an_object_that_is_cut_is_refused(bucket: Any, tmp_path: Path) -> None:
    store, url = bucket
    store.pipe(f"{url}/small-2026-01.parquet", parquet()[:-50])
    run = prepared(workspace_of(tmp_path / "w", SOURCE.format(f"{url}/*.parquet")), tmp_path)
    with pytest.raises(LandingError) as caught:
        run.planned.arrival.landing.schemas()
    assert caught.value.rule == "file-unreadable"


def test_a_store_that_nobody_runs_is_told_in_our_words(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(LandingError) as caught:
        prepared(workspace_of(tmp_path / "w", SOURCE.format("s3://secret-name/*.parquet")), tmp_path)
    assert caught.value.rule == "source-unreachable"
    shown = f"{caught.value.message} {caught.value.hint} {caught.value.__context__!r}"
    assert "secret-name" not in shown
    assert "127.0.0.1" not in shown


def test_a_store_without_data_is_told_apart_from_one_that_is_down(bucket: Any, tmp_path: Path) -> None:
    _, url = bucket
    with pytest.raises(LandingError) as caught:
        prepared(workspace_of(tmp_path / "w", SOURCE.format(f"{url}/*.parquet")), tmp_path)
    assert caught.value.rule == "landing-missing"


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_any_store_of_fsspec_will_do(scheme: str, tmp_path: Path) -> None:
    import fsspec

    folder = f"{scheme}://{tmp_path}/store"
    store, _ = fsspec.core.url_to_fs(folder)
    store.makedirs(f"{tmp_path}/store", exist_ok=True)
    store.pipe(f"{tmp_path}/store/small-2026-01.parquet", parquet())
    run = prepared(workspace_of(tmp_path / "w", SOURCE.format(f"{folder}/*.parquet")), tmp_path)
    assert run.planned.period == "2026-01"
    assert run.readings.total("rows", run.planned.plan.schema, rows_in, operator.add) == ROWS


def test_a_url_may_be_given_to_one_run(tmp_path: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe("/given/any.parquet", parquet())
    place = workspace_of(tmp_path / "w", SOURCE.format("landing/*.csv"))
    run = run_of(place, tmp_path, period="2026-01", source="memory://given/any.parquet")
    assert rows_in(run.readings.chunks(run.planned.plan.schema)) == ROWS


def test_nothing_lands_here_of_what_is_elsewhere(tmp_path: Path) -> None:
    place = workspace_of(tmp_path / "w", SOURCE.format("s3://anywhere/*.parquet"))
    spec = parse_spec(place.spec_path.read_text())
    assert Arrivals(place).scan(spec, settle=0).landed == ()
    with pytest.raises(SpecError) as caught:
        parse_spec(place.spec_path.read_text() + "schedule: {on_landing: true}\n")
    assert caught.value.rule == "elsewhere-on-landing"


def test_a_file_url_is_a_path_like_any_other(tmp_path: Path) -> None:
    place = workspace_of(tmp_path / "w", "source: {path: landing/*.parquet}")
    landing, quarantine = place.root / "landing", place.root / "landing" / "quarantine"
    quarantine.mkdir(exist_ok=True)
    (landing / "a.parquet").write_bytes(parquet())
    (landing / "b.parquet").symlink_to(landing / "a.parquet")
    (quarantine / "c.parquet").write_bytes(parquet())
    (place.root / "release.yaml").write_text(SPEC.format(source=f"source: {{path: 'file://{landing}/**/*.parquet'}}"))
    run = prepared(place, tmp_path, "2026-01")
    assert not run.planned.spec.source.is_elsewhere
    assert rows_in(run.readings.chunks(run.planned.plan.schema)) == ROWS


def test_an_object_without_a_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe("/bare/small-2026-01.parquet", parquet())
    run = prepared(workspace_of(tmp_path / "w", SOURCE.format("memory://bare/*.parquet")), tmp_path)
    monkeypatch.setattr(type(store), "info", lambda _self, path: {"name": path, "size": 1, "type": "file"})
    with pytest.raises(LandingError) as caught:
        run.readings.require_same()
    assert caught.value.rule == "landing-unversioned"


def test_a_url_that_is_given_and_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    place = workspace_of(tmp_path / "w", SOURCE.format("landing/*.csv"))
    with pytest.raises(LandingError) as caught:
        run_of(place, tmp_path, period="2026-01", source="nosuchstore://secret-name/any.parquet")
    assert (caught.value.rule, caught.value.where) == ("source-unreachable", "--input")


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("s3://bucket/visits/*.parquet", True),
        ("abfs://container@account.dfs.core.windows.net/x", True),
        ("abfs://key:word@account/x", False),
        ("https://host/x.parquet", True),
        ("https://host/x.parquet?token=abc", False),
        ("zip://a.csv::ftp://user:word@host/x.zip", False),
        ("file://elsewhere/x", False),
    ],
)
def test_only_plain_urls_are_taken(path: str, good: bool) -> None:
    text = SPEC.format(source=f"source: {{path: '{path}'}}")
    if good:
        assert parse_spec(text).source.is_elsewhere
        return
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert caught.value.rule == "path-url"
    assert "word" not in f"{caught.value.message} {caught.value.hint}"


def test_a_link_to_nowhere_is_no_data(tmp_path: Path) -> None:
    spec = parse_spec(SPEC.format(source=SOURCE.format("file:///nowhere/at/all/*.parquet")))
    with pytest.raises(LandingError) as caught:
        find_landing(spec, tmp_path, given=None, period=None, now=NOW)
    assert caught.value.rule == "landing-missing"


# ---- a database ------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table visits (age real, ill boolean, seen date)")
        ages, ills = table()["age"].to_pylist(), table()["ill"].to_pylist()
        months = ["2026-01-15", "2026-02-15"]
        rows = [(age, ill, months[i % 4 == 0]) for i, (age, ill) in enumerate(zip(ages, ills, strict=True))]
        connection.executemany("insert into visits values (?, ?, ?)", rows)
    return path


def query_source(database: Path) -> str:
    sql = "select age, ill from visits where seen >= :period_start and seen < :period_end order by rowid"
    return f"source: {{query: {{url: 'sqlite:///{database}', sql: '{sql}'}}}}"


def test_a_release_reads_a_query_once_and_leaves_nothing_of_it(database: Path, tmp_path: Path) -> None:
    from tasks.validate import validate_landing

    place = workspace_of(tmp_path / "w", query_source(database))
    with place.scratch() as scratch:
        run = prepared(place, scratch, "2026-01")
        validate_landing.fn(run, "small-2026-01-1")
        assert rows_in(run.readings.chunks(run.planned.plan.schema)) == ROWS * 3 // 4
        with sqlite3.connect(database) as connection:
            connection.execute("delete from visits")
        run.planned.fetch(place.root)
        assert rows_in(run.readings.chunks(run.planned.plan.schema)) == ROWS * 3 // 4
    assert not [path for path in place.vault.rglob("*") if path.suffix == ".parquet"]


def test_a_query_is_of_the_last_complete_month(database: Path, tmp_path: Path) -> None:
    place = workspace_of(tmp_path / "w", query_source(database))
    run = prepared(place, tmp_path)
    assert run.planned.period == "2026-02", "NOW is in March"
    run.planned.fetch(place.root)
    assert rows_in(run.readings.chunks(run.planned.plan.schema)) == ROWS // 4


def test_a_release_of_a_query_is_published_and_names_no_database(database: Path, tmp_path: Path) -> None:
    place = workspace_of(tmp_path / "w", query_source(database))
    bundle = release(place, "2026-01")
    told = "".join(path.read_text() for path in bundle.glob("*.json")) + place.lineage_path.read_text()
    assert database.name not in told
    assert "visits" not in told
    record = json.loads((bundle / "record.json").read_text())
    sql = load_spec(place.spec_path).source.query.sql
    assert record["specification"]["query"] == {"rows": "table", "sql_sha256": sha256(sql.encode()).hexdigest()}
    assert any(
        "makes each of its rows from one row of one table or view" in words for words in record["privacy"]["guarantee"]
    )
    assert [check for check in audit_workspace(place) if check.outcome == "broken"] == []


AVERAGED = "select avg(age) as age, ill from visits where seen < :period_end group by ill, round(age)"


@pytest.mark.parametrize("unit", ["row", "{person: who}"])
def test_a_release_about_rows_of_an_answer_says_so_everywhere(database: Path, tmp_path: Path, unit: str) -> None:
    sql = AVERAGED.replace("ill from", "ill, round(age) as who from") if unit != "row" else AVERAGED
    source = f"source: {{query: {{url: 'sqlite:///{database}', rows: answer, sql: '{sql}'}}}}"
    place = workspace_of(tmp_path / "w", source)
    place.spec_path.write_text(place.spec_path.read_text().replace("epsilon: 0.1,", f"epsilon: 1, unit: {unit},"))
    bundle = release(place, "2026-01")
    record = json.loads((bundle / "record.json").read_text())
    words = "row of the query's answer" if unit == "row" else "person by who (rows: weight) of the query's answer"
    promise = "a person or a table row that influences several rows of the answer is not protected as a whole"
    assert record["privacy"]["unit"] == words
    assert any(promise in sentence for sentence in record["privacy"]["guarantee"])
    grouped = any("not with their influence on the rows of others" in said for said in record["privacy"]["guarantee"])
    assert grouped == (unit != "row")
    report = unescape((bundle / "report.html").read_text())
    assert promise in report
    assert words in report
    entry = yaml.safe_load((bundle / "registry.yaml").read_text())["deployment"]["privacy_loss"]
    assert entry["privacy_unit"].endswith("of the query's answer")
    assert f"unit: {words}" in entry["privacy_unit_details"]
    with closing(Ledger.open_to_read(place.ledger_path)) as ledger:
        assert ledger.state().populations["people"].basis["unit"] == words
    assert [check for check in audit_workspace(place) if check.outcome == "broken"] == []


def test_the_months_of_a_query_are_told_apart(database: Path) -> None:
    spec = parse_spec(SPEC.format(source=query_source(database)))
    assert spec.source.tells_months_apart
    assert spec.source.is_elsewhere


def test_a_query_of_no_month_is_refused(database: Path, tmp_path: Path) -> None:
    place = workspace_of(tmp_path / "w", query_source(database))
    with pytest.raises(LandingError) as caught:
        prepared(place, tmp_path, "2026-13")
    assert caught.value.rule == "period-malformed"
