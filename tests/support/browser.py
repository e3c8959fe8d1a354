"""A real browser for tests: Chromium, watched for errors and for what it asks of other hosts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SERIOUS = ("serious", "critical")


def program() -> str | None:
    """The browser's path, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Visit:
    """A page that is open, what went wrong on it, and what it asked for besides what was allowed."""

    page: Any
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def axe(self) -> list[str]:
        """Serious and critical faults that axe-core finds."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [f"{v['id']}: {node['html'][:200]}" for v in found if v["impact"] in SERIOUS for node in v["nodes"]]

    def picture(self, path: Path) -> bytes:
        """The whole page as a PNG."""
        content: bytes = self.page.screenshot(path=str(path), full_page=True)
        return content

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return max(width, 0)


@dataclass(frozen=True)
class Browser:
    """Opens pages; each visit has a fresh profile."""

    chromium: Any

    @contextmanager
    def visit(
        self,
        address: str,
        *,
        allowed: tuple[str, ...] = ("file:", "data:"),
        width: int = 1200,
        dark: bool = False,
        bypass_csp: bool = False,
        reduced: bool = True,
        login: dict[str, str] | None = None,
    ) -> Iterator[Visit]:
        """A page, open; whatever is not allowed is not sent, but noted."""
        context = self.chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if reduced else "no-preference",
            bypass_csp=bypass_csp,
            accept_downloads=False,
            http_credentials=login,
        )
        try:
            page = context.new_page()
            visit = Visit(page)
            page.on("console", lambda m: visit.errors.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: visit.errors.append(str(error)))
            page.route("**/*", _gate(allowed, visit.outside.append))
            page.goto(address, wait_until="load")
            yield visit
        finally:
            context.close()


def _gate(allowed: tuple[str, ...], note: Callable[[str], None]) -> Callable[[Any], None]:
    def decide(route: Any) -> None:
        if route.request.url.startswith(allowed):
            route.continue_()
        else:
            note(route.request.url)
            route.abort()

    return decide


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, started once a file; tests that need it are skipped where there is none.

    Not once a session: until it ends, an event loop runs in this thread, where no later test could start another.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = program()
    if path is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed")
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield Browser(chromium)
        finally:
            chromium.close()
