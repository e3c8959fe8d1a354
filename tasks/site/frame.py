"""What all pages of the site share: frame, style and relative links."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks.bundle.staging import CHECKSUMS
from tasks.report import wording
from tasks.site.folder import BUNDLES, EVIDENCE
from tasks.site.survey import Survey
from tasks.spec.relations import is_unproved

ENTRIES_PER_PAGE = 500
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
_NUMBERS = ("number", "rounded_up", "rounded_down", "share", "moment", "short_hash", "spaced", "relation")


@dataclass(frozen=True, slots=True)
class Site:
    """The site of one survey: the addresses of its pages, and how they are rendered."""

    survey: Survey
    prefect_url: str | None = None

    def release_href(self, release_id: str) -> str | None:
        """Return the page of a release that the ledger or a refusal names."""
        known = release_id in self.survey.state.releases or release_id in self.survey.state.refusals
        return f"releases/{_slug(release_id)}.html" if known else None

    def entry_href(self, seq: int) -> str | None:
        """Return the address of a ledger entry; older pages keep their addresses as the ledger grows."""
        if not 1 <= seq <= len(self.survey.entries):
            return None
        return f"{self.ledger_page((seq - 1) // ENTRIES_PER_PAGE)}#entry-{seq}"

    def ledger_page(self, block: int) -> str:
        """Return the page of a block of entries, counted from the oldest; the newest block is on the front page."""
        return "ledger.html" if block == self.newest_block else f"ledger-{block + 1}.html"

    @property
    def newest_block(self) -> int:
        """The block of the last entry."""
        return max(len(self.survey.entries) - 1, 0) // ENTRIES_PER_PAGE

    def file_href(self, release_id: str, name: str) -> str | None:
        """Return the address of a bundle's file in the evidence."""
        bundle = self.survey.bundles.get(release_id)
        if bundle is None or name not in (*bundle.digests, CHECKSUMS) or not (bundle.folder / name).is_file():
            return None
        return "/".join(quote(part) for part in (EVIDENCE, BUNDLES, bundle.folder.parent.name, release_id, name))

    def run_href(self, flow_run_id: str) -> str | None:
        """Return the orchestrator's page of a flow run, if the orchestrator's address was given."""
        if self.prefect_url is None:
            return None
        return f"{self.prefect_url.rstrip('/')}/runs/flow-run/{quote(flow_run_id, safe='')}"

    def title(self) -> str:
        """Return the names of the releases, or the name in the specification."""
        names = dict.fromkeys(release.reservation.name for release in self.survey.state.releases.values())
        if self.survey.spec is not None:
            names = {self.survey.spec.name: None, **names}
        return ", ".join(names) or "Releases"

    def render(self, template: str, path: str, **content: Any) -> str:
        """Render a page; its links are relative to `path`."""
        page = _templates().get_template(template)
        root = "../" * path.count("/")
        version = importlib.metadata.version("dprelease")
        return page.render(site=self, survey=self.survey, root=root, path=path, version=version, **content)


def _slug(release_id: str) -> str:
    """Return a file name that stays in its folder, whatever a foreign ledger calls a release."""
    if _SAFE.fullmatch(release_id):
        return release_id
    return f"release-{hashlib.sha256(release_id.encode(errors='replace')).hexdigest()[:16]}"


@cache
def _templates() -> Environment:
    here = Path(__file__).parent
    templates = Environment(
        loader=FileSystemLoader([here, here.parent / "report"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in _NUMBERS:
        templates.filters[name] = getattr(wording, name)
    templates.filters["bytes"] = size
    templates.tests["unproved"] = is_unproved
    templates.filters["minute"] = minute
    return templates


def size(count: int) -> str:
    """Write the size of a file."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def minute(at: str) -> str:
    """Write a time in UTC to the minute; durations are not disclosed."""
    return f"{at[:10]} {at[11:16]}"
