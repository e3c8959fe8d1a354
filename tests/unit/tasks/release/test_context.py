"""What a run knows of private files stays out of its representation and out of stages behind the privacy line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import pytest
from support.tasks.staged import invented_rows, run_of

from tasks.check import check_release
from tasks.decode import decode_rows
from tasks.publish import publish_bundle
from tasks.release.context import PreparedRelease, ReleaseRun
from tasks.sample import sample_rows
from tasks.spec.plan import PlannedRelease
from tasks.workspace.folders import Workspace


def test_neither_a_run_nor_its_parts_show_the_names_of_files(workspace: Workspace, tmp_path: Path) -> None:
    given = tmp_path / "patients-of-doctor-planted.csv"
    given.write_text(invented_rows())
    run = run_of(workspace, workspace.vault, period="2026-01", source=str(given))
    assert run.planned.arrival.landing.files == (given,)
    for part in (run, run.planned, run.planned.request, run.readings):
        assert "planted" not in repr(part)


def test_what_stages_behind_the_privacy_line_get_does_not_lead_to_the_data(workspace: Workspace) -> None:
    planned = run_of(workspace, workspace.vault, period="2026-01").planned
    assert type(planned.public) is PlannedRelease
    assert not {"arrival", "request", "fetch", "readings"} & set(dir(planned.public))


@pytest.mark.parametrize("stage", [sample_rows, decode_rows, check_release, publish_bundle], ids=lambda one: one.name)
def test_stages_behind_the_privacy_line_take_the_public_plan_and_not_the_run(stage: Any) -> None:
    taken = set(get_type_hints(stage.fn).values())
    assert PlannedRelease in taken
    assert not taken & {PreparedRelease, ReleaseRun}
