"""`dprelease run`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpcore.errors import InterruptedReleaseError, WorkspaceError
from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json

if TYPE_CHECKING:
    from flows.release import ReleaseResult
    from tasks.stores.workspace import Workspace


def run(
    workspace: Path = WorkspaceOption,
    given: str | None = typer.Option(
        None, "--input", metavar="PATH", help="Release this file, folder or URL instead of the source."
    ),
    period: str | None = typer.Option(None, "--period", help="The data's month, such as 2026-11."),
    supersedes: str | None = typer.Option(None, "--supersedes", metavar="ID", help="Release this period once more."),
    reason: str | None = typer.Option(None, "--reason", help="Why a release is superseded."),
    as_json: bool = JsonFlag,
) -> None:
    """Release one period, here and now."""
    from flows.cli.progress import shown
    from flows.isolation import isolated
    from flows.server import forbid_core_dumps, use_server
    from tasks.stores.workspace import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    place.require_writable()
    request = _request(given, period, supersedes, reason)
    _refuse_early(place, request)
    forbid_core_dumps()
    what = "releasing" if use_server(place) else "starting the orchestration server (up to a minute)"
    with shown(what), place.scratch() as scratch, isolated(place, scratch):
        try:
            result = _run_flow(place, scratch, request)
        except KeyboardInterrupt:
            raise InterruptedReleaseError from None
    content = _result_json(place, result)
    if as_json:
        print_json(content)
        return
    out = console()
    out.print(f"[bold]{content['release_id']}[/]: {content['status']}")
    rows = "" if content["rows"] is None else f", {content['rows']} synthetic rows"
    out.print(f"  epsilon {content['epsilon']:g}, delta {content['delta']:g}{rows}")
    if content["status"] == "awaiting-approval":
        out.print(f"  look at {Path(content['bundle']) / 'report.html'}", soft_wrap=True)
        out.print(f'  then    dprelease approve {content["release_id"]} --reason "..."', soft_wrap=True, markup=False)
        return
    if not Path(content["bundle"]).exists():
        out.print("  its bundle is in the workspace that published it")
        return
    out.print(f"  bundle  {content['bundle']}", soft_wrap=True)
    out.print(f"  report  {Path(content['bundle']) / 'report.html'}", soft_wrap=True)


def _refuse_early(place: Workspace, request: dict[str, Any]) -> None:
    """Refuse what needs no orchestration to refuse: the specification, and landing data that are not there."""
    from tasks.stores.ledger import utc_now
    from tasks.stores.run import prepare_run

    prepare_run(place, request=request, flow_run_id="", scratch=place.vault, now=utc_now())


def _request(given: str | None, period: str | None, supersedes: str | None, reason: str | None) -> dict[str, Any]:
    from tasks.stores.matching import absolute

    return {"input": absolute(given) if given else None, "period": period, "supersedes": supersedes, "reason": reason}


def _run_flow(place: Workspace, scratch: Path, request: dict[str, Any]) -> ReleaseResult:
    from flows.isolation import forbid_stored_results
    from flows.server import kept_from_collection, preload_validation, quiet_libraries, start_embedded_server

    with kept_from_collection():
        server = start_embedded_server(place)
        preload_validation()
        from flows.release import ReleaseRequest, release

        quiet_libraries()
        forbid_stored_results()
        if server is not None:
            server.use()
    source = request.pop("input")
    note = place.leave_note(scratch, {"input": source}) if source else None
    return release(ReleaseRequest(workspace=str(place.root), note=note, **request))


def _result_json(place: Workspace, result: ReleaseResult) -> dict[str, Any]:
    record = result.record or record_in(result.bundle)
    privacy = record["privacy"]
    return {
        "release_id": result.release_id,
        "status": result.status,
        "bundle": str(result.bundle),
        "epsilon": privacy["epsilon"],
        "delta": privacy["delta"],
        "delta_num": privacy["delta_num"],
        "rows": record["rows"],
    }


def record_in(bundle: Path) -> dict[str, Any]:
    """The record of a bundle that the ledger has as published.

    Raises: WorkspaceError if it is not there, or cannot be read.
    """
    from tasks.stores.reading import parse_json, read_text

    record: Any = None
    with suppress(OSError, ValueError):
        record = parse_json(read_text(bundle / "record.json"))
    if not isinstance(record, dict):
        raise WorkspaceError(
            "the ledger has the release as published, but its bundle has no readable record",
            rule="bundle-unreadable",
            where="releases",
            hint="`dprelease audit` says what is missing; bring the bundle back from a backup",
        )
    return record
