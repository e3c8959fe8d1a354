"""The ledger: what a release appends to it, signed by the workspace's key, each in one transaction.

SQLite and PostgreSQL share one code path; what differs between them is in `tasks.ledger.databases`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpcore.accounting import Cap, CapKind, Cost
from dpcore.measure import Measurement
from dpcore.mechanisms.registry import cost_of
from tasks.keys.decision import SignedDecision
from tasks.keys.signing import PublicKey, Signer
from tasks.ledger import refusals
from tasks.ledger.access import require_approvers, require_trusted
from tasks.ledger.databases.choice import Database, database_at
from tasks.ledger.databases.common import own_errors
from tasks.ledger.databases.schema import Row, prepare_tables
from tasks.ledger.entries import bodies
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.reading import LedgerReader, apply_or_fault, read_measurement
from tasks.ledger.releases import ReleaseState, ReserveRequest, copy_release, is_approved, release_id_of
from tasks.ledger.state import LedgerState
from tasks.ledger.transaction import Transaction, enrolment_of
from tasks.spec.privacy import Windows

ALL = Windows()
"""All months of a unit are protected together."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """What was taken out of a ledger: from which entry on, how many, who appended them, and what stands there now."""

    first: int
    entries: int
    roles: tuple[str, ...]
    restore: Entry


def utc_now() -> datetime:
    """The present time."""
    return datetime.now(UTC)


class Ledger(LedgerReader):
    """The budget ledger of a workspace, or of a team: every method that writes is one transaction."""

    def __init__(
        self,
        database: Database,
        *,
        signer: Signer | None = None,
        anchors: Sequence[PublicKey] = (),
        clock: Callable[[], datetime] = utc_now,
        read_only: bool = False,
    ) -> None:
        super().__init__(database, anchors=(*anchors, signer.public) if signer else anchors, read_only=read_only)
        self._signer, self._clock = signer, clock

    @staticmethod
    def open(
        address: Path | str,
        signer: Signer,
        *,
        anchors: Sequence[PublicKey] = (),
        clock: Callable[[], datetime] = utc_now,
    ) -> Ledger:
        """The ledger at a path or address, made on first use and brought to the present version.

        The signer's own key is a trust anchor, as `anchors` are.
        Raises: WorkspaceError if it cannot be written, LedgerError if it is no ledger.
        """
        database = database_at(address)
        ledger = Ledger(database, signer=signer, anchors=anchors, clock=clock)
        try:
            with own_errors(database.where), ledger._engine.connect() as connection:
                prepare_tables(connection, database)
                connection.commit()
        except BaseException:
            ledger.close()
            raise
        database.restrict_access()
        return ledger

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Wait until no other user of this ledger releases under that name; take the workspace's own lock first."""
        return self._database.exclusive(name)

    @contextmanager
    def _writing(self, *, vouching: bool = False) -> Iterator[Transaction]:
        """One write transaction: it sees the latest head, and nobody else writes meanwhile.

        Only a reconciliation that vouches for keys may follow entries that nobody vouched for.
        """
        with own_errors(self._database.where), self._engine.connect() as connection:
            try:
                self._database.lock_writer(connection)
                transaction = self._transaction(connection, self._latest(connection))
                transaction.require_enrolled()
                if not vouching:
                    require_trusted(transaction.state, self._anchors)
                yield transaction
                connection.commit()
            except BaseException:
                self._known = LedgerState()  # it may hold what is being rolled back
                connection.rollback()
                raise

    def _transaction(self, connection: sa.Connection, state: LedgerState) -> Transaction:
        return Transaction(self._database, connection, state, self._signer, self._clock)

    def set_aside(self, *, who: str) -> SetAside:
        """Take the first entry that cannot be read, and all after it, out of a shared ledger.

        No honest program appended after that entry, for none could read it. The entries are kept apart as
        evidence, and a restore entry takes their place: nothing is released until somebody reconciles.
        Raises: LedgerError if every entry can be read, or if entries were edited after they were appended.
        """
        with own_errors(self._database.where), self._engine.begin() as connection:
            self._known = LedgerState()
            self._database.lock_writer(connection)
            state, entries = LedgerState(), self._read(connection)
            sound = next((number for number, entry in enumerate(entries) if apply_or_fault(state, entry)), len(entries))
            refusals.require_appended(state, entries[sound:])
            state = LedgerState.replay(entries[:sound])  # a fault may have left the state half changed
            roles = self._database.set_aside(connection, entries[sound].seq)
            made_at = state.head.at if state.head else ""
            restore = self._transaction(connection, state).append(bodies.Restore(who=who, backup_made_at=made_at))
            return SetAside(entries[sound].seq, len(entries) - sound, tuple(roles), restore)

    def rotate_key(self, successor: Signer, *, who: str) -> Entry:
        """Enrol the key that follows this ledger's own, for the same roles, and revoke the old one.

        The new key signs the revocation: it takes its place in this ledger and no other. Returns the enrolment.
        """
        with self._writing() as transaction:
            own = transaction.announce_first()
            old = transaction.state.keys[own]
            entry = transaction.append(enrolment_of(successor.public, old.roles, old.name, replaces=own))
            following = Transaction(self._database, transaction.connection, transaction.state, successor, self._clock)
            following.append(bodies.KeyRevocation(key_id=own, reason="rotated", who=who))
            return entry

    def enrol_key(self, public: PublicKey, *, roles: Sequence[str], name: str) -> Entry:
        """Let a key write what its roles allow; a key that is enrolled gets these roles in place of its own."""
        with self._writing() as transaction:
            return transaction.append(enrolment_of(public, roles, name))

    def revoke_key(self, key_id: str, *, reason: str, who: str) -> Entry:
        """Let a key write no more; what it signed before stays."""
        with self._writing() as transaction:
            return transaction.append(bodies.KeyRevocation(key_id=key_id, reason=reason, who=who))

    def mark_restored(self, *, who: str, made_at: str) -> Entry:
        """Say that what follows continues a backup: nothing is released until it is reconciled."""
        with self._writing() as transaction:
            return transaction.append(bodies.Restore(who=who, backup_made_at=made_at))

    def reconcile(self, answer: bodies.Reconciliation) -> Entry:
        """Write down what entries that are gone may have cost, or who vouches for keys; releases may go on."""
        with self._writing(vouching=bool(answer.vouches)) as transaction:
            entry = transaction.append(answer)
            require_trusted(transaction.state, self._anchors)  # or more keys are to be vouched for
            return entry

    def adopt(
        self,
        entries: Sequence[Entry],
        measurements: Sequence[Row],
        fingerprints: Sequence[Row],
        *,
        who: str,
        made_at: str,
    ) -> None:
        """Fill an empty ledger with a backup's rows and say so, in one transaction.

        Raises: LedgerError if there are entries already, or the backup's do not replay.
        """
        with self._writing() as transaction:
            transaction.adopt(entries, measurements, fingerprints)
            transaction.append(bodies.Restore(who=who, backup_made_at=made_at))

    def ensure_cap(
        self,
        population: str,
        cap: Cap,
        basis: dict[str, str],
        *,
        windows: Windows = ALL,
        cost: Cost | None = None,
        who: str | None = None,
    ) -> None:
        """Write the population's cap on first use; refuse a specification that states another one.

        A cap that names no kind gets that of `cost`, the first release's. `who` is the account that runs it.
        Raises: LedgerError.
        """
        with self._writing() as transaction:
            known = transaction.state.populations.get(population)
            if known is None:
                written = cap if cap.kind or cost is None else replace(cap, kind=CapKind.of(cost))
                transaction.append(bodies.CapChange.of(written, basis, None, who, windows), population)
            else:
                refusals.require_same_cap(known, cap, basis, windows)

    def raise_cap(
        self,
        population: str,
        cap: Cap,
        basis: dict[str, str],
        reason: str,
        *,
        windows: Windows = ALL,
        cost: Cost | None = None,
        who: str | None = None,
    ) -> Entry:
        """Write another cap over the present one, with its reason and who set it.

        A cap that names no kind keeps the population's, or gets that of what was taken, or of `cost`.
        """
        with self._writing() as transaction:
            known = transaction.state.populations.get(population)
            written = cap
            if known is not None:
                refusals.require_adding_up(known, basis)
                basis = known.basis  # a population's is the one of its first cap
                written = refusals.raised_cap(known, cap, cost)
            elif cap.kind is None and cost is not None:
                written = replace(cap, kind=CapKind.of(cost))
            return transaction.append(bodies.CapChange.of(written, basis, reason, who, windows), population)

    def give_back_abandoned(self, request: ReserveRequest) -> None:
        """Void reservations of the request's name of which nothing was drawn and whose run is gone.

        The caller holds the name's lock, so no run of that name is alive. The reservation
        that this request can take up stays.
        """
        wanted = request.reservation(0)
        with self._writing() as transaction:
            for release in list(transaction.state.releases.values()):
                found = release.reservation
                abandoned = found.name == wanted.name and release.status == ReleaseStatus.RESERVED
                if abandoned and not found.can_serve(wanted):
                    body = bodies.Void(reason="its run is gone and nothing was drawn")
                    transaction.append(body, release.population, release.release_id)

    def reserve(self, request: ReserveRequest) -> ReleaseState:
        """Reserve the budget of a release, or find the unfinished one of its period.

        Whoever comes second for a name and period gets the first one's release, in
        whatever status it is, unless the request supersedes it.
        Raises: BudgetExceededError, with nothing reserved.
        """
        with self._writing() as transaction:
            state = transaction.state
            refusals.require_reconciled(state)
            taken = refusals.find_release_to_resume(state.of_period(request.name, request.period), request.supersedes)
            if taken is not None:
                return copy_release(taken)
            sequence = state.next_sequence(request.name, request.period)
            refusals.require_room(state, request)
            reservation = request.reservation(sequence)
            require_approvers(state.keys, reservation.approve)
            release_id = release_id_of(request.name, request.period, sequence)
            transaction.append(reservation, request.population, release_id)
            return copy_release(state.releases[release_id])

    def spend(
        self,
        release_id: str,
        name: str,
        released: Measurement,
        *,
        build: dict[str, Any] | None = None,
        flow_run_id: str | None = None,
        fingerprint: str | None = None,
    ) -> Measurement:
        """Store a drawn measurement together with its spend, in one transaction.

        If the measurement was stored before, that one is returned and the new draw,
        which nobody has seen, is forgotten. `build` is the audit of the build that drew, in
        the run `flow_run_id`; `fingerprint` is the operator's, of the data measured.
        """
        with self._writing() as transaction:
            release = transaction.state.releases[release_id]
            if name in release.spends:
                return read_measurement(transaction.connection, release, name)
            body = bodies.Spend(
                measurement=name,
                event=released.event.as_json(),
                cost=cost_of(released.event),
                seeded=released.seeded,
                digest=released.digest(),
                build=build,
                flow_run_id=flow_run_id,
            )
            transaction.append(body, release.population, release_id)
            transaction.store(release_id, name, released)
            if fingerprint is not None:
                transaction.keep_fingerprint(release_id, fingerprint)
            return released

    def publish(self, release_id: str, *, bundle_digest: str, flow_run_id: str) -> Entry:
        """Record that the bundle with this digest is the release."""
        return self._append(release_id, bodies.Publication(bundle_digest=bundle_digest, flow_run_id=flow_run_id))

    def await_approval(self, release_id: str, *, bundle_digest: str, flow_run_id: str) -> Entry:
        """Record that the sealed bundle with this digest waits for a person."""
        return self._append(release_id, bodies.ApprovalRequest(bundle_digest=bundle_digest, flow_run_id=flow_run_id))

    def approve(
        self, release_id: str, *, bundle_digest: str, who: str, reason: str, signed: SignedDecision | None = None
    ) -> Entry:
        """Record who lets the bundle with this digest be published; with the last one needed, publish it as well.

        Without a signed decision the ledger's own key approves. Returns the approval.
        Raises: LedgerError if the release waits for nobody, with another bundle, or for somebody else.
        """
        with self._writing() as transaction:
            release = transaction.state.releases[release_id]
            body = bodies.Approval(bundle_digest=bundle_digest, who=who, reason=reason, **_proof(signed))
            approval = transaction.append(body, release.population, release_id)
            if is_approved(transaction.state.keys, release):
                assert release.awaiting is not None  # noqa: S101  or it could not be approved
                publication = bodies.Publication(bundle_digest=bundle_digest, flow_run_id=release.awaiting.flow_run_id)
                transaction.append(publication, release.population, release_id)
            return approval

    def refuse_bundle(self, release_id: str, *, who: str, reason: str, signed: SignedDecision | None = None) -> Entry:
        """Record who did not let a bundle be published; what it cost stays spent."""
        body = bodies.Refusal(rule="approval-refused", reason=reason, who=who, flow_run_id=None, **_proof(signed))
        return self._append(release_id, body)

    def refuse_request(self, request: ReserveRequest, release_id: str, *, rule: str, reason: str) -> None:
        """Record that a release was not reserved, and why; once, however often it is tried again."""
        with self._writing() as transaction:
            known = transaction.state.refusals.get(release_id)
            if known is not None and known.parse(bodies.Refusal).rule == rule:
                return
            body = bodies.Refusal(
                rule=rule,
                reason=reason,
                who=None,
                flow_run_id=request.flow_run_id,
                name=request.name,
                period=request.period,
                stated=request.stated,
            )
            transaction.append(body, request.population, release_id)

    def retract(self, release_id: str, *, who: str, reason: str) -> Entry:
        """Record who takes a published release back; what it cost stays spent."""
        return self._append(release_id, bodies.Retraction(who=who, reason=reason))

    def fail(self, release_id: str, *, status: ReleaseStatus, stage: str) -> Entry:
        """Record that a measured release did not come to publication."""
        return self._append(release_id, bodies.Failure(status=status, stage=stage))

    def void(self, release_id: str, *, reason: str) -> Entry:
        """Give back a reservation of which nothing was spent."""
        return self._append(release_id, bodies.Void(reason=reason))

    def _append(self, release_id: str, body: bodies.Body) -> Entry:
        with self._writing() as transaction:
            return transaction.append(body, transaction.state.releases[release_id].population, release_id)


def _proof(signed: SignedDecision | None) -> dict[str, Any]:
    return signed.as_json() if signed else {}
