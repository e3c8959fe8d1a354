"""The triggered release: a file has landed, and the month that it is of is released, once."""

from __future__ import annotations

from prefect import flow

from dpcore.errors import CheckFailedError, RefusedError
from flows.monthly import label_run, settle
from flows.release import ReleaseRequest, release
from flows.served import served
from tasks.boundary import redacted, tell
from tasks.stores.arrivals import Arrivals
from tasks.stores.spec import load_spec
from tasks.stores.workspace import Workspace


@flow(name="landing", retries=0, persist_result=False, log_prints=False)
def landing(workspace: str, arrival: str) -> None:
    """Release the month of a file that landed; `arrival` stands for it and says nothing about it."""
    with served(workspace) as place:
        release_arrival(place, arrival)


@redacted("landing")
def release_arrival(place: Workspace, token: str) -> None:
    """Release what an arrival is about, unless that was done.

    A release that is refused or fails its checks waits for a person, and its run shows why. Anything
    else, a server that went away for example, leaves the arrival open: it is announced again.
    """
    arrivals = Arrivals(place)
    arrival = arrivals.find(token)
    if arrival is None or arrival.handled:
        tell("this arrival was dealt with before; nothing was read or spent")
        return
    spec = load_spec(place.spec_path)
    periods = [arrival.period] if arrival.period else []
    label_run(f"{spec.name} landed: {arrival.period or 'a file'}", [spec.name, *periods])
    try:
        settle(place, spec)
        release(ReleaseRequest(workspace=str(place.root), period=arrival.period))
    except (RefusedError, CheckFailedError):
        arrivals.mark_handled(token)
        raise
    arrivals.mark_handled(token)
