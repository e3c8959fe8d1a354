"""The ledger as JSON lines, and files that are complete or absent."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dpcore.errors import LedgerError, WorkspaceError
from tasks.ledger.entries.entry import Entry
from tasks.workspace.files import PRIVATE_FILE, flush_to_disk
from tasks.workspace.reading import parse_json
from tasks.workspace.redaction import ErrorBoundary, reason_of


def export_lines(entries: Sequence[Entry]) -> Iterator[str]:
    """One JSON line for each entry; whoever has them can verify the chain and every signature."""
    return (json.dumps(entry.as_json(), sort_keys=True) + "\n" for entry in entries)


def import_entries(lines: Iterator[str]) -> list[Entry]:
    """Parse the entries that `export_lines` wrote.

    Raises: LedgerError for lines that are none.
    """
    broken = LedgerError(
        "the export contains a line that is not a ledger entry",
        rule="ledger-broken",
        where="export",
        hint="take another copy of the export",
    )
    with ErrorBoundary(ValueError, TypeError, refusal=lambda _: broken):
        return [Entry.from_json(parse_json(line)) for line in lines]


def write_new(path: Path, write: Callable[[Path], None], *, mode: int = PRIVATE_FILE) -> None:
    """Make a file that is whole or not there, and never in the place of another.

    Raises: WorkspaceError if the file exists, or cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with ErrorBoundary(OSError, refusal=_unwritable_output):
        try:
            draft.touch(mode, exist_ok=False)
            write(draft)
            flush_to_disk(draft)
            os.link(draft, path)  # unlike a rename, it refuses to replace
        finally:
            draft.unlink(missing_ok=True)


def _unwritable_output(error: OSError) -> WorkspaceError:
    fault = "the file exists already" if isinstance(error, FileExistsError) else reason_of(error)
    return WorkspaceError(
        f"the output cannot be written: {fault}",
        rule="output-unwritable",
        where="--out",
        hint="name a new file in a folder of yours with room on its disk; nothing is overwritten",
    )
