"""Tables and cards on a release for the orchestrator's history, stage by stage: public and released values only.

Pure functions of the plan, the ledger's state and released measurements. Nothing here
sees a row, a file name or an exact count, so anyone who may open a run's page may read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpcore.accounting import Cost, float_above
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.names import PROJECTION
from dpcore.mechanisms.registry import Event, cost_of
from tasks.ledger.entries.bodies import SealedBundle, Spend
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.next_command import resume_command
from tasks.ledger.releases import ReleaseState
from tasks.ledger.state import LedgerState
from tasks.report.wording import ABSENT, finite_precision, further_releases, number
from tasks.spec.plan import PlannedRelease
from tasks.spec.relations import at_least, at_most, in_words

Row = dict[str, Any]

KINDS = {
    "ron": "random orthonormal (RON)",
    "private-pca": "private principal components",
    "public-pca": "principal components of public data",
    "none": "none (every encoded coordinate is kept)",
}
PROJECTION_WORDS = ("projection", "dimension", "normalise", "private principal", "public")
"""Words by which the plan's reasons for the projection are recognised."""


# -- allocation --------------------------------------------------------------------


def allocation_rows(planned: PlannedRelease, release: ReleaseState) -> list[Row]:
    """Return what each measurement may spend, with its ledger entry."""
    return [_allocation_row(planned, release, name, event) for name, event in planned.plan.events.items()]


def _allocation_row(planned: PlannedRelease, release: ReleaseState, name: str, event: Event) -> Row:
    drawn = release.spends.get(name)
    return {
        "measurement": name,
        "mechanism": event.mechanism,
        "proof": BY_NAME[event.mechanism].status.value,
        "share": f"{planned.plan.allocation.get(name, 1.0):.0%}",
        "cost": describe_cost(cost_of(event)),
        "ledger entry": f"{drawn.seq} (spent)" if drawn else f"{release.reserve_seq} (reserved)",
    }


def describe_cost(cost: Cost) -> str:
    """Write a cost: its epsilon, its rho, or both."""
    parts = {"epsilon": cost.epsilon, "rho": cost.rho}
    return ", ".join(f"{name} {at_most(float_above(value), 4)}" for name, value in parts.items() if value) or "nothing"


def budget_rows(state: LedgerState, release: ReleaseState) -> list[Row]:
    """Return the population's cap, and what is spent or reserved of it without and with this release."""
    known = state.populations[release.population]
    relation = known.relation_of(release.reservation)
    within = f" within {known.windows.span} months" if known.windows.span else ""
    figures = {
        f"lifetime cap{within}": {name: float(getattr(known.cap, name)) for name in ("epsilon", "delta", "delta_num")},
        "spent or reserved before": known.before(release).balance(relation).statement.as_json(),
        "with this release": known.balance(relation).statement.as_json(),
    }
    return [{"": name, **row} for name, row in figures.items()]


# -- projection --------------------------------------------------------------------


def projection_card(planned: PlannedRelease, projection: Projection, release: ReleaseState) -> str:
    """Describe the projection: its kind, the reasons for it, its cost, and what is random in it."""
    facts = {
        "Kind": KINDS.get(planned.plan.projection, planned.plan.projection),
        "Coordinates": f"{projection.width} encoded, {projection.dimension} kept",
        "Cost": _projection_cost(planned, release),
        **_frame_facts(planned, projection, release),
        "Random": _projection_randomness(planned, release),
    }
    reasons = [reason for reason in planned.plan.reasons if any(word in reason for word in PROJECTION_WORDS)]
    return card(f"Projection of {release.release_id}", facts, [f"- {reason}" for reason in reasons])


