"""What a ledger's events mean: a pure state machine over an append-only, hash-chained list.

Nothing here reads or writes; `tasks.ledger.store` does. The accountant is a function
over the events, so an auditor replays exactly what a release relied on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from dpcore.accounting import Cap, Cost, total
from dpcore.errors import LedgerError
from tasks.keys.decision import SignedDecision
from tasks.keys.signing import PublicKey
from tasks.ledger import entry_keys
from tasks.ledger.entry_content import BODIES, canonical, exact_number, fault_of_body, is_slug, is_time
from tasks.ledger.entry_keys import ROLE_OF, Key, KeyRuleError

BROKEN_HINT = (
    "bring the ledger back with `dprelease restore`, run `dprelease audit`, and reconcile what was spent after the "
    "backup; nothing is released on a broken ledger"
)

GENESIS = "0" * 64
"""What the first entry names as the hash before it."""

UNFINISHED = ("reserved", "measured", "failed", "check-failed", "awaiting-approval")
"""What another run of the same period takes up."""
MAY_FOLLOW_A_RESTORE = ("key", "revoke", "cap", "restore", "reconcile")
"""Until somebody says what a backup does not know, nothing is reserved, spent or given back on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event of the ledger, as it is stored."""

    seq: int
    at: str
    kind: str
    population: str
    release_id: str
    body: str
    previous: str
    hash: str
    key_id: str = ""
    signature: str = ""

    @staticmethod
    def after(head: Entry | None, *, at: str, kind: str, population: str, release_id: str, body: Any) -> Entry:
        """The next entry of the chain."""
        draft = Entry(
            seq=head.seq + 1 if head else 1,
            at=at,
            kind=kind,
            population=population,
            release_id=release_id,
            body=canonical(body),
            previous=head.hash if head else GENESIS,
            hash="",
        )
        return replace(draft, hash=draft.expected_hash())

    def expected_hash(self) -> str:
        """SHA-256 over every field but the hash itself and its signature."""
        fields = [self.seq, self.at, self.kind, self.population, self.release_id, self.body, self.previous]
        return hashlib.sha256(canonical(fields).encode()).hexdigest()

    @property
    def facts(self) -> dict[str, Any]:
        """The body, parsed."""
        facts: dict[str, Any] = json.loads(self.body)
        return facts

    def as_json(self) -> dict[str, Any]:
        """The entry as it is exported; `from_json` is its inverse."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @staticmethod
    def from_json(line: dict[str, Any]) -> Entry:
        """The entry that `as_json` wrote."""
        return Entry(**line)


def cost_to_json(cost: Cost) -> dict[str, str]:
    """A cost as exact text."""
    return {
        "epsilon": str(cost.epsilon),
        "rho": str(cost.rho),
        "rho_of_pure": str(cost.rho_of_pure),
        "delta_num": str(cost.delta_num),
    }


def cost_from_json(body: dict[str, str]) -> Cost:
    """The cost that `cost_to_json` wrote.

    Raises: ValueError for figures that it never writes.
    """
    return Cost(**{name: exact_number(value) for name, value in body.items()})


def less(one: Cost, other: Cost) -> Cost:
    """A cost without another that is part of it."""
    return Cost(
        one.epsilon - other.epsilon,
        one.rho - other.rho,
        one.rho_of_pure - other.rho_of_pure,
        one.delta_num - other.delta_num,
    )


@dataclass(frozen=True, slots=True)
class Population:
    """A population's cap, what its budget is counted for, and what was taken of it."""

    cap: Cap
    basis: dict[str, str]
    cap_entry: Entry
    """The entry that set the cap; it says when and why, and since later versions who."""
    spent: Cost = field(default_factory=Cost)
    reserved: Cost = field(default_factory=Cost)


