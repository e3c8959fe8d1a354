"""Which months a schedule owes, told by the calendar and the ledger alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.tasks.builders import Chain, unreserved

from tasks.ledger.state import LedgerState
from tasks.schedule.due import Due, due_periods, schedule_began
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.folders import Workspace

SPEC = """
name: visits
source: {{path: landing/*.csv{pattern}}}
privacy: {{population: people, epsilon: 0.1, lifetime: {{epsilon: 1.2}}}}
expected_rows: 5000
columns: [{{name: age, kind: numeric, bounds: [0, 100]}}]
schedule: {schedule}
"""
PATTERN = ", period: 'v-(?P<period>[0-9]{4}-[0-9]{2})'"
MONTHLY = '{cron: "0 6 1 * *", timezone: Europe/Berlin}'
SINCE = datetime(2026, 1, 20, tzinfo=UTC)


def spec_with(tmp_path: Path, pattern: str = PATTERN, schedule: str = MONTHLY) -> ReleaseSpec:
    path = tmp_path / "release.yaml"
    path.write_text(SPEC.format(pattern=pattern, schedule=schedule))
    return load_spec(path)


def due(spec: ReleaseSpec, now: datetime, chain: Chain | None = None) -> Due:
    return due_periods(spec, LedgerState.replay((chain or Chain()).entries), since=SINCE, now=now)


def released(chain: Chain, release_id: str, period: str) -> Chain:
    return chain.reserve(release_id, {"moments": "0.1"}, period=period).spend(release_id, epsilon="0.1")


@pytest.mark.parametrize(
    ("now", "owed"),
    [
        (datetime(2026, 2, 1, 4, 59, tzinfo=UTC), ()),  # an hour before six in Berlin
        (datetime(2026, 2, 1, 5, 0, tzinfo=UTC), ("2026-01",)),
        (datetime(2026, 4, 20, tzinfo=UTC), ("2026-01", "2026-02", "2026-03")),
    ],
)
def test_every_firing_since_the_schedule_began_owes_the_month_before_it_in_order(tmp_path: Path, now, owed):
    assert due(spec_with(tmp_path), now) == Due(owed)


def test_without_a_schedule_nothing_is_owed(tmp_path: Path):
    spec = spec_with(tmp_path, schedule="{on_landing: true}")
    assert due(spec, datetime(2030, 1, 1, tzinfo=UTC)) == Due()


def test_a_published_month_is_not_owed_an_unfinished_one_is(tmp_path: Path):
    chain = Chain().cap()
    released(chain, "a", "2026-01").publish("a")
    released(chain, "b", "2026-02").fail("b")
    assert due(spec_with(tmp_path), datetime(2026, 4, 2, tzinfo=UTC), chain).periods == ("2026-02", "2026-03")


def test_what_waits_for_a_person_or_was_refused_by_one_is_not_owed(tmp_path: Path):
    chain = Chain().cap()
    released(chain, "a", "2026-01").wait("a")
    released(chain, "b", "2026-02").wait("b").refuse("b")
    assert due(spec_with(tmp_path), datetime(2026, 4, 2, tzinfo=UTC), chain).periods == ("2026-03",)


def test_what_a_person_retracted_is_not_owed_a_correction_in_flight_is(tmp_path: Path):
    chain = Chain().cap()
    released(chain, "a", "2026-01").publish("a").retract("a")
    released(chain, "b", "2026-02").publish("b").reserve("c", {"moments": "0.1"}, period="2026-02", supersedes="b")
    chain.retract("b")
    assert due(spec_with(tmp_path), datetime(2026, 4, 2, tzinfo=UTC), chain).periods == ("2026-02", "2026-03")


def test_what_the_budget_refused_is_told_and_left_to_a_person(tmp_path: Path):
    body = {"rule": "budget-exceeded", "reason": "full", "who": None, "flow_run_id": "r"}
    chain = Chain().cap().add("refuse", "visits-2026-01-1", body | unreserved("visits", "2026-01"))
    chain.add("refuse", "other-2026-02-1", body | unreserved("other", "2026-02"))
    found = due(spec_with(tmp_path), datetime(2026, 3, 2, tzinfo=UTC), chain)
    assert found == Due(("2026-02",), ("2026-01",))


def test_a_refused_month_that_a_person_began_again_is_owed_until_it_is_done(tmp_path: Path):
    body = {"rule": "budget-exceeded", "reason": "full", "who": None, "flow_run_id": "r"}
    chain = Chain().cap().add("refuse", "visits-2026-01-1", body | unreserved("visits", "2026-01"))
    released(chain, "visits-2026-01-1", "2026-01")
    assert due(spec_with(tmp_path), datetime(2026, 2, 2, tzinfo=UTC), chain) == Due(("2026-01",))


def test_without_a_period_in_file_names_missed_months_do_not_publish_the_same_data_again(tmp_path: Path):
    found = due(spec_with(tmp_path, pattern=""), datetime(2026, 4, 20, tzinfo=UTC))
    assert found == Due(("2026-03",), (), ("2026-01", "2026-02"))


def test_months_that_a_column_tells_apart_are_all_owed(tmp_path: Path):
    found = due(spec_with(tmp_path, pattern=", period_column: seen"), datetime(2026, 4, 20, tzinfo=UTC))
    assert found == Due(("2026-01", "2026-02", "2026-03"))


def test_a_run_that_the_schedule_started_owes_its_month_whatever_our_clock_says(tmp_path: Path):
    spec, early = spec_with(tmp_path), datetime(2026, 2, 1, 4, 59, 59, tzinfo=UTC)
    fired = datetime(2026, 2, 1, 5, 0, tzinfo=UTC)
    state = LedgerState()
    assert due_periods(spec, state, since=SINCE, now=early) == Due()
    assert due_periods(spec, state, since=SINCE, now=early, fired=fired) == Due(("2026-01",))


def test_a_month_that_was_begun_again_after_a_refusal_and_given_back_is_owed(tmp_path: Path):
    body = {"rule": "budget-exceeded", "reason": "full", "who": None, "flow_run_id": "r"}
    chain = Chain().cap().add("refuse", "visits-2026-01-1", body | unreserved("visits", "2026-01"))
    chain.reserve("visits-2026-01-1", {"moments": "0.1"}, period="2026-01").void("visits-2026-01-1")
    assert due(spec_with(tmp_path), datetime(2026, 2, 2, tzinfo=UTC), chain) == Due(("2026-01",))


def test_the_workspace_keeps_when_the_schedule_began(tmp_path: Path):
    workspace = Workspace(tmp_path)
    first, later = datetime(2026, 1, 20, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
    assert schedule_began(workspace, first) == first
    assert schedule_began(workspace, later) == first, "the orchestrator forgot, the workspace did not"
    workspace.schedule_path.write_text("torn")
    assert schedule_began(workspace, later) == later
