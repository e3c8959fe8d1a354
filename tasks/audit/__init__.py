"""Offline verification: compares ledger, bundles, records and lineage, and redraws the rows, without raw data.

For the whole ledger:
1. The chain holds: each hash is right, each signature is by an active key, and each entry is one that
   the entries before it allow (nothing reserved above the cap, drawn twice, or published unmeasured).
   Times never decrease and do not lie in the future.
2. Keys: every entry is signed by a key that was enrolled for such entries, and all of them lead to
   the trust anchor: the given public keys, or the workspace's own.
3. Caps were never exceeded, at any time.

For each release, or for those that were asked for:
4. Costs follow from the parameters of the mechanisms; none is refuted, and approximate ones are labelled.
5. Measurements are those that their spends name; builds that had passed their audit drew them from unseeded noise.
6. The bundle is as published; if the release was retracted, the mark beside the bundle says so, or the bundle is gone.
   (Releases by other workspaces of a shared ledger are audited in those workspaces.)
7. Its record agrees with the ledger.
8. Its record states the balance that the ledger gives when it is replayed up to the head that the record names.
9. The key that published signed its statement over these files and these facts.
10. Its registry entry states the record's guarantee.
11. The measurements in its model are those that were spent, and the rest of it follows from them and from the seeds.
12. Its lineage records every stage, and every spend with the balance before and after it, and nothing else.
13. Its codebook describes the columns of the specification.
14. Its table contains exactly the rows that the model draws with the seed: they are drawn and written again. No row
    breaks a rule of the specification.
15. The record's figures follow from these rows; its plan and its report are computed again.

Across all of them:
16. Every bundle has a ledger entry, and every entry that a bundle, a mark or the lineage names is in the ledger.
17. The workspace's lineage names no release that the ledger does not contain.
18. If the orchestrator's history is available, it contains every run that the ledger names, and no other release.

Each check has one of three outcomes: it holds, it is broken, or it is not shown, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dpcore.errors import LedgerError, PrivacyError, RefusedError
from tasks.audit.chain import caps_check, keys_check, strays_check, times_check
from tasks.audit.checks import Check, broken, check, not_shown
from tasks.audit.evidence import (
    EVERYTHING,
    Evidence,
    Redraw,
    Shelf,
    given_shelf,
    read_export,
    read_public_key,
    workspace_shelf,
)
from tasks.audit.files import bundle_check, retraction_check, statement_check
from tasks.audit.lineages import lineage_faults, log_check, stages_of
from tasks.audit.measured import costs_check, measurements_check
from tasks.audit.records import accounting_check, record_check
from tasks.audit.runs import runs_check
from tasks.keys.signing import PUBLIC_FILE, PublicKey
from tasks.ledger.balances import replay
from tasks.ledger.cited_heads import missing_entries
from tasks.ledger.entries.entry import Entry
from tasks.ledger.opening import has_ledger, is_shared, readable_ledger, trust_anchors
from tasks.ledger.releases import ReleaseState
from tasks.ledger.store import utc_now
from tasks.workspace.folders import Workspace, unknown_release
from tasks.workspace.reading import parse_json, read_text

__all__ = ["Check", "Redraw", "audit_export", "audit_workspace", "broken", "not_shown", "read_public_key"]

FlowRuns = Mapping[str, Mapping[str, Any]]


def audit_workspace(
    workspace: Workspace,
    release_id: str | None = None,
    *,
    since: str | None = None,
    trusted: Sequence[PublicKey] = (),
    runs: FlowRuns | None = None,
    now: datetime | None = None,
    redraw: Redraw = EVERYTHING,
) -> list[Check]:
    """Verify a workspace, or one release of it, or those of a period or date and later.

    Raises: RefusedError for a workspace or release that is not there.
    """
    workspace.require()
    if release_id is None and not has_ledger(workspace):
        return [_no_ledger(workspace)]
    log = workspace.lineage_path
    try:
        readable = readable_ledger(workspace)
    except LedgerError as error:
        if error.rule == "ledger-missing":
            raise
        return [Check("ledger chain", False, str(error))]
    with closing(readable) as ledger:
        shelf, more = (
            workspace_shelf(workspace),
            {
                "stored": ledger.measurement,
                "trusted": tuple(trusted),
                "runs": runs,
                "now": now or utc_now(),
                "own": trust_anchors(workspace),
                "redraw": redraw,
                "log": read_text(log, errors="replace").splitlines() if log.is_file() else [],
            },
        )
        evidence = _gather(ledger.entries, shelf, more)
        if isinstance(evidence, Check):
            return [evidence]
        evidence = replace(evidence, own_keys=_own_keys(workspace, evidence))
        checks = _checks(evidence, release_id, since)
        return checks if release_id else [*checks, _completeness(workspace, evidence)]


def audit_export(
    export: Path,
    bundles: Path,
    trusted: Sequence[PublicKey],
    release_id: str | None = None,
    *,
    since: str | None = None,
    runs: FlowRuns | None = None,
    now: datetime | None = None,
    redraw: Redraw = EVERYTHING,
) -> list[Check]:
    """Verify bundles with nothing but a ledger export and the public keys that an auditor trusts.

    Raises: RefusedError for a file, folder or release that is not there.
    """
    more = {"trusted": tuple(trusted), "runs": runs, "now": now or utc_now(), "redraw": redraw}
    evidence = _gather(lambda: read_export(export), given_shelf(bundles), more)
    return [evidence] if isinstance(evidence, Check) else _checks(evidence, release_id, since)


def _own_keys(workspace: Workspace, evidence: Evidence) -> frozenset[str] | None:
    """The workspace's key and those it replaced; None if the ledger is not shared, so that all keys are its own."""
    public = workspace.keys / PUBLIC_FILE
    if not is_shared(workspace) or not public.is_file():
        return None
    key_id: str | None = read_public_key(public).key_id
    mine = set()
    while key_id is not None:
        mine.add(key_id)
        key_id = evidence.state.keys[key_id].replaces if key_id in evidence.state.keys else None
    return frozenset(mine)


