"""Kills a release, by SIGKILL, before and after every step of it that reaches the disk or the database.

Steps are commits of the ledger's database, fsyncs and renames. A release is made in a
forked process whose tripwire counts the steps; a second process then runs the same
period again, as a scheduler would.
"""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy.engine import Connection
from support.tasks.staged import release

from tasks.workspace.folders import Workspace

PERIOD = "2026-03"
DRAWN = "drawn.log"
"""Beside the workspace: one line a draw of noise, written as it happens."""


class Tripwire:
    """Counts steps of this process, and ends it at one of them."""

    def __init__(self, fatal: int | None, told: Callable[[str], None] = lambda name: None) -> None:
        self.count, self._fatal, self._told = 0, fatal, told

    def step(self, name: str) -> None:
        self.count += 1
        self._told(name)
        if self.count == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a step before and a step after it."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.step(f"before {name}")
            result = function(*args, **kwargs)
            self.step(f"after {name}")
            return result

        return watched

    def install(self) -> None:
        """Watch this process for good: it is a forked one that ends soon."""
        os.fsync = self.around("fsync", os.fsync)
        os.rename = self.around("rename", os.rename)
        os.replace = self.around("replace", os.replace)
        Connection._commit_impl = self.around("commit", Connection._commit_impl)  # type: ignore[method-assign]


def note_draws(root: Path) -> None:
    """Write a line for every draw of noise that this process makes for a release."""
    from tasks import draw_once

    plain = draw_once.measure_gram

    def noted(*args: Any) -> Any:
        released = plain(*args)
        with (root.parent / DRAWN).open("a") as file:
            file.write(f"{released.digest()}\n")
        return released

    draw_once.measure_gram = noted


def draws(root: Path) -> list[str]:
    """The digests of everything drawn so far."""
    path = root.parent / DRAWN
    return path.read_text().split() if path.is_file() else []


def run_again(root: Path) -> None:
    """Run the period once more, as a second trigger would."""
    release(Workspace(root), PERIOD)


def in_a_process(function: Callable[[], None]) -> int:
    """Run a function in a forked process; returns its wait status."""
    child = os.fork()
    if child == 0:
        _run_and_exit(function)
    return os.waitpid(child, 0)[1]


def _run_and_exit(function: Callable[[], None]) -> NoReturn:
    try:
        function()
    except BaseException:  # noqa: BLE001  the process ends here, whatever happened
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


@dataclass(frozen=True)
class Site:
    """A workspace that is made anew for each trial."""

    template: Path
    fresh_ledger: Callable[[], str | None]

    def prepare(self, folder: Path) -> Path:
        """A copy with a ledger of its own."""
        root = folder / "workspace"
        shutil.copytree(self.template, root)
        address = self.fresh_ledger()
        if address:
            spec = root / "release.yaml"
            spec.write_text(f"{spec.read_text()}ledger: {address}\n")
        return root


def first_run(root: Path, fatal: int | None, told: Callable[[str], None] = lambda name: None) -> int:
    """The release, killed at a step; returns the wait status."""

    def life() -> None:
        note_draws(root)
        Tripwire(fatal, told).install()
        release(Workspace(root), PERIOD)

    return in_a_process(life)


def second_run(root: Path) -> int:
    """The same period again, left alone."""

    def life() -> None:
        note_draws(root)
        run_again(root)

    return in_a_process(life)


def steps_of(root: Path) -> list[str]:
    """The steps of an undisturbed release, in order."""
    log = root.parent / "steps.log"

    def tell(name: str) -> None:
        with log.open("a") as file:
            file.write(f"{name}\n")

    assert first_run(root, None, tell) == 0
    return log.read_text().splitlines()


def decisive(steps: list[str]) -> list[int]:
    """The steps around the commit of the spend, that of the publication, and the rename that reveals the bundle."""
    places = {name: [i for i, step in enumerate(steps, 1) if step == name] for name in dict.fromkeys(steps)}
    spend, publish = -2, -1
    chosen = [places[f"{side} commit"][which] for which in (spend, publish) for side in ("before", "after")]
    return [*chosen, places["before rename"][-1], places["after rename"][-1]]
