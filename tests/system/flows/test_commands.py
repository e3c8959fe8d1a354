"""Commands that need no server, as a person or a script calls them."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.flows.command_line import call

from flows.demos import write_demo
from tasks.spec import read_document
from tasks.workspace.folders import Workspace


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clinic's workspace as `init` makes it; not to be changed."""
    root = tmp_path_factory.mktemp("demo") / "w"
    Workspace(root).create()
    write_demo("clinic", root)
    return root


@pytest.fixture
def place(demo: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(demo, tmp_path / "w"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *argv: call(capsys, monkeypatch, *argv)


def test_init_makes_a_workspace_that_can_be_planned_without_data(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("init", str(tmp_path / "w"), "--json")
    assert code == 0
    assert json.loads(out)["demo"] == "clinic"
    for path in (tmp_path / "w" / "landing").glob("*.parquet"):
        path.unlink()
    code, out, _ = run("plan", "-w", str(tmp_path / "w"), "--json")
    plan = json.loads(out)
    assert code == 0
    assert (plan["epsilon"], plan["releases_left"]) == (1.0, None), "months leave the window without end"
    assert plan["remaining_after"]["epsilon"] == pytest.approx(3.0)
    code, out, _ = run("plan", "-w", str(tmp_path / "w"))
    assert code == 0
    assert re.search(r"^generator +copula", out, re.MULTILINE)


@pytest.mark.parametrize("umask", [0o000, 0o002])
def test_nobody_else_can_write_to_a_new_workspace_whatever_the_umask_is(run: Any, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        run("init", str(tmp_path / "w"))
    finally:
        os.umask(before)
    made = [tmp_path / "w", *(tmp_path / "w").rglob("*")]
    assert [path.name for path in made if path.stat().st_mode & 0o022] == []


def test_a_fresh_workspace_has_an_empty_history_a_full_budget_and_a_green_audit(run: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "w")
    run("init", place, "--demo", "digits")
    assert json.loads(run("history", "-w", place, "--json")[1]) == {"releases": []}
    assert "no releases yet" in run("history", "-w", place)[1]
    budget = json.loads(run("budget", "-w", place, "--json")[1])
    known = {"population", "lifetime", "spent", "reserved", "remaining", "releases_left", "retracted"}
    known |= {"cap_set", "warnings"}
    assert set(budget) == known | {"kind", "span", "relations", "odometer"}
    assert budget["cap_set"] is None, "the first run sets it"
    assert budget["spent"]["epsilon"] == 0
    assert "remaining" in run("budget", "-w", place)[1]
    code, out, _ = run("audit", "-w", place, "--json")
    assert code == 0
    assert json.loads(out)["ok"] is True


REFUSED = {
    "an existing workspace": (["init", "w"], "workspace-exists"),
    "an unknown demo": (["init", "w2", "--demo", "nothing"], "demo-unknown"),
    "no workspace": (["plan", "-w", "w3"], "workspace-missing"),
    "no specification": (["plan", "-w", "w/landing"], "workspace-without-spec"),
    "an unknown release": (["show", "x", "-w", "w"], "release-unknown"),
    "a release to audit": (["audit", "x", "-w", "w"], "ledger-missing"),
    "an empty reason": (["budget", "raise", "--reason", " ", "-w", "w"], "reason-missing"),
    "a cap set by nobody": (["budget", "raise", "--reason", "x", "--who", " ", "-w", "w"], "who-missing"),
    "a reason that is no text": (["budget", "raise", "--reason", "\udcff", "-w", "w"], "text-unwritable"),
    "a malformed period": (["run", "--period", "soon", "-w", "w"], "period-malformed"),
    "a missing input": (["run", "--input", "nowhere.csv", "-w", "w"], "landing-missing"),
    "an input of another kind": (["run", "--input", "w/release.yaml", "-w", "w"], "format-unknown"),
    "an unknown command": (["walk"], "usage"),
    "an unknown option": (["plan", "--fast"], "usage"),
    "a missing argument": (["show"], "usage"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_in_words_and_in_json(
    run: Any, place: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.parent)
    argv, rule = REFUSED[case]
    code, out, _ = run(*argv, "--json")
    assert code == 2
    assert json.loads(out)["rule"] == rule
    assert set(json.loads(out)) == {"error", "rule", "where", "hint"}
    code, out, err = run(*argv)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.strip()


def test_a_broken_specification_is_refused_with_its_key(run: Any, place: Path) -> None:
    spec = place / "release.yaml"
    spec.write_text(spec.read_text().replace("  epsilon: 1.0", "  epsilonn: 1.0"))
    for command in ("plan", "run", "budget"):
        code, out, _ = run(command, "-w", str(place), "--json")
        refusal = json.loads(out)
        assert code == 2
        assert refusal["where"].startswith("privacy")


def test_a_plan_that_the_cap_cannot_carry_says_so(run: Any, place: Path) -> None:
    spec = place / "release.yaml"
    gaussian = spec.read_text()
    spec.write_text(gaussian.replace("delta: 1.0e-6", "delta: 0"))
    run("budget", "raise", "--reason", "first use", "-w", str(place))
    spec.write_text(gaussian)
    code, out, _ = run("plan", "-w", str(place), "--json")
    assert code == 0
    assert json.loads(out)["remaining_after"]["epsilon"] is None
    assert "the cap does not allow" in run("plan", "-w", str(place))[1]


def test_an_unexpected_error_shows_its_type_and_place_only(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tasks.spec

    def fail(_path: Path) -> None:
        raise RuntimeError("a secret value 417.83920517462")

    monkeypatch.setattr(tasks.spec, "load_spec", fail)
    code, out, err = run("plan", "-w", str(place), "--json")
    assert code == 3
    assert "RuntimeError" in out
    assert "417" not in out + err


def test_mechanisms_lists_the_registry(run: Any) -> None:
    listed = json.loads(run("mechanisms", "--json")[1])["mechanisms"]
    assert {"name", "paper", "kind", "guarantee", "status"} <= set(listed[0])
    assert {m["kind"] for m in listed} <= {"projection", "moments", "marginals", "rows", "check"}
    words = set(run("mechanisms")[1].split())
    assert words >= {m["name"] for m in listed} | {
        word for m in listed for word in m["offered"].split(", ") if " " not in word
    }


def test_one_command_audits_every_mechanism_and_says_what_it_found(run: Any) -> None:
    code, out, _ = run("mechanisms", "--audit", "--draws", "100", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["ok"]
    assert {f["verdict"] for f in answer["audit"]} == {"holds", "caught"}
    assert {m["name"] for m in answer["mechanisms"] if m["status"] == "refuted"} <= {
        f["mechanism"] for f in answer["audit"]
    }
    assert all(replay["ok"] for replay in answer["replay"])


def test_a_mechanism_that_is_not_as_the_registry_says_fails_the_audit(run: Any, monkeypatch: Any) -> None:
    import dpcore.auditing.attacks
    from dpcore.mechanisms.entry import Status

    escaped = dpcore.auditing.attacks.Finding("some-name", "replace-one", 1.0, 0.0, 0.5, 100, Status.REFUTED)
    monkeypatch.setattr(
        dpcore.auditing.attacks,
        "pending_attacks",
        lambda **_: [dpcore.auditing.attacks.PendingAttack("some-name", lambda: (escaped,))],
    )
    code, out, _ = run("mechanisms", "--audit")
    assert code == 1
    assert "ESCAPED" in out
    assert "claimed" in out


def test_help_and_version_answer(run: Any) -> None:
    assert "Usage" in run("--help")[1]
    assert run("--version")[1].startswith("dprelease ")


def test_the_schema_of_the_specification_is_one_object_that_the_demo_follows(run: Any, demo: Path) -> None:
    code, out, err = run("spec", "schema")
    assert (code, err) == (0, "")
    schema = json.loads(out)
    assert schema["title"] == "release.yaml"
    validator, document = Draft202012Validator(schema), read_document(demo / "release.yaml")
    assert validator.is_valid(document)
    assert not validator.is_valid(document | {"nonesuch": 1})
    assert run("spec", "schema", "--json")[1] == out
