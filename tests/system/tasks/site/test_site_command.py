"""`dprelease site` as it is called: where it writes, what it says, how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.tasks.audit.tampering import on_the_ledger

from flows.cli import main
from tasks.workspace.folders import Workspace


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dprelease", *map(str, arguments)])
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        told = capsys.readouterr()
        return int(code or 0), told.out, told.err

    return call


def test_the_site_is_written_into_the_workspace(run: Any, workspace: Workspace) -> None:
    code, out, _ = run("site", "-w", workspace.root, "--json")
    assert code == 0
    site = workspace.root / "site"
    assert json.loads(out) == {"site": str(site), "pages": 6, "releases": 2, "ok": True}
    assert (site / "index.html").is_file()


def test_people_are_told_what_to_open_and_may_choose_the_place(run: Any, workspace: Workspace, tmp_path: Path) -> None:
    code, out, _ = run("site", "-w", workspace.root, "--out", tmp_path / "pages")
    assert code == 0
    assert f"{tmp_path / 'pages' / 'index.html'}" in out
    assert not (workspace.root / "site").exists()


def test_a_place_given_by_a_detour_is_told_as_it_is(run: Any, workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    code, out, _ = run("site", "-w", workspace.root, "--out", tmp_path / "link" / "nothing" / ".." / "pages", "--json")
    assert (code, json.loads(out)["site"]) == (0, str(tmp_path / "pages"))


def test_a_failed_audit_is_shown_and_said_but_is_no_failure_of_the_site(run: Any, workspace: Workspace) -> None:
    on_the_ledger(workspace, "UPDATE events SET kind = 'void' WHERE seq = 6")
    code, out, told = run("site", "-w", workspace.root, "--json")
    assert code == 0
    assert json.loads(out)["ok"] is False
    assert "the audit failed: ledger chain" in told


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--out", "{w}/releases"], "site-in-workspace"),
        (["--out", "{w}/pub/../landing/x"], "site-in-workspace"),
        (["--prefect-url", "javascript:alert(1)"], "address"),
        (["--prefect-url", "http://user:secret@host"], "address"),
        (["--prefect-url", "nowhere"], "address"),
    ],
)
def test_refusals_name_the_rule_and_write_nothing(
    run: Any, workspace: Workspace, arguments: list[str], rule: str
) -> None:
    given = [argument.format(w=workspace.root) for argument in arguments]
    code, out, _ = run("site", "-w", workspace.root, *given, "--json")
    assert code == 2
    refusal = json.loads(out)
    assert refusal["rule"] == rule
    assert "secret" not in out
    assert not (workspace.root / "site").exists()


def test_a_folder_that_is_no_workspace_is_refused(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("site", "-w", tmp_path / "nothing", "--json")
    assert (code, json.loads(out)["rule"]) == (2, "workspace-missing")
