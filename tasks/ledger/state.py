"""What a ledger's events mean: a pure state machine over an append-only, hash-chained list.

Nothing here reads or writes; `tasks.ledger.store` does. The accountant is a function
over the events, so an auditor replays exactly what a release relied on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from dpcore.accounting import Balance, Cost, total
from dpcore.records.schema import Neighbours
from tasks.ledger.entries import keys as entry_keys
from tasks.ledger.entries.bodies import (
    Approval,
    ApprovalRequest,
    BundleDecision,
    CapChange,
    Failure,
    KeyEnrolment,
    KeyRevocation,
    Publication,
    Reconciliation,
    Refusal,
    Reservation,
    Restore,
    Spend,
    Void,
)
from tasks.ledger.entries.chain import key_rules, refuse_unless, require_chained, require_readable, require_signed
from tasks.ledger.entries.costs import less
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.keys import WITH_ROLE_CAP, Key
from tasks.ledger.entries.populations import Population
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import RESUMABLE, UNFINISHED, ReleaseState, copy_release, deciding_key, is_approved

FAILED = (ReleaseStatus.FAILED, ReleaseStatus.CHECK_FAILED)
MEASURED = (ReleaseStatus.MEASURED, *FAILED)
GIVEN_UP = (ReleaseStatus.VOID, ReleaseStatus.LOST)
MAY_FOLLOW_A_RESTORE = (KeyEnrolment, KeyRevocation, CapChange, Restore, Reconciliation)
"""Until somebody says what a backup does not know, nothing is reserved, spent or given back on it."""


@dataclass(slots=True)
class LedgerState:
    """Everything that the events say."""

    head: Entry | None = None
    populations: dict[str, Population] = field(default_factory=dict)
    releases: dict[str, ReleaseState] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    signers: frozenset[str] = frozenset()
    """The keys that have signed an entry."""
    closed: bool = False
    """Keys are enrolled with roles: none announces itself any more."""
    restored: Entry | None = None
    """The restore of a backup that nobody has reconciled yet."""
    lost: frozenset[tuple[int, str]] = frozenset()
    """Entries that witnesses name, that are gone, and that were answered for."""
    retired: frozenset[str] = frozenset()
    """Release ids that lost entries used: they are not given again."""
    refusals: dict[str, Entry] = field(default_factory=dict)
    """The last refusal of each release that the budget did not allow: nothing was reserved for it."""

    @staticmethod
    def replay(entries: Iterable[Entry]) -> LedgerState:
        """The state after all entries.

        Raises: LedgerError at the first entry that does not follow from those before.
        """
        state = LedgerState()
        for entry in entries:
            state.apply(entry)
        return state

    def snapshot(self) -> LedgerState:
        """A copy that later events do not change."""
        return replace(
            self,
            populations=dict(self.populations),
            releases={name: copy_release(release) for name, release in self.releases.items()},
            keys=dict(self.keys),
            refusals=dict(self.refusals),
        )

    def apply(self, entry: Entry) -> None:
        """Take one more entry into account.

        Raises: LedgerError if its place in the chain, its hash, its content or its meaning is wrong.
        """
        require_chained(entry, self.head)
        require_readable(entry, self.head)
        require_signed(entry, self.keys)
        allowed = self.restored is None or entry.is_a(*MAY_FOLLOW_A_RESTORE)
        refuse_unless(allowed, entry, "follows a restored backup that nobody has reconciled")
        with key_rules(entry):
            if self.keys and not entry.is_a(KeyEnrolment):
                entry_keys.require_role(self.keys, entry.key_id, self.role_of(entry))
            _APPLY[entry.kind](self, entry, entry.content)
        if entry.key_id and entry.key_id not in self.signers:
            self.signers |= {entry.key_id}
        self.head = entry

    def role_of(self, entry: Entry) -> str:
        """The role that an entry's key needs; whoever passes on an approver's own signature only releases."""
        if entry.is_a(Approval) or (entry.is_a(Refusal) and entry.release_id in self.releases):
            return "release" if entry.parse(BundleDecision).signed else "approve"
        return "cap" if entry.is_a(*WITH_ROLE_CAP) else "release"

    def _apply_key(self, entry: Entry, body: KeyEnrolment) -> None:
        if body.key_id != entry.key_id:
            entry_keys.require_role(self.keys, entry.key_id, "cap")
        self.keys = entry_keys.announce(self.keys, entry.key_id, body, seq=entry.seq, closed=self.closed)
        self.closed = self.closed or body.roles is not None

    def _apply_revoke(self, entry: Entry, body: KeyRevocation) -> None:
        self.keys, self.closed = entry_keys.revoke(self.keys, entry.key_id, body), True

    def _apply_cap(self, entry: Entry, body: CapChange) -> None:
        known = self.populations.get(entry.population)
        refuse_unless(known is None or bool(body.reason), entry, "changes a cap without a reason")
        refuse_unless(known is None or known.basis == body.basis, entry, "changes what the budget is counted for")
        refuse_unless(body.who != "", entry, "does not say who set the cap")
        told_apart = body.windows.span is None or body.windows.rule is not None
        refuse_unless(told_apart, entry, "counts over months without saying which records belong to a month")
        first = Population(body.cap, body.basis, body.neighbours, entry, body.windows)
        self.populations[entry.population] = known.with_cap(entry, body) if known else first

    def _apply_reserve(self, entry: Entry, body: Reservation) -> None:
        refuse_unless(entry.population in self.populations, entry, "reserves for a population without a cap")
        refuse_unless(entry.release_id not in self.releases, entry, "reserves a release a second time")
        taken = self.populations[entry.population].taking(body)
        fits = all(taken.balance(relation).was_admitted for relation in taken.declared)
        refuse_unless(fits, entry, "exceeds the population's cap")
        reserved = total(plan.cost for plan in body.measurements.values())
        single = taken.costs_of(body, body.measurements, releases=1)
        takes = all(cost is not None and taken.cap.takes(cost) for cost in map(single.get, taken.declared))
        refuse_unless(takes, entry, "costs more than a release under the population's cap may")
        self.populations[entry.population] = taken
        self.releases[entry.release_id] = ReleaseState(
            entry.release_id,
            entry.population,
            body,
            entry.seq,
            reserved=reserved,
        )

    def _apply_spend(self, entry: Entry, body: Spend) -> None:
        release = self._release(entry, *RESUMABLE)
        name, cost = body.measurement, body.cost
        refuse_unless(name in release.reservation.measurements, entry, "spends on what was not reserved")
        refuse_unless(name not in release.spends, entry, "draws a measurement a second time")
        reserved = release.reservation.measurements[name]
        refuse_unless(cost == reserved.cost, entry, "spends another cost than was reserved")
        refuse_unless(body.event == reserved.event, entry, "measures something else than was reserved")
        self._settle(release, [name], is_spent=True)
        release.spends[name] = entry
        release.status = ReleaseStatus.MEASURED
        release.spent, release.reserved = release.spent + cost, less(release.reserved, cost)

    def _settle(self, release: ReleaseState, names: Collection[str], *, is_spent: bool) -> None:
        """Take measurements out of what is reserved: they are spent, or given back."""
        known, reservation = self.populations[release.population], release.reservation
        costs, month = known.costs_of(reservation, names, releases=not release.spends), known.month_of(reservation)
        self.populations[release.population] = replace(
            known,
            reserved=known.reserved.removing(month, costs),
            spent=known.spent.adding(month, costs) if is_spent else known.spent,
        )

    def _apply_fail(self, entry: Entry, body: Failure) -> None:
        release = self._release(entry, *MEASURED)
        refuse_unless(body.status in FAILED, entry, "has an unknown status")
        release.status = ReleaseStatus(body.status)

    def _apply_await(self, entry: Entry, _body: ApprovalRequest) -> None:
        """A sealed bundle waits for a person; one that was made anew waits again, whatever was said of the first."""
        release = self._release(entry, *MEASURED, ReleaseStatus.AWAITING_APPROVAL)
        self._require_measured(release, entry)
        release.status, release.awaiting, release.approval = ReleaseStatus.AWAITING_APPROVAL, entry, None
        release.approvals = {}

    def _apply_approve(self, entry: Entry, body: Approval) -> None:
        release = self._release(entry, ReleaseStatus.AWAITING_APPROVAL)
        refuse_unless(bool(body.who and body.reason), entry, "does not say who approved, or why")
        refuse_unless(
            body.bundle_digest == release.awaited_digest, entry, "approves another bundle than the one that waits"
        )
        approver = deciding_key(self.keys, release, entry)
        refuse_unless(not approver or approver not in release.approvals, entry, "approves a second time with one key")
        release.approval, release.approvals = entry, release.approvals | {approver: entry}

    def _apply_refuse(self, entry: Entry, body: Refusal) -> None:
        """A person refuses the bundle that waits, or the budget refused to reserve."""
        refuse_unless(bool(body.rule and body.reason), entry, "does not say why it refuses")
        if entry.release_id not in self.releases:
            refuse_unless(entry.population in self.populations, entry, "speaks of a population without a cap")
            self.refusals[entry.release_id] = entry
            return
        release = self._release(entry, ReleaseStatus.AWAITING_APPROVAL)
        refuse_unless(bool(body.who), entry, "does not say who refuses")
        deciding_key(self.keys, release, entry)
        release.status, release.refusal = ReleaseStatus.REFUSED, entry

    def _apply_publish(self, entry: Entry, body: Publication) -> None:
        release = self._release(entry, *MEASURED, ReleaseStatus.AWAITING_APPROVAL)
        self._require_measured(release, entry)
        free = release.reservation.approve == "none" and release.awaiting is None
        refuse_unless(free or bool(release.approvals), entry, "publishes what nobody has approved")
        refuse_unless(free or is_approved(self.keys, release), entry, "publishes what too few have approved")
        same = release.approval is None or body.bundle_digest == release.approval.parse(Approval).bundle_digest
        refuse_unless(same, entry, "publishes another bundle than the approved one")
        self._supersede(release, entry)
        others = self.of_period(release.reservation.name, release.reservation.period)
        refuse_unless(
            all(other.status != ReleaseStatus.PUBLISHED for other in others), entry, "publishes a month a second time"
        )
        release.status, release.published = ReleaseStatus.PUBLISHED, entry

    def _supersede(self, release: ReleaseState, entry: Entry) -> None:
        """Take back what a release replaces: the one it names, and through refused ones those that they named."""
        replaced = release.reservation.supersedes
        while replaced:
            refuse_unless(replaced in self.releases, entry, "supersedes an unknown release")
            old = self.releases[replaced]
            old.status = ReleaseStatus.SUPERSEDED if old.published else old.status
            replaced = old.reservation.supersedes

    @staticmethod
    def _require_measured(release: ReleaseState, entry: Entry) -> None:
        complete = set(release.spends) == set(release.reservation.measurements)
        refuse_unless(complete, entry, "publishes before all was measured")

    def _apply_void(self, entry: Entry, _body: Void) -> None:
        release = self._release(entry, ReleaseStatus.RESERVED)
        self._settle(release, release.reservation.measurements, is_spent=False)
        release.status, release.reserved = ReleaseStatus.VOID, Cost()

    def _apply_restore(self, entry: Entry, body: Restore) -> None:
        refuse_unless(bool(body.who), entry, "does not say who restored")
        self.restored = entry

    def _apply_reconcile(self, entry: Entry, body: Reconciliation) -> None:
        """What the entries that are gone may have cost, by the word of a person.

        With a charge, releases in flight are over as well: whether the lost entries drew for
        them is not known, so what they reserved counts as spent and their ids are not used again.
        """
        refuse_unless(bool(body.who and body.reason), entry, "does not say who reconciled, or why")
        charges = body.charges
        refuse_unless(charges.keys() <= self.populations.keys(), entry, "charges an unknown population")
        refuse_unless(Cost() not in charges.values(), entry, "charges a population nothing")
        refuse_unless(bool(charges) or not body.lost, entry, "charges nothing for entries that are known to be lost")
        for population, cost in charges.items():
            known = self.populations[population]
            self.populations[population] = replace(known, spent=known.spent.adding(None, known.charge(cost)))
        if charges:
            self._give_up_unfinished()
        if body.vouches:
            refuse_unless(not charges and not body.lost, entry, "vouches for keys and answers for lost entries at once")
            self.keys, self.closed = entry_keys.vouch(self.keys, entry.key_id, body.vouches), True
            return  # whether a restored backup lacks something is another question
        self.lost |= set(body.lost)
        self.retired |= set(body.retired)
        self.restored = None

    def _give_up_unfinished(self) -> None:
        for release in self.releases.values():
            if release.status in UNFINISHED:
                left = release.reserved
                self._settle(release, release.reservation.measurements.keys() - release.spends.keys(), is_spent=True)
                release.status, release.reserved, release.spent = ReleaseStatus.LOST, Cost(), release.spent + left

    def _release(self, entry: Entry, *statuses: ReleaseStatus) -> ReleaseState:
        refuse_unless(entry.release_id in self.releases, entry, "speaks of an unknown release")
        release = self.releases[entry.release_id]
        refuse_unless(entry.population == release.population, entry, "speaks of another population than its release")
        refuse_unless(release.status in statuses, entry, f"cannot follow status {release.status.value!r}")
        return release

    def balance(self, population: str, neighbours: Neighbours | None = None, *, reserved: bool = True) -> Balance:
        """What is spent and reserved of a population's budget, under its own relation by default.

        Raises: KeyError for a population without a cap.
        """
        return self.populations[population].balance(neighbours, reserved=reserved)

    def spent(self, population: str) -> Cost:
        """What a population's drawn measurements cost together, in the most expensive window of months."""
        known = self.populations.get(population)
        return known.balance(reserved=False).cost if known else Cost()

    def reserved(self, population: str) -> Cost:
        """What is reserved for a population and not yet spent."""
        known = self.populations.get(population)
        return known.reserved_balance(known.neighbours).cost if known else Cost()

    def committed(self, population: str) -> Cost:
        """Spent and reserved together: what the cap is held against."""
        known = self.populations.get(population)
        return known.balance().cost if known else Cost()

    def of_period(self, name: str, period: str) -> list[ReleaseState]:
        """The releases of one name and period that were not given up, oldest first."""
        return sorted(
            (r for r in self._all_of_period(name, period) if r.status not in GIVEN_UP),
            key=lambda r: r.reservation.sequence,
        )

    def _all_of_period(self, name: str, period: str) -> list[ReleaseState]:
        return [r for r in self.releases.values() if (r.reservation.name, r.reservation.period) == (name, period)]

    def next_sequence(self, name: str, period: str) -> int:
        """The sequence number of a new release of a name and period; void, lost and retired ones keep theirs."""
        used = [r.reservation.sequence for r in self._all_of_period(name, period)]
        prefix = f"{name}-{period}-"
        gone = [r.removeprefix(prefix) for r in self.retired if r.startswith(prefix)]
        return max(used + [int(number) for number in gone if number.isdecimal()], default=0) + 1


_APPLY: Mapping[str, Callable[..., None]] = {
    KeyEnrolment.kind: LedgerState._apply_key,
    KeyRevocation.kind: LedgerState._apply_revoke,
    CapChange.kind: LedgerState._apply_cap,
    Reservation.kind: LedgerState._apply_reserve,
    Spend.kind: LedgerState._apply_spend,
    Failure.kind: LedgerState._apply_fail,
    ApprovalRequest.kind: LedgerState._apply_await,
    Approval.kind: LedgerState._apply_approve,
    Refusal.kind: LedgerState._apply_refuse,
    Publication.kind: LedgerState._apply_publish,
    Void.kind: LedgerState._apply_void,
    Restore.kind: LedgerState._apply_restore,
    Reconciliation.kind: LedgerState._apply_reconcile,
}
