"""The nightly audit: everything verified, the numbered checks left in the history; a fault fails the run."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_table_artifact

from dpcore.errors import CheckFailedError
from flows.delivery import deliver_lineage
from flows.recorded import complete_runs
from flows.served import served
from tasks.boundary import redacted, tell
from tasks.stores.audit import Check, audit_workspace
from tasks.stores.spec import load_spec
from tasks.stores.workspace import Workspace


@flow(name="nightly-audit", retries=0, persist_result=False, log_prints=False)
def nightly_audit(workspace: str) -> None:
    """Verify ledger, bundles, records and lineage, and send lineage that waits."""
    with served(workspace) as place:
        deliver_lineage(place)
        verify(place)


@redacted("audit")
def verify(place: Workspace) -> None:
    """Audit a workspace and show the checks.

    Raises: CheckFailedError for the first one that does not hold.
    """
    checks = audit_workspace(place, runs=complete_runs(place))
    _show(load_spec(place.spec_path).name, checks)
    broken = [check for check in checks if not check.ok]
    if broken:
        raise CheckFailedError(f"the audit failed at {broken[0].name}: {broken[0].detail}")
    tell(f"the audit holds: {len(checks)} checks")


def _show(name: str, checks: list[Check]) -> None:
    rows = [
        {"": number, "check": check.name, "holds": "yes" if check.ok else "NO", "detail": check.detail}
        for number, check in enumerate(checks, start=1)
    ]
    create_table_artifact(rows, key=f"{name}-audit", description="Every check of the audit")