def _frame_facts(planned: PlannedRelease, projection: Projection, release: ReleaseState) -> dict[str, str]:
    """Describe the radius within which points are measured, and its cost; nothing if it is the whole unit ball."""
    if projection.frame is None:
        return {}
    drawn = [str(release.spends[name].seq) for name in planned.plan.frame_events if name in release.spends]
    origin = f"measured (ledger entries {', '.join(drawn)})" if drawn else "public, from the specification"
    radius = f"{projection.frame.radius:.3g}"
    what = "points" if projection.frame.directions is None else "points of one length"
    return {"Frame": f"{what} are measured within a radius of {radius} (at most 1) around a centre; {origin}"}


def _projection_cost(planned: PlannedRelease, release: ReleaseState) -> str:
    event = planned.plan.projection_event
    if event is not None:
        drawn = release.spends.get(PROJECTION)
        return describe_cost(cost_of(event)) + (f", ledger entry {drawn.seq}" if drawn else "")
    if planned.plan.reuses_gram:
        return "no extra cost: it is computed from the measured moments"
    return "no cost: it does not depend on the data"


def _projection_randomness(planned: PlannedRelease, release: ReleaseState) -> str:
    if planned.plan.projection == "ron":
        seed = release.reservation.seeds["projection"]
        return (
            f"all directions, uniform over orthonormal frames, from the seed `{seed}`, which was drawn from the "
            f"operating system at the reservation (ledger entry {release.reserve_seq}), never from the data"
        )
    if planned.plan.projection == "private-pca":
        return "the noise of the measurement, which is never seeded"
    return "nothing"


# -- noise -------------------------------------------------------------------------


def noise_rows(
    planned: PlannedRelease, release: ReleaseState, *, count: float, spectrum: Mapping[str, Any]
) -> list[Row]:
    """Compare the planned noise with the noise found by the build gate before the draw, and in the release."""
    rows = [row for name, entry in release.spends.items() for row in _gate_rows(name, entry.parse(Spend).build or {})]
    expected = planned.plan.expected_error()
    blocks = len(spectrum["blocks"])
    figures = {
        "operator norm of the noise, in records": (expected["operator"], None),
        "the same, per row of a block": (
            expected["relative_operator"],
            expected["operator"] * blocks / count if count > 0 else None,
        ),
        "signal to noise": (expected["signal_to_noise"], spectrum["signal_to_noise"]),
        "standard deviation of the noisy count": (expected["count_sd"], None),
        "rows (expected, noisy count)": (planned.plan.expected_rows, round(count)),
    }
    return rows + [_noise_row("release", name, planned, found) for name, (planned, found) in figures.items()]


def _gate_rows(name: str, build: Mapping[str, Any]) -> Iterable[Row]:
    size, attack = build.get("noise"), build.get("attack")
    if size:
        found = f"{size['share']:.3f} ± {size['error']:.3f} ({size['entries']} draws)"
        yield {
            "of": name,
            "figure": "mean square of the noise in the build gate, relative to the plan",
            "planned": "1",
            "found": found,
        }
    if attack:
        words = {
            "planned": f"at most {at_most(attack['claimed'], 4)}",
            "found": f"at least {at_least(attack['measured'], 4)}",
        }
        yield {"of": name, "figure": "epsilon shown by the attack of the build gate", **words}


def _noise_row(of: str, figure: str, planned: float | None, found: float | None) -> Row:
    return {"of": of, "figure": figure, "planned": number(planned), "found": number(found)}


# -- the release as a whole --------------------------------------------------------


