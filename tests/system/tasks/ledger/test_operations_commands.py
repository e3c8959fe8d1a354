"""The operator's commands, as a person or a script calls them."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tasks.builders import BASIS, cap
from support.tasks.ledger.postgres import Server
from support.tasks.staged import SPEC

from flows.cli import main
from tasks.keys.signing import PublicKey, SigningKey, signing_key
from tasks.ledger.entries.entry import Entry
from tasks.ledger.export import import_entries
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Exit code and output of a command, run beside the workspace."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["dprelease", *map(str, argv)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, capsys.readouterr().out

    return call


def answer(result: tuple[int, str], code: int = 0) -> dict[str, Any]:
    """The one JSON object of a command that ended as expected."""
    assert result[0] == code, result[1]
    content: dict[str, Any] = json.loads(result[1])
    return content


def test_the_ledger_is_exported_to_standard_output_or_a_file(run: Any, workspace: Workspace, tmp_path: Path):
    code, lines = run("ledger", "export", "-w", workspace.root)
    assert code == 0
    head = LedgerState.replay(import_entries(iter(lines.splitlines()))).head
    assert head is not None
    told = answer(run("ledger", "export", "-w", workspace.root, "--out", tmp_path / "e.ndjson", "--json"))
    assert told == {"entries": 8, "head": head.hash, "out": str(tmp_path / "e.ndjson")}
    assert (tmp_path / "e.ndjson").read_text() == lines
    assert answer(run("ledger", "export", "-w", workspace.root, "--json"))["out"] is None
    again = answer(run("ledger", "export", "-w", workspace.root, "--out", tmp_path / "e.ndjson", "--json"), 2)
    assert again["rule"] == "output-unwritable"


def test_a_workspace_comes_back_and_waits_for_its_reconciliation(run: Any, workspace: Workspace, tmp_path: Path):
    made = answer(run("backup", "-w", workspace.root, "--out", "b.tar", "--json"))
    assert (made["out"], made["entries"]) == (str(tmp_path / "b.tar"), 8)
    back = answer(run("restore", "b.tar", "-w", tmp_path / "back", "--json"))
    assert (back["entries"], back["head"], back["files"]) == (8, made["head"], made["files"])
    assert answer(run("audit", "-w", tmp_path / "back", "--json"))["ok"]
    reconcile = ("ledger", "reconcile", "-w", tmp_path / "back", "--json", "--reason", "a new disk")
    assert answer(run(*reconcile), 2)["rule"] == "charge-missing"
    both = (*reconcile, "--charge", "1", "--nothing-was-spent")
    assert answer(run(*both), 2)["rule"] == "charge-missing"
    assert answer(run(*reconcile, "--charge", "-1"), 2)["rule"] == "charge-invalid"
    assert answer(run(*reconcile, "--charge", "much"), 2)["rule"] == "charge-invalid"
    assert answer(run(*reconcile, "--charge", "1", "--charge", "2"), 2)["rule"] == "charge-twice"
    told = answer(run(*reconcile, "--charge", "people=0.25"))
    assert told == {"entry": 10, "charged": {"people": 0.25}, "lost": 0}
    budget = answer(run("budget", "-w", tmp_path / "back", "--json"))
    assert budget["spent"]["epsilon"] == pytest.approx(0.45)


def test_without_a_name_a_backup_is_dated_and_beside_you(run: Any, workspace: Workspace, tmp_path: Path):
    made = answer(run("backup", "-w", workspace.root, "--json"))
    assert Path(made["out"]).parent == tmp_path
    assert Path(made["out"]).name.startswith("small-20")


def test_keys_are_shown_and_rotated(run: Any, workspace: Workspace):
    before = answer(run("keys", "show", "-w", workspace.root, "--json"))
    assert before["signing"] == PublicKey.from_text(before["public_key"]).key_id
    rotated = answer(run("keys", "rotate", "-w", workspace.root, "--json"))
    assert rotated["replaces"] == before["signing"]
    after = answer(run("keys", "show", "-w", workspace.root, "--json"))
    assert after["signing"] == rotated["key_id"] == signing_key(workspace.keys).public.key_id
    assert {key["key_id"]: key["active"] for key in after["keys"]} == {
        before["signing"]: False,
        rotated["key_id"]: True,
    }
    assert answer(run("audit", "-w", workspace.root, "--json"))["ok"]
    assert "PRIVATE" not in json.dumps(after)


def test_keys_are_enrolled_trusted_revoked_and_encrypted(
    run: Any, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place, public = ("-w", workspace.root, "--json"), SigningKey.fresh().public
    (tmp_path / "other.pub").write_text(public.pem)
    told = answer(run("keys", "enrol", "other.pub", "--role", "release", "--role", "approve", "--name", "ada", *place))
    expected = {"key_id": public.key_id, "roles": ["release", "approve"], "name": "ada", "entry": 9}
    assert told == expected
    assert answer(run("keys", "enrol", public.text, "--role", "cap", *place))["entry"] == 10
    assert answer(run("keys", "enrol", public.text, "--role", "king", *place), 2)["rule"] == "role-unknown"
    assert answer(run("keys", "enrol", "nothing", "--role", "cap", *place), 2)["rule"] == "public-key-unreadable"
    assert answer(run("keys", "revoke", public.key_id, "--reason", "left", *place)) == {
        "key_id": public.key_id,
        "entry": 11,
    }
    again = answer(run("keys", "enrol", public.text, "--role", "cap", *place), 2)
    assert again["rule"] == "key-not-enrollable"
    assert answer(run("keys", "trust", "other.pub", *place)) == {"key_id": public.key_id}
    (tmp_path / "phrase").write_text("correct horse")
    monkeypatch.setenv("DPRELEASE_KEY_PASSPHRASE_FILE", str(tmp_path / "phrase"))
    assert answer(run("keys", "encrypt", *place))["encrypted"]
    assert answer(run("keys", "rotate", *place))["entry"] == 12
    assert answer(run("audit", *place))["ok"]
    vouch = answer(run("ledger", "reconcile", "--vouch", public.key_id, "--reason", "x", *place), 2)
    assert vouch["rule"] == "nothing-to-vouch-for"


@pytest.mark.parametrize(
    "argv",
    [("ledger", "export", "--out", "e"), ("backup", "--out", "b.tar"), ("keys", "show"), ("keys", "rotate")],
    ids=["export", "backup", "show", "rotate"],
)
def test_every_command_speaks_to_people_as_well(run: Any, workspace: Workspace, argv: tuple[str, ...]):
    code, told = run(*argv, "-w", workspace.root)
    assert code == 0
    assert told.strip()
    assert not told.startswith("{")


def test_roles_are_given_by_a_command(run: Any, server: Server, database: str, tmp_path: Path):
    workspace = Workspace(tmp_path / "w")
    workspace.create()
    workspace.spec_path.write_text(f"{SPEC}ledger: '{server.url(database)}'\n")
    names = [f"{role}_{database}" for role in ("writer", "auditor")]
    command = ("ledger", "roles", "-w", workspace.root, "--writer", names[0], "--auditor", names[1], "--json")
    assert answer(run(*command), 2)["rule"] == "role-unknown"
    server.execute(*(f"CREATE ROLE {name} LOGIN" for name in names))
    assert answer(run(*command)) == {"writer": names[0], "auditor": names[1]}
    for name in names:
        server.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}", database=database)


def test_populations_are_shared_and_unreadable_entries_set_aside_by_commands(
    run: Any, server: Server, database: str, tmp_path: Path
):
    workspace = Workspace(tmp_path / "w")
    workspace.create()
    workspace.spec_path.write_text(f"{SPEC}ledger: '{server.url(database)}'\n")
    key, role = signing_key(workspace.keys), f"writer_{database}"
    with closing(Ledger.open(server.url(database), key)) as ledger:
        ledger.ensure_cap("people", cap(), BASIS)
    server.execute(f"CREATE ROLE {role}")
    grant = ("ledger", "grant", "people", "--to", role, "-w", workspace.root, "--json")
    told = {"population": "people", "role": role}
    assert answer(run(*grant)) == told | {"right": "writer"}
    assert answer(run(*grant, "--as-owner")) == told | {"right": "owner"}
    assert answer(run(*grant, "--revoke")) == told | {"right": None}
    server.execute(f"DROP ROLE {role}")
    assert answer(run(*grant), 2)["rule"] == "role-unknown"
    apart = ("ledger", "set-aside", "-w", workspace.root, "--json")
    assert answer(run(*apart), 2)["rule"] == "nothing-to-set-aside"
    with closing(Ledger.open_to_read(server.url(database))) as ledger:
        head = ledger.entries()[-1]
    entry = Entry.after(head, at=head.at, kind="cap", population="x", release_id="", body=json.loads(head.body))
    row = json.dumps(replace(entry, key_id=key.public.key_id, signature="A" * 86 + "==").as_json())
    server.execute(f"SELECT ledger_append(json_populate_record(NULL::events, '{row}'))", database=database)
    assert answer(run("budget", "-w", workspace.root, "--json"), 2)["where"] == f"ledger entry {entry.seq}"
    assert answer(run(*apart)) == {"first": entry.seq, "entries": 1, "roles": ["postgres"], "entry": entry.seq}
    reconcile = ("ledger", "reconcile", "--nothing-was-spent", "--reason", "x", "-w", workspace.root, "--json")
    assert answer(run(*reconcile, "--owner-url", server.url(database)))["entry"] == entry.seq + 1
    assert answer(run("budget", "-w", workspace.root, "--json"))["population"] == "people"


def test_a_file_has_no_roles_to_give(run: Any, workspace: Workspace):
    told = answer(run("ledger", "roles", "-w", workspace.root, "--writer", "a", "--auditor", "b", "--json"), 2)
    assert told["rule"] == "ledger-without-roles"
