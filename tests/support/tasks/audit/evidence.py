"""What an outside auditor is given, whole or changed and signed again."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.tasks.audit.tampering import FIRST, rewritten

from tasks.audit import Check, audit_export, read_public_key
from tasks.bundle.staging import CHECKSUMS, render_json, sha256_of
from tasks.bundle.statement import STATEMENT, build_statement, sign_statement
from tasks.keys.signing import Signer
from tasks.ledger.entries.bodies import Publication
from tasks.ledger.entries.entry import Entry
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace


class Given:
    """What an auditor was handed, and no more."""

    def __init__(self, folder: Path) -> None:
        self.export, self.bundles, self.key = folder / "ledger.ndjson", folder / "bundles", folder / "key.pub"

    def audit(self, release_id: str | None = None, **options: Any) -> list[Check]:
        return audit_export(self.export, self.bundles, [read_public_key(self.key)], release_id, **options)

    def bundle(self, release_id: str = FIRST) -> Path:
        return self.bundles / "small" / release_id

    def entries(self) -> list[Entry]:
        return [Entry.from_json(json.loads(line)) for line in self.export.read_text().splitlines()]

    def write(self, entries: list[Entry]) -> None:
        self.export.write_text("".join(json.dumps(entry.as_json()) + "\n" for entry in entries))


def hand_over(workspace: Workspace, folder: Path) -> Given:
    given = Given(folder)
    folder.mkdir()
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        given.write(ledger.entries())
    shutil.copytree(workspace.releases, given.bundles)
    shutil.copy(workspace.keys / "signing.pub", given.key)
    return given


# ---------------------------------------------------------------- lies by the owner of the key


def republish(given: Given, key: Signer, *, sign: Signer | None = None, restate: bool = True) -> None:
    """Make statement, checksums and ledger fit the first bundle again, as only the key's owner can."""
    folder = given.bundle()
    if restate:
        record = json.loads((folder / "record.json").read_text())
        digests = {p.name: sha256_of(p) for p in folder.iterdir() if p.name not in (STATEMENT, CHECKSUMS)}
        envelope = sign_statement(build_statement(record, digests), sign or key)
        rewritten(folder / STATEMENT, render_json(envelope).encode())
    names = sorted(p.name for p in folder.iterdir() if p.name != CHECKSUMS)
    rewritten(folder / CHECKSUMS, "".join(f"{sha256_of(folder / n)}  {n}\n" for n in names).encode())
    digest, entries = sha256_of(folder / CHECKSUMS), given.entries()
    was = next(e.parse(Publication).bundle_digest for e in entries if e.kind == "publish" and e.release_id == FIRST)
    renewed: list[Entry] = []
    for old in entries:
        head = renewed[-1].hash if renewed else "0" * 64
        draft = replace(old, body=old.body.replace(was, digest), previous=head)
        hashed = replace(draft, hash=draft.expected_hash())
        renewed.append(replace(hashed, signature=key.sign(hashed.hash.encode())))
    given.write(renewed)
