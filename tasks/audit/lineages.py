"""Checks of the lineage: it is complete, about this release, and agrees with the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dpcore.accounting import release_statement
from dpcore.mechanisms.catalogue import BY_NAME
from tasks.audit.checks import Check, check, require
from tasks.audit.evidence import Evidence
from tasks.audit.stated_costs import facets_named, log_cost_faults, stated_cost_faults, stated_digest_faults
from tasks.ledger.releases import ReleaseState
from tasks.lineage.events import FLOW, RETRACT, is_whole, parsed
from tasks.lineage.facets import GUARANTEE, SPEND
from tasks.workspace.reading import parse_json, read_text

STAGES = ("validate", "allocate", "project", "estimate", "sample", "decode", "check")
"""The stages that have ended when the bundle is sealed; the end of publishing is in the workspace's log."""

SCORE = "score"
"""A further stage, of releases that have checks with a budget."""

CONCLUSIVE_STAGES = ("estimate", SCORE, "publish", RETRACT)
"""The stages that end only for releases in the ledger."""


def lineage_faults(evidence: Evidence, folder: Path, record: dict[str, Any], release: ReleaseState) -> list[str]:
    """Where a bundle's lineage does not contain every stage of one run and exactly the spends of the ledger."""
    events = [parse_json(line) for line in read_text(folder / "lineage.ndjson").splitlines()]
    found = _named_entry_faults(evidence, events, release, balances=record["record_version"] > 1)
    if record["record_version"] == 1:
        return found
    return [
        *_stage_faults(events, release),
        *found,
        *stated_cost_faults(evidence, events, release),
        *stated_digest_faults(events, release, folder),
        *_stage_guarantee_faults(events, record),
        *_tag_faults(events, record),
        *_log_faults(evidence, folder),
    ]


def stages_of(release: ReleaseState) -> tuple[str, ...]:
    """The stages of a release up to its last check."""
    mechanisms = [plan.event["mechanism"] for plan in release.reservation.measurements.values()]
    scored = any(name in BY_NAME and BY_NAME[name].kind == "check" for name in mechanisms)
    return (*STAGES, SCORE) if scored else STAGES


def _stage_faults(events: list[dict[str, Any]], release: ReleaseState) -> list[str]:
    """Each stage started once and completed, in one run, and there are no other events."""
    job = release.reservation.name
    wanted = Counter({(f"{job}.{FLOW}", "START"): 1})
    wanted |= Counter({(f"{job}.{stage}", kind): 1 for stage in stages_of(release) for kind in ("START", "COMPLETE")})
    told = Counter((event["job"]["name"], event["eventType"]) for event in events)
    flows = {event["run"]["runId"] for event in events if event["job"]["name"] == f"{job}.{FLOW}"}
    parents = {e["run"]["facets"]["parent"]["run"]["runId"] for e in events if "parent" in e["run"]["facets"]}
    return [
        *(f"it lacks the {kind} event of {name}" for name, kind in (wanted - told)),
        *(f"it contains a {kind} event of {name}, which does not belong there" for name, kind in (told - wanted)),
        *require(len(flows) == 1 and parents == flows, "its stages are not those of one run"),
        *require(releases_of(events) <= {release.release_id}, "it is about another release"),
    ]


def releases_of(events: Iterable[dict[str, Any]]) -> set[str]:
    """The release ids in the dataset names of events."""
    datasets = (d for event in events for d in [*event.get("inputs", []), *event.get("outputs", [])])
    return {str(dataset["name"]).rpartition("/")[0] for dataset in datasets}


def _facets(events: Iterable[dict[str, Any]], prefix: str) -> Iterator[dict[str, Any]]:
    for event in events:
        facets = event.get("run", {}).get("facets", {})
        yield from (facet for name, facet in facets.items() if name.startswith(prefix))


def _named_entry_faults(
    evidence: Evidence, events: list[dict[str, Any]], release: ReleaseState, *, balances: bool
) -> list[str]:
    """The lineage names every spend with its entry and the balance before and after it, and no other spend."""
    found, told = [], set()
    mine = {(entry.seq, entry.hash): name for name, entry in release.spends.items()}
    for facet in _facets(events, SPEND):
        key = facet["ledgerEntry"], facet["ledgerHash"]
        told.add(key)
        if key not in mine:
            found.append(f"it names entry {key[0]}, which is not a spend of this release")
        elif balances and not _balances_hold(evidence, release, facet):
            found.append(f"its balance around entry {key[0]} is not the ledger's")
    silent = [name for key, name in mine.items() if key not in told] if balances else []
    return found + [f"it lacks the spend of {name!r}" for name in silent]