@dataclass(slots=True)
class ReleaseState:
    """One release as the events so far tell it."""

    release_id: str
    population: str
    facts: dict[str, Any]
    reserve_seq: int
    status: str = "reserved"
    reserved: Cost = field(default_factory=Cost)
    spent: Cost = field(default_factory=Cost)
    spends: dict[str, Entry] = field(default_factory=dict)
    awaiting: Entry | None = None
    """The sealed bundle that waits, or waited, for approval."""
    approval: Entry | None = None
    """The last approval."""
    approvals: dict[str, Entry] = field(default_factory=dict)
    """The approvals of the bundle that waits, by the key of the approver."""
    refusal: Entry | None = None
    """A person's no to the bundle that waited."""
    published: Entry | None = None


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
        releases = {name: replace(release, spends=dict(release.spends)) for name, release in self.releases.items()}
        return replace(
            self,
            populations=dict(self.populations),
            releases=releases,
            keys=dict(self.keys),
            refusals=dict(self.refusals),
        )

    def apply(self, entry: Entry) -> None:
        """Take one more entry into account.

        Raises: LedgerError if its place in the chain, its hash, its content or its meaning is wrong.
        """
        self._require_chained(entry)
        self._require_readable(entry)
        self._require_signed(entry)
        allowed = self.restored is None or entry.kind in MAY_FOLLOW_A_RESTORE
        _require(allowed, entry, "follows a restored backup that nobody has reconciled")
        with _key_rules(entry):
            if self.keys and entry.kind != "key":
                entry_keys.require_role(self.keys, entry.key_id, self.role_of(entry))
            getattr(self, f"_apply_{entry.kind}")(entry)
        if entry.key_id and entry.key_id not in self.signers:
            self.signers |= {entry.key_id}
        self.head = entry

    def _require_chained(self, entry: Entry) -> None:
        expected_seq = self.head.seq + 1 if self.head else 1
        if not _is_typed(entry):
            raise _broken(expected_seq, "has fields of other types than a ledger's")
        _require(entry.seq == expected_seq, entry, "does not follow the one before: an entry is missing")
        _require(entry.previous == (self.head.hash if self.head else GENESIS), entry, "names another predecessor")
        _require(entry.hash == entry.expected_hash(), entry, "was changed: its hash does not fit its content")

    def _require_readable(self, entry: Entry) -> None:
        """Its time, names and content are such as the program writes."""
        _require(is_time(entry.at), entry, "states no time that the program would have written")
        _require(self.head is None or entry.at >= self.head.at, entry, "states an earlier time than the one before")
        _require(entry.kind in BODIES, entry, "has an unknown kind")
        named = all(not name or is_slug(name) for name in (entry.population, entry.release_id))
        _require(named, entry, "misspells the name of its population or release")
        fault = fault_of_body(entry.kind, entry.body)
        _require(fault is None, entry, fault or "")

    def _require_signed(self, entry: Entry) -> None:
        """Entries before the first key are unsigned; after it every entry is signed by an active one."""
        announced = entry.facts if entry.kind == "key" else None
        if announced and announced["key_id"] == entry.key_id and entry.key_id not in self.keys:
            public = announced["public_key"]  # a key announces itself
        elif not self.keys:
            _require(not entry.key_id and not entry.signature, entry, "is signed by a key that nobody announced")
            _require(announced is None, entry, "announces a key that did not sign it")
            return
        else:
            known = self.keys.get(entry.key_id)
            _require(known is not None and known.active, entry, "is not signed by an active key")
            public = self.keys[entry.key_id].public
        valid = _parse_key(public).verifies(entry.signature, entry.hash.encode())
        _require(valid, entry, "has a signature that is not its key's")

    def role_of(self, entry: Entry) -> str:
        """The role that an entry's key needs; whoever passes on an approver's own signature only releases."""
        if entry.kind == "approve" or (entry.kind == "refuse" and entry.release_id in self.releases):
            return "release" if "signature" in entry.facts else "approve"
        return ROLE_OF.get(entry.kind, "release")

    def _apply_key(self, entry: Entry) -> None:
        facts, by_itself = entry.facts, entry.facts["key_id"] == entry.key_id
        if not by_itself:
            entry_keys.require_role(self.keys, entry.key_id, "cap")
        self.keys = entry_keys.announce(self.keys, entry.key_id, facts, seq=entry.seq, closed=self.closed)
        self.closed = self.closed or "roles" in facts

    def _apply_revoke(self, entry: Entry) -> None:
        self.keys, self.closed = entry_keys.revoke(self.keys, entry.key_id, entry.facts), True

    def _apply_cap(self, entry: Entry) -> None:
        facts = entry.facts
        cap = Cap(*(exact_number(facts[name]) for name in ("epsilon", "delta", "delta_num")))
        known = self.populations.get(entry.population)
        _require(known is None or bool(facts.get("reason")), entry, "changes a cap without a reason")
        _require(known is None or known.basis == facts["basis"], entry, "changes what the budget is counted for")
        _require(facts.get("who") != "", entry, "does not say who set the cap")
        taken = known or Population(cap, facts["basis"], entry)
        self.populations[entry.population] = replace(taken, cap=cap, cap_entry=entry)

    def _apply_reserve(self, entry: Entry) -> None:
        facts = entry.facts
        _require(entry.population in self.populations, entry, "reserves for a population without a cap")
        _require(entry.release_id not in self.releases, entry, "reserves a release a second time")
        reserved = total(cost_from_json(m["cost"]) for m in facts["measurements"].values())
        cap = self.populations[entry.population].cap
        # Earlier versions admitted mixed costs by a rule that is no filter. Their ledgers stay readable: the
        # audit says where they exceed today's rule, by which alone the ledger takes new reservations.
        fits = cap.admits_if_fixed(self.committed(entry.population) + reserved)
        _require(fits, entry, "exceeds the population's cap")
        self.releases[entry.release_id] = ReleaseState(
            entry.release_id, entry.population, facts, entry.seq, reserved=reserved
        )
        self._take(entry.population, reserved=reserved)

    def _take(self, population: str, *, spent: Cost | None = None, reserved: Cost) -> None:
        """Move a population's tallies; a negative reservation is given with `less`."""
        known = self.populations[population]
        spent_now = known.spent + spent if spent else known.spent
        self.populations[population] = replace(known, spent=spent_now, reserved=known.reserved + reserved)

    def _apply_spend(self, entry: Entry) -> None:
        release = self._release(entry, "reserved", "measured", "failed", "check-failed")
        facts = entry.facts
        name = facts["measurement"]
        _require(name in release.facts["measurements"], entry, "spends on what was not reserved")
        _require(name not in release.spends, entry, "draws a measurement a second time")
        reserved = release.facts["measurements"][name]
        _require(facts["cost"] == reserved["cost"], entry, "spends another cost than was reserved")
        _require(facts["event"] == reserved["event"], entry, "measures something else than was reserved")
        cost = cost_from_json(facts["cost"])
        release.spends[name] = entry
        release.status = "measured"
        release.spent, release.reserved = release.spent + cost, less(release.reserved, cost)
        self._take(entry.population, spent=cost, reserved=less(Cost(), cost))

    def _apply_fail(self, entry: Entry) -> None:
        release = self._release(entry, "measured", "failed", "check-failed")
        _require(entry.facts["status"] in ("failed", "check-failed"), entry, "has an unknown status")
        release.status = entry.facts["status"]

    def _apply_await(self, entry: Entry) -> None:
        """A sealed bundle waits for a person; one that was made anew waits again, whatever was said of the first."""
        release = self._release(entry, "measured", "failed", "check-failed", "awaiting-approval")
        self._require_measured(release, entry)
        release.status, release.awaiting, release.approval = "awaiting-approval", entry, None
        release.approvals = {}

    def _apply_approve(self, entry: Entry) -> None:
        release = self._release(entry, "awaiting-approval")
        _require(bool(entry.facts["who"] and entry.facts["reason"]), entry, "does not say who approved, or why")
        _require(_digest(entry) == _digest(release.awaiting), entry, "approves another bundle than the one that waits")
        approver = self._approver(release, entry)
        _require(not approver or approver not in release.approvals, entry, "approves a second time with one key")
        release.approval, release.approvals = entry, release.approvals | {approver: entry}

    def _approver(self, release: ReleaseState, entry: Entry) -> str:
        """The key that decides about a bundle: the entry's, or the one whose signed decision it passes on."""
        facts, approver = entry.facts, entry.key_id
        if "signature" in facts:
            signed = SignedDecision.from_json(facts)
            approver, known = signed.approver, self.keys.get(signed.approver)
            _require(known is not None and known.active, entry, "passes on a decision of a key that is not active")
            entry_keys.require_role(self.keys, approver, "approve")
            public = _parse_key(self.keys[approver].public)
            _require(signed.is_signed_by(public), entry, "passes on a decision that its approver did not sign")
            said = (entry.kind, entry.release_id, _digest(release.awaiting), facts["who"], facts["reason"])
            content = signed.content
            decided = (content.decision, content.release_id, content.bundle_digest, content.who, content.reason)
            _require(decided == said, entry, "passes on a decision about something else")
        listed = self.approver_name(release, approver) is not None
        _require(listed, entry, "is the decision of a key that the release does not name as approver")
        return approver

    def approver_name(self, release: ReleaseState, key_id: str) -> str | None:
        """As whom a key decides about a release: two keys of one name are one approver; None if it may not."""
        wanted = release.facts.get("approve", "none")
        if isinstance(wanted, str):
            return key_id
        name = self.keys[key_id].name if key_id in self.keys else ""
        return next((listed for listed in (name, key_id) if listed and listed in wanted["by"]), None)

    def approvers(self, release: ReleaseState) -> set[str]:
        """Who has approved the bundle that waits, without those whose key was revoked since."""
        valid = (key_id for key_id in release.approvals if key_id not in self.keys or self.keys[key_id].active)
        return {name for key_id in valid if (name := self.approver_name(release, key_id)) is not None}

    def is_approved(self, release: ReleaseState) -> bool:
        """Whether as many approvers as the release asks for have approved the bundle that waits."""
        return len(self.approvers(release)) >= approvals_needed(release)

    def _apply_refuse(self, entry: Entry) -> None:
        """A person refuses the bundle that waits, or the budget refused to reserve."""
        facts = entry.facts
        _require(bool(facts["rule"] and facts["reason"]), entry, "does not say why it refuses")
        known = self.releases.get(entry.release_id)
        if known is None:
            _require(entry.population in self.populations, entry, "speaks of a population without a cap")
            self.refusals[entry.release_id] = entry
            return
        release = self._release(entry, "awaiting-approval")
        _require(bool(facts["who"]), entry, "does not say who refuses")
        self._approver(release, entry)
        release.status, release.refusal = "refused", entry

    def _apply_publish(self, entry: Entry) -> None:
        release = self._release(entry, "measured", "failed", "check-failed", "awaiting-approval")
        self._require_measured(release, entry)
        free = release.facts.get("approve", "none") == "none" and release.awaiting is None
        _require(free or bool(release.approvals), entry, "publishes what nobody has approved")
        _require(free or self.is_approved(release), entry, "publishes what too few have approved")
        same = release.approval is None or _digest(entry) == _digest(release.approval)
        _require(same, entry, "publishes another bundle than the approved one")
        self._supersede(release, entry)
        others = self.of_period(release.facts["name"], release.facts["period"])
        _require(all(other.status != "published" for other in others), entry, "publishes a month a second time")
        release.status, release.published = "published", entry

    def _supersede(self, release: ReleaseState, entry: Entry) -> None:
        """Take back what a release replaces: the one it names, and through refused ones those that they named."""
        replaced = release.facts.get("supersedes")
        while replaced:
            _require(replaced in self.releases, entry, "supersedes an unknown release")
            old = self.releases[replaced]
            old.status = "superseded" if old.published else old.status
            replaced = old.facts.get("supersedes")

    @staticmethod
    def _require_measured(release: ReleaseState, entry: Entry) -> None:
        complete = set(release.spends) == set(release.facts["measurements"])
        _require(complete, entry, "publishes before all was measured")

    def _apply_void(self, entry: Entry) -> None:
        release = self._release(entry, "reserved")
        release.status = "void"
        self._take(entry.population, reserved=less(Cost(), release.reserved))
        release.reserved = Cost()

    def _apply_restore(self, entry: Entry) -> None:
        _require(bool(entry.facts["who"]), entry, "does not say who restored")
        self.restored = entry

    def _apply_reconcile(self, entry: Entry) -> None:
        """What the entries that are gone may have cost, by the word of a person.

        With a charge, releases in flight are over as well: whether the lost entries drew for
        them is not known, so what they reserved counts as spent and their ids are not used again.
        """
        facts = entry.facts
        _require(bool(facts["who"] and facts["reason"]), entry, "does not say who reconciled, or why")
        charges = {name: cost_from_json(cost) for name, cost in facts["charges"].items()}
        _require(charges.keys() <= self.populations.keys(), entry, "charges an unknown population")
        _require(Cost() not in charges.values(), entry, "charges a population nothing")
        _require(bool(charges) or not facts["lost"], entry, "charges nothing for entries that are known to be lost")
        for population, cost in charges.items():
            self._take(population, spent=cost, reserved=Cost())
        if charges:
            self._give_up_unfinished()
        if facts.get("vouches"):
            _require(not charges and not facts["lost"], entry, "vouches for keys and answers for lost entries at once")
            self.keys, self.closed = entry_keys.vouch(self.keys, entry.key_id, facts["vouches"]), True
            return  # whether a restored backup lacks something is another question
        self.lost |= {(int(seq), str(digest)) for seq, digest in facts["lost"]}
        self.retired |= set(facts["retired"])
        self.restored = None

    def _give_up_unfinished(self) -> None:
        for release in self.releases.values():
            if release.status in UNFINISHED:
                left = release.reserved
                self._take(release.population, spent=left, reserved=less(Cost(), left))
                release.status, release.reserved, release.spent = "lost", Cost(), release.spent + left

    def _release(self, entry: Entry, *statuses: str) -> ReleaseState:
        _require(entry.release_id in self.releases, entry, "speaks of an unknown release")
        release = self.releases[entry.release_id]
        _require(entry.population == release.population, entry, "speaks of another population than its release")
        _require(release.status in statuses, entry, f"cannot follow status {release.status!r}")
        return release

    def spent(self, population: str) -> Cost:
        """What a population's drawn measurements cost together."""
        known = self.populations.get(population)
        return known.spent if known else Cost()

    def reserved(self, population: str) -> Cost:
        """What is reserved for a population and not yet spent."""
        known = self.populations.get(population)
        return known.reserved if known else Cost()

    def committed(self, population: str) -> Cost:
        """Spent and reserved together: what the cap is held against."""
        return self.spent(population) + self.reserved(population)

    def of_period(self, name: str, period: str) -> list[ReleaseState]:
        """The releases of one name and period that were not given up, oldest first."""
        mine = [r for r in self.releases.values() if (r.facts["name"], r.facts["period"]) == (name, period)]
        kept = (r for r in mine if r.status not in ("void", "lost"))
        return sorted(kept, key=lambda r: int(r.facts["sequence"]))

    def next_sequence(self, name: str, period: str) -> int:
        """The sequence number of a new release of a name and period; void, lost and retired ones keep theirs."""
        used = [
            int(r.facts["sequence"])
            for r in self.releases.values()
            if (r.facts["name"], r.facts["period"]) == (name, period)
        ]
        prefix = f"{name}-{period}-"
        gone = [r.removeprefix(prefix) for r in self.retired if r.startswith(prefix)]
        return max(used + [int(number) for number in gone if number.isdecimal()], default=0) + 1


