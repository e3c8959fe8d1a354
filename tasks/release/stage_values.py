"""What the stages of a release hand to each other: references and released values, never rows of the landing data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.evaluation.table_summary import TableSummary
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from tasks.bundle.released_tables import ReleasedTable
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import ReleaseState


@dataclass(frozen=True, slots=True)
class Grant:
    """A release's place in the ledger: its id, its seeds, and the audits of this build."""

    release_id: str
    seeds: dict[str, str]
    builds: dict[str, Any]
    needs_approval: bool = False

    @staticmethod
    def of(release: ReleaseState, builds: dict[str, Any]) -> Grant:
        """Return the grant that a reservation gives."""
        reserved = release.reservation
        return Grant(release.release_id, reserved.seeds, builds, reserved.approve != "none")


@dataclass(frozen=True, slots=True)
class MeasuredMoments:
    """The noisy moments of a release, and the projection that they live in."""

    moments: NoisyMoments
    projection: Projection


@dataclass(frozen=True, slots=True)
class SyntheticTable:
    """The synthetic rows: the tables that were written into a folder, and a summary of them in the original columns."""

    folder: Path
    tables: tuple[ReleasedTable, ...]
    summary: TableSummary
    rules: dict[str, Any] | None = None
    """What enforcing the specification's rules moved."""


@dataclass(frozen=True, slots=True)
class BundleRef:
    """A sealed bundle: where it is, what its record says, and whether it is published or waits for approval."""

    folder: Path
    record: dict[str, Any]
    status: ReleaseStatus = ReleaseStatus.PUBLISHED