def _balances_hold(evidence: Evidence, release: ReleaseState, facet: dict[str, Any]) -> bool:
    """Whether the balances are the ledger's by the present rule or, in an older event, by the rule for fixed costs.

    This program writes only the former, so computing the events again shows nothing about the latter.
    """
    sides = {"before": int(facet["ledgerEntry"]) - 1, "after": int(facet["ledgerEntry"])}
    held = {side: evidence.history.at(release.population, seq) for side, seq in sides.items()}
    relation = held["after"].relation_of(release.reservation)
    balances = {side: known.balance(relation, reserved=False) for side, known in held.items()}
    return all(facet[side] == balance.statement.as_json() for side, balance in balances.items()) or all(
        facet[side] == release_statement(balance.cost, delta=balance.cap.delta).as_json()
        for side, balance in balances.items()
    )


def _stage_guarantee_faults(events: list[dict[str, Any]], record: dict[str, Any]) -> list[str]:
    """In version 1, every measuring stage stated the release's guarantee; in later versions no stage does."""
    if any(facet for event in events for facet in facets_named(event, GUARANTEE, first=False)):
        return ["a stage states a guarantee, which only a whole release has"]
    privacy = record["privacy"]
    names = ("unit", "neighbours", "epsilon", "delta")
    stated = {"deltaNum": privacy["delta_num"], **{name: privacy[name] for name in names}}
    mechanisms = {m["mechanism"]: m["status"] for m in privacy["measurements"]}
    for facet in _facets(events, GUARANTEE):
        same = all(facet[name] == value for name, value in stated.items())
        if not same or not facet["proof"].startswith(mechanisms.get(facet["mechanism"], "nothing")):
            return ["its guarantee is not the record's"]
    return []


def _tag_faults(events: list[dict[str, Any]], record: dict[str, Any]) -> list[str]:
    """Every event is tagged with the release, its period, and the flow run that published it."""
    wanted = {"release": record["release_id"], "period": record["period"], "flow_run": record["flow_run_id"]}
    tagged = [event["run"]["facets"].get("tags", {}).get("tags", []) for event in events]
    told = {key: [{tag["value"] for tag in tags if tag["key"] == key} for tags in tagged] for key in wanted}
    other = [key for key, value in wanted.items() if any(values != {value} for values in told[key])]
    return [f"its {key.replace('_', ' ')} is not the record's" for key in other]


def _log_faults(evidence: Evidence, folder: Path) -> list[str]:
    """The workspace's log contains every event of the bundle."""
    if evidence.log is None:
        return []
    missing = set(read_text(folder / "lineage.ndjson").splitlines()) - set(evidence.log)
    return require(not missing, f"{len(missing)} of its events are not in the workspace's log")


def log_check(evidence: Evidence) -> Check:
    """The workspace's log names no release that the ledger does not contain, and no other costs."""
    return check(
        "lineage log",
        lambda: _unknown_faults(evidence) or log_cost_faults(evidence, (event for _, event in _numbered(evidence))),
        lambda: _log_words(evidence),
    )


def _unknown_faults(evidence: Evidence) -> list[str]:
    known = evidence.state.releases.keys() | evidence.state.retired
    found = []
    for number, event in _numbered(evidence):
        if not is_whole(event):
            found.append(f"line {number} is not a lineage event")
            continue
        stage = str(event.get("job", {}).get("name", "")).rpartition(".")[2]
        strange = releases_of([event]) - known
        if strange and stage in CONCLUSIVE_STAGES and event.get("eventType") == "COMPLETE":
            found.append(f"it contains {stage} of {', '.join(sorted(strange))}, which the ledger does not know")
    return found


def _log_words(evidence: Evidence) -> str:
    lines, events = evidence.log or [], [event for _, event in _numbered(evidence)]
    torn = len(lines) - len(events)
    ended = releases_of(event for event in events if _is_end(event))
    open_end = [r.release_id for r in evidence.state.releases.values() if r.published and r.release_id not in ended]
    words = f"{len(lines)} events, none of an unknown release or with another cost than the ledger's"
    words += f"; {torn} torn by a crash" if torn else ""
    return words + (f"; lacks the end of {', '.join(open_end)}" if open_end else "")


def _is_end(event: dict[str, Any]) -> bool:
    name = str(event.get("job", {}).get("name", ""))
    return name.endswith(".publish") and event.get("eventType") == "COMPLETE"


def _numbered(evidence: Evidence) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of the log with their line numbers, without lines that a crash left incomplete."""
    events = ((number, parsed(line)) for number, line in enumerate(evidence.log or [], 1))
    return ((number, event) for number, event in events if event is not None)
