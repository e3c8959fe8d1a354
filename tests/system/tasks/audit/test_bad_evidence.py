"""Evidence, keys and documents that somebody tampered with: commands end, at once, with the exit code that is due."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.tasks.release.faults import in_a_process

from dpcore.errors import LedgerError, SpecError, WorkspaceError
from tasks.audit import audit_export, audit_workspace, read_public_key
from tasks.audit.checks import Check
from tasks.keys.signing import signing_key
from tasks.ledger.cited_heads import require_complete_ledger
from tasks.ledger.export import export_lines
from tasks.ledger.opening import readable_ledger
from tasks.lineage.graph import lineage_graph
from tasks.spec import load_spec
from tasks.spec.loader import PlainLoader
from tasks.workspace.folders import Workspace
from tasks.workspace.reading import open_regular, parse_json

pytestmark = pytest.mark.timeout(120)
BUNDLE = "releases/small/small-2026-01-1"
DEEP = "[" * 200_000
DONE, FAILED, REFUSED = 0, 1, 2


def call(*argv: str) -> int:
    """The exit code of a command."""
    from flows.cli import main

    sys.argv = ["dprelease", *argv]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return DONE


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setattr(sys, "argv", [])
    return call


def pipe_at(path: Path) -> Path:
    """A pipe to which nobody writes, in the place of a file."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def broken(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.detail for check in checks if not check.ok}


# ---------------------------------------------------------------- pipes in place of files


@pytest.mark.parametrize("make", [pipe_at, lambda path: path.mkdir(), lambda path: path.symlink_to("/dev/zero")])
def test_only_regular_files_are_opened(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "evidence")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "evidence")


@pytest.mark.parametrize("name", ["record.json", "data.parquet", "model.json", "lineage.ndjson", "SHA256SUMS"])
def test_an_audit_calls_a_pipe_in_a_bundle_broken_and_does_not_wait_for_it(workspace: Workspace, name: str) -> None:
    (workspace.root / BUNDLE).chmod(0o755)
    pipe_at(workspace.root / BUNDLE / name)
    assert "small-2026-01-1: bundle" in broken(audit_workspace(workspace))


def test_an_audit_refuses_a_pipe_as_public_key_or_export(workspace: Workspace, tmp_path: Path, command: Any) -> None:
    pipe, shelf = str(pipe_at(tmp_path / "pipe")), str(workspace.releases)
    key = str(workspace.keys / "signing.pub")
    assert command("audit", "--export", pipe, "--bundles", shelf, "--public-key", key) == REFUSED
    assert command("audit", "--export", key, "--bundles", shelf, "--public-key", pipe) == REFUSED


@pytest.mark.parametrize("name", ["release.yaml", "keys/signing.key", "keys/fingerprint.key"])
def test_a_pipe_in_place_of_specification_or_key_is_refused(workspace: Workspace, name: str) -> None:
    path = pipe_at(workspace.root / name)
    path.chmod(0o600)
    reads: dict[str, Callable[[], object]] = {
        "release.yaml": lambda: load_spec(workspace.spec_path),
        "keys/signing.key": lambda: signing_key(workspace.keys),
        "keys/fingerprint.key": workspace.fingerprint_key,
    }
    with pytest.raises((SpecError, WorkspaceError)):
        reads[name]()


def test_a_pipe_in_place_of_a_lock_holds_nobody_up(workspace: Workspace) -> None:
    pipe_at(workspace.releases / "small" / ".lock")
    with workspace.exclusive("small"):
        pass


def test_a_pipe_is_no_archive(tmp_path: Path, command: Any) -> None:
    assert command("restore", str(pipe_at(tmp_path / "backup.tar")), "-w", str(tmp_path / "new")) == REFUSED
    assert not (tmp_path / "new").exists()


def test_a_bundle_without_a_readable_record_is_a_refusal(workspace: Workspace, command: Any) -> None:
    (workspace.root / BUNDLE).chmod(0o755)
    pipe_at(workspace.root / BUNDLE / "record.json")
    assert command("show", "small-2026-01-1", "-w", str(workspace.root), "--json") == REFUSED


# ---------------------------------------------------------------- malformed documents

