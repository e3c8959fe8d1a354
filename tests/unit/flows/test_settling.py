"""One setting says how long files settle: `serve` keeps it in the workspace, and whoever waits reads it there."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tasks.landing.landings import GOOD, make_workspace

from dpcore.errors import LandingError
from flows import settling
from tasks.intake.settling import SETTING, SETTLE_SECONDS, keep_settle, settle_seconds
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with a file that nobody has seen yet, and runs that look once and do not wait."""
    workspace = make_workspace(tmp_path)
    (workspace.landing / "small-2026-10.csv").write_text(GOOD)
    monkeypatch.setattr(settling, "LONGEST_WAIT_SECONDS", 0.0)
    return workspace


def test_without_a_setting_files_settle_for_five_seconds(place: Workspace) -> None:
    assert settle_seconds(place) == SETTLE_SECONDS == 5.0


def test_a_setting_holds_as_long_as_it_is_kept(place: Workspace) -> None:
    with keep_settle(place, 0.25):
        assert settle_seconds(place) == 0.25
    assert settle_seconds(place) == SETTLE_SECONDS


def test_a_torn_setting_is_none(place: Workspace) -> None:
    (place.prefect_home / SETTING).write_text("")
    assert settle_seconds(place) == SETTLE_SECONDS


def test_a_run_waits_for_a_file_as_long_as_the_setting_says(place: Workspace) -> None:
    spec = load_spec(place.spec_path)
    with keep_settle(place, 3600), pytest.raises(LandingError) as caught:
        settling.await_landing(place, spec, "2026-10")
    assert caught.value.rule == "landing-unsettled"
    with keep_settle(place, 0):
        settling.await_landing(place, spec, "2026-10")
