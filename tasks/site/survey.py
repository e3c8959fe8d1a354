"""What a workspace shows to an auditor: ledger, audit, and each release with its bundle and lineage.

Everything here is public: the ledger, released bundles and exported lineage. Landing data,
vault, verdicts and fingerprints are not read. Broken parts are surveyed as far as they can be
read, and reported as broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpcore.errors import PrivacyError, RefusedError, SpecError
from tasks.audit import Check, Redraw, audit_workspace, broken, not_shown
from tasks.bundle.staging import CHECKSUMS
from tasks.keys.signing import PublicKey
from tasks.ledger.balances import History, replay
from tasks.ledger.entries.bodies import Retraction
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.keys import trust_fault
from tasks.ledger.opening import has_ledger, is_shared, readable_ledger, trust_anchors
from tasks.ledger.state import LedgerState
from tasks.lineage.graph import Graph, lineage_graph
from tasks.schedule.forecast import Forecast, forecast_of
from tasks.spec import ReleaseSpec, load_spec
from tasks.spec.plan import basis_of
from tasks.spec.privacy import adds_up
from tasks.workspace.folders import MARK_ENDING, Workspace
from tasks.workspace.reading import parse_json, read_text

FAULTS = (PrivacyError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that reading a changed ledger or document may raise."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The published files of a release: their checksums, and the record if it can be read."""

    folder: Path
    record: dict[str, Any] | None
    digests: dict[str, str]

    @property
    def files(self) -> list[tuple[str, int, str]]:
        """Name, size in bytes and stated SHA-256 of every file that the checksums name and that exists."""
        present = [self.folder / name for name in sorted(self.digests) if (self.folder / name).is_file()]
        return [(path.name, path.stat().st_size, self.digests[path.name]) for path in present]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A workspace at one moment."""

    made_at: datetime
    checks: list[Check]
    spec: ReleaseSpec | None = None
    entries: list[Entry] = field(default_factory=list)
    verified: int = 0
    """The number of intact entries from the first on; the state is that after the last of them."""
    state: LedgerState = field(default_factory=LedgerState)
    history: History = field(default_factory=History)
    bundles: dict[str, Bundle] = field(default_factory=dict)
    """The published bundles that are here, without those of retracted releases: nothing of theirs is shown."""
    withheld: frozenset[str] = frozenset()
    """Releases that the ledger, or a mark beside the bundle, calls retracted."""
    graphs: dict[str, Graph] = field(default_factory=dict)
    forecast: Forecast | None = None
    shared: bool = False
    runs: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def ok(self) -> bool:
        """Whether no check of the audit failed."""
        return not self.faults

    @property
    def faults(self) -> list[Check]:
        """The checks that failed."""
        return broken(self.checks)

    @property
    def open_ends(self) -> list[Check]:
        """The checks that could be shown neither to hold nor to fail."""
        return not_shown(self.checks)


def survey_workspace(
    workspace: Workspace,
    *,
    now: datetime,
    runs: Mapping[str, Mapping[str, Any]] | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Survey:
    """Audit a workspace and collect what the site shows.

    Raises: RefusedError if there is no workspace.
    """
    workspace.require()
    on_progress("auditing")
    checks = audit_workspace(workspace, runs=runs, redraw=Redraw(on_progress=on_progress))
    entries = _ledger_entries(workspace)
    verified, state, history = _replay_trusted(entries, _trust_anchors(workspace))
    withheld = _withheld(workspace, entries)
    bundles = {folder.name: _read_bundle(folder) for folder in workspace.bundles() if folder.name not in withheld}
    spec = _load_spec(workspace)
    on_progress("reading lineage")
    return Survey(
        made_at=now.astimezone(UTC),
        checks=checks,
        spec=spec,
        entries=entries,
        verified=verified,
        state=state,
        history=history,
        bundles=bundles,
        withheld=withheld,
        graphs=dict(_lineage_graphs(workspace, [*state.releases])),
        forecast=_forecast(spec, state, entries, now) if verified == len(entries) else None,
        shared=spec is not None and is_shared(workspace),
        runs=runs,
    )


def _ledger_entries(workspace: Workspace) -> list[Entry]:
    """Return the ledger's entries; none if the ledger cannot be read, which the audit reports."""
    if not has_ledger(workspace):
        return []
    try:
        with closing(readable_ledger(workspace)) as ledger:
            return ledger.entries()
    except FAULTS:
        return []


