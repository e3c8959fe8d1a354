"""Offline verification: ledger, bundles and records against each other, without the raw data.

1. The ledger's chain holds and every entry means something that those before allow
   (caps never exceeded, nothing drawn twice, nothing published unmeasured).
2. Every stated cost follows from the parameters of its mechanism, which is proved, or named as approximate.
3. Every stored measurement is the one its spend names, its noise was not seeded, and the build
   that drew it had passed its audit.
4. Every published bundle is there, as published; no other bundle is.
5. Every record says what the ledger says.
6. Every entry that a bundle or the lineage names is in the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.accounting import compose
from dpcore.errors import PrivacyError, RefusedError
from dpcore.mechanisms.base import GramEvent
from dpcore.registry import BY_NAME, Status, cost_of
from tasks.stores.bundle import faults
from tasks.stores.heads import bundle_folders, missing_entries
from tasks.stores.ledger import Ledger
from tasks.stores.ledger_state import Entry, LedgerState, ReleaseState, cost_to_json
from tasks.stores.ledgers import has_ledger, readable_ledger
from tasks.stores.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified."""

    name: str
    ok: bool
    detail: str


def audit_workspace(workspace: Workspace, release_id: str | None = None) -> list[Check]:
    """Verify a workspace, or one release of it.

    Raises: RefusedError for a workspace or release that is not there.
    """
    workspace.require()
    if release_id is None and not has_ledger(workspace):
        return [_no_ledger(workspace)]
    with closing(readable_ledger(workspace)) as ledger:
        return _checks(workspace, ledger, release_id)


def _no_ledger(workspace: Workspace) -> Check:
    missing = missing_entries(workspace, [])
    detail = f"it is missing, but there is {missing[0]}" if missing else "not there yet: nothing was released"
    return Check("ledger", not missing, detail)


def _checks(workspace: Workspace, ledger: Ledger, release_id: str | None) -> list[Check]:
    entries, state, fault = _replay(ledger)
    if state is None:
        return [Check("ledger chain", False, fault)]
    checks = [Check("ledger chain", True, f"{len(entries)} entries, each hash and its meaning hold")]
    releases = _chosen(state, release_id)
    for release in releases:
        checks += _release_checks(workspace, ledger, state, entries, release)
    if release_id is None:
        checks.append(_strays(workspace, state))
        missing = missing_entries(workspace, entries)
        detail = f"lacks entries that are named by {', '.join(missing)}" if missing else "contains every entry named"
        checks.append(Check("ledger completeness", not missing, detail))
    return checks


def _replay(ledger: Ledger) -> tuple[list[Entry], LedgerState | None, str]:
    try:
        entries = ledger.entries()
        return entries, LedgerState.replay(entries), ""
    except PrivacyError as error:
        return [], None, str(error)
    except (KeyError, TypeError, ValueError) as error:
        return [], None, f"an entry cannot be read ({type(error).__name__})"


def _chosen(state: LedgerState, release_id: str | None) -> list[ReleaseState]:
    if release_id is None:
        return list(state.releases.values())
    if release_id not in state.releases:
        raise RefusedError(
            f"there is no release {release_id!r}",
            rule="release-unknown",
            where="RELEASE",
            hint="see `dprelease history`",
        )
    return [state.releases[release_id]]


def _release_checks(
    workspace: Workspace, ledger: Ledger, state: LedgerState, entries: list[Entry], release: ReleaseState
) -> Iterator[Check]:
    yield _check(f"{release.release_id}: costs", lambda: _cost_faults(release), _proof(release))
    yield _check(
        f"{release.release_id}: measurements", lambda: _measurement_faults(ledger, release), "are those that were spent"
    )
    folder = workspace.bundle(release.facts["name"], release.release_id)
    if release.published is None:
        detail = "is there, but was never published" if folder.exists() else f"not published (status {release.status})"
        yield Check(f"{release.release_id}: bundle", not folder.exists(), detail)
        return
    digest = release.published.facts["bundle_digest"]
    broken = _check(f"{release.release_id}: bundle", lambda: list(faults(folder, digest)), "is as published")
    yield broken
    if not broken.ok:
        return
    record = json.loads((folder / "record.json").read_text())
    yield _check(
        f"{release.release_id}: record",
        lambda: _record_faults(record, release, state, entries),
        "agrees with the ledger",
    )