def approvals_needed(release: ReleaseState) -> int:
    """How many approvers a release asks for."""
    wanted = release.facts.get("approve", "none")
    return 1 if isinstance(wanted, str) else int(wanted["at_least"])


def _digest(entry: Entry | None) -> str | None:
    """The digest of the bundle that an entry speaks of."""
    return str(entry.facts["bundle_digest"]) if entry else None


def _is_typed(entry: Entry) -> bool:
    texts = (getattr(entry, f.name) for f in fields(entry) if f.name != "seq")
    return type(entry.seq) is int and all(isinstance(text, str) for text in texts)


@lru_cache(maxsize=256)
def _parse_key(text: str) -> PublicKey:
    """A key of the ledger, parsed once for all its entries."""
    return PublicKey.from_text(text)


@contextmanager
def _key_rules(entry: Entry) -> Iterator[None]:
    """Name the entry that does what its key may not."""
    try:
        yield
    except KeyRuleError as fault:
        _require(False, entry, str(fault))


def _require(holds: bool, entry: Entry, what: str) -> None:
    if not holds:
        kind = f"({entry.kind}) " if entry.kind in BODIES else ""  # text of others is not repeated
        raise _broken(entry.seq, f"{kind}{what}")


def _broken(seq: int, what: str) -> LedgerError:
    return LedgerError(
        f"ledger entry {seq} {what}",
        rule="ledger-broken",
        where=f"ledger entry {seq}",
        hint=BROKEN_HINT,
    )