TAGS = {"tags": {"tags": [{"key": "release", "value": "small-2026-01-1", "source": "dprelease"}]}}
OF_THE_RELEASE = {"run": {"runId": "a", "facets": TAGS}, "job": {"name": "small.x"}, "eventType": "START"}
MALFORMED = {
    "run-is-a-number": '{"run": 5}',
    "facets-are-a-list": '{"run": {"facets": []}}',
    "spend-is-a-number": '{"run": {"facets": {"dp_spend": 3}}}',
    "spend-without-entry": '{"run": {"facets": {"dp_spend": {"ledgerEntry": "x"}}}}',
    "spend-beyond-numbers": '{"run": {"facets": {"dp_spend": {"ledgerEntry": 1e400, "ledgerHash": "a"}}}}',
    "epsilon-is-text": '{"run": {"facets": {"dp_guarantee": {"epsilon": "q"}}}}',
    "job-is-a-number": '{"job": 5}',
    "schema-is-a-number": json.dumps(OF_THE_RELEASE | {"inputs": [{"name": "a/b", "facets": {"schema": 4}}]}),
    "no-object": "[1]",
    "nested-too-deeply": DEEP,
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_line_of_lineage_fails_the_audit_and_nothing_else(workspace: Workspace, case: str) -> None:
    with workspace.lineage_path.open("a") as log:
        log.write(MALFORMED[case] + "\n")
    found = broken(audit_workspace(workspace))
    assert "is not a lineage event" in found["lineage log"]
    assert lineage_graph(workspace, "small-2026-01-1")["nodes"], "the graph leaves it out"


def test_a_malformed_spend_in_the_lineage_holds_releases_up(workspace: Workspace) -> None:
    with workspace.lineage_path.open("a") as log:
        log.write(MALFORMED["spend-without-entry"] + "\n")
    with closing(readable_ledger(workspace)) as ledger, pytest.raises(LedgerError) as refusal:
        require_complete_ledger(workspace, ledger.entries())
    assert (refusal.value.rule, "(malformed)" in refusal.value.message) == ("ledger-incomplete", True)


@pytest.mark.parametrize("line", [DEEP, "1" + "0" * 6000, "[]", "{}", "7"], ids=["deep", "long", "list", "empty", "7"])
def test_an_export_with_a_line_that_is_no_entry_is_broken(workspace: Workspace, tmp_path: Path, line: str) -> None:
    with closing(readable_ledger(workspace)) as ledger:
        lines = [*export_lines(ledger.entries()), line]
    (tmp_path / "export.ndjson").write_text("".join(lines))
    keys = [read_public_key(workspace.keys / "signing.pub")]
    assert list(broken(audit_export(tmp_path / "export.ndjson", workspace.releases, keys))) == ["ledger chain"]


def test_json_that_is_nested_too_deeply_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)


def test_a_document_of_a_bundle_cannot_grow_by_aliases() -> None:
    with pytest.raises(yaml.YAMLError, match="aliases"):
        yaml.load("a: &a [1]\nb: [*a, *a]\n", PlainLoader)  # noqa: S506  it is a safe loader


# ---------------------------------------------------------------- a full disk


def exit_code_with_room_for(size: int, *argv: str) -> int:
    """The exit code of a command in a process whose files may not grow beyond a size."""

    def life() -> None:
        sys.stdout = sys.stderr = io.StringIO()  # the files of captured output may not grow either
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        os._exit(call(*argv))

    return os.waitstatus_to_exitcode(in_a_process(life))


def test_what_a_full_disk_stops_is_refused_and_leaves_nothing(workspace: Workspace, tmp_path: Path) -> None:
    place, out = str(workspace.root), tmp_path / "out"
    shutil.copy(workspace.landing / "small-2026-01.csv", tmp_path / "more.csv")
    out.mkdir()
    commands = {
        "init": ("init", str(out / "fresh")),
        "backup": ("backup", "-w", place, "--out", str(out / "backup.tar")),
        "export": ("ledger", "export", "-w", place, "--out", str(out / "export.ndjson")),
        "site": ("site", "-w", place, "--out", str(out / "site")),
        "land": ("land", str(tmp_path / "more.csv"), "-w", place, "--as", "small-2026-03.csv"),
        "plot": ("plan", "-w", place, "--plot", str(out / "plan.svg")),
    }
    assert {name: exit_code_with_room_for(512, *argv) for name, argv in commands.items()} == dict.fromkeys(
        commands, REFUSED
    )
    assert list(out.iterdir()) == []
    assert (tmp_path / "more.csv").is_file(), "it is where it was"
    assert not (workspace.landing / "small-2026-03.csv").exists()
