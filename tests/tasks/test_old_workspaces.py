"""What earlier versions of the program released stays verifiable, and its ledger goes on.

`golden/version-1.tar.gz` is a workspace as version 1 left it, with invented people: one release by
Wishart noise and one by Gaussian noise, which that version counted as zCDP. It holds no landing data.
"""

from __future__ import annotations

import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from staged import land_rows, release

from tasks.stores.audit import audit_workspace
from tasks.stores.ledger import Ledger
from tasks.stores.workspace import Workspace

GOLDEN = Path(__file__).parent / "golden" / "version-1.tar.gz"


@pytest.fixture
def old(tmp_path: Path) -> Workspace:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return Workspace(tmp_path)


def test_releases_of_version_1_pass_the_audit_untouched(old: Workspace) -> None:
    before = old.ledger_path.read_bytes()
    checks = audit_workspace(old)
    assert [(check.name, check.detail) for check in checks if not check.ok] == []
    assert "drawn before builds were audited" in " ".join(check.detail for check in checks)
    assert old.ledger_path.read_bytes() == before


def test_a_ledger_of_version_1_goes_on_signed_and_keeps_what_was_spent(old: Workspace) -> None:
    old.create()
    land_rows(old.root, "2026-03")
    with closing(Ledger.open_to_read(old.ledger_path)) as ledger:
        known = ledger.entries()
    release(old, "2026-03")
    with closing(Ledger.open_to_read(old.ledger_path)) as ledger:
        entries = ledger.entries()
    assert entries[: len(known)] == known
    assert [entry.kind for entry in entries[len(known) :]] == ["key", "reserve", "spend", "publish"]
    assert [(check.name, check.detail) for check in audit_workspace(old) if not check.ok] == []


def test_a_changed_cost_of_version_1_is_still_found(old: Workspace) -> None:
    record = next(old.releases.glob("*/*/record.json"))
    record.chmod(0o644)
    record.write_text(record.read_text().replace('"epsilon": 0.5', '"epsilon": 0.4', 1))
    assert [check.name for check in audit_workspace(old) if not check.ok] != []
