"""`dprelease audit` and `dprelease mechanisms`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpcore.errors import RefusedError
from flows.cli.output import FAILED, JsonFlag, WorkspaceOption, console, print_json, stderr, table
from flows.cli.progress import show_activity

if TYPE_CHECKING:
    from dpcore.auditing.attacks import Finding
    from dpcore.auditing.membership import MembershipFigure
    from dpcore.auditing.replay import ReplayResult
    from tasks.audit import Check


def audit(
    release_id: str | None = typer.Argument(None, metavar="[RELEASE]", help="Audit this release only, instead of all."),
    workspace: Path = WorkspaceOption,
    since: str | None = typer.Option(
        None, "--since", metavar="PERIOD|DATE", help="Only releases of this month or date, and later ones."
    ),
    export: Path | None = typer.Option(None, "--export", help="A ledger export, instead of a workspace."),
    bundles: Path | None = typer.Option(None, "--bundles", help="With --export: the folder of the bundles."),
    public_keys: list[Path] | None = typer.Option(
        None, "--public-key", help="A public key that you trust; it must be one of the ledger's. May be repeated."
    ),
    sample: int | None = typer.Option(
        None, "--sample", metavar="ROWS", min=1, help="Redraw a random part of each table, of at least this many rows."
    ),
    allow_not_shown: bool = typer.Option(
        False, "--allow-not-shown", help="Exit 0 even if a check could be shown neither to hold nor to be broken."
    ),
    as_json: bool = JsonFlag,
) -> None:
    """Verify ledger, bundles, records and lineage, and redraw every released row; exit 0 only if all holds.

    An auditor without the workspace needs a ledger export, the bundles and a public key.
    """
    from tasks.audit import broken

    with show_activity("auditing") as on_progress:
        checks = _audit(release_id, workspace, since, (export, bundles, public_keys or []), sample, on_progress)
    ok = not broken(checks) if allow_not_shown else all(check.ok for check in checks)
    if as_json:
        print_json({"ok": ok, "checks": [check.as_json() for check in checks]})
    else:
        _show_checks(checks)
    if not ok:
        raise SystemExit(FAILED)


def _audit(
    release_id: str | None,
    workspace: Path,
    since: str | None,
    given: tuple[Path | None, Path | None, list[Path]],
    sample: int | None,
    on_progress: Callable[[str], None],
) -> list[Check]:
    from tasks.audit import Redraw, audit_export, audit_workspace, read_public_key
    from tasks.workspace.folders import Workspace

    export, bundles, public_keys = given
    trusted, redraw = [read_public_key(path) for path in public_keys], Redraw(sample, on_progress)
    if export is None and bundles is None:
        from flows.run_history import complete_runs

        place = Workspace(workspace.resolve())
        runs = complete_runs(place)
        return audit_workspace(place, release_id, since=since, trusted=trusted, runs=runs, redraw=redraw)
    if export is None or bundles is None or not trusted:
        raise RefusedError(
            "without a workspace an audit needs the export, the bundles and a public key",
            rule="audit-incomplete",
            where="--export, --bundles, --public-key",
            hint="give all three; obtain the key from the steward through another channel than the export",
        )
    return audit_export(export, bundles, trusted, release_id, since=since, redraw=redraw)


MARKS = {"holds": "[green]ok[/]    ", "broken": "[bold red]BROKEN[/]", "not-shown": "[yellow]OPEN[/]  "}


def _show_checks(checks: list[Check]) -> None:
    from tasks.audit import broken, not_shown

    out = console()
    for number, check in enumerate(checks, 1):
        out.print(f"{number:3} {MARKS[check.outcome]} ", end="")
        out.print(f"{check.name}: {check.detail}", markup=False, soft_wrap=True)
    faults, open_ends = broken(checks), not_shown(checks)
    if not faults and not open_ends:
        out.print("everything holds")
        return
    first = (faults or open_ends)[0]
    out.print(
        "[bold red]the audit failed[/]: "
        if faults
        else "[yellow]no check is broken, but not every check could be shown to hold[/]: ",
        end="",
    )
    out.print(f"{first.name}: {first.detail}", markup=False, soft_wrap=True)


def mechanisms(
    attacked: bool = typer.Option(
        False, "--audit", help="Attack every mechanism, and compare the claimed epsilon with the measured one."
    ),
    thorough: bool = typer.Option(
        False, "--thorough", help="With --audit: draw ten times as often, which takes some minutes."
    ),
    draws: int = typer.Option(
        1000, "--draws", min=100, help="With --audit: how often to draw on each of an attack's two tables."
    ),
    as_json: bool = JsonFlag,
) -> None:
    """List every mechanism with its paper, guarantee and proof status; with --audit, attack them."""
    from dpcore.mechanisms.catalogue import ENTRIES

    result = _audit_all(draws, thorough) if attacked else None
    if as_json:
        content: dict[str, Any] = {"mechanisms": [entry.as_json() for entry in ENTRIES]}
        print_json(content | (result.as_json() if result else {}))
    elif result:
        _show_audit(result)
    else:
        _show_entries()
    if result and not result.ok:
        raise SystemExit(FAILED)


@dataclass(frozen=True)
class MechanismAudit:
    """What the attacks found, the replays, and with --thorough how well membership is guessed."""

    findings: list[Finding]
    replays: list[ReplayResult]
    membership: MembershipFigure | None

    @property
    def ok(self) -> bool:
        """Whether everything came out as the registry says."""
        guessed = self.membership is None or self.membership.holds
        return guessed and all(f.ok for f in self.findings) and all(r.ok for r in self.replays)

    def as_json(self) -> dict[str, Any]:
        """The part of the answer that --audit adds."""
        return {
            "audit": [finding.as_json() for finding in self.findings],
            "replay": [replay.as_json() for replay in self.replays],
            "membership": self.membership.as_json() if self.membership else None,
            "ok": self.ok,
        }


def _audit_all(draws: int, thorough: bool) -> MechanismAudit:
    from dpcore.auditing.attacks import pending_attacks
    from dpcore.auditing.replay import example_plans, replay_pairs
    from dpcore.noise.sources import SystemNoise, draw_seed

    draws, pairs = (10 * draws, 10 * PAIRS) if thorough else (draws, PAIRS)
    findings: list[Finding] = []
    with stderr().status("attacking") as status:
        for step in pending_attacks(draws=draws, bulk_draws=BULK_FACTOR * draws, noise=SystemNoise()):
            status.update(f"attacking {step.name}")
            findings += step.run()
        status.update("replaying hostile neighbours with the same noise")
        replays = [r for plan in example_plans() for r in replay_pairs(plan, pairs=pairs, seed=draw_seed())]
        status.update("guessing membership")
        return MechanismAudit(findings, replays, _guess_membership() if thorough else None)


BULK_FACTOR, PAIRS = 400, 10
"""Draws of a simulated attack for each real one, and replayed pairs for each plan in the fast form."""

MEMBERSHIP_ROWS, MEMBERSHIP_GUESSES = 20, 400


def _guess_membership() -> MembershipFigure:
    """RON-Gauss at epsilon 1 on a small public population, as in its paper's section 6.2."""
    from dpcore.auditing.membership import infer_membership, public_population
    from dpcore.estimators.ron_gauss import RonGauss
    from dpcore.noise.sources import draw_seed

    def release(rows: Any) -> Any:
        return RonGauss(epsilon=1.0, bounds=(-1.0, 1.0), n_components=2).fit(rows).sample(200)

    population = public_population(200, 4, draw_seed())
    return infer_membership(
        release, population, rows=MEMBERSHIP_ROWS, guesses=MEMBERSHIP_GUESSES, epsilon=1.0, seed=draw_seed()
    )


