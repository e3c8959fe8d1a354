"""The last stage: write the bundle beside its place, record it in the ledger, reveal it in one rename."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from dpcore.errors import LedgerError
from dpcore.measure import Measurement
from tasks.boundary import log_public, private_task
from tasks.bundle.codebook import build_codebook
from tasks.bundle.record import Outcome, build_model, build_record
from tasks.bundle.registry_entry import REGISTRY, deployment_text
from tasks.bundle.staging import Staging, render_json
from tasks.bundle.statement import STATEMENT, build_statement, sign_statement
from tasks.keys.signing import signing_key
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.store import Ledger
from tasks.release.stage_values import BundleRef, Grant
from tasks.report.report import render_report
from tasks.spec.plan import PlannedRelease
from tasks.workspace.helper_process import in_helper

RECORD, CODEBOOK, MODEL = "record.json", "codebook.json", "model.json"
REPORT, LINEAGE = "report.html", "lineage.ndjson"


@private_task("publish")
def publish_bundle(
    planned: PlannedRelease,
    ledger: Ledger,
    grant: Grant,
    outcome: Outcome,
    staging: Staging,
    *,
    keys: Path,
    lineage: list[str],
    flow_run_id: str,
    now: datetime,
) -> BundleRef:
    """Fill, seal, record and reveal the bundle; a bundle that needs approval stays hidden until a person approves it.

    Raises: LedgerError if its noise was seeded.
    """
    measurements = _measurements(ledger, grant)
    _refuse_seeded(grant, [outcome.moments.released, *measurements.values()])
    _refuse_unknown(staging, grant)
    record = build_record(planned, grant.release_id, outcome, ledger.state(), flow_run_id=flow_run_id, now=now)
    folder = staging.folder
    documents = {
        RECORD: render_json(record),
        CODEBOOK: render_json(build_codebook(planned.plan.schema, record)),
        MODEL: render_json(build_model(planned.encoding, outcome, measurements, planned.spec.model.row_sampling)),
        REPORT: in_helper(render_report, record),
        REGISTRY: deployment_text(record),
        LINEAGE: "".join(f"{line}\n" for line in lineage),
    }
    for name, text in documents.items():
        (folder / name).write_text(text, encoding="utf-8")
    statement = build_statement(record, staging.digests())
    signed = sign_statement(statement, signing_key(keys))
    (folder / STATEMENT).write_text(render_json(signed), encoding="utf-8")
    digest = staging.seal()
    if needs_approval(planned, grant):
        ledger.await_approval(grant.release_id, bundle_digest=digest, flow_run_id=flow_run_id)
        log_public(f"{grant.release_id} waits for approval")
        return BundleRef(folder, record, ReleaseStatus.AWAITING_APPROVAL)
    ledger.publish(grant.release_id, bundle_digest=digest, flow_run_id=flow_run_id)
    staging.reveal()
    log_public(f"published {grant.release_id}")
    return BundleRef(staging.final, record)


def needs_approval(planned: PlannedRelease, grant: Grant) -> bool:
    """Return whether a person must approve first, by the reservation or by the present specification."""
    return grant.needs_approval or planned.spec.approve != "none"


def _refuse_seeded(grant: Grant, measurements: Iterable[Measurement]) -> None:
    if any(released.seeded for released in measurements):
        raise LedgerError(
            "the noise of this release was drawn from a seed",
            rule="noise-seeded",
            where=grant.release_id,
            hint="seeded noise protects nobody; release again with another period",
        )


def _refuse_unknown(staging: Staging, grant: Grant) -> None:
    if staging.final.exists():
        raise LedgerError(
            f"the ledger has no entry for the existing bundle {grant.release_id}",
            rule="ledger-incomplete",
            where="ledger.db",
            hint="the ledger was rolled back: restore the latest one, then run `dprelease audit`",
        )


def _measurements(ledger: Ledger, grant: Grant) -> dict[str, Measurement]:
    """Everything that was drawn for the release, by name."""
    drawn = ledger.state().releases[grant.release_id].spends
    stored = {name: ledger.measurement(grant.release_id, name) for name in drawn}
    return {name: released for name, released in stored.items() if released is not None}
