"""What every entry must satisfy before its meaning counts: chained, readable and signed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache

from dpcore.errors import LedgerError
from tasks.keys.signing import PublicKey
from tasks.ledger.entries.bodies import KeyEnrolment
from tasks.ledger.entries.contents import BODIES, fault_of_body
from tasks.ledger.entries.entry import GENESIS, Entry
from tasks.ledger.entries.fields import is_slug, is_time
from tasks.ledger.entries.keys import KeyRuleError, Keys

BROKEN_HINT = (
    "bring the ledger back with `dprelease restore`, run `dprelease audit`, and reconcile what was spent after the "
    "backup; nothing is released on a broken ledger"
)


def require_chained(entry: Entry, head: Entry | None) -> None:
    """Refuse an entry that does not follow the head of the chain, or was changed.

    Raises: LedgerError.
    """
    expected_seq = head.seq + 1 if head else 1
    if not _is_typed(entry):
        raise _broken(expected_seq, "has fields of other types than a ledger's")
    refuse_unless(entry.seq == expected_seq, entry, "does not follow the one before: an entry is missing")
    refuse_unless(entry.previous == (head.hash if head else GENESIS), entry, "names another predecessor")
    refuse_unless(entry.hash == entry.expected_hash(), entry, "was changed: its hash does not fit its content")


def require_readable(entry: Entry, head: Entry | None) -> None:
    """Refuse an entry whose time, names or content no version of this program writes.

    Raises: LedgerError.
    """
    refuse_unless(is_time(entry.at), entry, "states no time that the program would have written")
    refuse_unless(head is None or entry.at >= head.at, entry, "states an earlier time than the one before")
    refuse_unless(entry.kind in BODIES, entry, "has an unknown kind")
    named = all(not name or is_slug(name) for name in (entry.population, entry.release_id))
    refuse_unless(named, entry, "misspells the name of its population or release")
    fault = fault_of_body(entry.kind, entry.body)
    refuse_unless(fault is None, entry, fault or "")


def require_signed(entry: Entry, keys: Keys) -> None:
    """Refuse a wrong signature. Entries before the first key are unsigned, and an active key signs each after it.

    Raises: LedgerError.
    """
    announced = entry.parse(KeyEnrolment) if entry.is_a(KeyEnrolment) else None
    if announced and announced.key_id == entry.key_id and entry.key_id not in keys:
        public = announced.public_key  # a key announces itself
    elif not keys:
        refuse_unless(not entry.key_id and not entry.signature, entry, "is signed by a key that nobody announced")
        refuse_unless(announced is None, entry, "announces a key that did not sign it")
        return
    else:
        known = keys.get(entry.key_id)
        refuse_unless(known is not None and known.active, entry, "is not signed by an active key")
        public = keys[entry.key_id].public
    valid = parse_key(public).verifies(entry.signature, entry.hash.encode())
    refuse_unless(valid, entry, "has a signature that is not its key's")


def _is_typed(entry: Entry) -> bool:
    return type(entry.seq) is int and all(
        isinstance(getattr(entry, field.name), str) for field in fields(entry) if field.name != "seq"
    )


@lru_cache(maxsize=256)
def parse_key(text: str) -> PublicKey:
    """Parse a key of the ledger, once for all its entries."""
    return PublicKey.from_text(text)


@contextmanager
def key_rules(entry: Entry) -> Iterator[None]:
    """Name the entry in the error if its key may not do what it does."""
    try:
        yield
    except KeyRuleError as fault:
        refuse_unless(False, entry, str(fault))


def refuse_unless(holds: bool, entry: Entry, what: str) -> None:
    """Refuse an entry for what it does, unless the condition holds.

    Raises: LedgerError.
    """
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
