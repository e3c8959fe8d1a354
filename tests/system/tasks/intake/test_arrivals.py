"""Files on their way in, which several processes look at, of which one is killed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from support.processes import FORKS
from support.tasks.landing.landings import (
    BAD,
    GOOD,
    HandClock,
    Intake,
    make_workspace,
    race_to_admit,
    race_to_scan,
    scan_and_stall,
)

from dpcore.errors import LandingError
from tasks.intake.arrivals import Arrivals, wait_until_settled


@pytest.fixture
def intake(tmp_path: Path) -> Intake:
    return Intake(make_workspace(tmp_path / "w"), HandClock())


def run_all(target: Any, *arguments: tuple[Any, ...]) -> list[Any]:
    """Processes that start together; their answers."""
    barrier, answers = FORKS.Barrier(len(arguments)), FORKS.Queue()
    processes = [FORKS.Process(target=target, args=(*given, barrier, answers)) for given in arguments]
    for process in processes:
        process.start()
    collected = [answers.get(timeout=240) for _ in processes]
    for process in processes:
        process.join(60)
    return collected


def test_processes_that_scan_at_once_take_up_each_file_once(intake: Intake):
    for month in range(1, 9):
        intake.put(f"small-2026-{month:02}.csv", GOOD if month % 2 else b"age\n41\n")
    answers = run_all(race_to_scan, *[(intake.workspace.root,)] * 2)
    assert sorted(t for landed, _ in answers for t in landed) == sorted({t for landed, _ in answers for t in landed})
    assert sum(len(landed) for landed, _ in answers) == len(intake.arrivals.pending()) == 4
    assert sum(len(refused) for _, refused in answers) == 4
    assert len(intake.quarantine) == 8
    assert len(intake.files) == 4


def test_processes_that_admit_one_file_give_it_one_token(intake: Intake):
    intake.put("small-2026-10.csv")
    answers = run_all(race_to_admit, *[(intake.workspace.root, "small-2026-10.csv")] * 2)
    assert len({token for token, _ in answers}) == 1
    assert sorted(known for _, known in answers) == [False, True]


@pytest.mark.parametrize("where", ["judge", "put_apart"])
def test_a_scan_that_is_killed_loses_nothing_and_locks_nothing(intake: Intake, where: str):
    intake.put("small-2026-09.csv", BAD["a column is missing"][1])
    intake.put("small-2026-10.csv")
    reached = FORKS.Event()
    killed = FORKS.Process(target=scan_and_stall, args=(intake.workspace.root, where, reached))
    killed.start()
    assert reached.wait(240)
    killed.kill()
    killed.join(60)
    intake.look()
    assert intake.look(after=10) == (["2026-10"], ["column-missing"], False)
    assert len(intake.quarantine) == 2


def test_waiting_ends_when_everything_has_settled(intake: Intake):
    path = intake.put("small-2026-10.csv", "age,sex\n41,")
    intake.put("bad.csv", b"age\n41\n")
    stop = threading.Event()

    def write() -> None:  # it always stops within a line: nobody takes it for complete, however slow it is
        with path.open("a") as file:
            while not stop.wait(0.05):
                file.write("f\n41,")
                file.flush()
            file.write("f\n")

    writer = threading.Thread(target=write)
    writer.start()
    threading.Timer(2.0, stop.set).start()
    refused = wait_until_settled(intake.workspace, intake.spec, seconds=120, settle=1.0, patience=60.0)
    assert stop.is_set(), "it waited until the writer was done"
    writer.join()
    assert [error.rule for error in refused] == ["column-missing"]
    assert [v.period for v in Arrivals(intake.workspace).pending()] == ["2026-10"]
    wait_until_settled(intake.workspace, intake.spec, seconds=0, settle=3600.0)  # what is known needs no waiting


def test_waiting_has_an_end(intake: Intake):
    intake.put("small-2026-10.csv")
    with pytest.raises(LandingError) as caught:
        wait_until_settled(intake.workspace, intake.spec, seconds=0.2, settle=3600.0)
    assert (caught.value.rule, caught.value.where) == ("landing-unsettled", "source.path")
    assert "small-2026" not in str(caught.value.as_json())
