"""Lineage: events that OpenLineage understands, in whole lines, with nothing private in them."""

from __future__ import annotations

import json
import os
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from support.tasks.lineage.events import (
    DATASETS,
    RELEASE,
    SPEND,
    STAGES,
    PlantedError,
    all_schemas,
    assert_valid,
    failed_release,
    whole_release,
)

from dpcore.errors import BudgetExceededError, CheckFailedError, LandingError, StageFailedError
from tasks.lineage.datasets import ReleaseDatasets
from tasks.lineage.events import PRODUCER, LineageRun, append_line, events_of
from tasks.lineage.facets import SCHEMA_ID

NOW = datetime(2026, 11, 16, 13, 0, tzinfo=timezone(timedelta(hours=1)))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "lineage.ndjson"


@pytest.fixture
def run(log: Path) -> LineageRun:
    facts = {"name": "visits", "release_id": RELEASE, "period": "2026-10", "flow_run_id": "run"}
    return LineageRun(workspace_log=log, datasets=DATASETS, clock=lambda: NOW, **facts)


def told(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["job"]["name"], event["eventType"]) for event in events]


# ---------------------------------------------------------------- the schemas of OpenLineage


@pytest.fixture(scope="module")
def registry() -> Registry:
    return all_schemas()


def test_every_event_of_a_release_is_valid(run: LineageRun, registry: Registry):
    whole_release(run)
    for line in run.lines:
        assert_valid(json.loads(line), registry)


def test_every_event_of_a_failed_release_is_valid(run: LineageRun, registry: Registry):
    with pytest.raises(PlantedError):
        failed_release(run, PlantedError("x"))
    for line in run.lines:
        assert_valid(json.loads(line), registry)


def test_the_validation_has_teeth(run: LineageRun, registry: Registry):
    from jsonschema import ValidationError

    whole_release(run)
    event = json.loads(run.lines[0])
    for spoiled in (
        event | {"eventType": "BEGIN"},
        {key: value for key, value in event.items() if key != "producer"},
        event | {"run": {"runId": "not a uuid"}},
        event | {"job": event["job"] | {"facets": {"jobType": {**event["job"]["facets"]["jobType"], "jobType": 3}}}},
        *(event | {"run": event["run"] | {"facets": {"dp_spend_moments": spend}}} for spend in spoiled_spends()),
    ):
        with pytest.raises(ValidationError):
            assert_valid(spoiled, registry)


def spoiled_spends() -> list[dict[str, Any]]:
    """A part's facet without its cost, with two costs, and with a word more."""
    spend = {"_producer": PRODUCER, "_schemaURL": SPEND._get_schema()}
    figures = {name: getattr(SPEND, name) for name in SPEND.__slots__ if not name.startswith("_")}
    spend |= {name: value for name, value in figures.items() if value is not None}
    without = {name: value for name, value in spend.items() if name != "epsilon"}
    return [without, spend | {"rho": 0.5}, spend | {"note": "x"}, spend | {"epsilon": 0}]


def test_what_is_spoiled_was_valid_before(registry: Registry):
    spend = {name: value for name, value in spoiled_spends()[1].items() if name != "rho"}
    Draft202012Validator({"$ref": spend["_schemaURL"]}, registry=registry).validate(spend)


def test_every_facet_names_this_program_and_a_schema_that_is_published(run: LineageRun, registry: Registry):
    """The client's default would name the library, and our facets a name that nothing describes."""
    whole_release(run)
    events = [json.loads(line) for line in run.lines]
    holders = [part for e in events for part in (e["run"], e["job"], *e["inputs"], *e["outputs"])]
    facets = [facet for holder in holders for facet in holder["facets"].values()]
    assert {facet["_producer"] for facet in facets} == {PRODUCER}
    ours = {facet["_schemaURL"] for facet in facets if "openlineage.io" not in facet["_schemaURL"]}
    assert ours == {f"{SCHEMA_ID}#/$defs/DpSpendRunFacet", f"{SCHEMA_ID}#/$defs/DpGuaranteeRunFacet"}
    assert all(registry.resolver().lookup(url).contents["description"] for url in ours)


# ---------------------------------------------------------------- what is told


def test_a_release_and_its_stages_start_and_complete_in_order(run: LineageRun, log: Path):
    whole_release(run)
    assert told(events_of(log)) == [
        ("visits.release", "START"),
        *((f"visits.{stage}", state) for stage in STAGES for state in ENDS),
        ("visits.release", "COMPLETE"),
    ]


ENDS = ("START", "COMPLETE")


def test_a_run_keeps_its_id_and_stages_name_it_as_their_parent(run: LineageRun, log: Path):
    whole_release(run)
    by_job: dict[str, list[dict[str, Any]]] = {}
    for event in events_of(log):
        by_job.setdefault(event["job"]["name"], []).append(event)
    ids = {job: {event["run"]["runId"] for event in events} for job, events in by_job.items()}
    assert {len(found) for found in ids.values()} == {1}
    (flow,) = ids.pop("visits.release")
    assert len(set().union(*ids.values())) == len(ids), "every stage is a run of its own"
    for job in ids:
        for event in by_job[job]:
            parent = event["run"]["facets"]["parent"]
            assert parent["run"]["runId"] == flow
            assert (parent["job"]["namespace"], parent["job"]["name"]) == ("dprelease://visits", "visits.release")
    assert "parent" not in by_job["visits.release"][0]["run"].get("facets", {})


