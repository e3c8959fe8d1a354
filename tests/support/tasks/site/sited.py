"""Sites of real workspaces, written once for all tests that look at them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from support.tasks import monthly
from support.tasks.report.pages import Page

from tasks.site import render_site
from tasks.site.folder import require_place, write_site
from tasks.site.survey import Survey, survey_workspace
from tasks.workspace.folders import Workspace

ADDRESS = re.compile(r"(?:https?:)?//[\w.]")


def written(workspace: Workspace, out: Path, *, now: datetime = monthly.AFTERWARDS, **options: str) -> Survey:
    """Write a workspace's site as the command does."""
    require_place(workspace, out)
    survey = survey_workspace(workspace, now=now)
    write_site(out, render_site(survey, **options), survey)
    return survey


def pages(site: Path) -> Iterator[tuple[str, str]]:
    """Path and content of each page of ours; reports among the evidence are not."""
    for path in sorted(site.rglob("*.html")):
        if "evidence" not in path.relative_to(site).parts:
            yield path.relative_to(site).as_posix(), path.read_text(encoding="utf-8")


def text_of(site: Path, page: str) -> str:
    """What a page says, without its style."""
    return Page((site / page).read_text(encoding="utf-8")).text()


def dead_links(site: Path) -> list[str]:
    """Links that lead nowhere: a file that is not there, or a place on a page that is not."""
    places = {name: {a["id"] for _, a in Page(html).tags if a.get("id")} for name, html in pages(site)}
    found = []
    for name, html in pages(site):
        for link in (a["href"] for tag, a in Page(html).tags if tag == "a"):
            target, _, place = str(link).partition("#")
            path = (site / name).parent / unquote(target) if target else site / name
            inside = path.resolve().is_relative_to(site.resolve()) and path.is_file()
            known = places.get(path.resolve().relative_to(site.resolve()).as_posix(), set()) if inside else set()
            if not inside or (place and place not in known):
                found.append(f"{name}: {link}")
    return found
