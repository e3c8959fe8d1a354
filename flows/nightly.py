"""The nightly audit: verify everything, and store the numbered checks in the run history; a fault fails the run."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_table_artifact

from dpcore.errors import CheckFailedError
from flows.delivery import deliver_lineage
from flows.run_history import complete_runs
from flows.server.worker_process import enter_workspace
from tasks.audit import Check, audit_workspace, broken, not_shown
from tasks.boundary import log_public, redacted
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace


@flow(name="nightly-audit", retries=0, persist_result=False, log_prints=False)
def nightly_audit(workspace: str) -> None:
    """Verify ledger, bundles, records and lineage, and send pending lineage events."""
    with enter_workspace(workspace) as place:
        deliver_lineage(place)
        verify(place)


@redacted("audit")
def verify(place: Workspace) -> None:
    """Audit a workspace and show the checks.

    Checks of releases by older programs may end as not shown; they are logged and do not fail the run.
    Raises: CheckFailedError for the first one that is broken.
    """
    checks = audit_workspace(place, runs=complete_runs(place))
    _show_findings(load_spec(place.spec_path).name, checks)
    faults, open_ends = broken(checks), not_shown(checks)
    if faults:
        raise CheckFailedError(f"the audit failed at {faults[0].name}: {faults[0].detail}")
    for check in open_ends:
        log_public(f"{check.name}: {check.detail}")
    besides = f", {len(open_ends)} could not be shown" if open_ends else ""
    log_public(f"the audit passed: {len(checks) - len(open_ends)} checks hold{besides}")


HOLDS = {"holds": "yes", "broken": "NO", "not-shown": "not shown"}


def _show_findings(name: str, checks: list[Check]) -> None:
    rows = [
        {"": number, "check": check.name, "holds": HOLDS[check.outcome], "detail": check.detail}
        for number, check in enumerate(checks, start=1)
    ]
    create_table_artifact(rows, key=f"{name}-audit", description="Every check of the audit")
