"""What `dprelease plan --what-if` shows: the present plan and that of the changed specification, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from flows.cli.output import table
from tasks.schedule.what_if import (
    BETTER,
    PROTECTS_LESS,
    PROTECTS_MORE,
    WORSE,
    Row,
    changed_choices,
    column_rows,
    new_reasons,
    release_rows,
)
from tasks.spec.structure.changes import Change

_STYLES = {BETTER: "green", PROTECTS_MORE: "green", WORSE: "red", PROTECTS_LESS: "red"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes, and both plans as `plan --json` has them."""

    changes: Sequence[Change]
    now: dict[str, Any]
    then: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """What stands under `what_if`."""
        return {
            "changes": {change.key: change.as_json() for change in self.changes},
            "choices": changed_choices(self.now, self.then),
            "plan": self.then,
        }

    def show(self, out: Console) -> None:
        """Both plans for people."""
        out.print(f"what if {' and '.join(change.words for change in self.changes)}", markup=False)
        _show_release(out, release_rows(self.now, self.then))
        _show_columns(out, column_rows(self.now, self.then))
        _show_notes(out, self.now, self.then)
        self._show_choices(out)
        for warning in self.then["warnings"]:
            out.print(f"! with the change: {warning}", style="yellow", markup=False)

    def _show_choices(self, out: Console) -> None:
        choices = changed_choices(self.now, self.then)
        out.print()
        if not choices:
            out.print("The planner chooses as before.")
            return
        out.print("[dim]choices of the plan that change[/]")
        for name, pair in choices.items():
            out.print(f"  - {name} {_words(pair['then'])} instead of {_words(pair['now'])}", markup=False)
        reasons = new_reasons(self.now, self.then)
        if reasons:
            out.print("[dim]reasons that are new[/]")
        for reason in reasons:
            out.print(f"  - {reason}", markup=False)


def _show_release(out: Console, rows: Iterable[Row]) -> None:
    shown = table("the release", "", "now", "then", "")
    for row in rows:
        shown.add_row(f"[dim]{row.name}[/]", row.now, row.then, _verdict(row))
    out.print()
    out.print(shown)


def _show_columns(out: Console, rows: Iterable[Row]) -> None:
    shown = table("largest noise of each column", "column", "of", "now", "then", "", "")
    for column in shown.columns[2:4]:
        column.justify = "right"
    for row in rows:
        shown.add_row(escape(row.name), row.of, row.now, row.then, escape(row.unit), _verdict(row))
    out.print()
    out.print(shown)


def _verdict(row: Row) -> str:
    style = next((style for word, style in _STYLES.items() if row.verdict.startswith(word)), "")
    return f"[{style}]{row.verdict}[/]" if style else row.verdict


def _show_notes(out: Console, now: dict[str, Any], then: dict[str, Any]) -> None:
    out.print("Standard deviations where they are largest: at a bound, or if one level has all rows.", style="dim")
    if not all(column["known"] for plan in (now, then) for column in plan["columns"]):
        out.print("After >: the projection omits coordinates, so errors of means exceed the noise.", style="dim")


def _words(choice: Any) -> str:
    if isinstance(choice, dict):
        return f"({', '.join(f'{name} {share:g}' for name, share in choice.items())})"
    return str(choice)
