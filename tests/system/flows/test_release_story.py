"""The command line, the flow, the ledger and the bundle as their users meet them."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.flows import canaries
from support.flows.storybook import CRASHES, Story

from dpcore.errors import RefusedError
from tasks.audit import audit_workspace
from tasks.bundle.staging import CHECKSUMS, sha256_of
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace

REFUSALS = {
    "refuse missing": "landing-missing",
    "refuse empty.parquet": "file-empty",
    "refuse truncated.parquet": "file-unreadable",
    "refuse damaged.parquet": "file-unreadable",
    "refuse ragged.csv": "file-unreadable",
    "refuse missing-column.parquet": "column-missing",
    "refuse undeclared.parquet": "column-undeclared",
    "refuse wrong-type.parquet": "column-type",
    "supersede without reason": "reason-missing",
    "cap used up": "budget-exceeded",
    "cap edited": "cap-differs",
    "show while awaiting": "release-not-published",
    "approve without reason": "approval-unsaid",
    "approve another": "not-awaiting-approval",
}
PUBLISHED = ("publish", "resume", "relaxed", "supersede", "latest without period", "approve")


def record_of(story: Story, step: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((Path(story.json(step)["bundle"]) / "record.json").read_text())
    return record


@pytest.mark.parametrize("step", REFUSALS)
def test_bad_input_is_refused_with_exit_2_rule_and_hint(story: Story, step: str) -> None:
    refusal = story.json(step)
    assert story.code(step) == 2
    assert refusal["rule"] == REFUSALS[step]
    assert set(refusal) == {"error", "rule", "where", "hint"}
    assert all(refusal.values())


def test_refusals_spend_nothing(story: Story) -> None:
    for step in ("budget before", "budget after refusals"):
        budget = story.json(step)
        assert budget["spent"]["epsilon"] == budget["reserved"]["epsilon"] == 0
        assert budget["releases_left"] == 5


@pytest.mark.parametrize("step", PUBLISHED)
def test_a_release_is_published_with_the_promised_json(story: Story, step: str) -> None:
    result = story.json(step)
    assert story.code(step) == 0
    said = {"approved_by", "reason", "key", "ledger_entry"} if step == "approve" else set()
    assert set(result) == {"release_id", "status", "bundle", "epsilon", "delta", "delta_num", "rows"} | said
    assert (result["status"], result["epsilon"], result["delta"]) == ("published", 1.0, 0.0)


def test_without_a_period_the_latest_in_the_file_names_is_released(story: Story) -> None:
    assert record_of(story, "latest without period")["period"] == "2026-08"


@pytest.mark.parametrize("step", ["again", "again with other data"])
def test_a_second_run_of_a_period_says_so_and_spends_nothing(story: Story, step: str) -> None:
    assert story.code(step) == 0
    assert story.json(step)["status"] == "already-published"
    assert story.json(step)["release_id"] == story.json("publish")["release_id"]
    assert story.json("budget after one")["spent"]["epsilon"] == 1.0


def test_only_the_operator_is_told_that_the_data_changed(story: Story) -> None:
    assert "differ" not in story.steps["again"]["err"]
    assert "the landing data differ" in story.steps["again with other data"]["err"]
    assert "a decision on raw data" in " ".join(story.steps["again with other data"]["err"].split())
    database = (story.workspace / "prefect" / "prefect.db").read_bytes()
    wal = story.workspace / "prefect" / "prefect.db-wal"
    everything = database + (wal.read_bytes() if wal.exists() else b"")
    assert b"is already published" in everything  # the log is there
    assert b"the landing data differ" not in everything


def test_a_crash_before_the_draw_gives_the_reservation_back(story: Story) -> None:
    assert story.code("crash before the draw") == 3
    budget = story.json("budget after the void")
    assert (budget["spent"]["epsilon"], budget["reserved"]["epsilon"]) == (1.0, 0.0)


def test_a_crash_after_the_draw_stays_charged_and_resumes_without_a_second_draw(story: Story) -> None:
    assert story.code("crash after the draw") == 3
    assert story.json("budget after the crash")["spent"]["epsilon"] == 2.0
    statuses = {row["period"]: row["status"] for row in story.json("history after the crash")["releases"]}
    assert statuses["2026-04"] == "failed"
    assert "no noise was drawn" in story.steps["resume"]["err"]
    assert story.json("budget after resuming")["spent"]["epsilon"] == 2.0


def test_a_failed_check_publishes_nothing_and_a_relaxed_one_reuses_the_measurement(story: Story) -> None:
    assert story.code("check fails") == 1
    assert story.json("check fails")["rule"] == "check-failed"
    assert "no noise was drawn" in story.steps["relaxed"]["err"]


def test_a_superseding_release_is_charged_and_the_old_one_is_marked(story: Story) -> None:
    rows = {row["release_id"]: row["status"] for row in story.json("history")["releases"]}
    assert rows["visits-2026-03-1"] == "superseded"
    assert rows["visits-2026-03-2"] == "published"
    record = record_of(story, "supersede")
    assert (record["supersedes"], record["reason"]) == ("visits-2026-03-1", "corrected rows")


def test_one_draw_is_in_the_ledger_for_each_release_that_was_measured(story: Story) -> None:
    ledger = Ledger.open_to_read(story.workspace / "ledger.db")
    spends = [entry.release_id for entry in ledger.entries() if entry.kind == "spend"]
    ledger.close()
    assert len(spends) == len(set(spends)) == len(PUBLISHED)


def test_budget_history_audit_and_record_agree(story: Story) -> None:
    audit, budget = story.json("audit"), story.json("budget")
    assert audit["ok"] is True
    assert all(check["ok"] for check in audit["checks"])
    assert budget["spent"]["epsilon"] == float(len(PUBLISHED))
    last = record_of(story, "approve")
    assert last["budget"]["after"]["epsilon"] == budget["spent"]["epsilon"]
    assert last["budget"]["releases_left"] == budget["releases_left"] == 0
    assert story.json("show") == record_of(story, "supersede")
    published = [row for row in story.json("history")["releases"] if row["published_at"]]
    assert {row["flow_run_id"] for row in published} >= {record_of(story, step)["flow_run_id"] for step in PUBLISHED}


def test_a_release_that_waits_is_charged_once_and_published_by_the_word_of_a_person(story: Story) -> None:
    first, again = story.json("awaits"), story.json("awaits still")
    assert (story.code("awaits"), first["status"], again["status"]) == (0, "awaiting-approval", "awaiting-approval")
    assert first["release_id"] == again["release_id"] == "visits-2026-07-1"
    assert [row["release_id"] for row in story.json("history while awaiting")["releases"]] == ["visits-2026-07-1"]
    approved = story.json("approve")
    assert (approved["status"], approved["approved_by"]) == ("published", "the data board")
    assert story.json("after raising")["status"] == "already-published"
    row = next(row for row in story.json("history")["releases"] if row["release_id"] == "visits-2026-07-1")
    assert row["approval"]["who"] == "the data board"
    assert row["approval"]["reason"] == "the report is fine"


def test_the_history_shows_which_run_waited(story: Story) -> None:
    database = sqlite3.connect(story.workspace / "prefect" / "prefect.db")
    query = "select state_type, state_name from flow_run where id = ?"
    found = database.execute(query, (record_of(story, "approve")["flow_run_id"],)).fetchone()
    assert found == ("COMPLETED", "AwaitingApproval")


def test_every_flow_run_in_the_record_is_in_the_orchestrators_history(story: Story) -> None:
    database = sqlite3.connect(story.workspace / "prefect" / "prefect.db")
    runs = {
        str(row[0]): (row[1], json.loads(row[2])) for row in database.execute("select id, name, tags from flow_run")
    }
    keys = {row[0] for row in database.execute("select key from artifact")}
    progress = [float(row[0]) for row in database.execute("select data from artifact where type = 'progress'")]
    database.close()
    record = record_of(story, "publish")
    name, tags = runs[record["flow_run_id"]]
    assert name == record["release_id"]
    assert {"visits", "2026-03", record["release_id"]} < set(tags)
    assert progress.count(100.0) == len(PUBLISHED)
    assert any(0 < value < 100 for value in progress)  # of the runs that failed
    assert keys >= {"visits-release-card", "visits-budget", "visits-utility"}


def test_the_plan_keeps_its_json_shape_and_matches_the_record(story: Story) -> None:
    plan, record = story.json("plan"), record_of(story, "publish")
    assert {"epsilon", "delta", "allocation", "dimension", "mechanism", "generator", "reasons"} <= set(plan)
    assert {"expected_error", "remaining_after"} <= set(plan)
    assert plan["mechanism"] == record["model"]["mechanism"] == "wishart-difference-trace"
    assert plan["generator"] == record["model"]["generator"] == "mixture"
    assert plan["expected_error"] == record["expected_error"]


def test_the_released_table_has_the_declared_columns_types_and_nulls(story: Story) -> None:
    table = pq.read_table(Path(story.json("publish")["bundle"]) / "data.parquet")
    assert table.schema.names == ["weight", "code", "seen", "born", "smoker", "city", "outcome"]
    assert table.schema.types == [
        pa.float64(),
        pa.int64(),
        pa.timestamp("us", tz="UTC"),
        pa.date32(),
        pa.bool_(),
        pa.string(),
        pa.string(),
    ]
    assert table.num_rows == story.json("publish")["rows"]
    assert [name for name in table.schema.names if table[name].null_count] == ["code"]
    assert set(table["city"].to_pylist()) <= {"north", "south", "other"}
    assert all(0 <= value <= 1000 for value in table["weight"].to_pylist())


def test_the_bundle_holds_all_its_files_read_only(story: Story) -> None:
    folder = Path(story.json("publish")["bundle"])
    files = {path.name for path in folder.iterdir()}
    expected = {
        "data.parquet",
        "codebook.json",
        "model.json",
        "record.json",
        "report.html",
        "lineage.ndjson",
        "registry.yaml",
        "statement.intoto.json",
        CHECKSUMS,
    }
    assert files == expected
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o444 for path in folder.iterdir())


def test_the_lineage_of_the_bundle_ends_with_the_check_and_the_workspace_has_it_all(story: Story) -> None:
    bundle = Path(story.json("publish")["bundle"]) / "lineage.ndjson"
    events = [json.loads(line) for line in bundle.read_text().splitlines()]
    assert [(e["job"]["name"], e["eventType"]) for e in events][-1] == ("visits.check", "COMPLETE")
    log = [json.loads(line) for line in (story.workspace / "lineage.ndjson").read_text().splitlines()]
    mine = [e for e in log if any("visits-2026-03-1/" in d["name"] for d in e["outputs"] + e["inputs"])]
    assert ("visits.publish", "COMPLETE") in [(e["job"]["name"], e["eventType"]) for e in mine]
    estimate = next(e for e in mine if e["job"]["name"] == "visits.estimate" and e["eventType"] == "COMPLETE")
    facets = estimate["run"]["facets"]
    spend = facets["dp_spend_moments"]
    assert (spend["epsilon"], spend["alone"]["epsilon"], spend["ofRelease"]["epsilon"]) == (1.0, 1.0, 1.0)
    assert spend["after"]["epsilon"] - spend["before"]["epsilon"] == 1.0
    (whole,) = (e for e in mine if (e["job"]["name"], e["eventType"]) == ("visits.release", "COMPLETE"))
    assert whole["run"]["facets"]["dp_guarantee"]["spent"]["epsilon"] == 1.0
    assert whole["run"]["facets"]["dp_spend_moments"] == spend
    failed = [e["job"]["name"] for e in log if e["eventType"] == "FAIL"]
    assert {"visits.estimate", "visits.sample", "visits.check"} <= set(failed)


def test_no_planted_value_is_found_outside_landing_and_vault(story: Story) -> None:
    skip = (story.workspace / "landing", story.workspace / "vault")
    assert canaries.found_below(story.workspace, skip=skip) == {}
    assert canaries.found_below(story.base / "home") == {}
    assert canaries.found_below(story.base / "tmp") == {}


@pytest.mark.parametrize("stage", CRASHES)
def test_a_crash_in_any_stage_is_told_in_our_own_words_and_spends_nothing_more(story: Story, stage: str) -> None:
    assert story.code(f"crash in {stage}") == 3
    assert story.json(f"crash in {stage}")["rule"] == "internal-error"
    assert story.json("budget after the void")["spent"]["epsilon"] == 1.0
    assert story.json("budget after the crash")["spent"]["epsilon"] == 2.0


CRASHED = ["crash before the draw", "crash after the draw", *(f"crash in {stage}" for stage in CRASHES)]


@pytest.mark.parametrize("step", ["publish", "refuse ragged.csv", *CRASHED])
def test_no_planted_value_is_printed(story: Story, step: str) -> None:
    printed = (story.steps[step]["out"] + story.steps[step]["err"]).encode()
    assert canaries.found_in(printed) == set()
    assert canaries.found_in((story.base / "steps.json.terminal").read_bytes()) == set()


def test_no_planted_value_is_in_the_released_columns(story: Story) -> None:
    for step in PUBLISHED:
        table = pq.read_table(Path(story.json(step)["bundle"]) / "data.parquet")
        assert canaries.NUMBER not in table["weight"].to_pylist()
        assert canaries.WHOLE not in table["code"].to_pylist()
        assert canaries.MOMENT not in table["seen"].to_pylist()


def test_the_search_finds_each_planted_value_in_every_shape(tmp_path: Path) -> None:
    import base64
    import pickle

    shapes: dict[str, bytes] = {}
    for name, spellings in canaries.texts().items():
        for text in spellings:
            shapes[f"{name}-{text}"] = f"a log line with {text} in it".encode()
            shapes[f"{name}-{text}-wide"] = f"x{text}".encode("utf-16")
    for name, values in canaries.packed().items():
        for number, value in enumerate(values):
            for shift in range(3):
                shapes[f"{name}-{number}-{shift}"] = b"\1" * shift + value
                shapes[f"{name}-{number}-{shift}-64"] = base64.b64encode(b"\1" * shift + value + b"\2\3\4")
    shapes["category-pickle"] = pickle.dumps({"city": [canaries.CATEGORY]})
    shapes["name-64"] = base64.b64encode(f"xy{canaries.NAME}zz".encode())
    database = tmp_path / "control.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table t (a text, b real, c integer)")
        connection.execute("insert into t values (?, ?, ?)", (canaries.CATEGORY, canaries.NUMBER, canaries.WHOLE))
    connection.close()
    assert canaries.found_in(database.read_bytes()) >= {"category", "number", "whole"}
    missed = [label for label, content in shapes.items() if label.split("-")[0] not in canaries.found_in(content)]
    assert missed == []


def test_the_planted_values_are_in_the_landing_data(story: Story) -> None:
    table = pq.read_table(next((story.workspace / "landing").glob("*-05.parquet")))
    assert canaries.NUMBER in table["weight"].to_pylist()
    assert canaries.CATEGORY in table["city"].to_pylist()


def test_the_vault_is_empty_and_private_places_are_closed(story: Story) -> None:
    assert list((story.workspace / "vault").iterdir()) == []
    for name in ("vault", "keys", "landing", "prefect"):
        assert stat.S_IMODE((story.workspace / name).stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (story.workspace / "keys").iterdir())


def test_json_output_is_one_object_and_progress_goes_to_standard_error(story: Story) -> None:
    for name, step in story.steps.items():
        assert isinstance(json.loads(step["out"]), dict), name
        assert "Traceback" not in step["err"]
        assert "Traceback" not in step["out"]
    assert (story.base / "steps.json.terminal").read_text() == ""


@pytest.fixture
def copied(story: Story, tmp_path: Path) -> Workspace:
    """A copy of the workspace to break."""
    shutil.copytree(story.workspace, tmp_path / "copy", ignore=shutil.ignore_patterns("prefect", "landing"))
    return Workspace(tmp_path / "copy")


@pytest.mark.parametrize(
    "name",
    [
        "data.parquet",
        "codebook.json",
        "model.json",
        "record.json",
        "report.html",
        "lineage.ndjson",
        "registry.yaml",
        "statement.intoto.json",
        CHECKSUMS,
    ],
)
def test_one_changed_byte_of_a_bundle_fails_the_audit_and_is_named(copied: Workspace, name: str) -> None:
    path = copied.bundle("visits", "visits-2026-04-3") / name
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    (broken,) = (check for check in audit_workspace(copied, "visits-2026-04-3") if not check.ok)
    assert broken.name == "visits-2026-04-3: bundle"
    assert name in broken.detail


@pytest.mark.parametrize("column", ["at", "kind", "population", "release_id", "body", "previous", "hash"])
def test_one_changed_field_of_any_event_fails_the_audit_and_is_named(copied: Workspace, column: str) -> None:
    with sqlite3.connect(copied.ledger_path) as database:
        database.execute("pragma synchronous = off")  # the copy need not survive a power cut
        database.execute("drop trigger events_no_update")
        last = database.execute("select max(seq) from events").fetchone()[0]
        originals = database.execute(f"select seq, {column} from events").fetchall()
        for seq, value in originals:
            database.execute(f"update events set {column} = ? where seq = ?", (value + " ", seq))
            database.commit()
            broken = [check for check in audit_workspace(copied) if not check.ok]
            assert broken, seq
            assert f"entry {seq} " in broken[0].detail or f"entry {seq + 1} " in broken[0].detail
            database.execute(f"update events set {column} = ? where seq = ?", (value, seq))
            database.commit()
        assert last == len(originals)
    database.close()
    assert all(check.ok for check in audit_workspace(copied))


def test_a_forged_record_with_fresh_checksums_is_caught(copied: Workspace) -> None:
    folder = copied.bundle("visits", "visits-2026-04-3")
    record = json.loads((folder / "record.json").read_text())
    record["privacy"]["epsilon"] = 0.1
    (folder / "record.json").chmod(0o644)
    (folder / "record.json").write_text(json.dumps(record))
    lines = [f"{sha256_of(p)}  {p.name}\n" for p in sorted(folder.iterdir()) if p.name != CHECKSUMS]
    (folder / CHECKSUMS).chmod(0o644)
    (folder / CHECKSUMS).write_text("".join(lines))
    broken = [check for check in audit_workspace(copied) if not check.ok]
    assert [check.name for check in broken] == ["visits-2026-04-3: bundle"]


def test_a_truncated_ledger_is_caught_by_the_bundles(copied: Workspace) -> None:
    with sqlite3.connect(copied.ledger_path) as database:
        database.execute("drop trigger events_no_delete")
        database.execute("delete from events where seq > 4")
    database.close()
    broken = [check for check in audit_workspace(copied) if not check.ok]
    assert broken
    assert any("not in the ledger" in check.detail for check in broken)


def test_an_unknown_release_cannot_be_audited(copied: Workspace) -> None:
    with pytest.raises(RefusedError, match="no release"):
        audit_workspace(copied, "visits-1999-01-1")


def test_all_commands_of_a_process_share_one_embedded_server(story: Story) -> None:
    """Runs that publish, resume, are refused or crash, and what is asked between them."""
    servers = [step["servers"] for step in story.steps.values()]
    assert story.steps["publish"]["servers"] == 1
    assert max(servers) == 1


def test_nobody_without_the_secret_can_use_the_server_of_a_run(story: Story):
    answers = story.steps["publish"]["strangers"]
    assert len(answers) == 2
    assert set(answers.values()) == {401}


def test_nothing_is_imported_from_the_current_folder(story: Story):
    assert not (story.base / "executed").exists()
