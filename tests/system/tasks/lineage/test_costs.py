"""Costs in lineage: each measurement's own, the whole release's, each dataset's; an audit computes them again."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from scipy import optimize, stats
from support.tasks.lineage.events import all_schemas, assert_valid
from support.tasks.staged import SPEC, UNMODELLED, land_rows, release

import tasks.draw_once
import tasks.estimate
from dpcore.errors import StageFailedError
from tasks.audit import audit_workspace, broken
from tasks.ledger.cited_heads import missing_witnesses
from tasks.ledger.entries.bodies import Publication, Spend
from tasks.ledger.store import Ledger
from tasks.lineage.events import events_of
from tasks.lineage.graph import dataset_in_words, guarantee_in_words, lineage_graph, spends_in_words
from tasks.workspace.folders import Workspace

RELEASE = "small-2026-01-1"
SPLIT = {"projection": Fraction("0.3"), "mean": Fraction("0.07"), "moments": Fraction("0.63")}
"""PCA-Gauss's split at alpha 0.3, of epsilon 1."""
MODEL = "model: {projection: {kind: private-pca, dimension: 1}, allocation: pca-gauss-0.3}\n"
THREE = UNMODELLED.replace("epsilon: 0.1", "epsilon: 1").replace("{epsilon: 1.2}", "{epsilon: 12}") + MODEL
DELTA = 1e-6
GAUSSIAN = (
    UNMODELLED.replace("epsilon: 0.1", f"epsilon: 1, delta: {DELTA}").replace(
        "{epsilon: 1.2}", "{epsilon: 12, delta: 1.0e-5}"
    )
    + "model: {projection: {kind: private-pca, dimension: 1, mechanism: gaussian}, mechanism: gaussian, "
    + "allocation: {projection: 0.4, moments: 0.6}}\n"
)


def released(root: Path, spec: str) -> Workspace:
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(spec)
    land_rows(root, "2026-01")
    release(workspace, "2026-01")
    return workspace


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return released(tmp_path_factory.mktemp("three"), THREE)


@pytest.fixture(scope="module")
def gaussian(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return released(tmp_path_factory.mktemp("gaussian"), GAUSSIAN)


@pytest.fixture
def workspace(made: Workspace, tmp_path: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(made.root, tmp_path / "copy")))


def event_of(workspace: Workspace, job: str, state: str = "COMPLETE") -> dict[str, Any]:
    (found,) = (
        event
        for event in events_of(workspace.lineage_path)
        if (event["job"]["name"], event["eventType"]) == (f"small.{job}", state)
    )
    return found


def spends_of(event: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f["measurement"]: f for name, f in event["run"]["facets"].items() if name.startswith("dp_spend_")}


def near(due: Mapping[str, Fraction | int]) -> Any:
    """A mechanism may round its scale up by a float's last digit, and then costs a little less."""
    return pytest.approx({name: float(value) for name, value in due.items()}, rel=1e-12)


# ---------------------------------------------------------------- what is told


def test_each_stage_tells_its_own_measurements_with_their_own_epsilon(made: Workspace):
    """The release's epsilon is 1; it was told three times, once as the cost of each part."""
    told = {
        job: {name: spend["epsilon"] for name, spend in spends_of(event_of(made, job)).items()}
        for job in ("project", "estimate")
    }
    assert told["project"] == near({"projection": SPLIT["projection"]})
    assert told["estimate"] == near({"mean": SPLIT["mean"], "moments": SPLIT["moments"]})
    assert not any("dp_guarantee" in event_of(made, job)["run"]["facets"] for job in told)


def test_the_flow_tells_every_measurement_and_the_total_that_they_add_up_to(made: Workspace):
    flow = event_of(made, "release")
    spends, whole = spends_of(flow), flow["run"]["facets"]["dp_guarantee"]
    assert spends == spends_of(event_of(made, "project")) | spends_of(event_of(made, "estimate"))
    assert math.isclose(math.fsum(spend["epsilon"] for spend in spends.values()), 1.0, rel_tol=1e-12)
    assert (whole["epsilon"], whole["delta"], whole["population"]) == (1.0, 0.0, "people")
    assert whole["spent"] == pytest.approx({"epsilon": 1.0, "delta": 0.0, "delta_num": whole["deltaNum"]}, rel=1e-12)
    assert math.isclose(math.fsum(s["deltaNum"] for s in spends.values()), whole["deltaNum"], rel_tol=1e-12)
    assert sorted(spends) == whole["measurements"]
    assert {(s["ofRelease"]["epsilon"], s["population"]) for s in spends.values()} == {(1.0, "people")}
    with closing(Ledger.open_to_read(made.ledger_path)) as ledger:
        entries = {entry.seq: entry for entry in ledger.entries()}
    assert {name: entries[s["ledgerEntry"]].parse(Spend).measurement for name, s in spends.items()} == {
        n: n for n in spends
    }
    assert (entries[whole["ledgerEntry"]].kind, entries[whole["ledgerEntry"]].hash) == ("reserve", whole["ledgerHash"])


