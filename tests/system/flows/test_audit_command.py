"""`dprelease audit` and `show --schema` as an auditor calls them: without the workspace, in words and in JSON."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support.flows.command_line import call
from support.tasks.goldens import GOLDEN


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *argv: call(capsys, monkeypatch, *argv)


@pytest.fixture
def given(run: Any, tmp_path: Path) -> list[str]:
    """Export, bundles and public key of a workspace that has a cap and no release yet."""
    place = str(tmp_path / "w")
    run("init", place)
    run("budget", "raise", "--reason", "first use", "-w", place)
    code, out, _ = run("ledger", "export", "-w", place)
    assert code == 0
    (tmp_path / "ledger.ndjson").write_text(out)
    (tmp_path / "key.pub").write_text((tmp_path / "w" / "keys" / "signing.pub").read_text())
    (tmp_path / "bundles").mkdir()
    files = {"--export": "ledger.ndjson", "--bundles": "bundles", "--public-key": "key.pub"}
    return [word for option, name in files.items() for word in (option, str(tmp_path / name))]


def test_an_auditor_needs_no_workspace(run: Any, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("audit", *given, "--json")
    assert code == 0
    assert [check["name"] for check in json.loads(out)["checks"]] == [
        "ledger chain",
        "ledger times",
        "keys",
        "caps",
        "bundles",
    ]
    code, out, _ = run("audit", *given)
    assert (code, out.splitlines()[-1]) == (0, "everything holds")


def test_the_first_broken_thing_is_the_last_word(run: Any, given: list[str], tmp_path: Path):
    path = tmp_path / "ledger.ndjson"
    path.write_text(path.read_text().replace("first use", "next use."))
    code, out, _ = run("audit", *given)
    assert code == 1
    assert out.splitlines()[-1].startswith("the audit failed: ledger chain: ledger entry 2 (cap) was changed")
    code, out, _ = run("audit", *given, "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


@pytest.mark.parametrize("left_out", ["--export", "--bundles", "--public-key"])
def test_two_of_the_three_are_not_enough(run: Any, given: list[str], left_out: str):
    place = given.index(left_out)
    code, out, _ = run("audit", *given[:place], *given[place + 2 :], "--json")
    assert (code, json.loads(out)["rule"]) == (2, "audit-incomplete")


def test_a_key_can_be_asked_for_in_a_workspace_too(run: Any, given: list[str], tmp_path: Path):
    place, key = str(tmp_path / "w"), str(tmp_path / "key.pub")
    assert run("audit", "-w", place, "--public-key", key)[0] == 0
    run("init", str(tmp_path / "other"))
    run("budget", "raise", "--reason", "first use", "-w", str(tmp_path / "other"))
    code, out, _ = run("audit", "-w", str(tmp_path / "other"), "--public-key", key)
    assert code == 1
    assert "never signed this ledger" in out


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A workspace of the first version, whose sampler is not kept."""
    with tarfile.open(GOLDEN / "version-1.tar.gz") as packed:
        packed.extractall(tmp_path / "old", filter="data")
    return str(tmp_path / "old")


def test_what_is_not_shown_fails_the_audit_unless_it_is_allowed(run: Any, old: str):
    code, out, _ = run("audit", "-w", old)
    assert code == 1
    assert out.splitlines()[-1].startswith("no check is broken, but not every check could be shown to hold: ")
    assert " OPEN   small-2026-01-1: rows: not shown: its model names no sampler, and the last program" in out
    code, out, _ = run("audit", "-w", old, "--allow-not-shown", "--json")
    answer = json.loads(out)
    assert (code, answer["ok"]) == (0, True)
    assert {check["outcome"] for check in answer["checks"]} == {"holds", "not-shown"}
    assert all(check["ok"] == (check["outcome"] == "holds") for check in answer["checks"])


def test_what_is_broken_is_never_allowed(run: Any, old: str):
    record = next(Path(old).glob("releases/*/*/record.json"))
    record.chmod(0o644)
    record.write_text(record.read_text() + " ")
    code, out, _ = run("audit", "-w", old, "--allow-not-shown", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)
    assert [c["name"] for c in json.loads(out)["checks"] if c["outcome"] == "broken"] == ["small-2026-01-1: bundle"]


def test_a_part_of_the_rows_can_be_asked_for(run: Any, old: str):
    assert run("audit", "-w", old, "--sample", "10", "--allow-not-shown")[0] == 0
    assert run("audit", "-w", old, "--sample", "0")[0] == 2


def test_the_schema_of_records_is_printed(run: Any):
    code, out, _ = run("show", "--schema")
    assert code == 0
    assert json.loads(out)["$id"] == "urn:dprelease:record:2"
