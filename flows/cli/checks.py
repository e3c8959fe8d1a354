"""`dprelease check`: the checks of a release again, and, on demand, a private comparison with raw rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpcore.errors import RefusedError
from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json, table
from flows.cli.releases import record_in

if TYPE_CHECKING:
    from tasks.workspace.folders import Workspace


def check(
    release_id: str = typer.Argument(metavar="RELEASE", help="A published release, as `history` lists them."),
    workspace: Path = WorkspaceOption,
    raw: bool = typer.Option(
        False, "--raw", help="Compare with the raw rows, exactly, into the vault: private, and not for any decision."
    ),
    given: str | None = typer.Option(
        None, "--input", metavar="PATH", help="With --raw: the raw rows, instead of the source."
    ),
    as_json: bool = JsonFlag,
) -> None:
    """Show the checks of a release; with --raw, write a private comparison with the raw rows."""
    from tasks.workspace.folders import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    record = _published(place, release_id)
    if raw:
        _compare(place, record, given, as_json)
    elif as_json:
        scores, fit = record["utility"].get("scores", []), record["utility"].get("fit")
        print_json({"release_id": release_id, "checks": record["checks"], "scores": scores, "fit": fit})
    else:
        _show(record)


def _published(place: Workspace, release_id: str) -> dict[str, Any]:
    from tasks.ledger.cited_heads import bundle_folders

    folder = next((folder for folder in bundle_folders(place) if folder.name == release_id), None)
    if folder is None:
        raise RefusedError(
            f"there is no published release {release_id!r} in this workspace",
            rule="release-unknown",
            where="RELEASE",
            hint="see `dprelease history`",
        )
    return record_in(folder)


def _compare(place: Workspace, record: dict[str, Any], given: str | None, as_json: bool) -> None:
    """Nothing of what was found is printed, nor does the exit code depend on it."""
    from tasks.raw_comparison import compare_raw

    path = compare_raw(place, record, given)
    if as_json:
        print_json({"release_id": record["release_id"], "comparison": str(path), "private": True})
    else:
        console().print(f"private comparison with raw rows: {path}", markup=False, soft_wrap=True)


def _show(record: dict[str, Any]) -> None:
    ranges = {
        score["name"]: f"{score['low']:.4g} to {score['high']:.4g}" for score in record["utility"].get("scores", [])
    }
    rows = table(f"checks of {record['release_id']}", "check", "value", "about 95 %", "threshold", "")
    for one in record["checks"]:
        value, limit = ("-" if figure is None else f"{figure:.4g}" for figure in (one["value"], one["threshold"]))
        rows.add_row(one["name"], value, ranges.get(one["name"], ""), limit, "ok" if one["ok"] else "failed")
    console().print(rows)
