"""The release flow: a recipe of stages. Raw rows are seen up to `estimate_moments`, and by checks that are paid for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import BaseModel, ConfigDict

from dpcore.errors import CheckFailedError, LedgerError
from flows.account import operator
from flows.delivery import delivered_afterwards
from flows.run_artifacts import RunStory
from flows.run_labels import Journal, label_again, named_early
from tasks.allocate import allocate_budget, upcoming_release_id
from tasks.boundary import redacted, tell, tell_operator
from tasks.bundle.staging import Staging
from tasks.check import check_release
from tasks.dask_cluster import runner_of
from tasks.estimate import estimate_moments
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import ReleaseState
from tasks.ledger.store import Ledger, utc_now
from tasks.lineage.datasets import ReleaseDatasets
from tasks.lineage.events import LineageRun
from tasks.progress import DataRead
from tasks.project import choose_projection
from tasks.publish import DATA, needs_approval, publish_bundle
from tasks.release.approval import finish_reveals
from tasks.release.context import Grant, ReleaseRun, prepare_run
from tasks.release.spend_facets import Told
from tasks.sample import decode_rows, sample_rows
from tasks.score import score_release
from tasks.validate import validate_landing
from tasks.workspace.folders import Workspace

STAGES = ("validate", "allocate", "project", "estimate", "sample", "decode", "check", "publish")
SCORE = "score"
"""The stage that comes before publishing where the specification buys checks."""


DIFFERENT = (
    "the landing data differ from those released; `run --supersedes ID --reason` releases them anew: a decision on raw "
    "data, since whoever sees that the release was superseded learns that the data changed"
)


class ReleaseRequest(BaseModel):
    """What a run is asked to do. Flow parameters are stored by Prefect: no file name, no data.

    `note` refers to what the command line keeps for the run in the vault.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    workspace: str
    period: str | None = None
    supersedes: str | None = None
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """How a run ended."""

    release_id: str
    status: str
    bundle: Path
    record: dict[str, Any]
    data_differ: bool = False


@flow(name="release", retries=0, persist_result=False, log_prints=False)
def release(request: ReleaseRequest) -> ReleaseResult:
    """Release one period of a workspace's data, once; a run that ends waiting for approval shows so in its state."""
    with delivered_afterwards(Path(request.workspace)):
        result = _release(request)
    if result.status == ReleaseStatus.AWAITING_APPROVAL:
        words = f"{result.release_id} waits for `dprelease approve`"
        return cast(ReleaseResult, Completed(name="AwaitingApproval", message=words, data=result))  # Prefect unwraps it
    return result


@redacted("release")
def _release(request: ReleaseRequest) -> ReleaseResult:
    tell("the orchestration server is up, the flow run started")
    workspace = Workspace(Path(request.workspace))
    workspace.require()
    workspace.require_writable()
    asked = request.model_dump() | (workspace.read_note(request.note) if request.note else {})
    with workspace.scratch() as scratch, ExitStack() as held:
        with named_early(workspace, str(flow_run.id), request.period):
            run = prepare_run(
                workspace,
                request=asked,
                flow_run_id=str(flow_run.id),
                scratch=scratch,
                now=utc_now(),
                who=operator(),
            )
            held.enter_context(workspace.exclusive(run.spec.name))
            held.enter_context(run.ledger().exclusive(run.spec.name))
            finish_reveals(run.workspace, run.ledger())
            known = finished_release(run)
            release_id = known.release_id if known else upcoming_release_id(run)
        if known is None:
            run.readings.runner = held.enter_context(runner_of(run.spec.runner, scratch))
            run.readings.heard = DataRead()
            return release_stages(run, release_id)
        return already_published(run, known) if known.published else still_awaiting(run, known)


def finished_release(run: ReleaseRun) -> ReleaseState | None:
    """The release of this name and period, if it is published and not to be superseded, or waits for approval.

    A waiting bundle that is not there as it was sealed, after a restore for example, is made anew.
    """
    releases = run.ledger().state().of_period(run.spec.name, run.period)
    if not releases or run.supersedes == releases[-1].release_id:
        return None
    last = releases[-1]
    if last.status == ReleaseStatus.AWAITING_APPROVAL and (digest := last.awaited_digest):
        staging = Staging(run.workspace.bundle(run.spec.name, last.release_id))
        return last if staging.is_sealed_as(digest) else None
    return last if last.status == ReleaseStatus.PUBLISHED else None


