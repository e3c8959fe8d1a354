"""`dprelease audit` and `dprelease mechanisms`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.output import FAILED, JsonFlag, WorkspaceOption, console, print_json, stderr, table

if TYPE_CHECKING:
    from dpcore.attacks import Finding


def audit(
    release_id: str | None = typer.Argument(None, metavar="[RELEASE]", help="One release; all without it."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Verify ledger, bundles and records against each other; exit 0 only if all holds."""
    from tasks.stores.audit import audit_workspace
    from tasks.stores.workspace import Workspace

    place = Workspace(workspace.resolve())
    checks = audit_workspace(place, release_id)
    ok = all(check.ok for check in checks)
    if as_json:
        print_json({"ok": ok, "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks]})
    else:
        out = console()
        for number, check in enumerate(checks, 1):
            mark = "[green]ok[/]    " if check.ok else "[bold red]BROKEN[/]"
            out.print(f"{number:3} {mark} ", end="")
            out.print(f"{check.name}: {check.detail}", markup=False, soft_wrap=True)
        out.print("everything holds" if ok else "[bold red]the audit failed[/]")
    if not ok:
        raise SystemExit(FAILED)


def mechanisms(
    attacked: bool = typer.Option(False, "--audit", help="Attack every releasable mechanism of this build."),
    draws: int = typer.Option(2000, "--draws", min=100, help="Draws on each of an attack's two tables."),
    as_json: bool = JsonFlag,
) -> None:
    """List every mechanism with its paper, guarantee and proof status."""
    from dpcore.registry import ENTRIES

    findings = _attack_all(draws) if attacked else []
    if as_json:
        content: dict[str, Any] = {"mechanisms": [entry.as_json() for entry in ENTRIES]}
        print_json(content | ({"audit": [finding.as_json() for finding in findings]} if attacked else {}))
    elif attacked:
        _show_findings(findings)
    else:
        _show_entries()
    if not all(finding.holds for finding in findings):
        raise SystemExit(FAILED)


def _attack_all(draws: int) -> list[Finding]:
    from dpcore.attacks import attack, targets
    from dpcore.noise import SystemNoise

    findings = []
    with stderr().status("attacking") as status:
        for entry, relation in targets():
            status.update(f"attacking {entry.name} under {relation.value}")
            findings.append(attack(entry.name, relation, draws=draws, noise=SystemNoise()))
    return findings


def _show_findings(findings: list[Finding]) -> None:
    rows = table("claimed and measured epsilon", "mechanism", "neighbours", "claimed", "at least", "draws", "")
    for f in findings:
        verdict = "[green]holds[/]" if f.holds else "[bold red]REFUTED[/]"
        claimed = f"{f.claimed:.3g}" + (f" (delta {f.delta:g})" if f.delta else "")
        rows.add_row(f.mechanism, f.neighbours, claimed, f"{f.measured:.3g}", str(f.draws), verdict)
    console().print(rows)


def _show_entries() -> None:
    from dpcore.registry import ENTRIES

    rows = table("mechanisms", "name", "kind", "status", "guarantee", "why")
    colours = {"proved": "green", "approximate": "yellow", "refuted": "red"}
    for entry in ENTRIES:
        status = f"[{colours[entry.status]}]{entry.status.value}[/]"
        rows.add_row(entry.name, entry.kind, status, entry.guarantee, entry.reason)
    console().print(rows)
