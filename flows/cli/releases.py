"""`dprelease run`, `history` and `show`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpcore.errors import InterruptedReleaseError, RefusedError, StageFailedError, WorkspaceError
from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json, table

if TYPE_CHECKING:
    from flows.release import ReleaseResult
    from tasks.stores.ledger_state import ReleaseState
    from tasks.stores.workspace import Workspace


def run(
    workspace: Path = WorkspaceOption,
    given: Path | None = typer.Option(None, "--input", help="Release this file or folder instead of source.path."),
    period: str | None = typer.Option(None, "--period", help="The data's month, such as 2026-11."),
    supersedes: str | None = typer.Option(None, "--supersedes", metavar="ID", help="Release this period once more."),
    reason: str | None = typer.Option(None, "--reason", help="Why a release is superseded."),
    as_json: bool = JsonFlag,
) -> None:
    """Release one period, here and now."""
    from flows.cli.progress import shown
    from flows.server import forbid_core_dumps, use_embedded_server
    from tasks.stores.workspace import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    place.require_writable()
    _refuse_early(place, given, period, supersedes, reason)
    forbid_core_dumps()
    use_embedded_server(place)
    with shown("starting the orchestration server (about 20 seconds)"):
        try:
            result = _run_flow(place, given, period, supersedes, reason)
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


def _refuse_early(
    place: Workspace, given: Path | None, period: str | None, supersedes: str | None, reason: str | None
) -> None:
    """Refuse what needs no orchestration to refuse: the specification, and landing data that are not there."""
    from tasks.stores.ledger import utc_now
    from tasks.stores.run import prepare_run

    request = _request(given, period, supersedes, reason)
    prepare_run(place, request=request, flow_run_id="", scratch=place.vault, now=utc_now())


def _request(given: Path | None, period: str | None, supersedes: str | None, reason: str | None) -> dict[str, Any]:
    path = str(given.resolve()) if given else None
    return {"input": path, "period": period, "supersedes": supersedes, "reason": reason}


def _run_flow(
    place: Workspace, given: Path | None, period: str | None, supersedes: str | None, reason: str | None
) -> ReleaseResult:
    from flows.server import preload_validation, quiet_libraries, start_embedded_server

    preload_validation()
    start_embedded_server()
    from flows.release import ReleaseRequest, release

    quiet_libraries()
    with place.scratch() as folder:
        note = place.leave_note(folder, {"input": str(given.resolve())}) if given else None
        request = ReleaseRequest(
            workspace=str(place.root), period=period, supersedes=supersedes, reason=reason, note=note
        )
        return release(request)


def _result_json(place: Workspace, result: ReleaseResult) -> dict[str, Any]:
    record = result.record or _record(result.bundle)
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


def _record(bundle: Path) -> dict[str, Any]:
    path = bundle / "record.json"
    if not path.is_file():
        raise StageFailedError("show", "missing bundle", "the ledger says published; run `dprelease audit`")
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def _releases(folder: Path) -> tuple[Workspace, list[ReleaseState]]:
    from tasks.stores.ledgers import ledger_state
    from tasks.stores.workspace import Workspace

    place = Workspace(folder.resolve())
    place.require()
    return place, list(ledger_state(place).releases.values())


def history(workspace: Path = WorkspaceOption, as_json: bool = JsonFlag) -> None:
    """List all releases with their flow runs."""
    _, releases = _releases(workspace)
    rows = [_history_row(release) for release in releases]
    if as_json:
        print_json({"releases": rows})
        return
    if not rows:
        console().print("no releases yet")
        return
    shown = table("", "release", "status", "epsilon", "published (UTC)", "flow run")
    for row in rows:
        published = (row["published_at"] or "-")[:16].replace("T", " ")
        cells = (row["release_id"], row["status"], f"{row['epsilon']:g}", published, row["flow_run_id"])
        shown.add_row(*cells)
    console().print(shown, soft_wrap=True)


def _history_row(release: ReleaseState) -> dict[str, Any]:
    cost = release.spent if release.spends else release.reserved
    stated = release.facts["stated"]
    return {
        "release_id": release.release_id,
        "period": release.facts["period"],
        "status": release.status,
        "epsilon": stated["epsilon"],
        "delta": stated["delta"],
        "delta_num": float(cost.delta_num),
        "flow_run_id": (release.published.facts if release.published else release.facts)["flow_run_id"],
        "published_at": release.published.at if release.published else None,
    }


def show(
    release_id: str | None = typer.Argument(None, metavar="RELEASE", help="A release id, as `history` lists them."),
    workspace: Path = WorkspaceOption,
    schema: bool = typer.Option(False, "--schema", help="Print the JSON Schema of records instead."),
    as_json: bool = JsonFlag,
) -> None:
    """Show one release's record, or the schema of all of them."""
    if schema:
        from tasks.stores.record import record_schema

        print_json(record_schema())
        return
    if release_id is None:
        raise typer.BadParameter("name a release, or ask for --schema", param_hint="RELEASE")
    place, releases = _releases(workspace)
    known = next((r for r in releases if r.release_id == release_id), None)
    if known is None:
        raise RefusedError(
            f"there is no release {release_id!r}",
            rule="release-unknown",
            where="RELEASE",
            hint="see `dprelease history`",
        )
    if known.published is None:
        raise WorkspaceError(
            f"{release_id} is not published: its status is {known.status}",
            rule="release-not-published",
            where="RELEASE",
            hint="run its period again to finish it",
        )
    record = _record(place.bundle(known.facts["name"], release_id))
    print_json(record) if as_json else _show_record(place, record)


def _show_record(place: Workspace, record: dict[str, Any]) -> None:
    privacy, out = record["privacy"], console()
    facts = table(record["release_id"], "", "")
    rows = {
        "epsilon, delta": f"{privacy['epsilon']:g}, {privacy['delta']:g} (finite precision {privacy['delta_num']:.1g})",
        "unit, neighbours": f"{privacy['unit']}, {privacy['neighbours']}",
        "mechanism": ", ".join(f"{m['mechanism']} ({m['status']})" for m in privacy["measurements"]),
        "ledger entries": ", ".join(str(m["ledger_entry"]["seq"]) for m in privacy["measurements"]),
        "rows": str(record["rows"]),
        "created": record["created_at"],
        "flow run": record["flow_run_id"],
    }
    for name, value in rows.items():
        facts.add_row(f"[dim]{name}[/]", value)
    checks = table("checks", "check", "value", "threshold", "")
    for check in record["checks"]:
        value, limit = ("-" if x is None else f"{x:.4g}" for x in (check["value"], check["threshold"]))
        checks.add_row(check["name"], value, limit, "ok" if check["ok"] else "failed")
    out.print(facts)
    out.print(checks)
    out.print(f"report: {place.bundle(record['name'], record['release_id']) / 'report.html'}", soft_wrap=True)
