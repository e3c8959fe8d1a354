"""The audit holds for an untouched workspace, and names the place of everything that was changed."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.tasks.audit.tampering import FIRST, SECOND, broken, bundle, on_the_ledger, rechain, rewritten
from support.tasks.builders import BASIS, cap, opened, released, request

from dpcore.errors import LedgerError, RefusedError, WorkspaceError
from dpcore.measure import Released
from tasks.audit import audit_workspace
from tasks.bundle.staging import CHECKSUMS, sha256_of
from tasks.keys.signing import PUBLIC_FILE, SigningKey, signing_key
from tasks.ledger.cited_heads import require_complete_ledger
from tasks.ledger.entries.bodies import Publication
from tasks.ledger.entries.entry import Entry
from tasks.ledger.store import Ledger
from tasks.lineage.events import append_line
from tasks.site.survey import FAULTS
from tasks.workspace.folders import Workspace

BUNDLE_FILES = (
    "data.parquet",
    "codebook.json",
    "model.json",
    "record.json",
    "report.html",
    "lineage.ndjson",
    "registry.yaml",
    "statement.intoto.json",
)
PARTS = (
    "costs",
    "measurements",
    "bundle",
    "record",
    "balance",
    "statement",
    "registry",
    "model",
    "lineage",
    "codebook",
    "data",
    "rows",
    "figures",
    "plan",
    "report",
)


# ---------------------------------------------------------------- untouched


def test_an_untouched_workspace_is_green(workspace: Workspace):
    checks = audit_workspace(workspace)
    assert broken(checks) == {}
    names = [f"{release}: {part}" for release in (FIRST, SECOND) for part in PARTS]
    ends = ("bundles", "lineage log", "ledger completeness")
    assert [check.name for check in checks] == ["ledger chain", "ledger times", "keys", "caps", *names, *ends]
    assert all(check.detail for check in checks)


def test_one_release_can_be_audited_alone(workspace: Workspace):
    shutil.rmtree(bundle(workspace, SECOND))
    assert broken(audit_workspace(workspace, FIRST)) == {}
    assert list(broken(audit_workspace(workspace, SECOND))) == [f"{SECOND}: bundle"]


def test_the_audit_needs_no_raw_data_no_secret_keys_and_writes_nothing(workspace: Workspace):
    shutil.rmtree(workspace.landing)
    shutil.rmtree(workspace.vault)
    for secret in workspace.keys.iterdir():
        if secret.name != PUBLIC_FILE:
            secret.unlink()
    before = {path: path.stat().st_mtime_ns for path in workspace.root.rglob("*")}
    assert broken(audit_workspace(workspace)) == {}
    assert {path: path.stat().st_mtime_ns for path in workspace.root.rglob("*")} == before


def test_without_a_public_key_there_is_no_trust_anchor(workspace: Workspace):
    public = signing_key(workspace.keys).public
    shutil.rmtree(workspace.keys)
    assert list(broken(audit_workspace(workspace))) == ["keys"]
    assert broken(audit_workspace(workspace, trusted=[public])) == {}


def test_a_release_in_flight_is_no_fault(workspace: Workspace):
    with closing(Ledger.open(workspace.ledger_path, signing_key(workspace.keys))) as ledger:
        ledger.reserve(request("2026-03", name="small"))
    checks = {check.name: check for check in audit_workspace(workspace)}
    assert checks["small-2026-03-1: bundle"].ok
    assert "reserved" in checks["small-2026-03-1: bundle"].detail


def test_a_half_written_bundle_is_no_bundle(workspace: Workspace):
    (workspace.releases / "small" / ".small-2026-03-1.partial").mkdir()
    assert broken(audit_workspace(workspace)) == {}


def test_what_is_not_there_is_refused(workspace: Workspace, tmp_path: Path):
    with pytest.raises(RefusedError) as unknown:
        audit_workspace(workspace, "small-2031-01-1")
    assert unknown.value.rule == "release-unknown"
    with pytest.raises(WorkspaceError):
        audit_workspace(Workspace(tmp_path / "nowhere"))
    workspace.ledger_path.unlink()
    with pytest.raises(LedgerError) as missing:
        audit_workspace(workspace, FIRST)
    assert missing.value.rule == "ledger-missing"


def test_a_ledger_may_be_missing_only_before_the_first_release(workspace: Workspace):
    workspace.ledger_path.unlink()
    assert FIRST in broken(audit_workspace(workspace))["ledger"]
    shutil.rmtree(workspace.releases)
    assert "the lineage of entry 4" in broken(audit_workspace(workspace))["ledger"]
    workspace.lineage_path.unlink()
    assert broken(audit_workspace(workspace)) == {}


# ---------------------------------------------------------------- bundles


@pytest.mark.parametrize("name", [*BUNDLE_FILES, CHECKSUMS])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_changed_byte_in_a_bundle_is_named(workspace: Workspace, name: str, place: str):
    path = bundle(workspace) / name
    content = bytearray(path.read_bytes())
    content[{"first": 0, "middle": len(content) // 2, "last": -1}[place]] ^= 1
    rewritten(path, bytes(content))
    faults = broken(audit_workspace(workspace))
    assert set(faults) - {"ledger completeness"} == {f"{FIRST}: bundle"}, "an unreadable record also names no entry"
    assert name in faults[f"{FIRST}: bundle"]


@pytest.mark.parametrize("name", [*BUNDLE_FILES, CHECKSUMS])
def test_a_missing_file_of_a_bundle_is_named(workspace: Workspace, name: str):
    (bundle(workspace) / name).unlink()
    assert broken(audit_workspace(workspace, FIRST)) == {f"{FIRST}: bundle": f"{name} is missing"}


def test_every_file_of_a_bundle_is_in_the_tables_above(workspace: Workspace):
    assert {path.name for path in bundle(workspace).iterdir()} == {*BUNDLE_FILES, CHECKSUMS}


def recompute_checksums(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir() if path.name != CHECKSUMS)
    lines = "".join(f"{sha256_of(folder / name)}  {name}\n" for name in names)
    rewritten(folder / CHECKSUMS, lines.encode())


def edit_record(workspace: Workspace, change: Callable[[dict[str, object]], object]) -> None:
    """Change a record as someone would who knows about the checksums."""
    path = bundle(workspace) / "record.json"
    record = json.loads(path.read_text())
    change(record)
    rewritten(path, json.dumps(record, indent=2).encode())
    recompute_checksums(bundle(workspace))


BUNDLE_TAMPERINGS: dict[str, tuple[Callable[[Workspace], object], str, str]] = {
    "bundle-missing": (lambda w: shutil.rmtree(bundle(w)), f"{FIRST}: bundle", "missing"),
    "all-bundles-missing": (lambda w: shutil.rmtree(w.releases), f"{SECOND}: bundle", "missing"),
    "extra-file": (
        lambda w: (bundle(w) / "notes.txt").write_text("x"),
        f"{FIRST}: bundle",
        "notes.txt does not belong to the bundle",
    ),
    "file-is-a-folder": (
        lambda w: ((bundle(w) / "model.json").unlink(), (bundle(w) / "model.json").mkdir()),
        f"{FIRST}: bundle",
        "",
    ),
    "bundles-swapped": (
        lambda w: (
            bundle(w).rename(w.root / "aside"),
            bundle(w, SECOND).rename(bundle(w)),
            (w.root / "aside").rename(bundle(w, SECOND)),
        ),
        f"{FIRST}: bundle",
        "is not the one in the ledger",
    ),
    "record-edited-with-checksums": (
        lambda w: edit_record(w, lambda record: record["privacy"].update(epsilon=0.01)),
        f"{FIRST}: bundle",
        "SHA256SUMS is not the one in the ledger",
    ),
    "stray-bundle": (
        lambda w: shutil.copytree(bundle(w), w.releases / "small" / "small-2026-03-1"),
        "bundles",
        "small-2026-03-1",
    ),
    "stray-empty-bundle": (lambda w: (w.releases / "small" / "small-2026-01-2").mkdir(), "bundles", "small-2026-01-2"),
    "stray-name": (lambda w: shutil.copytree(bundle(w), w.releases / "other" / FIRST), "bundles", FIRST),
}


@pytest.mark.parametrize("case", BUNDLE_TAMPERINGS)
def test_a_tampered_bundle_is_named(workspace: Workspace, case: str):
    tamper, name, detail = BUNDLE_TAMPERINGS[case]
    tamper(workspace)
    faults = broken(audit_workspace(workspace))
    assert name in faults
    assert detail in faults[name]


def replace_ledger(workspace: Workspace) -> None:
    workspace.ledger_path.unlink()
    with opened(workspace.ledger_path) as ledger:
        ledger.ensure_cap("people", cap(), BASIS)


def renoised(entry: Entry) -> Entry:
    """Half the noise at the same stated cost."""
    if entry.kind not in ("reserve", "spend"):
        return entry
    body = json.loads(entry.body)
    for part in body["measurements"].values() if entry.kind == "reserve" else (body,):
        part["event"]["noise"] = "1"
    return replace(entry, body=json.dumps(body, sort_keys=True, separators=(",", ":")))


def refuted(entry: Entry) -> Entry:
    return replace(entry, body=entry.body.replace('"wishart-difference-trace"', '"published-ron-gauss"'))


def seeded(entry: Entry) -> Entry:
    return replace(entry, body=entry.body.replace('"seeded":false', '"seeded":true'))


def later(entry: Entry) -> Entry:
    return replace(entry, at=entry.at.replace("20", "21", 1))


def store(workspace: Workspace, measurement: Released) -> None:
    """Put another measurement in the place of the first release's."""
    payload = json.dumps(measurement.as_json(), sort_keys=True, separators=(",", ":"))
    on_the_ledger(workspace, f"UPDATE measurements SET payload = '{payload}' WHERE release_id = '{FIRST}'")


