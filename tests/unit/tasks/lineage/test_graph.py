"""The graph of a release: from its bundle, from the log, or from both; published or not."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.tasks.lineage.events import DATASETS, RELEASE, SPEND, STAGES, PlantedError, failed_release, whole_release

from dpcore.errors import RefusedError
from tasks.lineage.events import LineageRun, append_line
from tasks.lineage.graph import Graph, lineage_graph
from tasks.workspace.folders import Workspace

DATA_PATH = ("landing", "estimate", "noisy-moments", "sample", "law", "decode", "synthetic-table")


def run_of(place: Workspace, release_id: str = RELEASE) -> LineageRun:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    return LineageRun(
        workspace_log=place.lineage_path, name="visits", release_id=release_id, datasets=DATASETS, clock=lambda: now
    )


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """A log with a release and its neighbours in time."""
    place = Workspace(tmp_path)
    for release_id in ("visits-2026-10-11", RELEASE, "visits-2026-11-1"):
        whole_release(run_of(place, release_id))
    return place


def named(graph: Graph, name: str) -> dict[str, Any]:
    (node,) = (node for node in graph["nodes"] if node["name"] == name)
    return node


def names_of_edges(graph: Graph) -> set[tuple[str, str]]:
    names = {node["id"]: node["name"] for node in graph["nodes"]}
    return {(names[edge["from"]], names[edge["to"]]) for edge in graph["edges"]}


def test_a_graph_has_the_flow_every_stage_and_every_dataset_of_that_release_alone(place: Workspace):
    graph = lineage_graph(place, RELEASE)
    assert set(graph) == {"nodes", "edges"}
    assert [node["name"] for node in graph["nodes"] if node["kind"] == "stage"] == list(STAGES)
    assert [node["name"] for node in graph["nodes"] if node["kind"] == "flow"] == ["release"]
    datasets = [node for node in graph["nodes"] if node["kind"] == "dataset"]
    assert {node["id"].partition("/")[0] for node in datasets} == {f"dataset:{RELEASE}"}
    assert {"landing", "projection", "noisy-moments", "synthetic-table", "report", "bundle"} <= {
        node["name"] for node in datasets
    }
    assert json.loads(json.dumps(graph)) == graph


def test_edges_lead_from_the_landing_data_to_the_bundle(place: Workspace):
    graph = lineage_graph(place, RELEASE)
    edges = names_of_edges(graph)
    assert set(itertools.pairwise(DATA_PATH)) <= edges
    assert {("synthetic-table", "publish"), ("publish", "bundle")} <= edges
    assert len({(edge["from"], edge["to"]) for edge in graph["edges"]}) == len(graph["edges"])


def test_the_measurement_says_what_it_promises_and_its_ledger_entry(place: Workspace):
    estimate = named(lineage_graph(place, RELEASE), "estimate")
    assert estimate["dp_spend_moments"]["epsilon"] == SPEND.epsilon
    assert estimate["dp_spend_moments"]["mechanism"] == SPEND.mechanism
    assert estimate["dp_spend_moments"]["ledgerEntry"] == SPEND.ledgerEntry
    assert "_producer" not in estimate["dp_spend_moments"]
    assert "dp_guarantee" not in estimate


def test_a_table_says_its_columns(place: Workspace):
    table = named(lineage_graph(place, RELEASE), "synthetic-table")
    assert table["columns"] == [{"name": "age", "type": "double"}, {"name": "sex", "type": "string"}]


def test_a_release_that_failed_has_a_graph_that_says_so(tmp_path: Path):
    place = Workspace(tmp_path)
    with pytest.raises(PlantedError):
        failed_release(run_of(place), PlantedError("x"))
    graph = lineage_graph(place, RELEASE)
    assert (named(graph, "estimate")["state"], named(graph, "release")["state"]) == ("FAIL", "FAIL")
    assert named(graph, "estimate")["runs"][0]["error"].startswith("an unexpected fault")


def test_a_release_that_was_resumed_keeps_its_failed_run_and_ends_complete(tmp_path: Path):
    place = Workspace(tmp_path)
    with pytest.raises(PlantedError):
        failed_release(run_of(place), PlantedError("x"))
    whole_release(run_of(place))
    estimate = named(lineage_graph(place, RELEASE), "estimate")
    assert [run["state"] for run in estimate["runs"]] == ["FAIL", "COMPLETE"]
    assert estimate["state"] == "COMPLETE"


def test_a_run_that_was_killed_is_still_begun(tmp_path: Path):
    place = Workspace(tmp_path)
    whole_release(run_of(place))
    lines = place.lineage_path.read_text().splitlines(keepends=True)
    place.lineage_path.write_text("".join(lines[:8]) + lines[8][:40])
    graph = lineage_graph(place, RELEASE)
    assert (named(graph, "estimate")["state"], named(graph, "release")["state"]) == ("START", "START")


def bundled(place: Workspace) -> None:
    folder = place.bundle("visits", RELEASE)
    folder.mkdir(parents=True)
    lines = [line for line in place.lineage_path.read_text().splitlines(keepends=True) if f'"{RELEASE}"' in line]
    kept = [line for line in lines if "visits.publish" not in line]
    (folder / "lineage.ndjson").write_text("".join(kept[:-1]))


def test_events_that_bundle_and_log_share_are_told_once(place: Workspace):
    alone = lineage_graph(place, RELEASE)
    bundled(place)
    assert lineage_graph(place, RELEASE) == alone


def test_a_bundle_has_its_lineage_where_the_log_is_lost(place: Workspace):
    bundled(place)
    place.lineage_path.unlink()
    graph = lineage_graph(place, RELEASE)
    assert [node["name"] for node in graph["nodes"] if node["kind"] == "stage"] == list(STAGES[:-1])


def test_events_without_tags_are_found_by_their_datasets(place: Workspace):
    events = [json.loads(line) for line in place.lineage_path.read_text().splitlines()]
    expected = lineage_graph(place, RELEASE)
    for event in events:
        del event["run"]["facets"]["tags"]
    place.lineage_path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert lineage_graph(place, RELEASE) == expected


@pytest.mark.parametrize("release_id", ["visits-2026-10", "visits", "", "../visits", "visits-1999-01-1", "%", "*"])
def test_an_unknown_release_is_refused(place: Workspace, release_id: str):
    with pytest.raises(RefusedError) as refusal:
        lineage_graph(place, release_id)
    assert (refusal.value.rule, refusal.value.where) == ("release-unknown", "RELEASE")


@pytest.mark.parametrize(
    "strange",
    [
        {},
        {"run": 3},
        {"run": {"runId": 4}, "job": {"name": "x"}, "eventType": "START"},
        {"run": {"runId": "r"}, "job": {"name": "x"}, "eventType": "START", "inputs": 7},
        {"run": {"runId": "r"}, "job": {"name": "x"}, "eventType": "START", "inputs": ["a"]},
        {"run": {"runId": "r", "facets": []}, "job": {"name": "x"}, "eventType": "START"},
        {"run": {"runId": "r", "facets": {"tags": 1, "parent": 2}}, "job": {"name": "x"}, "eventType": "START"},
        {"run": {"runId": "r", "facets": {"tags": {"tags": 1}}}, "job": {"name": "x"}, "eventType": "START"},
        {"run": {"runId": "r", "facets": {"parent": {"run": 1}}}, "job": {"name": "x"}, "eventType": "START"},
    ],
    ids=lambda event: json.dumps(event)[:40],
)
def test_what_somebody_else_wrote_into_the_log_is_left_out(place: Workspace, strange: dict[str, Any]):
    expected = lineage_graph(place, RELEASE)
    append_line(place.lineage_path, json.dumps(strange))
    assert lineage_graph(place, RELEASE) == expected
