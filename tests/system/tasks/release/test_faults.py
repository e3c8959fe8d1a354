"""A release that is killed anywhere becomes one release, with one spend, when its period is run again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from support.tasks.ledger.postgres import Server
from support.tasks.release.faults import PERIOD, Site, decisive, draws, first_run, second_run, steps_of
from support.tasks.staged import SPEC, land_rows

from dpcore.errors import LedgerError
from tasks.audit import audit_workspace
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.opening import ledger_state
from tasks.workspace.folders import Workspace

RELEASE = f"small-{PERIOD}-1"


@pytest.fixture(scope="module")
def template(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with landed data.

    `published` was released in this process: modules and the audit of the build are in the
    memory that forks share.
    """
    assert published.is_dir()
    root = tmp_path_factory.mktemp("template")
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(SPEC)
    land_rows(root, PERIOD)
    return root


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, template: Path) -> Iterator[Site]:
    if request.param == "sqlite":
        yield Site(template, lambda: None)
        return
    server: Server = request.getfixturevalue("server")
    made: list[str] = []

    def fresh() -> str:
        made.append(server.fresh())
        return server.url(made[-1])

    yield Site(template, fresh)
    for name in made:
        server.drop(name)


def killed_and_run_again(site: Site, folder: Path, steps: list[str], fatal: int) -> None:
    """One life and death, and everything that must hold afterwards."""
    what = f"killed {steps[fatal - 1]} (step {fatal} of {len(steps)})"
    root = site.prepare(folder)
    status = first_run(root, fatal)
    assert os.WIFSIGNALED(status), what
    workspace = Workspace(root)
    try:
        before = ledger_state(workspace)
    except LedgerError as error:
        pytest.fail(f"{what}: {error}")
    known = before.releases.get(RELEASE)
    visible = workspace.bundle("small", RELEASE).exists()
    assert not visible or (known is not None and known.published), f"{what}: a bundle that the ledger does not know"
    drawn_before = len(draws(root))
    assert second_run(root) == 0, what
    after = ledger_state(workspace)
    release = after.releases[RELEASE]
    assert [r.status for r in after.releases.values() if r.status != "void"] == ["published"], what
    assert list(release.spends) == ["moments"], what
    assert after.spent("people").epsilon == Fraction(1, 10), f"{what}: the spend is counted once"
    assert after.reserved("people").epsilon == 0, what
    assert release.spends["moments"].parse(Spend).digest in draws(root), f"{what}: what was spent was drawn"
    if known is not None and known.spends:
        assert len(draws(root)) == drawn_before, f"{what}: drawn a second time"
    assert [c for c in audit_workspace(workspace) if not c.ok] == [], what
    assert list((root / "vault").iterdir()) == [], what
    assert [p.name for p in (root / "releases" / "small").iterdir() if p.name != ".lock"] == [RELEASE], what
    shutil.rmtree(folder)


def steps_to_die_at(site: Site, tmp_path: Path) -> list[str]:
    steps = steps_of(site.prepare(tmp_path / "whole"))
    assert {step.partition(" ")[2] for step in steps} >= {"commit", "fsync", "rename"}
    return steps


def test_a_release_killed_at_a_decisive_step_happens_once(site: Site, tmp_path: Path) -> None:
    steps = steps_to_die_at(site, tmp_path)
    for fatal in decisive(steps):
        killed_and_run_again(site, tmp_path / f"trial-{fatal}", steps, fatal)


@pytest.mark.slow
def test_a_release_killed_before_or_after_any_step_happens_once(site: Site, tmp_path: Path) -> None:
    steps = steps_to_die_at(site, tmp_path)
    for fatal in range(1, len(steps) + 1):
        killed_and_run_again(site, tmp_path / f"trial-{fatal}", steps, fatal)
