"""The flow releases what a command prepared for it, or nothing: never other data in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tasks.staged import SPEC, land_rows, run_of

from flows.release import ReleaseRequest, _take_over, hand_over
from tasks.release.context import PreparedRelease
from tasks.workspace.folders import Workspace

REQUEST = ReleaseRequest(workspace="somewhere", period="2026-01", prepared=True)


@pytest.fixture
def planned(tmp_path: Path) -> PreparedRelease:
    place = Workspace(tmp_path)
    place.create()
    place.spec_path.write_text(SPEC)
    land_rows(tmp_path, "2026-01")
    return run_of(place, place.vault, period="2026-01").planned


def test_a_prepared_release_that_did_not_arrive_is_not_replaced_by_another() -> None:
    with pytest.raises(RuntimeError, match="did not reach"):
        _take_over(REQUEST)


def test_a_prepared_release_is_taken_once(planned: PreparedRelease) -> None:
    with hand_over(planned):
        assert _take_over(REQUEST) is planned
        with pytest.raises(RuntimeError, match="did not reach"):
            _take_over(REQUEST)


def test_a_prepared_release_is_taken_for_its_own_request_alone(planned: PreparedRelease) -> None:
    with hand_over(planned), pytest.raises(RuntimeError, match="did not reach"):
        _take_over(REQUEST.model_copy(update={"period": "2026-02"}))


def test_the_request_that_prefect_stores_names_no_file() -> None:
    assert set(ReleaseRequest.model_fields) == {"workspace", "period", "supersedes", "reason", "prepared"}
