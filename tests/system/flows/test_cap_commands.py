"""Caps as commands show them: who set them and why; and what commands say of a ledger whose entries cannot be."""

from __future__ import annotations

import getpass
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.flows.command_line import call

from tasks.keys.signing import signing_key
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *argv: call(capsys, monkeypatch, *argv)


@pytest.fixture
def place(run: Any, tmp_path: Path) -> Workspace:
    """A workspace whose ledger holds a key and a cap."""
    run("init", str(tmp_path / "w"), "--demo", "digits")
    assert run("budget", "raise", "--reason", "first use", "--who", "ada", "-w", str(tmp_path / "w"))[0] == 0
    return Workspace(tmp_path / "w")


def test_a_cap_says_who_set_it_when_and_why(run: Any, place: Workspace) -> None:
    said = json.loads(run("budget", "-w", str(place.root), "--json")[1])["cap_set"]
    assert (said["who"], said["reason"], said["ledger_entry"]) == ("ada", "first use", 2)
    assert "cap set by ada on 20" in run("budget", "-w", str(place.root))[1]
    out = place.root / "export.ndjson"
    run("ledger", "export", "-w", str(place.root), "--out", str(out))
    assert json.loads(json.loads(out.read_text().splitlines()[1])["body"])["who"] == "ada"
    run("site", "-w", str(place.root), "--out", str(place.root / "site"))
    assert any("set by ada" in page.read_text() for page in (place.root / "site").rglob("*.html"))


def test_without_a_name_the_account_sets_the_cap(run: Any, place: Workspace) -> None:
    run("budget", "raise", "--reason", "again", "-w", str(place.root))
    assert json.loads(run("budget", "-w", str(place.root), "--json")[1])["cap_set"]["who"] == getpass.getuser()


def forge(place: Workspace, seq: int, **changes: Any) -> None:
    """Change an entry and sign it again, as only the owner of the key can."""
    with closing(Ledger.open_to_read(place.ledger_path)) as ledger:
        entry = replace(ledger.entries()[seq - 1], **changes)
    entry = replace(entry, hash=entry.expected_hash())
    entry = replace(entry, signature=signing_key(place.keys).sign(entry.hash.encode()))
    with closing(sqlite3.connect(place.ledger_path)) as connection:
        connection.execute("DROP TRIGGER events_no_update")
        values = (entry.at, entry.body, entry.hash, entry.signature, seq)
        connection.execute("UPDATE events SET at = ?, body = ?, hash = ?, signature = ? WHERE seq = ?", values)
        connection.commit()


FORGED = {
    "a-cap-that-fills-the-memory": '"epsilon":"1e99999999"',
    "a-negative-cap": '"epsilon":"-12"',
    "a-cap-as-a-truth": '"epsilon":true',
    "a-cap-in-another-spelling": '"epsilon":"12.0"',
    "a-field-too-many": '"epsilon":"12","more":1',
    "a-deep-body": '"epsilon":' + "[" * 10_000 + "]" * 10_000,
}


@pytest.mark.parametrize("case", [*FORGED, "not-a-time"])
def test_commands_refuse_and_the_audit_reports_an_entry_that_cannot_be(run: Any, place: Workspace, case: str) -> None:
    with closing(Ledger.open_to_read(place.ledger_path)) as ledger:
        body = ledger.entries()[1].body
    epsilon = next(word for word in body.split(",") if "epsilon" in word)
    changes = {"at": "not a time"} if case == "not-a-time" else {"body": body.replace(epsilon, FORGED[case])}
    forge(place, 2, **changes)
    for command in (["budget"], ["plan"], ["history"], ["budget", "raise", "--reason", "x"]):
        code, out, err = run(*command, "-w", str(place.root), "--json")
        assert (code, json.loads(out)["rule"], json.loads(out)["where"]) == (2, "ledger-broken", "ledger entry 2")
        assert "Traceback" not in err
    code, out, _ = run("audit", "-w", str(place.root), "--json")
    (broken,) = [check for check in json.loads(out)["checks"] if not check["ok"]]
    assert (code, broken["name"]) == (1, "ledger chain")
    assert "ledger entry 2 (cap)" in broken["detail"]
