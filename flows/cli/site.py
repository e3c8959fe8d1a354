"""`dprelease site`: static pages for auditors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpcore.errors import RefusedError
from flows.cli.output import JsonFlag, WorkspaceOption, console, print_json, stderr
from flows.cli.progress import show_activity

if TYPE_CHECKING:
    from tasks.site.survey import Survey
    from tasks.workspace.folders import Workspace

FOLDER = "site"


def site(
    workspace: Path = WorkspaceOption,
    out: Path | None = typer.Option(
        None, "--out", metavar="DIR", help="The folder to write.", show_default="WORKSPACE/site"
    ),
    prefect_url: str | None = typer.Option(
        None, "--prefect-url", metavar="URL", help="Link flow runs to the Prefect pages at this address."
    ),
    as_json: bool = JsonFlag,
) -> None:
    """Write static pages for auditors: releases, budget, ledger, lineage, drift, and evidence to verify offline.

    A failed audit is shown on the pages and does not fail this command; `dprelease audit` fails.
    """
    from tasks.workspace.folders import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    given = (out or place.root / FOLDER).absolute()
    _require_address(prefect_url)
    target, survey, pages = _write(place, given, prefect_url)
    releases = len(survey.state.releases)
    if as_json:
        print_json({"site": str(target), "pages": pages, "releases": releases, "ok": survey.ok})
    else:
        words = "1 release" if releases == 1 else f"{releases} releases"
        console().print(f"wrote {pages} pages about {words}", soft_wrap=True)
        console().print(f"  open  {target / 'index.html'}", soft_wrap=True)
    _warn(survey)


def _require_address(prefect_url: str | None) -> None:
    from urllib.parse import urlsplit

    parts = urlsplit(prefect_url or "http://none")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise RefusedError(
            "this is not the address of a Prefect server's pages",
            rule="address",
            where="--prefect-url",
            hint="write for example http://127.0.0.1:4200, without a password",
        )


def _write(place: Workspace, given: Path, prefect_url: str | None) -> tuple[Path, Survey, int]:
    from flows.run_history import recorded_runs
    from tasks.ledger.store import utc_now
    from tasks.site import render_site
    from tasks.site.folder import require_place, write_site
    from tasks.site.survey import survey_workspace

    require_place(place, given)
    target = given.resolve()
    with show_activity("reading the workspace") as on_progress:
        survey = survey_workspace(place, now=utc_now(), runs=recorded_runs(place), on_progress=on_progress)
        pages = render_site(survey, prefect_url=prefect_url, on_progress=on_progress)
        write_site(target, pages, survey)
    return target, survey, len(pages)


def _warn(survey: Survey) -> None:
    if survey.ok:
        return
    first = survey.faults[0]
    stderr().print("[bold red]the audit failed[/]: ", end="")
    stderr().print(f"{first.name}: {first.detail}; the site shows the details", markup=False, soft_wrap=True)
