"""The auditor's site: static pages, a pure function of the public part of a workspace."""

from __future__ import annotations

from collections.abc import Callable

from tasks.site.drift import drift_page
from tasks.site.evidence import evidence_page
from tasks.site.frame import Site
from tasks.site.ledger import ledger_pages
from tasks.site.release import refusal_page, release_page
from tasks.site.rows import pending_refusals
from tasks.site.start import start_page
from tasks.site.survey import Survey

__all__ = ["render_site"]


def render_site(
    survey: Survey, *, prefect_url: str | None = None, on_progress: Callable[[str], None] = lambda _: None
) -> dict[str, str]:
    """Render every page, by its path in the folder of the site."""
    site = Site(survey, prefect_url)
    pages = {"index.html": start_page(site), "drift.html": drift_page(site), "evidence.html": evidence_page(site)}
    pages |= dict(ledger_pages(site))
    for release in survey.state.releases.values():
        on_progress(f"drawing {release.release_id}")
        pages[site.release_href(release.release_id) or ""] = release_page(site, release)
    for entry in pending_refusals(site):
        pages[site.release_href(entry.release_id) or ""] = refusal_page(site, entry)
    return pages
