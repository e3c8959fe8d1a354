"""Compares the costs that lineage states with those that the ledger's events give, one by one and in total.

Facets of version 1 name an entry without its cost; their guarantee is compared with the record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from openlineage.client.facet_v2 import RunFacet
from openlineage.client.serde import Serde

from tasks.audit.checks import require
from tasks.audit.evidence import Evidence
from tasks.bundle.staging import checksums_in
from tasks.ledger.cited_heads import release_of
from tasks.ledger.entries.bodies import SealedBundle, Spend
from tasks.ledger.releases import ReleaseState
from tasks.lineage.datasets import BUNDLE, FILES, SEALED, noisy
from tasks.lineage.events import FLOW, listed
from tasks.lineage.facets import GUARANTEE, SPEND
from tasks.release.spend_facets import Account

Event = dict[str, Any]

FIRST_VERSION = "urn:dprelease:facets:"
"""The prefix of the schema URLs of version 1."""

OTHERWISE_CHECKED = ("proof", "before", "after")
"""The reason of a proof may have an earlier version's wording; balances are compared with the replayed ledger."""


def facets_named(event: Event, prefix: str, *, first: bool) -> Iterator[dict[str, Any]]:
    """The facets of an event's run with this prefix, of version 1 or of later versions."""
    facets = event.get("run", {}).get("facets", {})
    found = (facet for name, facet in facets.items() if name.startswith(prefix))
    yield from (facet for facet in found if str(facet.get("_schemaURL", "")).startswith(FIRST_VERSION) is first)


def stated_digest_faults(events: Iterable[Event], release: ReleaseState, folder: Path) -> list[str]:
    """Where the stated digest of a measurement or file differs from that in the ledger or the checksums."""
    sums = checksums_in(folder)
    due = {name: sums.get(file) for name, file in FILES.items()}
    due |= {noisy(name): entry.parse(Spend).digest for name, entry in release.spends.items()}
    stated = [(role, digest) for event in events for role, digest in _versions(event) if role in due]
    return [
        f"its digest of {role} is not that of the ledger or the checksums"
        for role, digest in stated
        if digest != f"sha256:{due[role]}"
    ]


def _versions(event: Event) -> Iterator[tuple[str, str]]:
    """The digest of each dataset that an event says it wrote."""
    for dataset in listed(event, "outputs"):
        if version := dataset.get("facets", {}).get("version"):
            yield str(dataset["name"]).rpartition("/")[2], str(version["datasetVersion"])


def stated_cost_faults(evidence: Evidence, events: Iterable[Event], release: ReleaseState) -> list[str]:
    """Where the stages of a bundle state another cost than the ledger's events give, or state one twice."""
    account = Account.of(evidence.state, evidence.entries, release.release_id)
    spends = [facet for event in events for facet in facets_named(event, SPEND, first=False)]
    often = Counter(str(facet["measurement"]) for facet in spends)
    return [
        *(fault for facet in spends for fault in _spend_faults(evidence, account, facet)),
        *(f"it names the spend of {name!r} {count} times" for name, count in often.items() if count > 1),
    ]


def _spend_faults(evidence: Evidence, account: Account, facet: dict[str, Any]) -> list[str]:
    name = str(facet["measurement"])
    if name not in account.release.spends:
        return [f"it names the measurement {name!r}, which the ledger does not have"]
    due = account.spend(name, evidence.history)
    labelled = str(facet["proof"]).startswith(f"{due.proof.partition(':')[0]}:")
    return [
        *require(_same(facet, due), f"its cost of {name!r} is not what the ledger's event gives"),
        *require(labelled, f"it labels the proof of {name!r} otherwise than the registry"),
    ]


def _same(facet: dict[str, Any], due: RunFacet) -> bool:
    figures = (facet, json.loads(Serde.to_json(due)))
    stated, given = ({k: v for k, v in one.items() if k[0] != "_" and k not in OTHERWISE_CHECKED} for one in figures)
    return stated == given


def log_cost_faults(evidence: Evidence, events: Iterable[Event]) -> list[str]:
    """Where the workspace's log, which alone records the end of flows, disagrees with the ledger about a cost."""
    accounts = {name: Account.of(evidence.state, evidence.entries, name) for name in evidence.state.releases}
    found, of_stages = [], dict[str, set[str]]()
    for event in events:
        account, spends = accounts.get(release_of(event)), list(facets_named(event, SPEND, first=False))
        if account is None or any(facets_named(event, SPEND, first=True)) or _names_lost(evidence, spends):
            continue
        names = {str(facet["measurement"]) for facet in spends}
        faults = [fault for facet in spends for fault in _spend_faults(evidence, account, facet)]
        if str(event["job"]["name"]).rpartition(".")[2] == FLOW:
            faults += _flow_faults(event, account, names, of_stages.get(event["run"]["runId"], set()))
        else:
            of_stages.setdefault(_parent(event), set()).update(names)
        faults += _digest_faults(evidence, event, account.release)
        found += [f"{account.release.release_id}: {fault}" for fault in faults]
    return list(dict.fromkeys(found))


def _names_lost(evidence: Evidence, spends: Iterable[dict[str, Any]]) -> bool:
    """Whether an event names a lost entry that was reconciled."""
    return any((facet["ledgerEntry"], facet["ledgerHash"]) in evidence.state.lost for facet in spends)


def _flow_faults(event: Event, account: Account, names: set[str], of_stages: set[str]) -> list[str]:
    """The last event of a flow names the spends of its stages, all of them if it succeeded, and the guarantee."""
    if event["eventType"] not in ("COMPLETE", "FAIL"):
        return []
    due = set(account.release.spends) if event["eventType"] == "COMPLETE" else of_stages
    found = [f"the flow's event lacks the spend of {name!r}" for name in sorted(due - names)]
    facet = event["run"]["facets"].get(GUARANTEE)
    if found or not (names or facet):
        return found
    same = facet is not None and _same(facet, account.guarantee(sorted(names)))
    return require(same, "the guarantee of the flow's event is not the ledger's")


def _parent(event: Event) -> str:
    return str(event["run"]["facets"].get("parent", {}).get("run", {}).get("runId"))


def _digest_faults(evidence: Evidence, event: Event, release: ReleaseState) -> list[str]:
    """The digest of a bundle is that in an entry of its release."""
    known = {
        f"sha256:{entry.parse(SealedBundle).bundle_digest}"
        for entry in evidence.entries
        if entry.release_id == release.release_id and entry.is_a(SealedBundle)
    }
    stated = {digest for role, digest in _versions(event) if role in (BUNDLE, SEALED)}
    return require(stated <= known, "the digest of its bundle is not the ledger's")
