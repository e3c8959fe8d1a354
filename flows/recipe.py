"""The recipe of a release: its stages in their order, and the observer that watches each of them.

`flows.release` runs the stages as tasks of a Prefect flow. `release_directly` runs the same stages as plain
functions, without a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from dpcore.errors import CheckFailedError, LedgerError
from tasks.allocate import allocate_budget, upcoming_release_id
from tasks.boundary import log_operator, log_public
from tasks.bundle.staging import Staging
from tasks.check import check_release
from tasks.dask_cluster import runner_of
from tasks.decode import decode_rows
from tasks.estimate import estimate_moments
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.refusals import require_not_retracted
from tasks.ledger.releases import ReleaseState
from tasks.ledger.store import utc_now
from tasks.lineage.datasets import ReleaseDatasets
from tasks.lineage.events import LineageRun
from tasks.progress import DataRead
from tasks.project import choose_projection
from tasks.publish import needs_approval, publish_bundle
from tasks.release.approval import finish_reveals
from tasks.release.context import PreparedRelease, ReleaseRun, RunRequest, prepare_release
from tasks.release.retraction import finish_retractions
from tasks.release.spend_facets import SpendFacets
from tasks.release.stage_values import BundleRef
from tasks.sample import sample_rows
from tasks.score import score_release
from tasks.validate import validate_landing
from tasks.workspace.folders import Workspace

P = ParamSpec("P")
R = TypeVar("R")

STAGES = ("validate", "allocate", "project", "estimate", "sample", "decode", "check", "publish")
SCORE = "score"
"""The stage that comes before publishing where the specification buys checks."""

DIFFERENT = (
    "the landing data differ from the released data; `dprelease run --supersedes ID --reason` releases them again. "
    "That is a decision on raw data: whoever sees that the release was superseded learns that the data changed"
)


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """How a run ended."""

    release_id: str
    status: str
    bundle: Path
    record: dict[str, Any]
    data_differ: bool = False


class StageObserver:
    """Watches the stages of a release: writes its lineage, and records a failed release in the ledger."""

    def __init__(
        self,
        run: ReleaseRun,
        release_id: str,
        *,
        clock: Callable[[], datetime] = utc_now,
        call: Callable[[Any], Any] = lambda stage: stage,
    ) -> None:
        self.run, self.release_id, self.clock, self._call = run, release_id, clock, call
        self._lineage = LineageRun(
            workspace_log=run.workspace.lineage_path,
            name=run.planned.spec.name,
            release_id=release_id,
            datasets=ReleaseDatasets.of(run.planned.plan, output=run.planned.spec.model.output),
            clock=clock,
            period=run.planned.period,
            flow_run_id=run.flow_run_id,
        )
        self._is_granted = False

    @contextmanager
    def watch_release(self) -> Iterator[None]:
        """Watch a release from its first stage to its end."""
        with self._lineage.flow() as whole:
            self._facets = SpendFacets(self.run.ledger, self.release_id, self._lineage.datasets, whole)
            try:
                yield
            except Exception as error:
                if self._is_granted:
                    failed_check = isinstance(error, CheckFailedError)
                    self._record_failure(ReleaseStatus.CHECK_FAILED if failed_check else ReleaseStatus.FAILED)
                raise

    def run_stage(self, name: str, stage: Callable[P, R], *inputs: P.args, **options: P.kwargs) -> R:
        """Run one stage, and record what it read, spent and made."""
        with self._lineage.stage(name) as event, self._facets.record_spends(event):
            value: R = self._call(stage)(*inputs, **options)
            self._facets.record(event, value)
        self._is_granted = self._is_granted or name == "allocate"
        return value

    def lineage_so_far(self) -> list[str]:
        """Return the lineage that the bundle holds: that of all stages before it is sealed."""
        return list(self._lineage.lines)

    def _record_failure(self, status: ReleaseStatus) -> None:
        """Give back the reservation if nothing was spent; what was spent stays spent."""
        ledger, release_id = self.run.ledger, self.release_id
        try:
            release = ledger.state().releases[release_id]
            if not release.spends:
                ledger.void(release_id, reason="the run failed before anything was measured")
            elif release.published is None:
                ledger.fail(release_id, status=status, stage="release")
        except LedgerError:
            log_operator("the failure could not be recorded in the ledger; the reservation stays")


def release_stages(run: ReleaseRun, observer: StageObserver) -> BundleRef:
    """Make one release: the way of the data from the landing files to the bundle."""
    planned, stage = run.planned.public, observer.run_stage
    staging = Staging(run.workspace.bundle(planned.spec.name, observer.release_id))
    with observer.watch_release():
        stage("validate", validate_landing, run, observer.release_id)
        grant = stage("allocate", allocate_budget, run, observer.release_id)
        projection = stage("project", choose_projection, run, grant)
        measured = stage("estimate", estimate_moments, run, grant, projection)
        # The privacy line: from here on, only checks that are paid for see rows of the landing data.
        rows = stage("sample", sample_rows, planned, grant, measured)
        table = stage("decode", decode_rows, planned, rows, measured, staging)
        outcome = stage("check", check_release, planned, measured, table)
        if planned.plan.check_events:
            outcome = stage(SCORE, score_release, run, grant, outcome, table)
        log_public(run.readings.summary())
        ending = "seal" if needs_approval(planned, grant) else "publish"
        return stage(
            ending,
            publish_bundle,
            planned,
            run.ledger,
            grant,
            outcome,
            staging,
            keys=run.workspace.keys,
            lineage=observer.lineage_so_far(),
            flow_run_id=run.flow_run_id,
            now=observer.clock(),
        )


@contextmanager
def claim_period(
    planned: PreparedRelease, workspace: Workspace, *, scratch: Path, flow_run_id: str, who: str | None = None
) -> Iterator[tuple[ReleaseRun, ReleaseState | None]]:
    """Open a run while every other run of this name waits; also yield its period's release if that is finished."""
    run = ReleaseRun(planned=planned, workspace=workspace, scratch=scratch, flow_run_id=flow_run_id, who=who)
    with closing(run), workspace.exclusive(planned.spec.name), run.ledger.exclusive(planned.spec.name):
        finish_reveals(workspace, run.ledger)
        finish_retractions(workspace, run.ledger)
        yield run, finished_release(run)


