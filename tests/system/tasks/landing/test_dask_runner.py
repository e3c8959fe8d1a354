"""A pass on a Dask cluster: the bits of a pass on threads, also when workers are lost; nothing foreign comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tasks.landing.readings import SPEC, SPEC_TEXT, SUM, readings, table, total

from dpcore.errors import LandingError, RefusedError
from dpcore.records.schema import PrivacyUnit, RowRule
from tasks.dask_cluster import runner_of
from tasks.landing import dask_runner
from tasks.landing.dask_runner import Dask, WorkerAnswer, answered
from tasks.landing.datasets import Landing
from tasks.landing.passes import Pass, Piece, Threads
from tasks.landing.readings import Readings
from tasks.spec import RunnerSpec, parse_spec

pytest.importorskip("prefect_dask", reason="the dask extra is not installed")

CELL = "row 17 holds 918273645"


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers on this machine."""
    with runner_of(RunnerSpec(dask="local"), tmp_path_factory.mktemp("scratch")) as runner:
        yield runner


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "visits.parquet"
    pq.write_table(table(), path, row_group_size=400, write_page_checksum=True, compression="none")
    return path


def pieces(*files: Path) -> list[Piece]:
    return [Piece(fragment) for fragment in Landing(files, SPEC, "source.path").fragments(1)]


def dying_once(chunks: Any, *, died: Path) -> Any:
    """A sum whose first worker is killed with the piece in its hands."""
    with suppress(FileExistsError):
        died.touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)
    return SUM(chunks)


def say_nothing(_purpose: str, _share: float) -> None:
    """Say nothing of how far a reading is."""


def faulty(chunks: Any) -> Any:
    next(iter(chunks))
    raise ValueError(CELL)


def test_the_cluster_gives_the_bits_of_the_threads(dask: Dask, data: Path) -> None:
    dask.size = 1
    found = readings(data)
    here = total(found)
    found.read_with(dask, say_nothing)
    assert total(found) == here


def test_a_lost_worker_costs_time_and_nothing_else(dask: Dask, data: Path, tmp_path: Path) -> None:
    here, died = total(readings(data)), tmp_path / "died"
    work = Pass(SPEC.schema, ".", partial(dying_once, died=died))
    sums = list(dask.sums(work, pieces(data)))
    whole = sums[0]
    for one in sums[1:]:
        whole = whole.with_sum(one)
    assert len(sums) == 13
    assert died.exists()
    assert whole.upper_triangles() == here


