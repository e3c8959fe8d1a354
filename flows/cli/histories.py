"""`dprelease history` and `show`: what was released, as ledger, flow runs and bundles tell it together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpcore.errors import WorkspaceError
from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json, table
from flows.cli.releases import record_in, warn_of_retraction
from tasks.ledger.entries.status import ReleaseStatus

if TYPE_CHECKING:
    from rich.console import Console

    from flows.release_history import Joined

COLOURS: dict[str, str] = {
    ReleaseStatus.PUBLISHED: "green",
    ReleaseStatus.AWAITING_APPROVAL: "yellow",
    ReleaseStatus.FAILED: "red",
    ReleaseStatus.CHECK_FAILED: "red",
    ReleaseStatus.REFUSED: "red",
    ReleaseStatus.RETRACTED: "red",
    "COMPLETED": "green",
    "FAILED": "red",
    "CRASHED": "red",
}


def _join(folder: Path) -> Joined:
    from flows.release_history import Joined
    from tasks.workspace.folders import Workspace

    place = Workspace(folder.resolve())
    place.require()
    return Joined.of(place)


# ---------------------------------------------------------------- history


def history(
    workspace: Path = WorkspaceOption,
    status: str | None = typer.Option(None, "--status", help="Only releases of this status, such as failed."),
    limit: int | None = typer.Option(None, "--limit", min=1, help="Only the latest N releases."),
    as_json: bool = JsonFlag,
) -> None:
    """List all releases with their ledger entries and flow runs."""
    joined = _join(workspace)
    rows = [row for row in joined.rows() if status in (None, row["status"])]
    rows = rows[-limit:] if limit else rows
    if as_json:
        print_json({"releases": rows})
    elif rows:
        _show_history(rows)
    else:
        console().print("no releases yet" if status is None else "no release matches")


def _show_history(rows: Sequence[dict[str, Any]]) -> None:
    from tasks.spec.relations import at_most

    out = console()
    shown = table("", "release", "period", "status", "epsilon", "entries", "published (UTC)", "flow run", "state")
    for row in rows:
        run = row["flow_run"] or {"state": "-", "url": None}
        short = str(row["flow_run_id"])[:8]  # `show` has it whole
        place = f"[link={run['url']}]{short}[/link]" if run["url"] else short
        figures = (at_most(row["epsilon"]), _ranges(row["ledger_entries"]), _minute(row["published_at"]))
        status, state = (_coloured(text) for text in (row["status"], run["state"]))
        shown.add_row(row["release_id"], row["period"], status, *figures, place, state)
    out.print(shown, soft_wrap=True)
    for row in rows:
        _tell_next(out, row)
    _tell_pages(out, rows)


def _tell_next(out: Console, row: dict[str, Any]) -> None:
    """Why a release was refused or retracted, or what brings it further."""
    if row["retraction"]:
        words = _retraction_words(row["retraction"])
        out.print(f"{row['release_id']} (retracted): {words}", markup=False, soft_wrap=True)
    elif row["next"]:
        out.print(f"{row['release_id']} ({row['status']}): {row['next']}", markup=False, soft_wrap=True)
    elif row["status"] == ReleaseStatus.REFUSED:
        out.print(f"{row['release_id']} (refused): {row['reason']}", markup=False, soft_wrap=True)


def _retraction_words(said: dict[str, Any]) -> str:
    return f"by {said['who']}, {_minute(said['at'])} UTC: {said['reason']}"


def _tell_pages(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    page = next((row["flow_run"]["url"] for row in rows if row["flow_run"] and row["flow_run"]["url"]), None)
    if page:
        out.print(f"pages of the flow runs: {page.rpartition('/')[0]}/ID", markup=False, soft_wrap=True)


def _coloured(text: str) -> str:
    return f"[{COLOURS[text]}]{text}[/]" if text in COLOURS else text


def _minute(moment: str | None) -> str:
    return (moment or "-")[:16].replace("T", " ")


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in few words: 3-5, 9."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


# ---------------------------------------------------------------- show


def show(
    release_id: str | None = typer.Argument(None, metavar="RELEASE", help="A release id, as `history` lists them."),
    workspace: Path = WorkspaceOption,
    schema: bool = typer.Option(False, "--schema", help="Print instead the JSON Schema of all records."),
    sbom: bool = typer.Option(False, "--sbom", help="Print instead what was installed, as a CycloneDX document."),
    everything: bool = typer.Option(False, "--all", help="With --json: include ledger entries, flow runs and bundle."),
    as_json: bool = JsonFlag,
) -> None:
    """Show one release: its record, ledger entries, flow runs and bundle; or the schema of all records."""
    if schema:
        from tasks.bundle.record import record_schema

        print_json(record_schema())
        return
    if release_id is None:
        raise typer.BadParameter("name a release, or use --schema", param_hint="RELEASE")
    joined = _join(workspace)
    _require_known(joined, release_id)
    if sbom:
        from tasks.bundle.sbom import bill_of_materials

        print_json(bill_of_materials(_record(joined, release_id)))
    elif not as_json:
        _show_release(joined.whole(release_id))
    elif everything:
        print_json(joined.whole(release_id))
    else:
        print_json(_record(joined, release_id))


def _require_known(joined: Joined, release_id: str) -> None:
    from tasks.workspace.folders import unknown_release

    if release_id not in joined.state.releases and release_id not in joined.state.refusals:
        raise unknown_release(f"there is no release {release_id!r}")


def _record(joined: Joined, release_id: str) -> dict[str, Any]:
    """The record, which only what is published has."""
    release = joined.state.releases.get(release_id)
    if release is None or release.published is None:
        status = release.status if release else ReleaseStatus.REFUSED
        raise WorkspaceError(
            f"{release_id} is not published: its status is {status}",
            rule="release-not-published",
            where="RELEASE",
            hint="`dprelease show` without --json, or with --all, shows what is known about it",
        )
    bundle = joined.workspace.bundle(release.reservation.name, release_id)
    if release.retraction is not None:
        warn_of_retraction(release.retraction, bundle)
    return record_in(bundle)


def _show_release(whole: dict[str, Any]) -> None:
    out = console()
    facts = table(whole["release_id"], "", "")
    for name, value in (_facts(whole) | _places(whole)).items():
        facts.add_row(f"[dim]{name}[/]", value)
    out.print(facts, soft_wrap=True)
    _show_checks(out, whole["record"])
    _show_ledger(out, whole["ledger"])
    _show_runs(out, whole["flow_runs"])
    if whole["next"]:
        out.print("next: ", end="")
        out.print(whole["next"], markup=False, soft_wrap=True)


def _facts(whole: dict[str, Any]) -> dict[str, str]:
    """What it is, as its record says, or as far as the ledger knows."""
    facts = {"status": _coloured(whole["status"]), "period": whole["period"]}
    if whole["record"]:
        return facts | _record_facts(whole["record"])
    from tasks.spec.relations import at_most

    spent = [f"{kind} {at_most(whole['spent'][kind])}" for kind in ("epsilon", "rho") if whole["spent"][kind]]
    asked = f"{at_most(whole['epsilon'])}, {at_most(whole['delta'])}"
    return facts | {"epsilon, delta": asked, "spent": ", ".join(spent) or "nothing"}


def _record_facts(record: dict[str, Any]) -> dict[str, str]:
    from tasks.report.wording import finite_precision
    from tasks.spec.relations import at_most, in_words

    privacy = record["privacy"]
    return {
        "epsilon, delta": f"{at_most(privacy['epsilon'])}, {at_most(privacy['delta'])} ({finite_precision(privacy)})",
        "unit, neighbours": f"{privacy['unit']}, {privacy['neighbours']}",
        **in_words(privacy),
        "mechanism": ", ".join(f"{m['mechanism']} ({m['status']})" for m in privacy["measurements"]),
        "rows": str(record["rows"]),
        "created": record["created_at"],
    }


def _places(whole: dict[str, Any]) -> dict[str, str]:
    """Related releases, approvals, and the bundle."""
    from rich.markup import escape

    bundle = whole["bundle"]
    said = "; ".join(f"by {a['who']}, {_minute(a['at'])} UTC: {a['reason']}" for a in whole["approvals"])
    facts = {"supersedes": whole["supersedes"], "superseded by": whole["superseded_by"], "approved": said}
    facts["reason"] = whole["reason"]
    facts["retracted"] = _retraction_words(whole["retraction"]) if whole["retraction"] else None
    if bundle:
        facts |= {"bundle": bundle["folder"], "digest": bundle["digest"], "integrity": _integrity(whole)}
        facts["report"] = str(Path(bundle["folder"]) / "report.html") if Path(bundle["folder"]).exists() else None
    return {name: escape(str(value)) for name, value in facts.items() if value}


def _integrity(whole: dict[str, Any]) -> str:
    """Whether the bundle is as published; that of a retracted release may be gone."""
    bundle = whole["bundle"]
    if whole["retraction"] and not Path(bundle["folder"]).exists():
        return "not here: the bundle of a retracted release may be deleted"
    return "matches the ledger" if bundle["as_published"] else f"DOES NOT match the ledger: {bundle['faults'][0]}"


def _show_checks(out: Console, record: dict[str, Any] | None) -> None:
    if not record:
        return
    checks = table("checks", "check", "value", "threshold", "")
    for check in record["checks"]:
        value, limit = ("-" if x is None else f"{x:.4g}" for x in (check["value"], check["threshold"]))
        checks.add_row(check["name"], value, limit, "ok" if check["ok"] else "failed")
    out.print(checks)


def _show_ledger(out: Console, entries: Sequence[dict[str, Any]]) -> None:
    rows = table("ledger", "entry", "kind", "time (UTC)", "hash")
    for entry in entries:
        rows.add_row(str(entry["seq"]), entry["kind"], entry["at"][:19].replace("T", " "), entry["hash"])
    out.print(rows, soft_wrap=True)


def _show_runs(out: Console, runs: Sequence[dict[str, Any]]) -> None:
    if not runs:
        out.print("flow runs: none in the available history")
        return
    rows = table("flow runs", "id", "name", "state", "started (UTC)", "page")
    for run in runs:
        rows.add_row(run["id"], run["name"], _coloured(run["state"]), _minute(run["start"]), run["url"] or "-")
    out.print(rows, soft_wrap=True)