def finished_release(run: ReleaseRun) -> ReleaseState | None:
    """Return the release of this name and period if it is published, and not to be superseded, or waits for approval.

    A waiting bundle that is not there as it was sealed, after a restore for example, is made anew.
    Raises: LedgerError if a person retracted the release, and the run does not supersede it.
    """
    planned = run.planned
    releases = run.ledger.state().of_period(planned.spec.name, planned.period)
    if not releases or planned.request.supersedes == releases[-1].release_id:
        return None
    last = releases[-1]
    if planned.request.supersedes is None:
        require_not_retracted(last)
    if last.status == ReleaseStatus.AWAITING_APPROVAL and (digest := last.awaited_digest):
        staging = Staging(run.workspace.bundle(planned.spec.name, last.release_id))
        return last if staging.is_sealed_as(digest) else None
    return last if last.status == ReleaseStatus.PUBLISHED else None


def report_finished(run: ReleaseRun, known: ReleaseState) -> ReleaseResult:
    """Say that a release was finished before this run, which spends nothing.

    Only the operator is told whether the landing data differ from those that were released.
    """
    final = run.workspace.bundle(run.planned.spec.name, known.release_id)
    if not known.published:
        log_public(f"{known.release_id} already waits for approval; this run spent nothing")
        return ReleaseResult(known.release_id, ReleaseStatus.AWAITING_APPROVAL, Staging(final).folder, {})
    log_public(f"{known.release_id} is already published; this run spent nothing")
    is_queried = run.planned.arrival.is_queried  # a query is not asked again
    kept = None if is_queried else run.ledger.fingerprint(known.release_id)
    differ = kept is not None and kept != run.readings.fingerprint()
    if differ:
        log_operator(DIFFERENT)
    record = {} if final.exists() else _published_elsewhere(known)
    return ReleaseResult(known.release_id, "already-published", final, record, differ)


def _published_elsewhere(known: ReleaseState) -> dict[str, Any]:
    """What the shared ledger says of a release whose bundle is in another workspace."""
    return {"privacy": known.reservation.stated | {"delta_num": float(known.spent.delta_num)}, "rows": None}


def make_release(run: ReleaseRun, observe: Callable[[], StageObserver]) -> ReleaseResult:
    """Run the stages on this machine's cores, or on the cluster that the specification names."""
    with runner_of(run.planned.spec.runner, run.scratch) as runner:
        run.readings.read_with(runner, DataRead())
        observer = observe()
        bundle = release_stages(run, observer)
    return ReleaseResult(observer.release_id, bundle.status, bundle.folder, bundle.record)


def release_directly(
    workspace: Workspace,
    request: RunRequest,
    *,
    flow_run_id: str = "run",
    clock: Callable[[], datetime] = utc_now,
    observer: type[StageObserver] = StageObserver,
) -> ReleaseResult:
    """Release one period with the stages as plain functions: without Prefect's server, history and artifacts.

    Raises: PrivacyError.
    """
    with workspace.scratch() as scratch, ExitStack() as held:
        planned = prepare_release(workspace, request, scratch=scratch, now=clock())
        claim = claim_period(planned, workspace, scratch=scratch, flow_run_id=flow_run_id)
        run, known = held.enter_context(claim)
        if known is not None:
            return report_finished(run, known)
        release_id = upcoming_release_id(run)
        return make_release(run, partial(observer, run, release_id, clock=clock, call=lambda stage: stage.fn))