def _trust_anchors(workspace: Workspace) -> tuple[PublicKey, ...]:
    try:
        return trust_anchors(workspace)
    except FAULTS:
        return ()  # the audit reports it


def _replay_trusted(entries: Sequence[Entry], anchors: Sequence[PublicKey]) -> tuple[int, LedgerState, History]:
    """Replay the longest intact and trusted beginning of a ledger; return its length, state and history."""
    try:
        good, (state, history) = len(entries), replay(entries)
    except FAULTS:
        good = _good_entries(entries)
        state, history = replay(entries[:good])
    fault = trust_fault(state.keys, state.signers, anchors)
    if fault is not None:
        good = fault.seq - 1
        state, history = replay(entries[:good])
    return good, state, history


def _good_entries(entries: Sequence[Entry]) -> int:
    state = LedgerState()
    for place, entry in enumerate(entries):
        try:
            state.apply(entry)
        except FAULTS:
            return place
    return len(entries)


def _withheld(workspace: Workspace, entries: Sequence[Entry]) -> frozenset[str]:
    """The releases that any entry or mark retracts, verified or not: in doubt, no data go out."""
    retracted = (entry.release_id for entry in entries if entry.is_a(Retraction))
    return frozenset([*retracted, *(mark.name.removesuffix(MARK_ENDING) for mark in workspace.marks())])


def _load_spec(workspace: Workspace) -> ReleaseSpec | None:
    try:
        return load_spec(workspace.spec_path)
    except SpecError:
        return None


def _read_bundle(folder: Path) -> Bundle:
    lines = _text_or_nothing(folder / CHECKSUMS).splitlines()
    digests = {name: digest for digest, _, name in (line.partition("  ") for line in lines) if _is_plain(name)}
    try:
        record = parse_json(_text_or_nothing(folder / "record.json"))
    except ValueError:
        record = None
    return Bundle(folder, record if isinstance(record, dict) else None, digests)


def _is_plain(name: str) -> bool:
    """Whether a name is that of a file in the same folder; changed checksums may name other places."""
    return bool(name) and Path(name).name == name


def _text_or_nothing(path: Path) -> str:
    try:
        return read_text(path, errors="replace")
    except OSError:
        return ""


def _lineage_graphs(workspace: Workspace, releases: Sequence[str]) -> Iterator[tuple[str, Graph]]:
    for release_id in releases:
        try:
            yield release_id, lineage_graph(workspace, release_id)
        except (RefusedError, *FAULTS, OSError):
            continue  # of an early version, of another workspace, or broken: the audit reports which


def _forecast(spec: ReleaseSpec | None, state: LedgerState, entries: Sequence[Entry], now: datetime) -> Forecast | None:
    if spec is None:
        return None
    mine = {r.reserve_seq for r in state.releases.values() if r.reservation.name == spec.name and r.spends}
    past = [moment_of(entry) for entry in entries if entry.seq in mine]
    known = state.populations.get(spec.privacy.population)
    if known is not None and not adds_up(known.basis, basis_of(spec)):
        return None  # every run of this specification is refused
    try:
        return forecast_of(spec, state, past=past, now=now.astimezone(UTC))
    except SpecError:
        return None


def moment_of(entry: Entry) -> datetime:
    """Return when an entry was written."""
    return datetime.fromisoformat(entry.at).astimezone(UTC)