def _show_audit(result: MechanismAudit) -> None:
    from tasks.spec.relations import at_least, at_most

    rows = table("claimed and measured epsilon", "mechanism", "neighbours", "by", "claimed", "at least", "share", "")
    for f in result.findings:
        verdict = f"[green]{f.verdict}[/]" if f.ok else f"[bold red]{f.verdict}[/]"
        claimed = f"{at_most(f.claimed, 3)}" + (f", delta {at_most(f.delta)}" if f.delta else "")
        share = f"{f.measured / f.claimed:.0%}"
        rows.add_row(f.mechanism, f.neighbours, f.how, claimed, at_least(f.measured, 3), share, verdict)
    out = console()
    out.print(rows)
    faults = sum(not replay.ok for replay in result.replays)
    largest = max(max(r.nuclear, r.frobenius, r.weighted_l1) for r in result.replays)
    out.print(
        f"replay: {len(result.replays)} pairs of hostile neighbours with the same noise, {faults} faults; "
        f"one unit uses at most {at_most(100 * largest, 3)}% of a sensitivity"
    )
    if result.membership:
        m = result.membership
        out.print(
            f"membership in RON-Gauss rows at epsilon {m.epsilon:g}: {m.accuracy:.1%} of {m.guesses} guesses right, "
            f"between {m.interval[0]:.1%} and {m.interval[1]:.1%}; chance 50%, ceiling {at_most(100 * m.ceiling, 3)}%"
        )
    out.print("every mechanism behaves as the registry states" if result.ok else "[bold red]the audit failed[/]")


def _show_entries() -> None:
    from dpcore.mechanisms.catalogue import ENTRIES

    rows = table("mechanisms", "name", "kind", "status", "guarantee", "offered under", "proof or reason")
    for column in rows.columns:
        column.no_wrap = column.header not in ("guarantee", "proof or reason")
    colours = {"proved": "green", "approximate": "yellow", "refuted": "red"}
    for entry in ENTRIES:
        status = f"[{colours[entry.status]}]{entry.status.value}[/]"
        offered = entry.as_json()["offered"].replace(", ", "\n")
        rows.add_row(entry.name, entry.kind, status, entry.guarantee, offered, entry.reason)
    console().print(rows)