def still_awaiting(run: ReleaseRun, known: ReleaseState) -> ReleaseResult:
    """Say that a person has to speak first, and spend nothing."""
    label_again(run, known.release_id)
    tell(f"{known.release_id} waits for approval already; this run spent nothing")
    folder = Staging(run.workspace.bundle(run.spec.name, known.release_id)).folder
    return ReleaseResult(known.release_id, ReleaseStatus.AWAITING_APPROVAL, folder, {})


def already_published(run: ReleaseRun, known: ReleaseState) -> ReleaseResult:
    """Say so, and spend nothing.

    Only the operator is told whether the landing data differ from what was released.
    """
    final = run.workspace.bundle(run.spec.name, known.release_id)
    label_again(run, known.release_id)
    tell(f"{known.release_id} is published already; this run spent nothing")
    kept = None if run.arrival.is_queried else run.ledger().fingerprint(known.release_id)  # a query is not asked again
    differ = kept is not None and kept != run.readings.fingerprint()
    if differ:
        tell_operator(DIFFERENT)
    record = {} if final.exists() else _published_elsewhere(known)
    return ReleaseResult(known.release_id, "already-published", final, record, differ)


def _published_elsewhere(known: ReleaseState) -> dict[str, Any]:
    """What the shared ledger says of a release whose bundle is in another workspace."""
    return {"privacy": known.reservation.stated | {"delta_num": float(known.spent.delta_num)}, "rows": None}


def release_stages(run: ReleaseRun, release_id: str) -> ReleaseResult:
    """The way of the data, stage by stage."""
    ledger, datasets = run.ledger(), ReleaseDatasets.of(run.plan)
    lineage = LineageRun(
        workspace_log=run.workspace.lineage_path,
        name=run.spec.name,
        release_id=release_id,
        datasets=datasets,
        clock=utc_now,
        period=run.period,
        flow_run_id=run.flow_run_id,
    )
    staging = Staging(run.workspace.bundle(run.spec.name, release_id))
    story = RunStory(run, release_id)
    checks = tuple(run.plan.check_events)
    journal = Journal(lineage, (*STAGES, SCORE) if checks else STAGES, story.board)
    with story.told(), lineage.flow() as whole:
        told = Told(run, release_id, datasets, whole)
        with journal.stage("validate"):
            validate_landing(run, release_id)
        with journal.stage("allocate") as stage:
            grant = allocate_budget(run, release_id)
            told.reserved(stage)
        story.allocated()
        with recorded_failure(ledger, grant):
            with journal.stage("project") as stage, told.spends(stage):
                projection = choose_projection(run, grant)
                told.placed(stage, projection)
            story.projected(projection)
            with journal.stage("estimate") as stage, told.spends(stage):
                moments, projection = estimate_moments(run, projection, grant)  # then only paid checks see rows
                told.placed(stage, projection)
            story.measured(moments, projection)
            with journal.stage("sample") as stage:
                sample_rows(run, moments, projection, grant)
                told.fitted(stage)
            with journal.stage("decode") as stage:
                staging.start()
                table = staging.folder / DATA
                summary = decode_rows(run, moments, projection, grant, table)
                told.drawn(stage, table, summary.rows)
            story.decoded(moments, projection, summary)
            with journal.stage("check") as stage:
                outcome = check_release(run, moments, projection, summary, table)
                told.checked(stage, outcome)
            if checks:
                with journal.stage(SCORE) as stage, told.spends(stage):
                    outcome = score_release(run, grant, outcome, table)
                story.scored()
            tell(run.readings.told())
            bundle_lineage = list(lineage.lines)
            with journal.stage("seal" if needs_approval(run, grant) else "publish") as stage:
                bundle = publish_bundle(run, grant, outcome, staging, bundle_lineage, utc_now())
                told.sealed(stage, bundle.folder)
    story.finished(bundle)
    return ReleaseResult(release_id, bundle.status, bundle.folder, bundle.record)


@contextmanager
def recorded_failure(ledger: Ledger, grant: Grant) -> Iterator[None]:
    """Tell the ledger how a release ended that was not published.

    A reservation of which nothing was spent is given back; what was spent stays spent.
    """
    try:
        yield
    except Exception as error:
        failed_check = isinstance(error, CheckFailedError)
        _record_failure(ledger, grant, ReleaseStatus.CHECK_FAILED if failed_check else ReleaseStatus.FAILED)
        raise


def _record_failure(ledger: Ledger, grant: Grant, status: ReleaseStatus) -> None:
    try:
        release = ledger.state().releases[grant.release_id]
        if not release.spends:
            ledger.void(grant.release_id, reason="the run failed before anything was measured")
        elif release.published is None:
            ledger.fail(grant.release_id, status=status, stage="release")
    except LedgerError:
        tell_operator("the failure could not be written to the ledger; its reservation stays")
