"""The triggered release: release a month once after data landed for it."""

from __future__ import annotations

from prefect import flow
from prefect.runtime import flow_run

from dpcore.errors import LandingError, PrivacyError
from flows.monthly import label_run
from flows.release import ReleaseRequest, release
from flows.retries import needs_a_person
from flows.server.worker_process import enter_workspace
from flows.settling import await_landing
from tasks.boundary import log_public, redacted
from tasks.intake.arrivals import Arrivals
from tasks.intake.file_registry import Announcement
from tasks.ledger.opening import ledger_state
from tasks.schedule.due import is_decided
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.folders import Workspace


def _run_name() -> str:
    """The month's name, which Prefect gives the run before it logs anything."""
    try:
        with enter_workspace(flow_run.parameters["workspace"]) as place:
            return _title(load_spec(place.spec_path), Arrivals(place).find(flow_run.parameters["arrival"]))
    except Exception:  # noqa: BLE001  the flow meets it as well, and says so in our own words
        return "landing"


def _title(spec: ReleaseSpec, arrival: Announcement | None) -> str:
    return f"{spec.name} landed: {(arrival and arrival.period) or 'data'}"


@flow(name="landing", flow_run_name=_run_name, retries=0, persist_result=False, log_prints=False)
def landing(workspace: str, arrival: str) -> None:
    """Release a month for which data landed; the token `arrival` reveals nothing about the files."""
    with enter_workspace(workspace) as place:
        release_arrival(place, arrival)


@redacted("landing")
def release_arrival(place: Workspace, token: str) -> None:
    """Release the month of an arrival unless that was done before.

    A release that is refused or fails its checks waits for a person, and its run shows why. After a temporary
    failure, such as an unreachable database, the arrival stays open and is announced again.
    """
    arrivals = Arrivals(place)
    arrival = arrivals.find(token)
    spec = load_spec(place.spec_path)
    label_run(_title(spec, arrival), [spec.name, *([arrival.period] if arrival and arrival.period else [])])
    if arrival is None or arrival.handled:
        log_public("this arrival was handled earlier; nothing was read or spent")
        return
    await_landing(place, spec, arrival.period)
    seen = arrivals.latest(arrival.period)  # what lands from here on is announced by itself
    try:
        release(ReleaseRequest(workspace=str(place.root), period=arrival.period))
    except PrivacyError as error:
        if needs_a_person(error):
            arrivals.mark_handled(arrival.period, seen)
        if not _is_behind(place, spec, arrival, error):
            raise
        log_public(f"a decision on {arrival.period} was already made; there is nothing left to do")
    arrivals.mark_handled(arrival.period, seen)


def _is_behind(place: Workspace, spec: ReleaseSpec, arrival: Announcement, error: PrivacyError) -> bool:
    """Return whether the month was already decided and its data are gone, so that the arrival is merely late."""
    gone = isinstance(error, LandingError) and error.rule == "landing-missing"
    return gone and arrival.period is not None and is_decided(spec, ledger_state(place), arrival.period)