def test_gaussian_measurements_tell_their_rho_and_what_each_is_alone(gaussian: Workspace):
    """Their rho adds up; their epsilons do not. A second solver finds the same statement."""
    flow = event_of(gaussian, "release")
    spends, whole = spends_of(flow), flow["run"]["facets"]["dp_guarantee"]
    assert spends.keys() == {"projection", "moments"}
    for spend in spends.values():
        assert "epsilon" not in spend
        assert spend["alone"]["delta"] == whole["delta"] == DELTA
        assert spend["alone"]["epsilon"] == pytest.approx(exact_epsilon(spend["rho"]), rel=1e-6)
    total = sum(spend["rho"] for spend in spends.values())
    assert spends["projection"]["rho"] / total == pytest.approx(0.4, rel=1e-6)
    assert exact_epsilon(total) == pytest.approx(whole["spent"]["epsilon"], rel=1e-6)
    assert whole["spent"]["epsilon"] <= whole["epsilon"] == 1.0
    assert sum(spend["alone"]["epsilon"] for spend in spends.values()) > 1.3, "which is why parts tell their rho"
    assert broken(audit_workspace(gaussian)) == []


def exact_epsilon(rho: float) -> float:
    """Where the privacy profile of Gaussian noise meets delta, by scipy's normal law and root finder."""
    mu = math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        first, second = stats.norm.sf(epsilon / mu - mu / 2), stats.norm.sf(epsilon / mu + mu / 2)
        return float(first - math.exp(epsilon) * second - DELTA)

    return float(optimize.brentq(excess, 0.0, 20.0, xtol=1e-12))


DATASET_COSTS = {
    "noisy-projection": ("projection",),
    "projection": ("projection",),
    "noisy-mean": ("projection", "mean"),
    "noisy-moments": ("projection", "moments"),
    **dict.fromkeys(("law", "synthetic-table", "figures"), tuple(SPLIT)),
    **dict.fromkeys(("model", "record", "report", "bundle"), tuple(SPLIT)),
}


