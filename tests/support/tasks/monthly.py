"""Workspaces with many months, made by the real stages with a clock that goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import numpy as np
from support.tasks import staged
from support.tasks.builders import released, request

import tasks.release.context
from dpcore.errors import BudgetExceededError
from tasks.keys.signing import signing_key
from tasks.ledger.key_changes import rotate_key
from tasks.ledger.opening import ledger_address, trust_anchors
from tasks.ledger.store import Ledger
from tasks.release.approval import approve
from tasks.release.retraction import retract
from tasks.spec import ReleaseSpec, load_spec
from tasks.spec.plan import basis_of, cap_of
from tasks.workspace.folders import Workspace


@contextmanager
def clock_at(moment: datetime) -> Iterator[None]:
    """Let every ledger that a run opens write from this moment on, three seconds an entry."""
    ticks = (moment + timedelta(seconds=3 * i) for i in range(10_000))

    def opened(workspace: Workspace, spec: ReleaseSpec) -> Ledger:
        key, anchors = signing_key(workspace.keys), trust_anchors(workspace)
        return Ledger.open(ledger_address(workspace, spec), key, anchors=anchors, clock=lambda: next(ticks))

    with ExitStack() as patched:
        for module in ("release.context", "release.approval", "ledger.key_changes"):
            patched.enter_context(mock.patch(f"tasks.{module}.writable_ledger", opened))
        yield


def months(first: str, count: int) -> list[str]:
    """So many periods from the first."""
    year, month = map(int, first.split("-"))
    return [f"{year + (month - 1 + i) // 12}-{(month - 1 + i) % 12 + 1:02d}" for i in range(count)]


def morning_after(period: str) -> datetime:
    """Six in the morning of the first day after a month, when the schedule fires."""
    year, month = map(int, months(period, 2)[1].split("-"))
    return datetime(year, month, 1, 6, 0, 12, tzinfo=UTC)


def release_months(workspace: Workspace, periods: Sequence[str], *, land: bool = True) -> list[str]:
    """Release each month on the morning after it; returns the months that the budget refused."""
    refused = []
    for period in periods:
        if land:
            staged.land_rows(workspace.root, period)
        try:
            with clock_at(morning_after(period)):
                staged.release(workspace, period)
        except BudgetExceededError:
            refused.append(period)
    return refused


def fresh(root: Path, spec: str = staged.SPEC) -> Workspace:
    """An empty workspace with a specification."""
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(spec)
    return workspace


def release_again(workspace: Workspace, release_id: str, period: str, reason: str, at: datetime) -> None:
    """Supersede a published release."""
    with clock_at(at):
        staged.release(workspace, period, supersedes=release_id, reason=reason)


YEAR = f"""
name: small
source: {{path: landing/*.csv, period: 'small-(?P<period>[0-9]{{4}}-[0-9]{{2}})'}}
privacy: {{population: people, epsilon: 0.1, lifetime: {{epsilon: 1.0}}}}
expected_rows: 5000
columns:
  - {{name: age, kind: numeric, bounds: [0, 100]}}
  - {{name: ill, kind: boolean}}
rows: 50
schedule: {{cron: "0 6 1 * *", timezone: Europe/Berlin}}
{staged.PLAIN}"""
TWELVE = months("2025-11", 12)
AFTERWARDS = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)


def a_year(root: Path) -> Workspace:
    """Twelve months against a cap that allows ten; the tables grow from month to month."""
    workspace = fresh(root, YEAR)
    for place, period in enumerate(TWELVE):
        land_growing(workspace, period, place)
    assert release_months(workspace, TWELVE, land=False) == TWELVE[10:]
    return workspace


def land_growing(workspace: Workspace, period: str, place: int) -> None:
    """More people each month; from the seventh on twice as many of them are ill."""
    dice = np.random.Generator(np.random.PCG64(place))
    count = 5000 + 150 * place
    ill = dice.random(count) < (0.3 if place < 6 else 0.6)
    rows = zip(dice.uniform(0, 100, count), ill, strict=True)
    text = "".join(f"{age:.2f},{str(sick).lower()}\n" for age, sick in rows)
    (workspace.landing / f"small-{period}.csv").write_text(f"age,ill\n{text}")


def eventful(workspace: Workspace) -> None:
    """After the year: a raised cap, a superseded month, approvals, failures, another key, a retraction."""
    spec = workspace.spec_path
    spec.write_text(spec.read_text().replace("lifetime: {epsilon: 1.0}", "lifetime: {epsilon: 3.0}"))
    with clock_at(datetime(2026, 11, 1, 10, tzinfo=UTC)), closing(opened_now(workspace)) as ledger:
        given = load_spec(spec)
        ledger.raise_cap(given.privacy.population, cap_of(given), basis_of(given), "the board allows another year")
    noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
    release_again(workspace, "small-2026-08-1", "2026-08", "two wards were counted twice", noon)
    spec.write_text(spec.read_text() + "approve: required\n")
    with clock_at(datetime(2026, 11, 1, 14, tzinfo=UTC)):
        staged.release(workspace, "2026-09")
        staged.release(workspace, "2026-10")
    with clock_at(datetime(2026, 11, 2, 8, tzinfo=UTC)), closing(opened_now(workspace)) as ledger:
        failed = ledger.reserve(request("2026-11", name="small")).release_id
        ledger.spend(failed, "moments", released(), build={"holds": True})
        ledger.fail(failed, status="check-failed", stage="check")
        void = ledger.reserve(request("2027-01", name="small")).release_id
        ledger.void(void, reason="the run was gone and nothing was drawn")
    with clock_at(datetime(2026, 11, 2, 9, tzinfo=UTC)):
        approve(workspace, "small-2026-09-1", who="Ada Auditor", reason="checked against the report")
        rotate_key(workspace, load_spec(spec), who="operator")
    with clock_at(datetime(2026, 11, 2, 10, tzinfo=UTC)):
        retract(workspace, "small-2025-12-1", who="the data board", reason="another hospital's file was measured")


def opened_now(workspace: Workspace) -> Ledger:
    """The ledger as a run opens it, with the clock of the moment."""
    return tasks.release.context.writable_ledger(workspace, load_spec(workspace.spec_path))