def test_datasets_carry_the_release_id_and_their_role_only(run: LineageRun, log: Path):
    whole_release(run)
    found = {
        (dataset["namespace"], dataset["name"])
        for event in events_of(log)
        for dataset in event.get("inputs", []) + event.get("outputs", [])
    }
    roles = ("landing", "reservation", "projection", "noisy-moments", "law", "synthetic-table", "figures")
    files = ("model", "record", "report", "bundle")
    assert found == {("dprelease://visits", f"{RELEASE}/{role}") for role in (*roles, *files)}


def test_the_landing_data_have_no_facets_at_all(run: LineageRun, log: Path):
    whole_release(run)
    landing = [d for event in events_of(log) for d in event.get("inputs", []) if d["name"].endswith("/landing")]
    assert landing
    assert all(set(dataset) <= {"namespace", "name", "facets", "inputFacets"} for dataset in landing)
    assert not any(dataset.get("facets") or dataset.get("inputFacets") for dataset in landing)


def test_the_synthetic_table_says_its_columns_and_where_they_come_from(run: LineageRun, log: Path):
    whole_release(run)
    (table,) = (e["outputs"][0] for e in events_of(log) if told([e]) == [("visits.decode", "COMPLETE")])
    facets = table["facets"]
    assert [(f["name"], f["type"]) for f in facets["schema"]["fields"]] == [("age", "double"), ("sex", "string")]
    assert set(facets["columnLineage"]["fields"]) == {"age", "sex"}
    (source,) = facets["columnLineage"]["fields"]["age"]["inputFields"]
    assert (source["name"], source["field"]) == (f"{RELEASE}/landing", "age")
    assert [way["masking"] for way in source["transformations"]] == [True]
    assert [(f["name"], f["field"]) for f in facets["columnLineage"]["dataset"]] == [
        (f"{RELEASE}/noisy-moments", "noisy-moments")
    ]


def test_the_columns_of_table_and_bundle_come_from_all_that_they_were_computed_from():
    """A projection that was measured decides every column too; scores of a finished table decide none."""
    measured = {"project": ("projection",), "estimate": ("mean", "moments"), "score": ("rmse",)}
    datasets = ReleaseDatasets(schema=pa.schema([("age", pa.float64())]), measured=measured)
    for name in ("synthetic-table", "bundle"):
        lineage = datasets.facets(name, lambda dataset: ("space", dataset))["columnLineage"]
        assert [source.name for source in lineage.dataset] == ["noisy-projection", "noisy-mean", "noisy-moments"]


def test_the_noisy_moments_come_from_every_column(run: LineageRun, log: Path):
    whole_release(run)
    (moments,) = (e["outputs"][0] for e in events_of(log) if told([e]) == [("visits.estimate", "COMPLETE")])
    (field,) = moments["facets"]["columnLineage"]["fields"].values()
    assert [source["field"] for source in field["inputFields"]] == ["age", "sex"]


def test_every_run_says_its_release_its_period_and_what_made_it(run: LineageRun, log: Path):
    whole_release(run)
    for event in events_of(log):
        facets = event["run"]["facets"]
        tags = {tag["key"]: tag["value"] for tag in facets["tags"]["tags"]}
        assert tags == {"name": "visits", "release": RELEASE, "period": "2026-10", "flow_run": "run"}
        nominal = facets["nominalTime"]["nominalStartTime"], facets["nominalTime"]["nominalEndTime"]
        assert nominal == ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
        assert facets["processing_engine"]["name"] == "dprelease"
        assert facets["processing_engine"]["version"]
        assert event["job"]["facets"]["documentation"]["description"]


def test_the_month_after_december_is_in_the_next_year(log: Path):
    run = LineageRun(
        workspace_log=log, name="v", release_id="v-2026-12-1", datasets=DATASETS, clock=lambda: NOW, period="2026-12"
    )
    with run.flow():
        pass
    nominal = events_of(log)[0]["run"]["facets"]["nominalTime"]
    assert nominal["nominalEndTime"] == "2027-01-01T00:00:00Z"


def test_no_facet_is_there_that_was_not_thought_about(run: LineageRun, log: Path):
    """Counts, sizes, durations and statistics have facets of their own: none is there before the table is drawn."""
    whole_release(run)
    runs, jobs, datasets = set[str](), set[str](), set[str]()
    for event in events_of(log):
        runs |= set(event["run"]["facets"])
        jobs |= set(event["job"]["facets"])
        for dataset in event.get("inputs", []) + event.get("outputs", []):
            datasets |= set(dataset.get("facets", {}))
            assert not dataset.get("inputFacets")
            assert not dataset.get("outputFacets")
    assert runs == {"parent", "tags", "nominalTime", "processing_engine", "dp_guarantee", "dp_spend_moments"}
    assert jobs == {"jobType", "documentation"}
    assert datasets == {"schema", "columnLineage", "documentation", "datasetType"}