def move_one_cell(workspace: Workspace) -> None:
    """Change one cell of a measurement by one step."""
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        stored = ledger.measurement(FIRST, "moments")
    assert stored is not None
    (first, *cells), *blocks = stored.values
    store(workspace, replace(stored, values=((first + 1, *cells), *blocks)))


LEDGER_TAMPERINGS: dict[str, tuple[Callable[[Workspace], object], str, str]] = {
    "cap-edited": (
        lambda w: on_the_ledger(w, "UPDATE events SET body = replace(body, '6/5', '60/5') WHERE seq = 2"),
        "ledger chain",
        "entry 2 (cap) was changed",
    ),
    "time-edited": (
        lambda w: on_the_ledger(w, "UPDATE events SET at = '2020-01-01T00:00:00Z' WHERE seq = 4"),
        "ledger chain",
        "entry 4 (spend) was changed",
    ),
    "spend-deleted": (
        lambda w: on_the_ledger(w, "DELETE FROM events WHERE seq = 4"),
        "ledger chain",
        "entry 5 (publish) does not follow the one before",
    ),
    "body-no-longer-text": (
        lambda w: on_the_ledger(w, "UPDATE events SET body = x'00ff' WHERE seq = 3"),
        "ledger chain",
        "",
    ),
    "body-invalid-text": (
        lambda w: on_the_ledger(w, "UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE seq = 3"),
        "ledger chain",
        "",
    ),
    "table-dropped": (lambda w: _drop(w, "events"), "ledger chain", "not usable"),
    "measurements-dropped": (lambda w: _drop(w, "measurements"), f"{FIRST}: measurements", "not usable"),
    "not-a-database": (lambda w: w.ledger_path.write_bytes(b"nothing" * 999), "ledger chain", "not usable"),
    "emptied": (lambda w: w.ledger_path.write_bytes(b""), "ledger", "it is missing, but there is"),
    "last-event-deleted": (lambda w: on_the_ledger(w, "DELETE FROM events WHERE seq = 8"), "bundles", SECOND),
    "last-release-deleted": (lambda w: on_the_ledger(w, "DELETE FROM events WHERE seq > 5"), "bundles", SECOND),
    "all-but-the-cap-deleted": (lambda w: on_the_ledger(w, "DELETE FROM events WHERE seq > 2"), "bundles", FIRST),
    "fresh-ledger": (replace_ledger, "bundles", f"{FIRST}, {SECOND}"),
    "payload-edited": (move_one_cell, f"{FIRST}: measurements", "entry 4 is missing or was changed"),
    "payload-of-another-draw": (
        lambda w: store(w, released()),
        f"{FIRST}: measurements",
        "entry 4 is missing or was changed",
    ),
    "payload-unreadable": (
        lambda w: on_the_ledger(w, "UPDATE measurements SET payload = '{}'"),
        f"{FIRST}: measurements",
        "entry 4 is missing or was changed",
    ),
    "payload-invalid-text": (
        lambda w: on_the_ledger(w, "UPDATE measurements SET payload = CAST(x'ff' AS TEXT)"),
        f"{FIRST}: measurements",
        "not usable",
    ),
    "payload-deleted": (
        lambda w: on_the_ledger(w, f"DELETE FROM measurements WHERE release_id = '{FIRST}'"),
        f"{FIRST}: measurements",
        "entry 4 is missing or was changed",
    ),
    "history-rewritten-without-the-key": (
        lambda w: rechain(w, later, SigningKey.fresh()),
        "ledger chain",
        "signature that is not its key's",
    ),
    "signature-removed": (
        lambda w: on_the_ledger(w, "UPDATE events SET signature = '' WHERE seq = 8"),
        "ledger chain",
        "entry 8 (publish) has a signature that is not its key's",
    ),
    "signed-by-an-unknown-key": (
        lambda w: on_the_ledger(w, "UPDATE events SET key_id = 'f' WHERE seq = 4"),
        "ledger chain",
        "entry 4 (spend) is not signed by an active key",
    ),
    "history-rewritten": (lambda w: rechain(w, later), f"{FIRST}: record", "the ledger head that it names"),
    "history-rewritten-with-less-noise": (lambda w: rechain(w, renoised), f"{FIRST}: costs", "another cost"),
    "history-rewritten-with-refuted-mechanism": (lambda w: rechain(w, refuted), f"{FIRST}: costs", "not proved"),
    "history-rewritten-with-seeded-noise": (lambda w: rechain(w, seeded), f"{FIRST}: measurements", "was seeded"),
}