@pytest.mark.parametrize("rule", [RowRule.WEIGHT, RowRule.AT_MOST])
def test_persons_count_on_the_cluster_as_they_do_here(dask: Dask, rule: RowRule, tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    people = pa.array([f"p{index * 7919 % 1300}" for index in range(5000)])
    pq.write_table(table().append_column("patient", people), path, row_group_size=400)
    unit = PrivacyUnit(person="patient", row_rule=rule, most_rows=2)
    found = Readings(Landing((path,), SPEC, "source.path"), unit, key=lambda: b"k", scratch=tmp_path)
    threads = Threads()
    dask.size = threads.size = 1
    found.read_with(threads, say_nothing)
    here = total(found)
    found.read_with(dask, say_nothing)
    assert total(found) == here != total(readings(path))
    assert sorted(found.purposes) == ["moments", "moments", "persons"]


@pytest.mark.parametrize("unit", ["row", "{person: patient, rows: weight}", "{person: patient, rows: at-most 2}"])
def test_a_month_counts_on_the_cluster_as_it_does_here(dask: Dask, unit: str, tmp_path: Path) -> None:
    rows, path = table(), tmp_path / "visits.parquet"
    seen = [f"2026-{8 + index * 7919 % 3:02}-15" for index in range(len(rows))]
    people = [f"p{index * 7919 % 1300}" for index in range(len(rows))]
    dated = rows.append_column("seen", pa.array(seen)).append_column("patient", pa.array(people))
    pq.write_table(dated, path, row_group_size=400)
    text = SPEC_TEXT.replace('path: "landing/*"', 'path: "landing/*", period_column: seen')
    spec = parse_spec(text.replace("unit: row", f"unit: {unit}"))
    found = Readings(Landing((path,), spec, "source.path"), spec.unit, key=bytes, scratch=tmp_path, period="2026-09")
    threads = Threads()
    dask.size = threads.size = 1
    found.read_with(threads, say_nothing)
    here = total(found), found.month_counts()
    found.read_with(dask, say_nothing)
    assert (total(found), found.month_counts()) == here
    of_september = seen.count("2026-09-15")
    assert here[1] == {"month": of_september, "other_months": len(seen) - of_september, "no_month": 0}
    if unit == "row":
        of_month = dated.filter(pa.array([day == "2026-09-15" for day in seen]))
        pq.write_table(of_month.select(rows.column_names), tmp_path / "month.parquet")
        assert here[0] == total(readings(tmp_path / "month.parquet"))


def test_what_fails_on_a_worker_is_told_without_its_words(
    dask: Dask, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RefusedError) as caught:
        list(dask.sums(Pass(SPEC.schema, ".", faulty), pieces(data)))
    assert caught.value.rule == "runner-failed"
    assert "ValueError" in caught.value.message
    shown = f"{caught.value!r} {caught.value.__context__!r} {caught.value.hint}" + "".join(capfd.readouterr())
    assert "918273645" not in shown
    assert data.name not in shown


def test_damaged_data_are_refused_as_they_are_here(dask: Dask, data: Path) -> None:
    body = bytearray(data.read_bytes())
    body[len(body) // 3] ^= 255
    data.write_bytes(body)
    whole = pieces(data)
    with pytest.raises(LandingError) as caught:
        list(dask.sums(Pass(SPEC.schema, ".", SUM), whole))
    assert caught.value.rule == "file-unreadable"


def test_data_that_a_worker_does_not_see_are_not_called_damaged(dask: Dask, data: Path) -> None:
    whole = pieces(data)
    data.unlink()
    with pytest.raises(RefusedError) as caught:
        list(dask.sums(Pass(SPEC.schema, ".", SUM), whole))
    assert caught.value.rule == "runner-blind"


def test_a_worker_that_sees_another_file_of_the_name_is_refused(dask: Dask, data: Path) -> None:
    whole = pieces(data)
    pq.write_table(table().slice(1), data, row_group_size=400)
    with pytest.raises(RefusedError) as caught:
        list(dask.sums(Pass(SPEC.schema, ".", SUM), whole))
    assert caught.value.rule == "runner-blind"


def test_a_local_cluster_listens_to_nobody_else(dask: Dask) -> None:
    from distributed import Client

    address = dask._client.scheduler.address
    assert address.startswith("tls://127.0.0.1:")
    with pytest.raises(OSError):  # noqa: PT011  refused in one of several ways
        Client(address.replace("tls", "tcp"), timeout=3, set_as_default=False)


def test_only_a_few_pieces_are_sent_ahead(dask: Dask, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, back = 0, 0
    submit = dask._client.submit

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal sent
        sent += 1
        assert sent - back <= 8, "twice as many as there are workers, or four"
        return submit(*args, **kwargs)

    monkeypatch.setattr(dask._client, "submit", counted)
    for _ in dask.sums(Pass(SPEC.schema, ".", SUM), pieces(data)):
        back += 1
    assert sent == back == 13


def test_a_worker_of_another_program_is_refused(dask: Dask, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_runner, "code_digest", lambda: "another")
    with pytest.raises(RefusedError) as caught:
        list(dask.sums(Pass(SPEC.schema, ".", SUM), pieces(data)))
    assert caught.value.rule == "runner-differs"


def test_a_worker_answers_and_never_raises(data: Path) -> None:
    (piece, *_) = pieces(data)
    assert answered(Pass(SPEC.schema, ".", SUM), piece).sum is not None
    failed = answered(Pass(SPEC.schema, ".", faulty), piece)
    assert failed.sum is None
    assert failed.fault is not None
    assert CELL not in failed.fault
    assert repr(replace(failed, sum=3)) == repr(WorkerAnswer("x")) == "WorkerAnswer(<private>)"


def test_a_cluster_that_nobody_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.dask_cluster.CONNECT_SECONDS", 1.0)
    with pytest.raises(RefusedError) as caught, runner_of(RunnerSpec(dask="tcp://127.0.0.1:9"), tmp_path):
        pass
    assert caught.value.rule == "runner-unreachable"
    assert "127.0.0.1" not in caught.value.message


def test_a_cluster_without_workers_is_given_up(data: Path) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as empty,
        Client(empty, set_as_default=False) as client,
    ):
        with pytest.raises(RefusedError) as caught:
            list(Dask(client, patience=1.0).sums(Pass(SPEC.schema, ".", SUM), pieces(data)))
        assert caught.value.rule == "runner-lost"


def test_without_a_runner_the_threads_here_do_it(tmp_path: Path) -> None:
    with runner_of(None, tmp_path) as runner:
        assert type(runner).__name__ == "Threads"


@pytest.mark.parametrize(("address", "warned"), [("tcp://10.0.0.1:1", True), ("tls://10.0.0.1:1", False)])
def test_sums_that_travel_in_the_open_are_pointed_out(
    address: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks import dask_cluster

    told: list[str] = []
    monkeypatch.setattr(dask_cluster, "log_operator", told.append)
    dask_cluster._warn_of_open_lines(address)
    assert bool(told) is warned
