"""`dprelease run`, and `check`: the checks of a release again or, on demand, a private comparison with raw rows."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpcore.errors import InterruptedReleaseError, RefusedError, WorkspaceError
from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json, table
from tasks.ledger.entries.status import ReleaseStatus

if TYPE_CHECKING:
    from flows.recipe import ReleaseResult
    from flows.server.embedded import WaitingServer
    from tasks.ledger.entries.entry import Entry
    from tasks.release.context import PreparedRelease, RunRequest
    from tasks.workspace.folders import Workspace


def run(
    workspace: Path = WorkspaceOption,
    given: str | None = typer.Option(
        None, "--input", metavar="PATH", help="Release this file, folder or URL instead of the source."
    ),
    period: str | None = typer.Option(None, "--period", help="The data's month, such as 2026-11."),
    supersedes: str | None = typer.Option(
        None, "--supersedes", metavar="ID", help="Release the month of this release once more; it is charged again."
    ),
    reason: str | None = typer.Option(
        None, "--reason", help="Why the earlier release is superseded; the reason is published."
    ),
    keep_server: bool = typer.Option(
        False, "--keep-server", help="Leave the server running for the next run in this workspace."
    ),
    idle_minutes: float = typer.Option(
        10.0, "--idle-minutes", min=0.0, help="With --keep-server: how long the server waits for another run."
    ),
    as_json: bool = JsonFlag,
) -> None:
    """Release one month now.

    There is one release for each name and month: a month that is already published is not released again. After a
    failed check, a crash or an interruption, run the same month again: it continues from the stored measurement, free
    of charge.
    """
    from flows.cli.progress import show_progress
    from flows.server.embedded import end_if_refused, forbid_core_dumps, pause_garbage_collection, use_server
    from flows.server.isolation import isolate_process
    from flows.server.keeping import in_use, retire_stale_server
    from tasks.workspace.folders import Workspace
    from tasks.workspace.helper_process import is_loaded, start_helper

    place = Workspace(workspace.resolve())
    place.require()
    place.require_writable()
    request = _request(given, period, supersedes, reason)
    forbid_core_dumps()
    retire_stale_server(place)
    with in_use(place), place.scratch() as scratch, isolate_process(place, scratch), ExitStack() as held:
        is_up = use_server(place)
        server = _server(place, idle_minutes if keep_server else None)
        if server is None and not is_loaded():  # where a server starts, the second core is the server's
            held.enter_context(start_helper())
        with end_if_refused(server), pause_garbage_collection():
            planned = _refuse_early(place, scratch, request)
        with show_progress("releasing" if is_up else "starting the orchestration server (up to a minute)"):
            try:
                result = _run_flow(place, planned, server)
            except KeyboardInterrupt:
                raise InterruptedReleaseError from None
    if keep_server and server is not None:
        _say_what_stays(place, idle_minutes)
    content = _result_json(place, result)
    if as_json:
        print_json(content)
    else:
        _print_result(content, _doubt(result))


def _print_result(content: dict[str, Any], doubt: str) -> None:
    from tasks.spec.relations import at_most

    out = console()
    out.print(f"[bold]{content['release_id']}[/]: {content['status']}")
    rows = "" if content["rows"] is None else f", {content['rows']} synthetic rows"
    out.print(f"  epsilon {at_most(content['epsilon'])}, delta {at_most(content['delta'])}{doubt}{rows}")
    if content["status"] == ReleaseStatus.AWAITING_APPROVAL:
        out.print(f"  review  {Path(content['bundle']) / 'report.html'}", soft_wrap=True)
        out.print(f'  then    dprelease approve {content["release_id"]} --reason "..."', soft_wrap=True, markup=False)
        return
    if not Path(content["bundle"]).exists():
        out.print("  the bundle is in the workspace that published it")
        return
    out.print(f"  bundle  {content['bundle']}", soft_wrap=True)
    out.print(f"  report  {Path(content['bundle']) / 'report.html'}", soft_wrap=True)


def _refuse_early(place: Workspace, scratch: Path, request: RunRequest) -> PreparedRelease:
    """Refuse what needs no orchestration to refuse: the specification, and landing data that do not fit it."""
    from tasks.landing.cells import forgo_pandas
    from tasks.ledger.store import utc_now
    from tasks.release.context import prepare_release
    from tasks.release.early_refusals import require_releasable

    forgo_pandas()
    planned = prepare_release(place, request, scratch=scratch, now=utc_now())
    require_releasable(planned, place)
    return planned


def _say_what_stays(place: Workspace, idle_minutes: float) -> None:
    """A process that outlives the command is named on standard error."""
    from flows.cli.output import stderr
    from flows.server.keeping import kept_here

    if kept := kept_here(place):
        words = f"the server stays until no run has used it for {idle_minutes:g} minutes (process {kept['process']})"
        stderr().print(words, soft_wrap=True, highlight=False)


def _server(place: Workspace, idle_minutes: float | None) -> WaitingServer | None:
    """A server that loads for this run, and for others if it is to be kept; None where one is there already."""
    from flows.server.embedded import EmbeddedServer, is_configured
    from flows.server.keeping import KeptServer

    if is_configured():
        return None
    return EmbeddedServer(place) if idle_minutes is None else KeptServer(place, 60 * idle_minutes)


def _request(given: str | None, period: str | None, supersedes: str | None, reason: str | None) -> RunRequest:
    from tasks.release.context import RunRequest

    source = None
    if given:
        from tasks.landing.file_names import absolute

        source = absolute(given)
    return RunRequest(source=source, period=period, supersedes=supersedes, reason=reason)


def _run_flow(place: Workspace, planned: PreparedRelease, server: WaitingServer | None) -> ReleaseResult:
    from flows.server.embedded import pause_garbage_collection, quiet_libraries
    from flows.server.isolation import forbid_stored_results
    from tasks.release.preparation import prepare_stages
    from tasks.workspace.helper_process import load_slow_libraries

    with pause_garbage_collection():
        if server is not None:
            server.start()
        prepare_stages(planned.plan)
        from flows.release import ReleaseRequest, hand_over, release

        quiet_libraries()
        forbid_stored_results()
        if server is not None:
            load_slow_libraries()  # while the server starts
            server.use()
    asked = planned.request
    request = ReleaseRequest(
        workspace=str(place.root), period=asked.period, supersedes=asked.supersedes, reason=asked.reason, prepared=True
    )
    with hand_over(planned):
        return release(request)


def _result_json(place: Workspace, result: ReleaseResult) -> dict[str, Any]:
    record = _record_of(result)
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


def _record_of(result: ReleaseResult) -> dict[str, Any]:
    return result.record or record_in(result.bundle)


def _doubt(result: ReleaseResult) -> str:
    """What follows the figures of a release that is not wholly proved."""
    from tasks.spec.relations import UNPROVED, is_unproved

    return f" ({UNPROVED})" if is_unproved(_record_of(result)["privacy"]) else ""


def record_in(bundle: Path) -> dict[str, Any]:
    """The record of a bundle that the ledger has as published.

    Raises: WorkspaceError if it is not there, or cannot be read.
    """
    from tasks.workspace.reading import parse_json, read_text

    record: Any = None
    with suppress(OSError, ValueError):
        record = parse_json(read_text(bundle / "record.json"))
    if not isinstance(record, dict):
        raise WorkspaceError(
            "the ledger lists the release as published, but its bundle has no readable record",
            rule="bundle-unreadable",
            where="releases",
            hint="`dprelease audit` shows what is missing; restore the bundle from a backup",
        )
    return record


def check(
    release_id: str = typer.Argument(metavar="RELEASE", help="A published release, as `history` lists it."),
    workspace: Path = WorkspaceOption,
    raw: bool = typer.Option(
        False,
        "--raw",
        help="Write an exact, private comparison with the raw rows into the vault; base no decision on it.",
    ),
    given: str | None = typer.Option(
        None, "--input", metavar="PATH", help="With --raw: compare with this file, folder or URL instead of the source."
    ),
    as_json: bool = JsonFlag,
) -> None:
    """Show the checks of a release; with --raw, write a private comparison with the raw rows."""
    from tasks.workspace.folders import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    retraction = _retraction_of(place, release_id)
    record = _published(place, release_id, retraction)
    if raw:
        _compare_raw(place, record, given, as_json)
    elif as_json:
        scores, fit = record["utility"].get("scores", []), record["utility"].get("fit")
        content = {"release_id": release_id, "retracted": retraction is not None, "checks": record["checks"]}
        print_json(content | {"scores": scores, "fit": fit})
    else:
        _show_checks(record)


def _retraction_of(place: Workspace, release_id: str) -> Entry | None:
    from tasks.ledger.opening import ledger_state

    release = ledger_state(place).releases.get(release_id)
    return release.retraction if release else None


def _published(place: Workspace, release_id: str, retraction: Entry | None) -> dict[str, Any]:
    from tasks.workspace.folders import unknown_release

    folder = next((folder for folder in place.bundles() if folder.name == release_id), None)
    if retraction is not None:
        warn_of_retraction(retraction, folder)
    if folder is None:
        raise unknown_release(f"there is no published release {release_id!r} in this workspace")
    return record_in(folder)


def warn_of_retraction(retraction: Entry, bundle: Path | None) -> None:
    """Say on standard error that nobody is to use a release whose bundle is still here.

    Raises: RefusedError if its bundle is gone.
    """
    from flows.cli.output import stderr
    from tasks.ledger.entries.marks import retraction_words

    if bundle is not None and bundle.is_dir():
        words = f"! {retraction.release_id} was {retraction_words(retraction)}"
        stderr().print(words, style="bold red", markup=False, soft_wrap=True)
        return
    raise RefusedError(
        f"{retraction.release_id} was {retraction_words(retraction)}; its bundle is not here",
        rule="release-retracted",
        where="RELEASE",
        hint="`dprelease show` without --json, or with --all, shows what is known about it",
    )


def _compare_raw(place: Workspace, record: dict[str, Any], given: str | None, as_json: bool) -> None:
    """Nothing of what was found is printed, nor does the exit code depend on it."""
    from tasks.report.raw_comparison import compare_raw

    path = compare_raw(place, record, given)
    if as_json:
        print_json({"release_id": record["release_id"], "comparison": str(path), "private": True})
    else:
        console().print(f"private comparison with raw rows: {path}", markup=False, soft_wrap=True)


def _show_checks(record: dict[str, Any]) -> None:
    ranges = {
        score["name"]: f"{score['low']:.4g} to {score['high']:.4g}" for score in record["utility"].get("scores", [])
    }
    rows = table(f"checks of {record['release_id']}", "check", "value", "about 95 %", "threshold", "")
    for one in record["checks"]:
        value, limit = ("-" if figure is None else f"{figure:.4g}" for figure in (one["value"], one["threshold"]))
        rows.add_row(one["name"], value, ranges.get(one["name"], ""), limit, "ok" if one["ok"] else "failed")
    console().print(rows)