def _no_ledger(workspace: Workspace) -> Check:
    missing = missing_entries(workspace, [])
    detail = f"it is missing, but there is {missing[0]}" if missing else "not there yet: nothing was released"
    return Check("ledger", not missing, detail)


def _gather(read: Callable[[], list[Entry]], shelf: Shelf, more: dict[str, Any]) -> Evidence | Check:
    """Step 1: replay the chain; if it fails, no other check is possible."""
    try:
        entries = read()
        state, history = replay(entries)
    except PrivacyError as error:
        if isinstance(error, RefusedError) and error.rule in ("export-missing", "bundles-missing"):
            raise
        return Check("ledger chain", False, str(error))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, OSError, RecursionError) as error:
        return Check("ledger chain", False, f"an entry cannot be read ({type(error).__name__})")
    known = frozenset((entry.seq, entry.hash) for entry in entries)
    return Evidence(entries=entries, state=state, history=history, shelf=shelf, known=known, **more)


def _checks(evidence: Evidence, release_id: str | None, since: str | None) -> list[Check]:
    """All steps; unpublished releases get only the checks that apply to them."""
    words = f"{len(evidence.entries)} entries: every hash and signature is valid, and every entry is allowed"
    checks = [Check("ledger chain", True, words), times_check(evidence), keys_check(evidence), caps_check(evidence)]
    for release in _chosen_releases(evidence, release_id, since):
        checks += _release_checks(evidence, release)
    if release_id is not None:
        return checks
    checks.append(strays_check(evidence))
    if evidence.log is not None:
        checks.append(log_check(evidence))
    if evidence.runs is not None:
        checks.append(runs_check(evidence, evidence.runs))
    return checks


def _release_checks(evidence: Evidence, release: ReleaseState) -> Iterator[Check]:
    """Steps 4 to 15."""
    yield costs_check(release)
    yield measurements_check(evidence, release)
    folder = evidence.shelf.place(release)
    if retraction := retraction_check(evidence, folder, release):
        yield retraction
    if release.published is not None and not folder.exists() and not evidence.is_own(release.published):
        words = f"published by key {release.published.key_id}, from another workspace of this ledger: audit it there"
        yield Check(f"{release.release_id}: bundle", True, words)
        return
    whole = bundle_check(folder, release)
    yield whole
    if release.published is None or not whole.ok or not folder.exists():
        return
    record = _record_in(folder)
    told = record_check(evidence, record, release)
    yield told
    if not told.ok:
        return
    yield accounting_check(evidence, record, release)
    if record["record_version"] > 1:  # the first version had none
        yield statement_check(evidence, folder, record, release.awaiting or release.published)
    yield from _content_checks(evidence, folder, record, release)