def _drop(workspace: Workspace, table: str) -> None:
    with closing(sqlite3.connect(workspace.ledger_path)) as connection:
        connection.execute(f"DROP TABLE {table}")
        connection.commit()


@pytest.mark.parametrize("case", LEDGER_TAMPERINGS)
def test_a_tampered_ledger_is_named(workspace: Workspace, case: str):
    tamper, name, detail = LEDGER_TAMPERINGS[case]
    tamper(workspace)
    faults = broken(audit_workspace(workspace))
    assert name in faults
    assert detail in faults[name]


def test_a_rewritten_history_that_changes_nothing_is_the_same_history(workspace: Workspace):
    """The tamperings by `rechain` are found for what they change, not for how they are written."""
    rechain(workspace, lambda entry: entry)
    assert broken(audit_workspace(workspace)) == {}


def test_a_flipped_byte_in_the_ledger_is_found_or_changes_nothing(workspace: Workspace):
    good, intact = workspace.ledger_path.read_bytes(), _contents(workspace)
    dice = random.Random(20261116)  # noqa: S311  which bytes to flip, no secret
    found = 0
    for _ in range(100):
        place, mask = dice.randrange(len(good)), dice.randrange(1, 256)
        workspace.ledger_path.write_bytes(good[:place] + bytes([good[place] ^ mask]) + good[place + 1 :])
        if broken(audit_workspace(workspace, since="2999-01-01")):  # all of an audit but its releases
            found += 1
        elif _contents(workspace) != intact:  # else their checks read what they read before
            assert broken(audit_workspace(workspace)), f"byte {place} xor {mask} changed the ledger unnoticed"
            found += 1
    assert found > 10, "the flips hit something"


