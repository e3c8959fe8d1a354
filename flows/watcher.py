"""The landing watcher: `python -m flows.watcher WORKSPACE` records landed files and announces their months.

At its start, after every change, and at intervals it
1. reads the specification; an invalid one is reported once and read again later;
2. inspects the landing data, records complete files and moves bad ones to quarantine;
3. announces every month for which files have landed and no more arrive, if the server answers;
   otherwise it tries again later.

All of its state is in the registry, so it may be killed and restarted at any time. Its messages on
standard error are for the operator only; they state which rule a file broke, but no file name.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from tasks.intake.arrivals import Scan
    from tasks.intake.file_registry import Announcement
    from tasks.spec import ReleaseSpec
    from tasks.workspace.folders import Workspace

IDLE_SECONDS = 30.0
BROKEN_SECONDS = 2.0
UNKNOWN_SECONDS = 5.0
"""Seconds between two searches for a server while none is known."""
BACK_OFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
HEARTBEAT_MILLISECONDS = 250
POLL_MILLISECONDS = 1000


class Watcher:
    """The state of the watcher between two turns; nothing in it needs to survive a restart."""

    def __init__(self, workspace: Workspace, *, settle: float, patience: float | None) -> None:
        from tasks.intake.arrivals import Arrivals

        self._arrivals = Arrivals(workspace)
        self._settle, self._patience = settle, patience
        self._told = ""
        self._quiet: dict[str, tuple[int | None, float]] = {}
        """For each pending announcement, the latest landed version and since when it is the latest."""
        self._failures = 0
        self.spec: ReleaseSpec | None = None

    def turn(self) -> float:
        """Inspect the landing data and announce months; return the seconds until the next turn if nothing changes."""
        from tasks.spec import load_spec
        from tasks.workspace.redaction import own_error

        trouble, waits = "", [IDLE_SECONDS]
        try:
            self.spec = load_spec(self._arrivals.workspace.spec_path)
            scan = self._look(self.spec)
            waits += [self._settle if scan.unsettled else IDLE_SECONDS, self._announce(self.spec, scan.writing)]
        except Exception as error:  # noqa: BLE001  the next file may be better; the error's text may contain a file name
            trouble = f"landing data cannot be processed now: {own_error(error, 'watch')}"
            waits.append(BROKEN_SECONDS)
        if trouble != self._told:
            say(trouble or "landing data can be processed again")
        self._told = trouble
        return min(waits)

    def _look(self, spec: ReleaseSpec) -> Scan:
        scan = self._arrivals.scan(spec, settle=self._settle, patience=self._patience)
        for period in dict.fromkeys(version.period for version in scan.landed):
            say("data landed" + (f" for {period}" if period else ""))
        for refusal in scan.refused:
            say(f"a landing file was moved to quarantine ({refusal.rule})")
        return scan

    def _is_settled(self, arrival: Announcement, writing: Set[str | None]) -> bool:
        """Whether no file of the month has landed during the settling time, and none is still being written."""
        latest, since = self._quiet.get(arrival.token, (None, 0.0))
        if latest != arrival.latest:
            since = time.monotonic()
            self._quiet[arrival.token] = arrival.latest, since
        return not writing & {arrival.period, None} and time.monotonic() - since >= self._settle

    def _announce(self, spec: ReleaseSpec, writing: Set[str | None]) -> float:
        from flows.announce import announce_due
        from flows.server.connection import ServerUnreachableError, known_server

        server = known_server(self._arrivals.workspace)
        if server is None:
            return UNKNOWN_SECONDS
        pending = self._arrivals.pending()
        settled = {arrival.token for arrival in pending if self._is_settled(arrival, writing)}
        try:
            announce_due(server, self._arrivals, spec, ready=lambda arrival: arrival.token in settled)
        except ServerUnreachableError:
            if not self._failures:
                say("the server does not answer; landed data wait until it does")
            self._failures += 1
            return BACK_OFF_SECONDS[min(self._failures, len(BACK_OFF_SECONDS)) - 1]
        self._failures = 0
        return self._settle if len(settled) < len(pending) else IDLE_SECONDS


def say(line: str) -> None:
    """Write one line without private content to standard error."""
    sys.stderr.write(f"watcher: {line}\n")
    sys.stderr.flush()


def watch(workspace: Workspace, watcher: Watcher, stop: Event, *, poll: bool) -> None:
    """Run turns until `stop` is set."""
    while not stop.is_set():
        due = time.monotonic() + watcher.turn()
        folders = _folders(workspace, watcher.spec)
        for changed in _changes(workspace, folders, stop, poll=poll):
            if changed or time.monotonic() >= due:
                due = time.monotonic() + watcher.turn()
            if _folders(workspace, watcher.spec) != folders:
                break


def _folders(workspace: Workspace, spec: ReleaseSpec | None) -> list[Path]:
    """The folders to watch: the landing folder, and that of the source if it is another."""
    from tasks.landing.file_names import folder_of

    folders = {workspace.landing}
    if spec and not spec.source.is_elsewhere:
        folders.add(folder_of(workspace.root, spec.source.path))
    return sorted(folder for folder in folders if folder.is_dir()) or [workspace.root]


def _changes(workspace: Workspace, folders: list[Path], stop: Event, *, poll: bool) -> Iterator[bool]:
    """Yield at every heartbeat whether a landing file has changed since the last one."""
    from watchfiles import watch as changes_in

    for changes in changes_in(
        *folders,
        watch_filter=None,
        step=100,
        stop_event=stop,
        rust_timeout=HEARTBEAT_MILLISECONDS,
        yield_on_timeout=True,
        force_polling=poll or None,
        poll_delay_ms=POLL_MILLISECONDS,
    ):
        yield any(_matters(workspace, Path(path)) for _, path in changes)


def _matters(workspace: Workspace, path: Path) -> bool:
    """Whether a change concerns a landing file or a folder, and not the registry or the quarantine."""
    from tasks.landing.file_names import APART, ENDINGS

    if path.name.startswith(".") or any(path.is_relative_to(workspace.landing / name) for name in APART):
        return False
    return path.suffix.lower() in ENDINGS or (path.is_dir() and path != workspace.landing)


def _stop_on_signals() -> Event:
    """An event that SIGTERM or SIGINT sets; both also interrupt the current turn, which the next watcher repeats."""
    stop = Event()

    def leave(_signal: int, _frame: object) -> NoReturn:
        stop.set()
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    return stop


def main(arguments: list[str] | None = None) -> int:
    """Watch a workspace until SIGTERM or SIGINT."""
    stop = _stop_on_signals()
    parser = argparse.ArgumentParser(
        prog="flows.watcher", description="Watches the landing folder and announces the months for which data landed."
    )
    parser.add_argument("workspace", type=Path)
    parser.add_argument(
        "--poll", action="store_true", help="poll for changes where the system reports none (network mounts)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        help="seconds to wait for a file that looks unfinished; by default six times as long as files settle",
    )
    options = parser.parse_args(arguments)
    from dpcore.errors import WorkspaceError
    from tasks.intake.settling import settle_seconds
    from tasks.workspace.folders import Workspace

    workspace = Workspace(options.workspace.resolve())
    try:
        workspace.require()
        workspace.create()
    except WorkspaceError as error:
        say(f"{error}; {error.hint}")
        return 2
    watcher = Watcher(workspace, settle=settle_seconds(workspace), patience=options.patience)
    with suppress(SystemExit, KeyboardInterrupt):  # KeyboardInterrupt if the signal came while the library waited
        watch(workspace, watcher, stop, poll=options.poll)
    return 0


if __name__ == "__main__":
    os._exit(main())  # nothing needs cleaning up, and unloading large libraries takes time
