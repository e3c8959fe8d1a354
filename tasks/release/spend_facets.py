"""What the lineage says of costs: each measurement's own, the release's in all, and those of every dataset.

All figures come from the ledger's entries, so that an audit computes them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
)

from dpcore.accounting import Cost, Statement, release_statement, total
from dpcore.errors import LedgerError
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.names import PROJECTION
from dpcore.mechanisms.registry import cost_of, event_from_json
from dpcore.records.schema import Neighbours
from dpcore.synthesis.generators import SyntheticRows
from tasks.bundle.record import Outcome, stored_frame, stored_projection
from tasks.bundle.staging import CHECKSUMS, checksums_in, sha256_of
from tasks.ledger.balances import History, replay
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.fields import canonical
from tasks.ledger.releases import ReleaseState
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.lineage.datasets import (
    BUNDLE,
    FIGURES,
    FILES,
    FRAME,
    LANDING,
    LAW,
    RESERVATION,
    ReleaseDatasets,
    noisy,
)
from tasks.lineage.events import Stage
from tasks.lineage.facets import (
    COST,
    GUARANTEE,
    LEDGER,
    SPEND,
    DpCostFacet,
    DpGuaranteeFacet,
    DpLedgerFacet,
    DpSpendFacet,
)
from tasks.release.stage_values import BundleRef, Grant, MeasuredMoments, SyntheticTable


@dataclass(frozen=True, slots=True)
class Account:
    """A release's costs as the ledger has them, in the terms of its lineage."""

    release: ReleaseState
    basis: Mapping[str, str]
    """Unit and neighbours that the population's budget is counted for."""
    reservation: Entry

    @staticmethod
    def of(state: LedgerState, entries: Sequence[Entry], release_id: str) -> Account:
        """The account of a release that was reserved."""
        release = state.releases[release_id]
        (reservation,) = (entry for entry in entries if entry.seq == release.reserve_seq)
        known = state.populations[release.population]
        basis = known.basis | {"neighbours": known.relation_of(release.reservation).value}
        return Account(release, basis, reservation)

    @property
    def _delta(self) -> Fraction:
        return Fraction(str(self.release.reservation.stated["delta"]))

    def _cost(self, name: str) -> Cost:
        return cost_of(event_from_json(self.release.spends[name].parse(Spend).event))

    def _composed(self, cost: Cost) -> Statement:
        """The statement of a cost at the release's delta; what is pure claims none."""
        return release_statement(cost, delta=self._delta if cost.rho else Fraction(0))

    def spend(self, name: str, history: History) -> DpSpendFacet:
        """One measurement's own cost and entry; the balance is that around the entry, whenever it is told."""
        spent, cost = self.release.spends[name], self._cost(name)
        mechanism, alone = BY_NAME[spent.parse(Spend).event["mechanism"]], self._composed(cost)
        held = (history.at(spent.population, seq) for seq in (spent.seq - 1, spent.seq))
        relation = Neighbours(self.basis["neighbours"])
        before, after = (known.balance(relation, reserved=False).statement.as_json() for known in held)
        return DpSpendFacet(
            measurement=name,
            mechanism=mechanism.name,
            proof=f"{mechanism.status.value}: {mechanism.reason}",
            population=self.release.population,
            unit=self.basis["unit"],
            neighbours=self.basis["neighbours"],
            epsilon=float(cost.epsilon) if cost.epsilon else None,
            rho=float(cost.rho) if cost.rho else None,
            deltaNum=float(cost.delta_num),
            alone={"epsilon": float(alone.epsilon), "delta": float(alone.delta)},
            ofRelease={key: float(self.release.reservation.stated[key]) for key in ("epsilon", "delta")},
            ledgerEntry=spent.seq,
            ledgerHash=spent.hash,
            before=before,
            after=after,
        )

    def guarantee(self, spent: Iterable[str]) -> DpGuaranteeFacet:
        """What the release promises as a whole, and what these spends compose to."""
        planned = self.release.reservation.measurements
        stated = self.release.reservation.stated
        return DpGuaranteeFacet(
            population=self.release.population,
            unit=self.basis["unit"],
            neighbours=self.basis["neighbours"],
            epsilon=float(stated["epsilon"]),
            delta=float(stated["delta"]),
            deltaNum=float(total(plan.cost for plan in planned.values()).delta_num),
            measurements=sorted(planned),
            spent=self._composed(total(map(self._cost, spent))).as_json(),
            ledgerEntry=self.reservation.seq,
            ledgerHash=self.reservation.hash,
        )

    def cost(self, measurements: Sequence[str]) -> DpCostFacet:
        """What a dataset that was computed from these measurements costs."""
        composed = self._composed(total(map(self._cost, measurements)))
        return DpCostFacet(
            measurements=list(measurements),
            epsilon=float(composed.epsilon),
            delta=float(composed.delta),
            deltaNum=float(composed.delta_num),
        )

    def made(self, datasets: ReleaseDatasets, name: str, digest: str | None) -> dict[str, DatasetFacet]:
        """Digest and cost of a dataset that was written."""
        version: dict[str, DatasetFacet] = {} if digest is None else {"version": _version(digest)}
        return version | {COST: self.cost(datasets.computed_from(name))}

    def reserved(self) -> dict[str, DatasetFacet]:
        """The reservation as the ledger entry that it is."""
        return {"version": _version(self.reservation.hash), LEDGER: ledger_facet(self.reservation)}

    def bundled(self, datasets: ReleaseDatasets, name: str, digest: str) -> dict[str, DatasetFacet]:
        """A bundle as the ledger has it: published, or waiting."""
        entry = self.release.published if name == BUNDLE else self.release.awaiting
        facets = self.made(datasets, name, digest)
        if name == BUNDLE:
            facets |= _lifecycle("CREATE")
        return facets if entry is None else facets | {LEDGER: ledger_facet(entry)}

    def measured(self, datasets: ReleaseDatasets, names: Iterable[str]) -> dict[str, dict[str, DatasetFacet]]:
        """The datasets of these measurements, with the digests of their spends."""
        return {
            noisy(name): self.made(datasets, noisy(name), self.release.spends[name].parse(Spend).digest)
            for name in names
        }