def _contents(workspace: Workspace) -> tuple[object, ...] | None:
    """What an audit reads of a ledger; None if it cannot be read."""
    try:
        with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
            return ledger.entries(), *(ledger.measurement(release, "moments") for release in (FIRST, SECOND))
    except FAULTS:
        return None


# ---------------------------------------------------------------- records that say something else

RECORD_LIES: dict[str, tuple[Callable[[dict[str, dict[str, object]]], object], str]] = {
    "another-epsilon": (lambda r: r["privacy"].update(epsilon=0.05), "its epsilon is not the ledger's"),
    "another-delta": (lambda r: r["privacy"].update(delta=1e-6), "its delta is not the ledger's"),
    "another-delta-num": (lambda r: r["privacy"].update(delta_num=1e-12), "is not what its measurements cost"),
    "another-population": (lambda r: r["privacy"].update(population="others"), "another release or population"),
    "another-unit": (
        lambda r: r["privacy"].update(unit="row of the query's answer"),
        "its unit is not that of its specification",
    ),
    "another-specification": (lambda r: r.update(spec_digest="0" * 64), "its specification is not the one reserved"),
    "another-measurement": (
        lambda r: r["privacy"]["measurements"][0].update(name="marginals"),
        "its measurement 'marginals' is not in the ledger",
    ),
    "another-entry": (
        lambda r: r["privacy"]["measurements"][0]["ledger_entry"].update(seq=2),
        "its measurement 'moments' is not in the ledger",
    ),
    "less-noise": (
        lambda r: r["privacy"]["measurements"][0]["noise"]["covariance"].update(diagonal=1e-9),
        "the noise that it states for 'moments' does not follow from the parameters",
    ),
    "half-for-participation": (
        lambda r: r["privacy"]["participation"].update(epsilon=0.05),
        "its figures under a relation are not its measurements'",
    ),
    "nothing-for-participation": (
        lambda r: r["privacy"].update(participation=None),
        "its figures under a relation are not its measurements'",
    ),
    "less-for-values": (
        lambda r: r["privacy"]["values"].update(epsilon=0.09),
        "its figures under a relation are not its measurements'",
    ),
    "another-ledger": (lambda r: r["ledger"].update(head="0" * 64), "the ledger head that it names"),
    "no-privacy": (lambda r: r.pop("privacy"), "cannot be read"),
}


