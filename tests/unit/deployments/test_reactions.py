"""What ends an arrival, what leaves it open; whose server is believed; when an event is repeated."""

from __future__ import annotations

import fcntl
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.deployments.serving import make_workspace

from dpcore.errors import (
    BudgetExceededError,
    CheckFailedError,
    LandingError,
    LedgerError,
    PrivacyError,
    SpecError,
    StageFailedError,
    WorkspaceError,
)
from flows.announce import AGAIN_SECONDS, LONGEST_SECONDS, is_due
from flows.retries import needs_a_person
from flows.server.connection import LOCK, PASSWORD, SERVING, known_server
from tasks.intake.file_registry import Announcement

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def told(kind: type[PrivacyError], rule: str) -> PrivacyError:
    return kind("words", rule=rule, where="here", hint="do")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (told(BudgetExceededError, "budget-exceeded"), True),
        (CheckFailedError("checks failed"), True),
        (told(SpecError, "unknown-key"), True),
        (told(LandingError, "column-missing"), True),
        (told(LedgerError, "release-refused"), True),
        (told(LedgerError, "release-retracted"), True),
        (told(LandingError, "landing-unsettled"), False),
        (told(LandingError, "landing-changed"), False),
        (told(LedgerError, "ledger-unreachable"), False),
        (told(LedgerError, "ledger-incomplete"), False),
        (told(WorkspaceError, "workspace-unwritable"), False),
        (StageFailedError("release", "ConnectError", "somewhere"), False),
    ],
    ids=lambda value: getattr(value, "rule", type(value).__name__),
)
def test_only_what_a_person_must_decide_ends_an_arrival(error: PrivacyError, ends: bool):
    assert needs_a_person(error) is ends


@pytest.mark.parametrize(
    ("announcements", "seconds", "due"),
    [
        (0, 0, True),
        (1, AGAIN_SECONDS - 1, False),
        (1, AGAIN_SECONDS, True),
        (3, 2 * AGAIN_SECONDS, False),
        (3, 4 * AGAIN_SECONDS, True),
        (60, LONGEST_SECONDS - 1, False),
        (60, LONGEST_SECONDS, True),
    ],
)
def test_an_event_is_repeated_with_gaps_that_grow_to_a_limit(announcements: int, seconds: float, due: bool):
    at = NOW - timedelta(seconds=seconds) if announcements else None
    arrival = Announcement("token", None, announced_at=at, announcements=announcements)
    assert is_due(arrival, NOW, again=True) is due


def test_a_file_that_a_killed_serve_left_names_no_server(tmp_path: Path):
    workspace = make_workspace(tmp_path)
    (workspace.prefect_home / SERVING).write_text(json.dumps({"api_url": "http://127.0.0.1:4310/api"}))
    (workspace.prefect_home / PASSWORD).write_text("operator:secret\n")
    assert known_server(workspace, {}) is None
    with (workspace.prefect_home / LOCK).open("w") as lock:
        assert known_server(workspace, {}) is None
        fcntl.flock(lock, fcntl.LOCK_EX)
        served = known_server(workspace, {})
    assert served is not None
    assert (served.api_url, served.auth) == ("http://127.0.0.1:4310/api", "operator:secret")


def test_a_configured_server_needs_no_file(tmp_path: Path):
    server = known_server(make_workspace(tmp_path), {"PREFECT_API_URL": "https://team.example/api"})
    assert server is not None
    assert server.run_url("abc") == "https://team.example/runs/flow-run/abc"
