"""How commands speak: one JSON object, or tables for people; exit codes; refusals."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from dpcore.errors import CheckFailedError, InterruptedReleaseError, PrivacyError, RefusedError
from flows.account import operator as operator

DONE, FAILED, REFUSED, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130

JsonFlag = typer.Option(False, "--json", help="Print exactly one JSON object on standard output.")
WorkspaceOption = typer.Option(".", "--workspace", "-w", help="The workspace folder.", show_default="current folder")


def console() -> Console:
    """Standard output, for people; what is not a terminal gets room for long lines."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def stderr() -> Console:
    """Standard error: progress, notes and refusals."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 120)


def print_json(content: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")


def table(title: str, *columns: str) -> Table:
    """An empty table in the house style."""
    result = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in columns:
        result.add_column(name, overflow="fold")
    return result


def leave(error: PrivacyError, *, as_json: bool) -> NoReturn:
    """Say what went wrong and end with the exit code that stands for it."""
    if isinstance(error, RefusedError):
        _say(error.as_json(), as_json)
        raise SystemExit(REFUSED)
    code, rule, hint = _ending(error)
    _say({"error": str(error), "rule": rule, "where": "run", "hint": hint}, as_json)
    raise SystemExit(code)


def _ending(error: PrivacyError) -> tuple[int, str, str]:
    again = "run the same period again: the release resumes, and nothing is drawn or charged twice"
    if isinstance(error, CheckFailedError):
        return FAILED, "check-failed", error.hint
    if isinstance(error, InterruptedReleaseError):
        return INTERRUPTED, "interrupted", again
    return INTERNAL, "internal-error", again


def _say(refusal: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(refusal)
        return
    out = stderr()
    words = {"internal-error": "error", "check-failed": "check failed", "interrupted": "interrupted"}
    out.print(f"[bold red]{words.get(refusal['rule'], 'refused')}[/] ({refusal['rule']})")
    for name in ("error", "where", "hint"):
        out.print(f"  [dim]{name:<6}[/]", end="")
        out.print(refusal[name], markup=False)