def withdrawn(retraction: Entry, digest: str) -> dict[str, DatasetFacet]:
    """A bundle that was retracted, with the ledger entry that says so."""
    return {
        "version": _version(digest),
        LEDGER: ledger_facet(retraction),
        **_lifecycle("DROP"),
    }


def _lifecycle(change: str) -> dict[str, DatasetFacet]:
    state = lifecycle_state_change_dataset.LifecycleStateChange(change)
    return {"lifecycleStateChange": lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(state)}


def ledger_facet(entry: Entry) -> DpLedgerFacet:
    """The ledger entry that a dataset is, that holds its digest, or that retracts it."""
    return DpLedgerFacet(ledgerEntry=entry.seq, ledgerHash=entry.hash)


def _version(digest: str) -> dataset_version_dataset.DatasetVersionDatasetFacet:
    return dataset_version_dataset.DatasetVersionDatasetFacet(f"sha256:{digest}")


def digest_of(content: Any) -> str:
    """SHA-256 of the canonical JSON of a part of the bundle's documents."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def figures_digest(utility: Mapping[str, Any], free_checks: Sequence[Any]) -> str:
    """The digest of a record's utility, without bought scores, and of its free checks."""
    return digest_of(
        {"utility": {key: value for key, value in utility.items() if key != "scores"}, "checks": list(free_checks)}
    )


