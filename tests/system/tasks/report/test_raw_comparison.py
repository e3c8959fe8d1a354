"""Comparing with raw rows, on demand: exact, into the vault only, labelled, and without any say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tasks import staged
from support.tasks.report.pages import Page

from flows.cli import main
from tasks.workspace.folders import Workspace

RELEASE = "small-2026-01-1"
ROWS = 5000
AGES = np.round(np.random.Generator(np.random.PCG64(3)).uniform(65, 85, ROWS), 2)
EXACT = f"{AGES.mean():.4g}"
"""What only raw rows give: their exact mean, as pages show it."""


def invented() -> str:
    return "age,ill\n" + "".join(f"{age:.2f},{str(i % 4 == 0).lower()}\n" for i, age in enumerate(AGES))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with one release, of rows whose exact mean is known."""
    workspace = Workspace(tmp_path_factory.mktemp("compared"))
    workspace.create()
    workspace.spec_path.write_text(staged.SPEC)
    (workspace.landing / "small-2026-01.csv").write_text(invented())
    staged.release(workspace, "2026-01")
    return workspace


@pytest.fixture
def command(place: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*argv: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dprelease", "check", *argv, "-w", str(place.root)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return call


def files(place: Workspace) -> dict[str, bytes]:
    """Every file of the workspace outside the vault and the landing data."""
    private = (place.vault, place.landing)
    paths = [path for path in place.root.rglob("*") if path.is_file() and not any(p in path.parents for p in private)]
    return {str(path): path.read_bytes() for path in paths}


def test_the_comparison_goes_into_the_vault_and_only_its_place_is_told(place: Workspace, command: Any) -> None:
    before = files(place)
    code, out, err = command(RELEASE, "--raw")
    path = place.vault / "comparisons" / f"{RELEASE}.html"
    assert (code, out.strip(), err) == (0, f"private comparison with raw rows: {path}", "")
    assert files(place) == before
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    page = Page(path.read_text())
    assert EXACT in page.text(), "the exact mean is there"
    assert "not for publication" in page.text()
    assert "PRIVATE" in page.headings("title")[0]
    told = json.loads(command(RELEASE, "--raw", "--json")[1])
    assert told == {"release_id": RELEASE, "comparison": str(path), "private": True}


def test_the_exact_mean_is_nowhere_else(place: Workspace, command: Any) -> None:
    command(RELEASE, "--raw")
    exact = repr(float(AGES.mean())).encode()[:8]
    assert not any(exact in content for content in files(place).values())


def test_a_comparison_outlives_the_scratch_of_later_runs(place: Workspace, command: Any) -> None:
    command(RELEASE, "--raw")
    with place.scratch():
        pass
    assert (place.vault / "comparisons" / f"{RELEASE}.html").exists()
    assert list(place.vault.glob("run-*")) == []


def test_rows_that_differ_wildly_do_not_change_what_the_command_answers(
    place: Workspace, command: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other.csv"
    other.write_text("age,ill\n" + "0.0,true\n" * 50)
    assert command(RELEASE, "--raw", "--input", str(other))[0] == 0
    page = Page((place.vault / "comparisons" / f"{RELEASE}.html").read_text())
    assert "100.0 %" in page.text(), "all of the other rows are ill"


def test_cells_are_counted_as_in_the_release(place: Workspace, command: Any, tmp_path: Path) -> None:
    """Beyond the bounds, missing: cut to 100, and taken for the middle."""
    odd = tmp_path / "odd.csv"
    odd.write_text("age,ill\n" + "1000.0,true\n" * 30 + ",false\n" * 30)
    command(RELEASE, "--raw", "--input", str(odd))
    page = Page((place.vault / "comparisons" / f"{RELEASE}.html").read_text())
    assert "75" in page.text()
    assert "50.0 %" in page.text()


def test_without_raw_rows_the_record_answers(command: Any) -> None:
    code, out, _ = command(RELEASE)
    assert code == 0
    assert "means_inside" in out
    told = json.loads(command(RELEASE, "--json")[1])
    assert {check["name"] for check in told["checks"]} >= {"means_inside", "pairs_inside", "category_coverage"}
    assert told["fit"]["columns"]["of"] == 2


def test_what_cannot_be_compared_is_refused(place: Workspace, command: Any) -> None:
    code, out, _ = command("small-2026-09-1", "--raw", "--json")
    assert (code, json.loads(out)["rule"]) == (2, "release-unknown")
    code, out, _ = command(RELEASE, "--raw", "--input", "nowhere.csv", "--json")
    assert (code, json.loads(out)["rule"]) == (2, "landing-missing")
    text = place.spec_path.read_text()
    place.spec_path.write_text(text.replace("[0, 100]", "[0, 90]"))
    try:
        code, out, _ = command(RELEASE, "--raw", "--json")
        assert (code, json.loads(out)["rule"]) == (2, "spec-changed")
    finally:
        place.spec_path.write_text(text)
