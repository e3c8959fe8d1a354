"""Stage 2: take the release's budget from the ledger, before anything is measured."""

from __future__ import annotations

from dpcore.accounting import compose
from dpcore.errors import LedgerError
from dpcore.noise import fresh_seed
from tasks.boundary import private_task, tell
from tasks.stores.heads import require_complete_ledger
from tasks.stores.ledger import ReserveRequest
from tasks.stores.run import Grant, ReleaseRun, basis_of, cap_of


@private_task("allocate budget")
def allocate_budget(run: ReleaseRun) -> Grant:
    """Reserve, or find the reservation of an earlier run of the same release.

    Raises: BudgetExceededError, LedgerError; nothing is spent then.
    """
    ledger = run.ledger()
    require_complete_ledger(run.workspace, ledger.entries())
    population, cap = run.spec.privacy.population, cap_of(run.spec)
    ledger.ensure_cap(population, cap, basis_of(run.spec))
    before = compose(ledger.state().spent(population), delta=cap.delta).as_json()
    release = ledger.reserve(
        ReserveRequest(
            name=run.spec.name,
            period=run.period,
            population=population,
            events=run.plan.events,
            stated={"epsilon": float(run.spec.privacy.epsilon), "delta": float(run.spec.privacy.delta)},
            spec_digest=run.spec.digest(),
            seeds={"projection": fresh_seed(), "sampling": fresh_seed()},
            flow_run_id=run.flow_run_id,
            supersedes=run.supersedes,
            reason=run.reason,
        )
    )
    reserved = {name: body["event"] for name, body in release.facts["measurements"].items()}
    planned = {name: event.as_json() for name, event in run.plan.events.items()}
    if release.facts["spec_digest"] != run.spec.digest() or reserved != planned:
        raise LedgerError(
            f"the specification, or this program's plan for it, changed since {release.release_id} was reserved",
            rule="spec-changed",
            where="release.yaml",
            hint="put the old specification back to finish that release first",
        )
    tell(f"reserved epsilon {float(run.spec.privacy.epsilon):g} for {release.release_id}")
    return Grant.of(release, before)
