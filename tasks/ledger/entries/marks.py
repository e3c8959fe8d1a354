"""The mark of a retracted release: a file beside its bundle, which tells people and programs not to use it.

The mark is the ledger's signed `retract` entry, in words and as it is. It is believed only together with the ledger.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from tasks.ledger.entries.bodies import Retraction
from tasks.ledger.entries.entry import Entry
from tasks.workspace.reading import parse_json, read_text

NOTICE = "This release was retracted. Do not use its bundle, and do not pass it on."


def retraction_words(entry: Entry) -> str:
    """Who retracted a release, when and why."""
    body = entry.parse(Retraction)
    return f"retracted by {body.who} on {entry.at[:10]} (ledger entry {entry.seq}): {body.reason}"


def mark_text(entry: Entry) -> str:
    """The whole text of the mark that a `retract` entry gives."""
    body = entry.parse(Retraction)
    facts = {"release_id": entry.release_id, "who": body.who, "at": entry.at, "reason": body.reason}
    return json.dumps({"notice": NOTICE, **facts, "ledger_entry": entry.as_json()}, indent=2, ensure_ascii=False) + "\n"


def marked_entry(mark: Path) -> Entry | None:
    """The ledger entry that a mark cites; None if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        entry = Entry.from_json(parse_json(read_text(mark))["ledger_entry"])
        if entry.is_a(Retraction) and type(entry.seq) is int and entry.hash == entry.expected_hash():
            return entry
    return None
