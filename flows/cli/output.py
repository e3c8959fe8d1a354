"""How commands speak: one JSON object, or tables for people; exit codes; refusals."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from dpcore.errors import CheckFailedError, PrivacyError, RefusedError

DONE, FAILED, REFUSED, INTERNAL = 0, 1, 2, 3

JsonFlag = typer.Option(False, "--json", help="Print exactly one JSON object on standard output.")
WorkspaceOption = typer.Option(".", "--workspace", "-w", help="The workspace folder.", show_default="current folder")


def console() -> Console:
    """Standard output, for people; what is not a terminal gets room for long lines."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def stderr() -> Console:
    """Standard error: progress, notes and refusals."""
    return Console(stderr=True, highlight=False)


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
    code, rule = (FAILED, "check-failed") if isinstance(error, CheckFailedError) else (INTERNAL, "internal-error")
    hint = "see `dprelease history`" if code == FAILED else "run again; an interrupted release resumes without new cost"
    _say({"error": str(error), "rule": rule, "where": "run", "hint": hint}, as_json)
    raise SystemExit(code)


def _say(refusal: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(refusal)
        return
    out = stderr()
    out.print(
        f"[bold red]refused[/] ({refusal['rule']})" if refusal["rule"] != "internal-error" else "[bold red]error[/]"
    )
    for name in ("error", "where", "hint"):
        out.print(f"  [dim]{name:<6}[/]", end="")
        out.print(refusal[name], markup=False)