def release_card(record: Mapping[str, Any], *, status: str, entries: Sequence[Entry], folder: str) -> str:
    """Describe the release on one card, with its flow run, ledger entries, bundle and report."""
    privacy, model = record["privacy"], record["model"]
    facts = {
        "Release": record["release_id"],
        "Status": status,
        "Period": record["period"],
        "Epsilon, delta": f"{at_most(privacy['epsilon'])}, {at_most(privacy['delta'])} ({finite_precision(privacy)})",
        "Budget": _budget_words(record["budget"]),
        "Unit, neighbours": f"{privacy['unit']}, {privacy['neighbours']}",
        **{words.capitalize(): figures for words, figures in in_words(privacy).items()},
        "Mechanism": ", ".join(f"{m['mechanism']} ({m['status']})" for m in privacy["measurements"]),
        "Projection": f"{model['projection']['kind']}, dimension {model['projection']['dimension']}",
        "Generator": model["generator"],
        "Synthetic rows": record["rows"],
        "Checks": "all passed" if all(check["ok"] for check in record["checks"]) else "some failed",
        "Supersedes": record["supersedes"] or ABSENT,
    }
    places = [
        "## Where to find it",
        *_location_lines(record["flow_run_id"], folder, _bundle_digest(entries)),
        "",
        *ledger_lines(entries),
    ]
    promise = ["", "## The guarantee", *(f"\n{words}" for words in privacy["guarantee"])]
    wait = _approval_lines(record["release_id"]) if status == ReleaseStatus.AWAITING_APPROVAL else []
    return card(f"{record['name']} {record['period']}", facts, [*wait, *places, *promise])


def _budget_words(budget: Mapping[str, Any]) -> str:
    before, after, cap = (at_most(budget[name]["epsilon"]) for name in ("before", "after", "lifetime"))
    within = f" within {budget['span']} months" if "span" in budget else ""
    return (
        f"epsilon {before} spent before, {after} after, of {cap}{within}; {further_releases(budget['releases_left'])}"
    )


def _bundle_digest(entries: Sequence[Entry]) -> str:
    """Return the digest of the bundle from the last entry that names one."""
    named = [entry.parse(SealedBundle).bundle_digest for entry in entries if entry.is_a(SealedBundle)]
    return named[-1] if named else ABSENT


def _location_lines(flow_run_id: str, folder: str, digest: str) -> list[str]:
    return [
        f"- flow run [{flow_run_id}](/runs/flow-run/{flow_run_id})",
        f"- bundle `{folder}`, report `{folder}/report.html`",
        f"- SHA-256 of the bundle's SHA256SUMS `{digest}`",
    ]


def ledger_lines(entries: Sequence[Entry]) -> list[str]:
    """Return the ledger's entries as a table: number, kind, time, hash."""
    head = ["| ledger entry | kind | time (UTC) | hash |", "|---:|---|---|---|"]
    return head + [f"| {e.seq} | {e.kind} | {e.at[:19].replace('T', ' ')} | `{e.hash}` |" for e in entries]


def _approval_lines(release_id: str) -> list[str]:
    return [f'The release waits for approval: `dprelease approve {release_id} --reason "..."` publishes it.', ""]


# -- failures and refusals ---------------------------------------------------------


def failure_card(release: ReleaseState, *, words: str, entries: Sequence[Entry]) -> str:
    """Say what happened to a release that was not published, what it spent, and which command resumes it."""
    facts = {
        "Status": release.status,
        "What happened": words,
        "Spent": describe_cost(release.spent) + (" (it stays spent)" if release.spends else ""),
        "Still reserved": describe_cost(release.reserved),
    }
    resume = [
        "This command resumes the release; nothing is drawn or charged twice:",
        "",
        f"    {resume_command(release)}",
        "",
    ]
    return card(f"{release.release_id} was not published", facts, [*resume, *ledger_lines(entries)])


def refusal_card(release_id: str, *, words: str, entries: Sequence[Entry]) -> str:
    """Say why a run was refused, in public words; it measured nothing."""
    lines = ledger_lines(entries) if entries else ["The ledger has no entry for it."]
    return card(f"{release_id} was refused", {"What happened": words}, lines)


# -- Markdown ----------------------------------------------------------------------


def card(title: str, facts: Mapping[str, Any], lines: Sequence[str] = ()) -> str:
    """Return a title, a table of facts, and further lines as Markdown."""
    rows = [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    return "\n".join([f"# {title}", "", "| | |", "|---|---|", *rows, "", *lines])


def _cell(value: Any) -> str:
    """Escape text so that it stays in its cell."""
    return " ".join(str(value).replace("|", "\\|").split())
