"""The release flow: the recipe of `flows.recipe` as a run of Prefect, with its history and artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import cast

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import BaseModel, ConfigDict

from flows.account import operator
from flows.delivery import deliver_afterwards
from flows.recipe import ReleaseResult, claim_period, make_release, report_finished
from flows.run_artifacts import PageObserver
from flows.run_labels import label_again, name_early
from tasks.allocate import upcoming_release_id
from tasks.boundary import log_public, redacted
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.store import utc_now
from tasks.release.context import PreparedRelease, RunRequest, prepare_release
from tasks.workspace.folders import Workspace

_HANDED: ContextVar[PreparedRelease | None] = ContextVar("prepared_release", default=None)


class ReleaseRequest(BaseModel):
    """The parameters of a release run. Prefect stores them, so they hold no file name and no data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workspace: str
    period: str | None = None
    supersedes: str | None = None
    reason: str | None = None
    prepared: bool = False
    """Whether the caller hands over a prepared release, which names files and is not stored."""


@contextmanager
def hand_over(planned: PreparedRelease) -> Iterator[None]:
    """Let the flow that this block calls use what was prepared for it.

    A prepared release may name files, so it does not become a parameter, which Prefect would store.
    """
    token = _HANDED.set(planned)
    try:
        yield
    finally:
        _HANDED.reset(token)


@flow(name="release", retries=0, persist_result=False, log_prints=False)
def release(request: ReleaseRequest) -> ReleaseResult:
    """Release one period of a workspace's data, once; the run's state shows whether the release waits for approval."""
    with deliver_afterwards(Path(request.workspace)):
        result = _release(request)
    if result.status == ReleaseStatus.AWAITING_APPROVAL:
        words = f"{result.release_id} waits for `dprelease approve`"
        return cast(ReleaseResult, Completed(name="AwaitingApproval", message=words, data=result))  # Prefect unwraps it
    return result


@redacted("release")
def _release(request: ReleaseRequest) -> ReleaseResult:
    log_public("the orchestration server is running and the flow run has started")
    workspace, flow_run_id = Workspace(Path(request.workspace)), str(flow_run.id)
    workspace.require()
    workspace.require_writable()
    with workspace.scratch() as scratch, ExitStack() as held:
        with name_early(workspace, flow_run_id, request.period):
            planned = _take_over(request) if request.prepared else _prepare(request, workspace, scratch)
            claim = claim_period(planned, workspace, scratch=scratch, flow_run_id=flow_run_id, who=operator())
            run, known = held.enter_context(claim)
            release_id = known.release_id if known else upcoming_release_id(run)
        if known is not None:
            label_again(run, release_id)
            return report_finished(run, known)
        return make_release(run, partial(PageObserver, run, release_id))


def _take_over(request: ReleaseRequest) -> PreparedRelease:
    """Take what `hand_over` holds for this request, once; nothing else may be released in its place."""
    planned = _HANDED.get()
    _HANDED.set(None)
    asked = (request.period, request.supersedes, request.reason)
    if planned is None or (planned.request.period, planned.request.supersedes, planned.request.reason) != asked:
        raise RuntimeError("the prepared release did not reach its flow")
    return planned


def _prepare(request: ReleaseRequest, workspace: Workspace, scratch: Path) -> PreparedRelease:
    asked = RunRequest(period=request.period, supersedes=request.supersedes, reason=request.reason)
    return prepare_release(workspace, asked, scratch=scratch, now=utc_now())
