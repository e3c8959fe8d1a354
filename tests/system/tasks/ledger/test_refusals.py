"""What may befall a ledger from outside: a full disk, a folder of somebody else, a killed process."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import FORKS
from support.tasks.builders import (
    Place,
    die_inside_the_spend,
    entries_of,
    fill_the_disk,
    opened,
    released,
    request,
    reserve_as_nobody,
    with_a_reservation,
)
from support.tasks.staged import land_rows, release

from dpcore.errors import LedgerError
from tasks.audit import audit_workspace
from tasks.workspace.folders import Workspace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return with_a_reservation(tmp_path / "ledger.db")


def test_a_full_disk_refuses_and_loses_nothing(path: Path):
    """The operating system lets the process write no further, as a full disk does."""
    before = entries_of(path)
    answers = FORKS.Queue()
    process = FORKS.Process(target=fill_the_disk, args=(path, answers))
    process.start()
    rule, told, written = answers.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    assert rule == "workspace-unwritable"
    assert str(path.parent) not in told
    after = entries_of(path)
    assert after[: len(before)] == before
    assert len(after) == len(before) + written, "what was confirmed is there, and what was refused is not"
    with opened(path) as ledger:
        assert ledger.reserve(request("2999-01")).status == "reserved", "with room again, it goes on"


def test_a_folder_that_may_not_be_written_refuses(path: Path):
    """SQLite needs a journal beside the file; root may write anywhere, so another user tries."""
    before = entries_of(path)
    with _readable_by_all(path):
        answers = FORKS.Queue()
        process = FORKS.Process(target=reserve_as_nobody, args=(path, answers))
        process.start()
        rule = answers.get(timeout=60)
        process.join(60)
    assert rule == "workspace-unwritable"
    assert entries_of(path) == before


@contextmanager
def _readable_by_all(path: Path) -> Iterator[None]:
    """Let another user reach the file, whose folder stays closed to writing; undone afterwards."""
    places = [place for place in path.parents if place.owner() == path.owner() and "pytest" in str(place)]
    modes = {place: stat.S_IMODE(place.stat().st_mode) for place in (path, *places)}
    try:
        for place in places:
            place.chmod(0o555)
        path.chmod(0o666)
        yield
    finally:
        for place, mode in modes.items():
            place.chmod(mode)


def test_a_lock_whose_process_died_holds_nobody_up(path: Path):
    """Also the journal that it left is rolled back by whoever opens the file next."""
    process = FORKS.Process(target=die_inside_the_spend, args=(Place(path, path.parent), "visits-2026-01-1"))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    with opened(path) as ledger:
        assert ledger.spend("visits-2026-01-1", "moments", released()) is not None


def faults(workspace: Workspace) -> dict[str, str]:
    return {check.name: check.detail for check in audit_workspace(workspace) if not check.ok}


@pytest.fixture
def twins(workspace: Workspace, tmp_path: Path) -> tuple[Workspace, Workspace]:
    """One workspace and its copy, each of which went on for itself with the same key."""
    copy = Workspace(Path(shutil.copytree(workspace.root, tmp_path / "copy")))
    for place, period in ((workspace, "2026-03"), (copy, "2026-04")):
        land_rows(place.root, period)
        release(place, period)
    return workspace, copy


def test_each_branch_of_a_fork_is_a_valid_chain_of_its_own(twins: tuple[Workspace, Workspace]):
    """This is why a fork cannot be seen in one copy alone."""
    assert [faults(place) for place in twins] == [{}, {}]
    one, other = (entries_of(place.ledger_path) for place in twins)
    assert one[:8] == other[:8]
    assert one[8] != other[8]


def test_a_fork_is_named_where_bundles_of_both_branches_meet_and_nothing_is_released_there(
    twins: tuple[Workspace, Workspace],
):
    here, there = twins
    stranger = "small-2026-04-1"
    shutil.copytree(there.bundle("small", stranger), here.bundle("small", stranger))
    told = faults(here)
    assert stranger in told["ledger completeness"]
    assert "a fork" in told["ledger completeness"]
    land_rows(here.root, "2026-05")
    before = entries_of(here.ledger_path)
    with pytest.raises(LedgerError) as caught:
        release(here, "2026-05")
    assert caught.value.rule == "ledger-incomplete"
    assert "fork" in str(caught.value)
    assert entries_of(here.ledger_path) == before


def test_a_fork_is_named_by_lineage_as_well(twins: tuple[Workspace, Workspace]):
    here, there = twins
    with here.lineage_path.open("a") as log:
        log.write(there.lineage_path.read_text())
    assert "a fork" in faults(here)["ledger completeness"]
