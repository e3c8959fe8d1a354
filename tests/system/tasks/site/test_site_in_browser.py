"""Chromium opens the site from its files: no errors, nothing from outside, readable by everybody, on a phone too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.tasks import monthly
from support.tasks.audit.tampering import on_the_ledger
from support.tasks.site.sited import dead_links, pages, written

from tasks.workspace.folders import Workspace

if TYPE_CHECKING:
    from support.browser import Browser

pytest_plugins = ["support.tasks.site.fixtures", "support.browser"]

KINDS = [
    "index.html",
    "ledger.html",
    "drift.html",
    "evidence.html",
    "releases/small-2025-11-1.html",
    "releases/small-2025-12-1.html",
    "releases/small-2026-08-1.html",
    "releases/small-2026-10-1.html",
    "releases/small-2026-11-1.html",
]
LAID_OUT = [(page, 400, True) for page in KINDS] + [
    (page, 1200, False) if page == "index.html" else pytest.param(page, 1200, False, marks=pytest.mark.slow)
    for page in KINDS
]
EXTRA = "document.querySelectorAll('details').forEach(part => part.open = true)"


BAD = """<!DOCTYPE html><html><head><title>bad</title></head><body style="width: 2000px">
<img src="http://example.invalid/x.png"><p style="color: #ddd; background: #fff">pale</p>
<script>console.error("told")</script></body></html>"""


def test_the_browser_notices_what_it_is_there_to_notice(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(BAD)
    with browser.visit((tmp_path / "bad.html").as_uri()) as visit:
        assert "told" in visit.errors
        assert visit.outside == ["http://example.invalid/x.png"]
        assert visit.overflow() > 0
        assert {fault.partition(":")[0] for fault in visit.axe()} >= {"image-alt", "color-contrast", "html-has-lang"}


@pytest.mark.parametrize("page", KINDS)
def test_pages_open_without_errors_or_outside_requests_under_their_own_policy(
    browser: Browser, eventful_site: Path, page: str
) -> None:
    with browser.visit((eventful_site / page).as_uri()) as visit:
        assert visit.page.title().endswith("· small")
        assert visit.errors == []
        assert visit.outside == []


@pytest.mark.parametrize(("page", "width", "dark"), LAID_OUT)
def test_axe_finds_no_serious_fault_and_nothing_overflows(
    browser: Browser, eventful_site: Path, page: str, width: int, dark: bool
) -> None:
    with browser.visit((eventful_site / page).as_uri(), width=width, dark=dark, bypass_csp=True) as visit:
        visit.page.evaluate(EXTRA)
        assert visit.overflow() == 0
        assert visit.axe() == []


@pytest.mark.parametrize("page", ["index.html", "releases/small-2026-09-1.html"])
def test_refusals_look_as_good(browser: Browser, year_site: Path, page: str) -> None:
    with browser.visit((year_site / page).as_uri(), width=400, dark=True, bypass_csp=True) as visit:
        assert (visit.errors, visit.outside, visit.overflow(), visit.axe()) == ([], [], 0, [])


@pytest.mark.parametrize("kind", ["empty", "broken"])
def test_empty_and_broken_workspaces_look_as_good(browser: Browser, published: Path, tmp_path: Path, kind: str) -> None:
    workspace = monthly.fresh(tmp_path / "w") if kind == "empty" else Workspace(tmp_path / "copy")
    if kind == "broken":
        shutil.copytree(published, workspace.root)
        on_the_ledger(workspace, "UPDATE events SET body = '{' WHERE seq = 6")
    written(workspace, tmp_path / "site")
    assert dead_links(tmp_path / "site") == []
    for page, _ in pages(tmp_path / "site"):
        with browser.visit((tmp_path / "site" / page).as_uri(), width=400, bypass_csp=True) as visit:
            assert (visit.errors, visit.outside, visit.overflow(), visit.axe()) == ([], [], 0, []), page


def test_every_link_can_be_followed_with_the_keyboard(browser: Browser, eventful_site: Path) -> None:
    with browser.visit((eventful_site / "index.html").as_uri()) as visit:
        visit.page.keyboard.press("Tab")
        focused = visit.page.evaluate("[document.activeElement.className, document.activeElement.hash]")
        assert focused == ["skip", "#content"], "the first stop leads past the navigation"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate(outline) != "none", "the focus is seen"


def test_a_click_on_the_lineage_leads_to_the_ledger_entry(browser: Browser, eventful_site: Path) -> None:
    with browser.visit((eventful_site / "releases" / "small-2025-11-1.html").as_uri()) as visit:
        visit.page.click("a[aria-label='stage estimate, done'] >> visible=true")
        assert visit.page.url.endswith("/ledger.html#entry-4")
        assert visit.page.locator("#entry-4").is_visible()


def test_months_lead_to_their_releases_and_those_to_their_reports(browser: Browser, eventful_site: Path) -> None:
    with browser.visit((eventful_site / "index.html").as_uri()) as visit:
        visit.page.click("text=2025-11 >> nth=0")
        visit.page.click("text=Open the report")
        assert visit.page.url.endswith("evidence/bundles/small/small-2025-11-1/report.html")
        assert visit.errors == []


def test_the_site_prints(browser: Browser, eventful_site: Path) -> None:
    with browser.visit((eventful_site / "index.html").as_uri()) as visit:
        visit.page.emulate_media(media="print")
        assert not visit.page.locator(".bar-top").is_visible()
        assert visit.page.pdf().startswith(b"%PDF")


def test_pictures_are_not_blank(browser: Browser, eventful_site: Path, tmp_path: Path) -> None:
    with browser.visit((eventful_site / "index.html").as_uri()) as visit:
        assert len(visit.picture(tmp_path / "index.png")) > 50_000
        box = visit.page.locator(".wide-only .drawing.burn").bounding_box()
        assert box["width"] > 900
        assert box["height"] > 200