@pytest.mark.parametrize("case", RECORD_LIES)
def test_a_record_that_differs_from_the_ledger_is_named_even_if_it_was_published_so(workspace: Workspace, case: str):
    change, detail = RECORD_LIES[case]
    edit_record(workspace, change)
    digest, was = sha256_of(bundle(workspace) / CHECKSUMS), _published_digest(workspace)
    rechain(workspace, lambda entry: replace(entry, body=entry.body.replace(was, digest)))
    faults = broken(audit_workspace(workspace, FIRST))
    assert list(faults) == [f"{FIRST}: record"]
    assert detail in faults[f"{FIRST}: record"]


def _published_digest(workspace: Workspace) -> str:
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        published = ledger.state().releases[FIRST].published
    assert published is not None
    return published.parse(Publication).bundle_digest


# ---------------------------------------------------------------- releasing on such a ledger

FORGETFUL = ("last-release-deleted", "all-but-the-cap-deleted", "fresh-ledger", "history-rewritten")


@pytest.mark.parametrize("case", FORGETFUL)
def test_nothing_is_released_on_a_ledger_that_a_bundle_knows_better_than(workspace: Workspace, case: str):
    LEDGER_TAMPERINGS[case][0](workspace)
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger, pytest.raises(LedgerError) as caught:
        require_complete_ledger(workspace, ledger.entries())
    assert caught.value.rule == "ledger-incomplete"


def test_a_spend_that_only_the_lineage_remembers_is_missed(workspace: Workspace):
    """A release that was measured and never published leaves no bundle, and was paid for all the same."""
    facet = {"ledgerEntry": 9, "ledgerHash": "9" * 64}
    append_line(workspace.lineage_path, json.dumps({"run": {"facets": {"dp_spend": facet}}}))
    assert "entry 9" in broken(audit_workspace(workspace))["ledger completeness"]
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger, pytest.raises(LedgerError, match="entry 9"):
        require_complete_ledger(workspace, ledger.entries())