def assertions(checks: Iterable[Mapping[str, Any]]) -> dict[str, InputDatasetFacet]:
    """The checks of a table that decide, as OpenLineage tells them; released values on both sides."""
    found = [
        data_quality_assertions_dataset.Assertion(
            assertion=str(check["name"]),
            success=bool(check["ok"]),
            severity="error",
            expected=None if check["threshold"] is None else f"{check['direction']} {check['threshold']}",
            actual=None if check["value"] is None else str(check["value"]),
        )
        for check in checks
        if check["threshold"] is not None or check["direction"] == "holds"
    ]
    return {"dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(found)}


def row_count(rows: int) -> dict[str, OutputDatasetFacet]:
    """How many synthetic rows were written: a released number."""
    return {"outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)}


class SpendFacets:
    """Records in the lineage of a running release what its stages spent and made."""

    def __init__(self, ledger: Ledger, release_id: str, datasets: ReleaseDatasets, whole: Stage) -> None:
        self._ledger, self._release_id, self._datasets, self._whole = ledger, release_id, datasets, whole

    @contextmanager
    def record_spends(self, stage: Stage) -> Iterator[None]:
        """Name whatever a stage spends in its events and in the flow's, also where what follows fails.

        Otherwise nothing would miss a ledger that is put back to where it was before a failure.
        """
        if not self._datasets.made_in(stage.name):
            yield
            return
        try:
            yield
        except BaseException:
            with suppress(LedgerError):  # the failure itself is what is reported
                self._name_spends(stage)
            raise
        self._name_spends(stage)

    def _name_spends(self, stage: Stage) -> None:
        entries = self._ledger.entries()
        state, history = replay(entries)
        account = Account.of(state, entries, self._release_id)
        names = [name for name in self._datasets.made_in(stage.name) if name in account.release.spends]
        stage.made |= account.measured(self._datasets, names)
        for told in (stage, self._whole):
            told.facets |= {f"{SPEND}_{name}": account.spend(name, history) for name in names}
        spent = [facet.measurement for facet in self._whole.facets.values() if isinstance(facet, DpSpendFacet)]
        if spent:
            self._whole.facets[GUARANTEE] = account.guarantee(spent)

    def record(self, stage: Stage, value: object) -> None:
        """Record digest and cost of what a stage made, by the value that it returned."""
        if value is None:
            return
        account = Account.of(self._ledger.state(), self._ledger.entries(), self._release_id)
        match value:
            case Grant():
                stage.made[RESERVATION] = account.reserved()
            case Projection() | MeasuredMoments(projection=Projection()):
                self._record_parts(stage, account, value if isinstance(value, Projection) else value.projection)
            case SyntheticRows():  # their law is no file of the bundle and has no digest
                stage.made[LAW] = account.made(self._datasets, LAW, None)
            case SyntheticTable():
                for name in self._datasets.tables:
                    digest = sha256_of(value.folder / FILES[name])
                    stage.made[name] = account.made(self._datasets, name, digest)
                    stage.statistics[name] = row_count(value.summary.rows)
            case Outcome() if FIGURES in stage.outputs:
                stage.made[FIGURES] = account.made(self._datasets, FIGURES, figures_digest(value.utility, value.checks))
                stage.verdicts |= dict.fromkeys(self._datasets.tables, assertions(value.checks))
            case BundleRef():
                self._record_bundle(stage, account, value.folder)

    def _record_parts(self, stage: Stage, account: Account, projection: Projection) -> None:
        """Frame and projection, as far as this stage decides them."""
        parts = {FRAME: stored_frame(projection), PROJECTION: stored_projection(projection)}
        for name in [name for name in parts if name in stage.outputs]:
            stage.made[name] = account.made(self._datasets, name, digest_of(parts[name]))

    def _record_bundle(self, stage: Stage, account: Account, folder: Path) -> None:
        """The bundle, published or waiting, with its files; the flow names it too."""
        sums = checksums_in(folder)
        for name in stage.outputs[:-1]:
            stage.made[name] = account.made(self._datasets, name, sums[FILES[name]])
        bundle = stage.outputs[-1]
        stage.made[bundle] = account.bundled(self._datasets, bundle, sha256_of(folder / CHECKSUMS))
        self._whole.inputs, self._whole.outputs = [LANDING], [bundle]
        self._whole.made[bundle] = stage.made[bundle]