def written(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Every dataset that a stage wrote, by its role."""
    ends = [event for event in events_of(workspace.lineage_path) if event["eventType"] == "COMPLETE"]
    return {dataset["name"].rpartition("/")[2]: dataset for event in ends for dataset in event["outputs"]}


def test_every_dataset_tells_what_it_was_computed_from_and_what_that_cost(made: Workspace):
    found = {name: data["facets"]["dp_cost"] for name, data in written(made).items() if name != "reservation"}
    assert {name: tuple(cost["measurements"]) for name, cost in found.items()} == DATASET_COSTS
    due = {name: sum(SPLIT[part] for part in parts) for name, parts in DATASET_COSTS.items()}
    assert {name: cost["epsilon"] for name, cost in found.items()} == near(due)


def test_every_released_dataset_has_the_digest_that_ledger_and_bundle_have(made: Workspace):
    folder = made.bundle("small", RELEASE)
    model, record = (json.loads((folder / f"{name}.json").read_text()) for name in ("model", "record"))
    files = {"synthetic-table": "data.parquet", "model": "model.json", "record": "record.json", "report": "report.html"}
    due = {name: sha256((folder / file).read_bytes()) for name, file in files.items()}
    due |= {f"noisy-{name}": sha256(spelled(body)) for name, body in model["measurements"].items()}
    due["projection"] = sha256(spelled(model["projection"]))
    due["figures"] = sha256(spelled({"utility": record["utility"], "checks": record["checks"]}))
    due["bundle"] = sha256((folder / "SHA256SUMS").read_bytes())
    found = {name: data["facets"].get("version", {}).get("datasetVersion") for name, data in written(made).items()}
    reservation = found.pop("reservation")
    assert found.pop("law") is None, "the law is no file of the bundle"
    assert found == {name: f"sha256:{digest}" for name, digest in due.items()}
    with closing(Ledger.open_to_read(made.ledger_path)) as ledger:
        entries = {entry.kind: entry for entry in ledger.entries()}
    assert reservation == f"sha256:{entries['reserve'].hash}"
    assert due["bundle"] == entries["publish"].parse(Publication).bundle_digest
    assert written(made)["bundle"]["facets"]["dp_ledger"]["ledgerHash"] == entries["publish"].hash


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def spelled(content: Any) -> bytes:
    """JSON with sorted keys and no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def test_only_the_synthetic_table_tells_how_many_rows_it_has(made: Workspace):
    counted = {name: data["outputFacets"] for name, data in written(made).items() if data["outputFacets"]}
    assert {name: facets["outputStatistics"]["rowCount"] for name, facets in counted.items()} == {"synthetic-table": 50}


def test_the_checks_that_decide_are_assertions_about_the_synthetic_table_alone(tmp_path: Path):
    workspace = released(tmp_path, SPEC + "checks: {mean_gap: 1.0}\n")
    judged = {
        dataset["name"].rpartition("/")[2]: dataset["inputFacets"]["dataQualityAssertions"]["assertions"]
        for event in events_of(workspace.lineage_path)
        for dataset in event["inputs"]
        if dataset["inputFacets"]
    }
    told = {one["assertion"]: (one["success"], one.get("actual")) for one in judged.pop("synthetic-table")}
    record = json.loads((workspace.bundle("small", RELEASE) / "record.json").read_text())
    assert judged == {}
    assert "mean_gap" in told
    assert {name for name in told if name.startswith("table: ")}, "the suite of the released table is told too"
    decides = [check for check in record["checks"] if check["threshold"] is not None or check["direction"] == "holds"]
    assert told == {c["name"]: (c["ok"], None if c["value"] is None else str(c["value"])) for c in decides}
    assert broken(audit_workspace(workspace)) == []


@pytest.mark.parametrize("which", ["made", "gaussian"])
def test_every_event_of_a_real_release_is_valid(which: str, request: pytest.FixtureRequest):
    registry = all_schemas()
    for event in events_of(request.getfixturevalue(which).lineage_path):
        assert_valid(event, registry)


# ---------------------------------------------------------------- runs that fail


@pytest.fixture
def crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A run that stopped after the mean, before the moments."""
    workspace = Workspace(tmp_path)
    workspace.create()
    workspace.spec_path.write_text(THREE)
    land_rows(tmp_path, "2026-01")

    def measured(run: Any, grant: Any, name: str, projection: Any) -> Any:
        if name == "moments":
            raise OSError("the machine stopped")
        return tasks.draw_once.measure_or_load(run, grant, name, projection)

    with monkeypatch.context() as patched:
        patched.setattr(tasks.estimate, "measure_or_load", measured)
        with pytest.raises(StageFailedError):
            release(workspace, "2026-01")
    return workspace


def test_a_run_that_failed_names_what_it_had_spent_on_the_flow_too(crashed: Workspace):
    flow = event_of(crashed, "release", "FAIL")
    spent = {name: spend["epsilon"] for name, spend in spends_of(flow).items()}
    assert spent == near({"projection": SPLIT["projection"], "mean": SPLIT["mean"]})
    whole = flow["run"]["facets"]["dp_guarantee"]
    assert (whole["epsilon"], whole["measurements"]) == (1.0, ["mean", "moments", "projection"])
    assert whole["spent"]["epsilon"] == pytest.approx(0.37, rel=1e-12)
    assert "epsilon 0.37 of it was spent" in str(guarantee_in_words(node(crashed, "release")))
    assert broken(audit_workspace(crashed)) == []


def test_the_flows_event_alone_misses_a_ledger_that_was_put_back(crashed: Workspace):
    """Whoever reconciles must charge for the release, and not only for the parts that the lineage names."""
    flow = json.dumps(event_of(crashed, "release", "FAIL"))
    crashed.lineage_path.write_text(flow + "\n")
    with closing(Ledger.open_to_read(crashed.ledger_path)) as ledger:
        before = [entry for entry in ledger.entries() if entry.kind != "spend"]
        missing = missing_witnesses(crashed, before)
        assert missing_witnesses(crashed, ledger.entries()) == []
    assert len(missing) == 2
    assert {(witness.release_id, witness.epsilon) for witness in missing} == {(RELEASE, 1.0)}


def test_a_stages_event_alone_is_a_witness_of_the_whole_release(crashed: Workspace):
    crashed.lineage_path.write_text(json.dumps(event_of(crashed, "project")) + "\n")
    (witness,) = missing_witnesses(crashed, [])
    assert witness.epsilon == 1.0, "not the 0.3 of the part that it names"


def test_a_release_that_goes_on_after_a_failure_is_told_whole(crashed: Workspace):
    release(crashed, "2026-01")
    assert spends_of(event_of(crashed, "release")).keys() == SPLIT.keys()
    assert broken(audit_workspace(crashed)) == []


# ---------------------------------------------------------------- the audit has teeth


def retold(workspace: Workspace, job: str, change: Callable[[dict[str, Any]], object], state: str = "COMPLETE") -> str:
    """What the audit says of the log once an event of it was changed."""
    events = events_of(workspace.lineage_path)
    for event in events:
        if (event["job"]["name"], event["eventType"]) == (f"small.{job}", state):
            change(event)
    workspace.lineage_path.write_text("".join(f"{json.dumps(event, sort_keys=True)}\n" for event in events))
    (found,) = (check for check in broken(audit_workspace(workspace)) if check.name == "lineage log")
    return found.detail


LIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a smaller epsilon": (
        lambda e: e["run"]["facets"]["dp_spend_mean"].update(epsilon=0.05),
        "cost of 'mean' is not what the ledger's event gives",
    ),
    "a part less": (lambda e: e["run"]["facets"].pop("dp_spend_projection"), "lacks the spend of 'projection'"),
    "a part of another release": (
        lambda e: e["run"]["facets"]["dp_spend_mean"].update(measurement="radius"),
        "'radius', which the ledger does not have",
    ),
    "a smaller total": (
        lambda e: e["run"]["facets"]["dp_guarantee"].update(epsilon=0.63),
        "guarantee of the flow's event is not the ledger's",
    ),
    "less spent": (
        lambda e: e["run"]["facets"]["dp_guarantee"]["spent"].update(epsilon=0.63),
        "guarantee of the flow's event is not the ledger's",
    ),
    "no total": (
        lambda e: e["run"]["facets"].pop("dp_guarantee"),
        "guarantee of the flow's event is not the ledger's",
    ),
    "another bundle": (
        lambda e: e["outputs"][0]["facets"]["version"].update(datasetVersion="sha256:" + "0" * 64),
        "digest of its bundle is not the ledger's",
    ),
}


@pytest.mark.parametrize("case", LIES)
def test_a_flows_event_that_tells_another_cost_breaks_the_audit(workspace: Workspace, case: str):
    change, words = LIES[case]
    assert words in retold(workspace, "release", change)


def test_a_failed_flow_that_is_silent_about_a_spend_of_its_stages_breaks_the_audit(crashed: Workspace):
    words = retold(crashed, "release", lambda e: e["run"]["facets"].pop("dp_spend_projection"), "FAIL")
    assert "lacks the spend of 'projection'" in words


# ---------------------------------------------------------------- in words


def node(workspace: Workspace, name: str) -> dict[str, Any]:
    return next(n for n in lineage_graph(workspace, RELEASE)["nodes"] if n["name"] == name and n["kind"] != "dataset")


def test_people_read_each_part_beside_the_whole(made: Workspace):
    assert [words.partition(", ")[0] for words in spends_in_words(node(made, "estimate"))] == [
        "measured mean: epsilon 0.07 of the release's 1",
        "measured moments: epsilon 0.63 of the release's 1",
    ]
    assert guarantee_in_words(node(made, "release")) == (
        "the release: epsilon 1, replace-one, unit row, population people"
    )
    datasets = {n["name"]: n for n in lineage_graph(made, RELEASE)["nodes"] if n["kind"] == "dataset"}
    assert str(dataset_in_words(datasets["noisy-moments"])).endswith("epsilon 0.93 (projection, moments)")
    assert ", 50 rows, epsilon 1 (" in str(dataset_in_words(datasets["synthetic-table"]))
    assert dataset_in_words(datasets["landing"]) is None


def test_events_of_version_1_are_read_without_calling_the_whole_a_part():
    job = {"dp_guarantee": {"epsilon": 1.0, "mechanism": "gaussian"}, "dp_spend": {"ledgerEntry": 4}, "state": "FAIL"}
    assert spends_in_words(job) == ["measured within the release's epsilon 1, ledger entry 4, gaussian"]
    assert guarantee_in_words(job) is None