def test_a_spend_is_on_its_stage_and_on_the_flow_and_the_guarantee_on_the_flow_alone(run: LineageRun, log: Path):
    whole_release(run)
    with_facet = {
        name: told([event for event in events_of(log) if name in event["run"]["facets"]])
        for name in ("dp_spend_moments", "dp_guarantee")
    }
    assert with_facet == {
        "dp_spend_moments": [("visits.estimate", "COMPLETE"), ("visits.release", "COMPLETE")],
        "dp_guarantee": [("visits.release", "COMPLETE")],
    }


@pytest.mark.parametrize("fault", [PlantedError("planted 4711"), KeyboardInterrupt("planted 4711")], ids=repr)
def test_a_failure_is_told_without_its_text(run: LineageRun, log: Path, fault: BaseException):
    with pytest.raises(type(fault)):
        failed_release(run, fault)
    events = events_of(log)
    assert told(events)[-2:] == [("visits.estimate", "FAIL"), ("visits.release", "FAIL")]
    words = ("planted", "4711", "PlantedError", "KeyboardInterrupt", "Traceback", __file__)
    assert not any(word in log.read_text() for word in words)


TOLD_FAILURES = {
    "verdict": (
        LandingError("the column 'CANARY' has another type", rule="column-type", where="columns.CANARY", hint="CANARY"),
        "the landing data were refused; the operator was told why",
    ),
    "budget": (
        BudgetExceededError("needs CANARY", rule="budget-exceeded", where="CANARY", hint="CANARY"),
        "refused by the rule budget-exceeded",
    ),
    "check": (CheckFailedError("checks failed: mean_gap"), "checks failed: mean_gap"),
    "stage": (
        StageFailedError("estimate", "CANARY", "CANARY.py:1"),
        "an unexpected fault; its type and place were reported to the operator",
    ),
    "foreign": (PlantedError("CANARY"), "an unexpected fault; its type and place were reported to the operator"),
    "interrupted": (KeyboardInterrupt("CANARY"), "interrupted"),
}


@pytest.mark.parametrize("case", TOLD_FAILURES)
def test_a_failure_is_told_in_words_of_our_own(run: LineageRun, log: Path, case: str):
    fault, words = TOLD_FAILURES[case]
    with pytest.raises(type(fault)):
        failed_release(run, fault)
    failed = [event for event in events_of(log) if event["eventType"] == "FAIL"]
    assert [event["run"]["facets"]["errorMessage"]["message"] for event in failed] == [words, words]
    assert "stackTrace" not in log.read_text()
    assert "CANARY" not in log.read_text()
    assert not any("errorMessage" in e["run"]["facets"] for e in events_of(log) if e["eventType"] != "FAIL")


def test_times_are_utc(run: LineageRun, log: Path):
    whole_release(run)
    assert {event["eventTime"] for event in events_of(log)} == {"2026-11-16T12:00:00Z"}
    assert datetime.fromisoformat("2026-11-16T12:00:00Z") == NOW.astimezone(UTC)


def test_neither_times_nor_ids_tell_how_long_a_stage_took(log: Path):
    """How long the rows are read tells how many there are."""
    clock = iter(NOW + timedelta(seconds=2.123457 * tick) for tick in range(20))
    run = LineageRun(workspace_log=log, name="v", release_id="v-1", datasets=DATASETS, clock=lambda: next(clock))
    whole_release(run)
    events = events_of(log)
    assert {event["eventTime"] for event in events} == {"2026-11-16T12:00:00Z"}
    assert {uuid.UUID(event["run"]["runId"]).version for event in events} == {4}, "version 7 holds the time"


# ---------------------------------------------------------------- the log


def test_the_runs_own_lines_are_those_of_the_log(run: LineageRun, log: Path):
    append_line(log, '{"earlier": true}')
    whole_release(run)
    assert log.read_text().splitlines() == ['{"earlier": true}', *run.lines]


def test_every_event_is_one_line(run: LineageRun):
    whole_release(run)
    assert all("\n" not in line and json.loads(line) for line in run.lines)


def test_the_log_is_on_disk_when_a_stage_ends(run: LineageRun, log: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (real(descriptor), synced.append(log.stat().st_size)))
    with run.flow():
        begun = log.stat().st_size
        assert synced == [begun, begun], "a new log, and its folder"
        with run.stage("validate"):
            assert len(synced) == 2
        assert synced[-1] == log.stat().st_size > begun
    assert synced[-1] == log.stat().st_size


def test_a_log_that_is_not_there_has_no_events(log: Path):
    assert events_of(log) == []


def test_a_line_that_a_crash_tore_is_left_out(log: Path):
    append_line(log, '{"whole": true}')
    with log.open("a") as file:
        file.write('{"whole": fal')
    assert events_of(log) == [{"whole": True}]
