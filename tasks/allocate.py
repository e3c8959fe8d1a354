"""Stage 2: reserve the release's budget in the ledger before anything is measured."""

from __future__ import annotations

from typing import Any

from dpcore.errors import BudgetExceededError, LedgerError
from dpcore.noise.sources import draw_seed
from tasks.boundary import log_public, private_task
from tasks.ledger.cited_heads import require_complete_ledger
from tasks.ledger.releases import UNFINISHED, ReleaseState, ReserveRequest, release_id_of
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.release.build_gate import audit_of_build, kept_audit, known_audit, replay_of_plan, require_passed
from tasks.release.context import ReleaseRun
from tasks.release.stage_values import Grant
from tasks.schedule.outlook import left
from tasks.spec import ReleaseSpec
from tasks.spec.plan import basis_of, cap_of, window_rule, windows_of
from tasks.spec.relations import at_least, at_most


@private_task("allocate budget")
def allocate_budget(run: ReleaseRun, release_id: str) -> Grant:
    """Reserve the budget, or resume the reservation of an earlier run of the same release.

    Raises: BudgetExceededError, LedgerError, RefusedError for a build that failed its audit;
    nothing is spent then.
    """
    ledger = run.ledger
    require_complete_ledger(run.workspace, ledger.entries())
    builds = _audit_builds(run, ledger.state(), release_id)
    spec, cost = run.planned.spec, run.planned.plan.cost
    population = spec.privacy.population
    ledger.ensure_cap(population, cap_of(spec), basis_of(spec), windows=windows_of(spec), cost=cost, who=run.who)
    release = _reserve(run, ledger, release_id)
    if release.release_id != release_id:
        raise LedgerError(
            f"the ledger assigned {release.release_id} to this run, which prepared {release_id}",
            rule="release-taken",
            where=release_id,
            hint="another run reserved a release at the same time; run the command again",
        )
    reserved = {name: plan.event for name, plan in release.reservation.measurements.items()}
    planned = {name: event.as_json() for name, event in run.planned.plan.events.items()}
    if release.reservation.spec_digest != run.planned.spec.digest() or reserved != planned:
        raise LedgerError(
            f"the specification, or this program's plan for it, changed since {release.release_id} was reserved",
            rule="spec-changed",
            where="release.yaml",
            hint="restore the earlier specification and finish that release first",
        )
    what = "reserved" if release.reservation.flow_run_id == run.flow_run_id else "resumed the reservation of"
    epsilon, balance = at_most(run.planned.stated["epsilon"]), _balance(ledger.state(), spec)
    log_public(f"{what} epsilon {epsilon} for {release.release_id} ({balance})")
    return Grant.of(release, builds)


def _balance(state: LedgerState, spec: ReleaseSpec) -> str:
    """Say how much of the population's lifetime budget is neither spent nor reserved; the balance is public."""
    balance = state.balance(spec.privacy.population, spec.neighbours)
    rest = left(float(balance.cap.epsilon), balance.statement.epsilon) or 0.0
    within = "" if balance.span is None else f" within {balance.span} months"
    return f"{at_least(max(0.0, rest))} left of {at_most(balance.cap.epsilon)}{within}"


def _reserve(run: ReleaseRun, ledger: Ledger, release_id: str) -> ReleaseState:
    """Reserve the budget; if it does not suffice, record the refusal in the ledger, where the history shows it."""
    request = reserve_request(run)
    try:
        return ledger.reserve(request)
    except BudgetExceededError as error:
        ledger.refuse_request(request, release_id, rule=error.rule, reason=error.message)
        raise


def _audit_builds(run: ReleaseRun, state: LedgerState, release_id: str) -> dict[str, Any]:
    """Audit this build for every measurement that is still to be drawn, and refuse a mechanism that fails."""
    known = state.releases.get(release_id)
    drawn = known.spends if known else {}
    missing = {name: event for name, event in run.planned.plan.events.items() if name not in drawn}
    if not missing:
        return {}
    replay, builds = replay_of_plan(run.planned.plan), {}
    for name, event in missing.items():
        build = known_audit(state, event) or kept_audit(event)
        if build is None:
            log_public(f"auditing this build's {event.mechanism} before it may draw")
            build = audit_of_build(event)
        builds[name] = {**build, "replay": replay}
        require_passed(builds[name], event.mechanism)
    return builds


def reserve_request(run: ReleaseRun) -> ReserveRequest:
    """Make the reservation request of a run, with new random seeds."""
    return ReserveRequest(
        name=run.planned.spec.name,
        period=run.planned.period,
        population=run.planned.spec.privacy.population,
        events=run.planned.plan.events,
        stated=run.planned.stated,
        spec_digest=run.planned.spec.digest(),
        seeds={"projection": draw_seed(), "sampling": draw_seed()},
        flow_run_id=run.flow_run_id,
        supersedes=run.planned.request.supersedes,
        reason=run.planned.request.reason,
        approve=run.planned.spec.as_public_json()["approve"],
        window=window_rule(run.planned.spec),
    )


def upcoming_release_id(run: ReleaseRun) -> str:
    """Return the id under which this run releases: that of the unfinished release, or the next one.

    Abandoned reservations are given back first. Only one run of a name gets here at a time, so the reservation
    receives the same id.
    """
    name, period = run.planned.spec.name, run.planned.period
    run.ledger.give_back_abandoned(reserve_request(run))
    state = run.ledger.state()
    unfinished = [release for release in state.of_period(name, period) if release.status in UNFINISHED]
    if unfinished:
        return unfinished[-1].release_id
    return release_id_of(name, period, state.next_sequence(name, period))