def test_the_bundles_know_the_ledger_they_were_made_with(workspace: Workspace):
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        require_complete_ledger(workspace, ledger.entries())


def test_a_bundle_whose_record_cannot_be_read_vouches_for_nothing(workspace: Workspace):
    rewritten(bundle(workspace) / "record.json", b"{")
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger, pytest.raises(LedgerError, match=FIRST):
        require_complete_ledger(workspace, ledger.entries())


# ---------------------------------------------------------------- lineage log and flow runs


def told(workspace: Workspace, name: str, state: str, release_id: str) -> None:
    """One more event in the workspace's log."""
    dataset = {"namespace": "dprelease://small", "name": f"{release_id}/bundle"}
    event = {"eventType": state, "job": {"name": f"small.{name}"}, "inputs": [], "outputs": [dataset]}
    append_line(workspace.lineage_path, json.dumps(event | {"run": {"runId": "made up", "facets": {}}}))


def test_a_release_that_only_the_lineage_knows_is_named(workspace: Workspace):
    told(workspace, "publish", "COMPLETE", "small-2026-09-1")
    assert "publish of small-2026-09-1" in broken(audit_workspace(workspace))["lineage log"]


def test_a_run_that_was_refused_before_the_ledger_is_no_fault(workspace: Workspace):
    told(workspace, "validate", "FAIL", "small-2026-09-1")
    append_line(workspace.lineage_path, '{"torn')
    checks = {check.name: check for check in audit_workspace(workspace)}
    assert broken(list(checks.values())) == {}
    assert "1 torn by a crash" in checks["lineage log"].detail


def test_an_event_of_a_bundle_that_the_log_lacks_is_named(workspace: Workspace):
    lines = workspace.lineage_path.read_text().splitlines()
    workspace.lineage_path.write_text("".join(f"{line}\n" for line in lines[:3] + lines[4:]))
    faults = broken(audit_workspace(workspace))
    assert faults == {f"{FIRST}: lineage": "1 of its events are not in the workspace's log"}


def test_a_publication_whose_end_a_crash_kept_from_the_log_is_named_and_no_fault(workspace: Workspace):
    lines = workspace.lineage_path.read_text().splitlines()
    kept = [line for line in lines if not ('"small.publish"' in line and FIRST in line and '"COMPLETE"' in line)]
    assert len(kept) == len(lines) - 1
    workspace.lineage_path.write_text("".join(f"{line}\n" for line in kept))
    checks = {check.name: check for check in audit_workspace(workspace)}
    assert broken(list(checks.values())) == {}
    assert f"lacks the end of {FIRST}" in checks["lineage log"].detail


def flow_run(name: str, *tags: str, state: str = "COMPLETED", start: str = "2026-01-01T00:00:00") -> dict[str, object]:
    return {"name": name, "tags": [name, *tags], "state": state, "start": start}


RUNS: dict[str, tuple[dict[str, dict[str, object]], str | None]] = {
    "as it was": ({"run": flow_run(SECOND, FIRST)}, None),
    "a failed run besides": ({"run": flow_run(SECOND, FIRST), "x": flow_run("small-2026-09-1", state="FAILED")}, None),
    "a history that begins later": ({"x": flow_run(FIRST, start="2999-01-01T00:00:00")}, None),
    "a run is missing": ({"x": flow_run(FIRST)}, "the flow run of entry 3 is not in the history"),
    "a run of something else": ({"run": flow_run(FIRST)}, "the flow run of entry 6 is about another release"),
    "a release that the ledger lacks": (
        {"run": flow_run(SECOND, FIRST), "x": flow_run("small-2026-09-1")},
        "a run published small-2026-09-1",
    ),
}


@pytest.mark.parametrize("case", RUNS)
def test_ledger_and_orchestrator_name_the_same_runs(workspace: Workspace, case: str):
    runs, fault = RUNS[case]
    faults = broken(audit_workspace(workspace, runs=runs))
    assert list(faults) == ([] if fault is None else ["flow runs"])
    assert fault is None or fault in faults["flow runs"]
