"""`dprelease land`: bring a file in, whole, and say so to the server."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpcore.errors import LandingError
from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json

if TYPE_CHECKING:
    from tasks.intake.arrivals import Arrivals
    from tasks.intake.file_registry import FileVersion
    from tasks.spec import ReleaseSpec
    from tasks.workspace.folders import Workspace


def land(
    file: Path = typer.Argument(..., metavar="FILE", help="The file to move into the landing folder."),
    workspace: Path = WorkspaceOption,
    name: str | None = typer.Option(
        None, "--as", metavar="NAME", help="The name in the landing folder.", show_default="the file's own name"
    ),
    replace: bool = typer.Option(False, "--replace", help="Replace a file of the same name."),
    as_json: bool = JsonFlag,
) -> None:
    """Move a file into the landing folder in one step, and announce its month to the server."""
    from tasks.intake.arrivals import Arrivals
    from tasks.spec import load_spec
    from tasks.workspace.folders import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    place.create()
    spec = load_spec(place.spec_path)
    _require_readable(file)
    target = _target(place, spec, Path(name or file.name), "--as" if name else "FILE")
    arrivals = Arrivals(place)
    admission = arrivals.admit(target, spec, source=file.absolute(), replace=replace)
    if admission.refusal:
        raise _in_quarantine(admission.refusal)
    again = admission.known and _reopen(place, spec, arrivals, admission.version)
    status, period = "already-landed" if admission.known and not again else "landed", admission.version.period
    announced = _announce(place, spec, arrivals, period)
    if as_json:
        print_json({"status": status, "period": period, "announced": announced})
    else:
        _say(status, period, announced=announced, awaited=spec.schedule.on_landing)


def _reopen(place: Workspace, spec: ReleaseSpec, arrivals: Arrivals, version: FileVersion) -> bool:
    """Count a handled file again if its month was not released, because landing it again asks for that."""
    from tasks.ledger.opening import ledger_state
    from tasks.schedule.due import is_decided

    if not version.handled or version.period is None or is_decided(spec, ledger_state(place), version.period):
        return False
    arrivals.reopen(version.token)
    return True


def _require_readable(file: Path) -> None:
    readable = False
    if file.is_file():
        try:
            file.open("rb").close()
            readable = True
        except OSError:
            readable = False
    if not readable:
        raise LandingError(
            "the file does not exist or cannot be read", rule="file-missing", where="FILE", hint="check the path"
        )


def _target(place: Workspace, spec: ReleaseSpec, name: Path, where: str) -> Path:
    """Where the file belongs.

    Raises: LandingError if a release would not find it there.
    """
    from tasks.landing.file_names import folder_of, period_of, relative_pattern, require_period, would_match

    if spec.source.is_elsewhere:
        raise LandingError(
            "the data of this workspace come from a database or a store",
            rule="landing-elsewhere",
            where="source",
            hint="put the data there, or let the source be files of this workspace: `path: landing/*.parquet`",
        )
    pattern = relative_pattern(place.root, spec.source.path)
    if pattern is None:
        raise LandingError(
            "source.path points outside the workspace",
            rule="landing-outside",
            where="source.path",
            hint="copy files there by other means: write each under a hidden name, then rename it",
        )
    target = folder_of(place.root, spec.source.path) / name
    inside = target.is_relative_to(place.root) and ".." not in name.parts
    if not (inside and would_match(pattern, target.relative_to(place.root))):
        raise LandingError(
            "a release would not find the file under that name",
            rule="name-unmatched",
            where=where,
            hint=f"give it a name that fits source.path ({spec.source.path}) with --as",
        )
    require_period(spec.source.period, period_of(target, spec.source.period))
    return target


def _in_quarantine(refusal: LandingError) -> LandingError:
    return LandingError(
        f"{refusal.message}; the file is in landing/quarantine, with its verdict",
        rule=refusal.rule,
        where=refusal.where,
        hint=refusal.hint,
    )


def _announce(place: Workspace, spec: ReleaseSpec, arrivals: Arrivals, period: str | None) -> bool:
    """Announce the landed data of the month if a server answers; return whether they are announced, now or before.

    Where `dprelease serve` runs, its watcher announces them once no more files land, so that the server receives
    one event for a month, however many commands land its files.
    """
    from flows.announce import announce_due
    from flows.server.connection import ServerUnreachableError, is_served, known_server

    if spec.schedule.on_landing and is_served(place):
        return True
    server = known_server(place)
    if server is not None:
        with suppress(ServerUnreachableError):
            announce_due(server, arrivals, spec, ready=lambda arrival: arrival.period == period, at_once=True)
    return all(arrival.announced_at for arrival in arrivals.pending() if arrival.period == period)


def _say(status: str, period: str | None, *, announced: bool, awaited: bool) -> None:
    out, month = console(), f" for {period}" if period else ""
    if status == "already-landed":
        out.print(f"this file landed earlier{month}; it is not counted twice")
    else:
        out.print(f"landed{month}")
    if not awaited:
        out.print("  schedule.on_landing is off: `dprelease run` or the schedule releases it")
    elif announced:
        out.print("  the release starts when no more files land for the month; `dprelease history` shows its result")
    else:
        out.print(
            "  no server answers: `dprelease serve` releases it when it starts, or `dprelease run` releases it now"
        )