def _content_checks(evidence: Evidence, folder: Path, record: dict[str, Any], release: ReleaseState) -> Iterator[Check]:
    """Steps 10 to 15."""
    from tasks.audit import (
        documents,  # imported here, because audits without a published release need no tables
        events,
        redrawn_rows,
    )
    from tasks.audit.recomputed import RecomputedBundle

    bundle = RecomputedBundle(folder, record, release, evidence.redraw)
    sampler, program = bundle.by_its_sampler, bundle.by_this_program
    steps: dict[str, tuple[Callable[[], list[str]], str | Callable[[], str]]] = {
        "registry": (lambda: documents.registry_faults(bundle), "states the record's guarantee"),
        "model": (lambda: redrawn_rows.model_faults(bundle), "holds exactly the measurements that were spent"),
        "lineage": (
            lambda: (
                lineage_faults(evidence, folder, record, release)
                or program(lambda: events.event_faults(evidence, bundle))
            ),
            f"records all {len(stages_of(release))} stages and the cost of each measurement",
        ),
        "codebook": (
            lambda: documents.codebook_faults(bundle),
            "describes the record's columns and repeats its warnings",
        ),
        "data": (
            lambda: redrawn_rows.data_faults(bundle),
            lambda: f"{record['rows']} rows in the declared columns, and nothing besides",
        ),
        "rules": (lambda: redrawn_rows.rule_faults(bundle), lambda: redrawn_rows.rule_words(bundle)),
        "rows": (lambda: sampler(lambda: redrawn_rows.row_faults(bundle)), lambda: redrawn_rows.row_words(bundle)),
        "figures": (
            lambda: program(lambda: redrawn_rows.figure_faults(bundle)),
            "utility and checks are those of rows and measurements",
        ),
        "plan": (
            lambda: program(lambda: documents.plan_faults(bundle)),
            "choices, forecast, limits and promise follow from the specification",
        ),
        "report": (lambda: program(lambda: documents.report_faults(bundle)), "is the page that its record gives"),
    }
    if not record["specification"].get("rules"):
        del steps["rules"]
    if record["record_version"] == 1:
        del steps["registry"]  # the first version had none
    yield from (check(f"{release.release_id}: {name}", *step) for name, step in steps.items())


def _record_in(folder: Path) -> dict[str, Any]:
    """The record of a bundle; empty if it cannot be read."""
    try:
        record = parse_json(read_text(folder / "record.json"))
    except (ValueError, OSError):
        return {}
    return record if isinstance(record, dict) else {}


def _completeness(workspace: Workspace, evidence: Evidence) -> Check:
    missing = missing_entries(workspace, evidence.entries)
    detail = f"lacks entries that are named by {', '.join(missing)}" if missing else "contains every entry named"
    return Check("ledger completeness", not missing, detail)


PERIOD, DATE = re.compile(r"\d{4}-\d{2}"), re.compile(r"\d{4}-\d{2}-\d{2}")


def _chosen_releases(evidence: Evidence, release_id: str | None, since: str | None) -> list[ReleaseState]:
    releases = evidence.state.releases
    if release_id is not None and release_id not in releases:
        raise unknown_release(f"there is no release {release_id!r}")
    chosen = list(releases.values()) if release_id is None else [releases[release_id]]
    return [release for release in chosen if since is None or _is_since(evidence, release, since)]


def _is_since(evidence: Evidence, release: ReleaseState, since: str) -> bool:
    """Whether a release's period, or the date of its last ledger entry, is at or after `since`."""
    if PERIOD.fullmatch(since):
        return release.reservation.period >= since
    if DATE.fullmatch(since):
        last = release.retraction or release.published or evidence.entries[release.reserve_seq - 1]
        return last.at[:10] >= since
    raise RefusedError(
        f"{since!r} is neither a period nor a date",
        rule="since-malformed",
        where="--since",
        hint="write a period such as 2026-11, or a date such as 2026-11-16",
    )
