"""Delivery of lineage events after a run: it never fails a release, and delays it by a few seconds at most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcore.errors import SpecError, WorkspaceError
from tasks.boundary import log_operator
from tasks.lineage.endpoint import endpoint_of
from tasks.lineage.outbox import Delivery, Outbox
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

RELEASE_SECONDS = 5.0


@contextmanager
def deliver_afterwards(root: Path) -> Iterator[None]:
    """Send pending lineage events when the block ends, whether or not it fails."""
    try:
        yield
    finally:
        deliver_lineage(Workspace(root))


def deliver_lineage(workspace: Workspace) -> None:
    """Send pending events if the specification names an endpoint; only the operator sees failures."""
    try:
        lineage = load_spec(workspace.spec_path).lineage
        if lineage is not None:
            delivery = Outbox(workspace).deliver(endpoint_of(workspace, lineage), seconds=RELEASE_SECONDS)
            _log_troubles(delivery)
    except SpecError:
        return  # the run itself was refused for it
    except WorkspaceError as error:
        log_operator(f"lineage was not sent: {error.message}")
    except Exception as error:  # noqa: BLE001  whatever it is, the release stands; its text may hold the address
        log_operator(f"lineage was not sent: an unexpected {type(error).__name__}")


def _log_troubles(delivery: Delivery) -> None:
    if delivery.set_aside:
        log_operator(f"{delivery.set_aside} lineage events were refused and moved to lineage-outbox/refused.ndjson")
    if delivery.waiting:
        log_operator(
            f"{delivery.waiting} lineage events are not sent yet ({delivery.fault}); "
            "the next run or `dprelease lineage --flush` sends them"
        )
