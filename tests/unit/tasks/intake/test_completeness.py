"""A month of which a part is in quarantine is not released: one record would decide about all of its file's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.tasks.staged import SPEC, invented_rows, run_of

from dpcore.errors import LandingError
from tasks.intake.arrivals import Arrivals
from tasks.spec import load_spec
from tasks.validate import require_structure
from tasks.workspace.folders import Workspace

GOOD, BAD = invented_rows(count=20), 'age,ill\n1,"tr\nue\n2,false\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """January in two files, one of them bad by a single record; February whole."""
    place = Workspace(tmp_path / "w")
    place.create()
    place.spec_path.write_text(SPEC)
    land(place, "small-2026-01-a.csv", GOOD)
    land(place, "small-2026-01-b.csv", BAD)
    land(place, "small-2026-02.csv", GOOD)
    return place


def land(place: Workspace, name: str, text: str) -> None:
    (place.landing / name).write_text(text)
    Arrivals(place).admit(place.landing / name, load_spec(place.spec_path))


def refusal(place: Workspace, period: str, **request: str) -> str | None:
    run = run_of(place, place.vault, period=period, **request)
    try:
        require_structure(run)
    except LandingError as error:
        return error.rule
    return None


def test_one_bad_record_refuses_its_month_and_no_other(workspace: Workspace):
    assert not (workspace.landing / "small-2026-01-b.csv").exists(), "it is apart"
    assert refusal(workspace, "2026-01") == "file-quarantined"
    assert refusal(workspace, "2026-02") is None


def test_a_better_file_in_its_place_frees_the_month(workspace: Workspace):
    (workspace.landing / "small-2026-01-b.csv").write_text(GOOD)
    assert refusal(workspace, "2026-01") is None


def test_an_older_file_that_was_to_be_replaced_does_not(workspace: Workspace):
    old = workspace.landing / "small-2026-02.csv"
    apart = workspace.root / "apart.csv"
    os.link(old, apart)
    old.unlink()
    land(workspace, "small-2026-02.csv", BAD)
    os.rename(apart, old)  # as if it had never gone
    quarantined = max((workspace.landing / "quarantine").glob("*-small-2026-02.csv"))
    os.utime(quarantined)  # put apart later than that
    assert refusal(workspace, "2026-02") == "file-quarantined"


def test_somebody_who_removes_it_decides_to_go_without(workspace: Workspace):
    for path in (workspace.landing / "quarantine").iterdir():
        path.unlink()
    assert refusal(workspace, "2026-01") is None


def test_files_that_somebody_names_are_theirs_to_answer_for(workspace: Workspace):
    given = str(workspace.landing / "small-2026-01-a.csv")
    assert refusal(workspace, "2026-01", source=given) is None


def test_a_name_without_its_month_holds_up_none(workspace: Workspace):
    land(workspace, "small-later.csv", GOOD)
    assert refusal(workspace, "2026-02") is None


def test_without_months_in_names_a_bad_file_holds_the_dataset_up(tmp_path: Path):
    place = Workspace(tmp_path / "w")
    place.create()
    place.spec_path.write_text(SPEC.replace(", period: 'small-(?P<period>[0-9]{4}-[0-9]{2})'", ""))
    land(place, "a.csv", GOOD)
    land(place, "b.csv", BAD)
    assert refusal(place, "2026-01") == "file-quarantined"
