"""Answers by a person for what is missing in a ledger: lost entries, and keys that nobody enrolled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from fractions import Fraction

from dpcore.accounting import Cap, Cost, Epsilon, gaussian_epsilon
from dpcore.errors import LedgerError, RefusedError
from dpcore.records.schema import Neighbours
from tasks.ledger.cited_heads import Witness, missing_witnesses
from tasks.ledger.entries.bodies import Reconciliation
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.keys import trust_fault
from tasks.ledger.entries.populations import Population
from tasks.ledger.opening import trust_anchors, writable_ledger
from tasks.ledger.state import LedgerState
from tasks.spec import ReleaseSpec
from tasks.spec.plan import basis_of, cap_of, plan_release, windows_of
from tasks.spec.relations import at_most
from tasks.workspace.folders import Workspace


def reconcile(
    workspace: Workspace,
    spec: ReleaseSpec,
    *,
    reason: str,
    who: str,
    charges: Mapping[str, Fraction] | None,
    owner_url: str | None = None,
) -> Entry:
    """Write down what the entries that a ledger lost may have cost, so that releases may go on.

    `charges` are epsilons by population, the empty name standing for every one that is not named;
    None declares that nothing was spent. What witnesses still tell of lost releases is the least
    that is charged: nobody can declare it away. A reconciliation speaks for every population, so on
    PostgreSQL only the tables' owner writes it: `owner_url` is that account's address.
    Raises: RefusedError.
    """
    _require_reason(reason)
    with (
        workspace.exclusive(spec.name),
        closing(writable_ledger(workspace, spec, address=owner_url)) as ledger,
        ledger.exclusive(spec.name),
    ):
        missing = missing_witnesses(workspace, ledger.entries())
        _require_cause(ledger.state(), missing)
        if charges is not None:  # there must be a cap to charge under, also on a ledger that lost everything
            ledger.ensure_cap(
                spec.privacy.population,
                cap_of(spec),
                basis_of(spec),
                windows=windows_of(spec),
                cost=plan_release(spec).cost,
                who=who,
            )
        state = ledger.state()
        epsilons = _epsilons(state, charges)
        _require_enough(spec.privacy.population, epsilons, missing)
        return ledger.reconcile(
            Reconciliation.of(
                reason=reason.strip(),
                who=who,
                charges={name: _charged(state.populations[name], spec, value) for name, value in epsilons.items()},
                lost=[(witness.seq, witness.hash) for witness in missing],
                retired=[witness.release_id for witness in missing if witness.release_id],
            )
        )


def _require_cause(state: LedgerState, missing: Sequence[Witness]) -> None:
    if state.restored is None and not missing:
        raise LedgerError(
            "no entry of the ledger is known to be missing: there is nothing to reconcile",
            rule="nothing-to-reconcile",
            where="ledger",
            hint="`dprelease audit` shows what holds",
        )
    unreadable = [witness.what for witness in missing if not witness.hash]
    if unreadable:
        raise LedgerError(
            f"{unreadable[0]} cannot be read, so its cost is not known",
            rule="witness-unreadable",
            where="releases, lineage.ndjson",
            hint="restore it from a backup, or remove it and charge what it may have cost",
        )


def _epsilons(state: LedgerState, charges: Mapping[str, Fraction] | None) -> dict[str, Fraction]:
    """What to charge to each population; every one of the ledger must be answered for."""
    if charges is None:
        return {}
    unknown = sorted(charges.keys() - state.populations.keys() - {""})
    unanswered = [name for name in state.populations if name not in charges and "" not in charges]
    if unknown or unanswered:
        which = f"does not know {unknown[0]!r}" if unknown else f"has {unanswered[0]!r} as well"
        raise LedgerError(
            f"the ledger {which}: a charge must be stated for every population",
            rule="charge-incomplete",
            where="--charge",
            hint="use --charge POPULATION=EPSILON for each, 0 where nothing was spent",
        )
    wanted = {name: charges.get(name, charges.get("", Fraction(0))) for name in state.populations}
    return {name: epsilon for name, epsilon in wanted.items() if epsilon}


def _require_enough(population: str, epsilons: Mapping[str, Fraction], missing: Sequence[Witness]) -> None:
    """Not less than what the witnesses of lost releases state; they are of the workspace's own population."""
    stated: dict[str, Fraction] = {}
    for witness in missing:
        stated[witness.release_id] = max(stated.get(witness.release_id, Fraction(0)), Fraction(str(witness.epsilon)))
    least = sum(stated.values(), Fraction(0))
    if missing and epsilons.get(population, Fraction(0)) < max(least, Fraction(1, 10**9)):
        raise LedgerError(
            f"{missing[0].what} shows that budget was spent: charge at least epsilon {at_most(least)}",
            rule="charge-too-small",
            where="--charge",
            hint=f"charge what the lost releases cost, at least --charge {at_most(least)}",
        )


def _charged(known: Population, spec: ReleaseSpec, epsilon: Fraction) -> Cost:
    """The charge to a population, of which a lost release may have been about being in the data."""
    relations = known.declared | {known.neighbours, spec.neighbours}
    return _charge(known.cap, epsilon, for_presence=Neighbours.ADD_REMOVE in relations and len(relations) > 1)


def _charge(cap: Cap, epsilon: Fraction, *, for_presence: bool) -> Cost:
    """The cost that stands for an epsilon of which nobody knows how it was spent.

    Under a cap with delta it may have been Gaussian noise: then both ways are charged, for neither bounds the other,
    and a cap that counts one kind alone takes nothing more until it is raised to one that counts both. This counts up
    to twice, and never too little. A cost for being in the data may be twice as large for values.
    """
    epsilon = 2 * epsilon if for_presence else epsilon
    pure = Cost.of(Epsilon(epsilon))
    return pure + Cost(rho=_rho_within(float(epsilon), float(cap.delta))) if cap.delta else pure


def _rho_within(epsilon: float, delta: float) -> Fraction:
    """A rho at least as large as any whose Gaussian noise meets (epsilon, delta)."""
    low, high = 0.0, max(1.0, epsilon**2)
    while gaussian_epsilon(high, delta=delta) < epsilon:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_epsilon(middle, delta=delta) < epsilon else (low, middle)
    return Fraction(high)


def vouch_for_keys(
    workspace: Workspace, spec: ReleaseSpec, key_ids: Sequence[str], *, reason: str, who: str
) -> tuple[Entry, dict[str, int]]:
    """Vouch, by a person's word, for keys that announced themselves before keys were enrolled.

    Returns the reconciliation and how many entries each key had signed.
    Raises: RefusedError; also if keys that nobody vouches for are left.
    """
    _require_reason(reason)
    with workspace.exclusive(spec.name), closing(writable_ledger(workspace, spec)) as ledger:
        entries = ledger.entries()
        state = LedgerState.replay(entries)
        unknown = [key_id for key_id in key_ids if key_id not in state.keys]
        trusted = trust_fault(state.keys, state.signers, trust_anchors(workspace)) is None
        if unknown or trusted:
            raise LedgerError(
                f"the ledger does not know key {unknown[0]}" if unknown else "every key of the ledger is vouched for",
                rule="nothing-to-vouch-for",
                where="--vouch",
                hint="`dprelease keys show` lists the keys, and who enrolled them",
            )
        signed = Counter(entry.key_id for entry in entries)
        answer = Reconciliation.of(reason=reason.strip(), who=who, charges={}, vouches=key_ids)
        return ledger.reconcile(answer), {key_id: signed[key_id] for key_id in key_ids}


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise RefusedError("the reason is empty", rule="reason-missing", where="--reason", hint="say what happened")