def _check(name: str, find: Callable[[], list[str]], holds: str) -> Check:
    """Run one verification; whatever cannot even be read counts as broken."""
    try:
        found = find()
    except PrivacyError as error:
        found = [str(error)]
    except (KeyError, TypeError, ValueError, OSError) as error:
        found = [f"cannot be read ({type(error).__name__})"]
    return Check(name, not found, "; ".join(found) if found else holds)


def _cost_faults(release: ReleaseState) -> list[str]:
    found = []
    bodies = {f"reservation of {name}": body for name, body in release.facts["measurements"].items()}
    bodies |= {f"entry {entry.seq}": entry.facts for entry in release.spends.values()}
    for place, body in bodies.items():
        name = body["event"]["mechanism"]
        if name not in BY_NAME or BY_NAME[name].status is Status.REFUTED:
            found.append(f"{place} uses {name!r}, which is not proved")
        elif cost_to_json(cost_of(GramEvent.from_json(body["event"]))) != body["cost"]:
            found.append(f"{place} states another cost than its parameters give")
    return found


def _proof(release: ReleaseState) -> str:
    names = dict.fromkeys(str(body["event"]["mechanism"]) for body in release.facts["measurements"].values())
    doubtful = [name for name in names if name in BY_NAME and BY_NAME[name].status is Status.APPROXIMATE]
    if not doubtful:
        return "follow from proved mechanisms"
    return f"follow from their mechanisms, of which {', '.join(doubtful)} is approximate"


def _measurement_faults(ledger: Ledger, release: ReleaseState) -> list[str]:
    found = []
    for name, entry in release.spends.items():
        ledger.measurement(release.release_id, name)  # refuses one that is missing or was changed
        if entry.facts["seeded"]:
            found.append(f"the noise of entry {entry.seq} was seeded")
        if not (entry.facts.get("build") or {}).get("holds"):
            found.append(f"the build that drew entry {entry.seq} has not passed its audit")
    return found


def _record_faults(
    record: dict[str, Any], release: ReleaseState, state: LedgerState, entries: list[Entry]
) -> list[str]:
    found = []
    privacy, facts = record["privacy"], release.facts
    stated = facts["stated"]
    if record["release_id"] != release.release_id or privacy["population"] != release.population:
        found.append("it speaks of another release or population")
    for name in ("epsilon", "delta"):
        if privacy[name] != stated[name]:
            found.append(f"its {name} is not the ledger's")
    composed = compose(release.spent, delta=Fraction(str(stated["delta"])))
    if float(composed.epsilon) > privacy["epsilon"] * (1 + 1e-12) or float(composed.delta_num) != privacy["delta_num"]:
        found.append("its epsilon or delta_num is not what its measurements cost")
    if record["spec_digest"] != facts["spec_digest"]:
        found.append("its specification is not the one reserved")
    for measurement in privacy["measurements"]:
        entry = release.spends.get(measurement["name"])
        if entry is None or measurement["ledger_entry"] != {"seq": entry.seq, "hash": entry.hash}:
            found.append(f"its measurement {measurement['name']!r} is not in the ledger")
        elif measurement["build"] != entry.facts["build"]:
            found.append(f"the audit of the build that it names for {measurement['name']!r} is not the ledger's")
    head = (record["ledger"]["entries"], record["ledger"]["head"])
    if head not in {(entry.seq, entry.hash) for entry in entries}:
        found.append("the ledger head that it names is not in this ledger: the ledger is older, or another one")
    return found


def _strays(workspace: Workspace, state: LedgerState) -> Check:
    """No bundle without a ledger entry."""
    known = {(r.facts["name"], r.release_id) for r in state.releases.values() if r.published}
    found = [f.name for f in bundle_folders(workspace) if (f.parent.name, f.name) not in known]
    detail = f"not in the ledger: {', '.join(found)}" if found else "every bundle has its ledger entry"
    return Check("bundles", not found, detail)
