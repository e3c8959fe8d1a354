"""Releases that buy checks: each has a reservation, a spend, a promise and a line in the record; failed ones too."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.tasks.bundle.documents import assert_valid_documents
from support.tasks.staged import release

from dpcore.errors import CheckFailedError, LedgerError, SpecError, StageFailedError
from tasks.audit import audit_workspace
from tasks.spec import load_spec, parse_spec
from tasks.spec.plan import plan_release
from tasks.workspace.folders import Workspace

ROWS = 4000
NUMBER = {"kind": "numeric", "bounds": [-10, 10]}
FEATURES: list[dict[str, Any]] = [
    {"name": "a", **NUMBER},
    {"name": "b", **NUMBER},
    {"name": "d", "kind": "categorical", "categories": ["p", "q", "r"]},
]
LABELLED = [*FEATURES, {"name": "kind", "kind": "categorical", "categories": ["x", "y", "z"], "role": "label"}]
TARGETED = [*FEATURES, {"name": "cost", "kind": "numeric", "bounds": [0, 100], "role": "target"}]


def table(columns: list[dict[str, Any]]) -> pa.Table:
    """Classes that lie apart, and a cost that follows a feature."""
    rng = np.random.Generator(np.random.PCG64(6))
    kind = rng.integers(0, 3, ROWS)
    a = np.clip(np.array([-5, 0, 5])[kind] + rng.normal(0, 1.5, ROWS), -10, 10)
    cells = {
        "id": np.arange(ROWS) // 2,
        "a": a,
        "b": np.clip(rng.normal(0, 3, ROWS), -10, 10),
        "d": np.array(["p", "q", "r"])[np.where(rng.random(ROWS) < 0.8, kind, rng.integers(0, 3, ROWS))],
        "kind": np.array(["x", "y", "z"])[kind],
        "cost": np.clip(50 + 4 * a + rng.normal(0, 5, ROWS), 0, 100),
    }
    return pa.table({name: cells[name] for name in ("id", *(column["name"] for column in columns))})


def specification(columns: list[dict[str, Any]], checks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "name": "checked",
        "source": {"path": "landing/*.parquet", "drop": ["id"]},
        "privacy": {"population": "people", "epsilon": 2.0, "lifetime": {"epsilon": 8.0}},
        "expected_rows": ROWS,
        "columns": columns,
        "model": {
            "projection": {"kind": "none"},
            "radius": 1,
            "generator": "mixture" if columns is LABELLED else "supervised",
        },
        "checks": checks,
    }
    return spec | changes


class Plain(yaml.SafeDumper):
    """Writes a value that stands in two places twice: a specification has no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def written(spec: dict[str, Any]) -> str:
    return yaml.dump(spec, Dumper=Plain)


def workspace_of(folder: Path, spec: dict[str, Any]) -> Workspace:
    workspace = Workspace(folder)
    workspace.create()
    workspace.spec_path.write_text(written(spec))
    pq.write_table(table(spec["columns"]), workspace.landing / "rows.parquet")
    return workspace


def record_of(bundle: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((bundle / "record.json").read_text())
    return record


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Path]:
    """A workspace with bought checks of a labelled table, and its bundle; not to be changed."""
    workspace = workspace_of(tmp_path_factory.mktemp("labelled"), VARIANTS["label"])
    return workspace, release(workspace, "2026-01")


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which a bought check failed; not to be changed."""
    workspace = workspace_of(tmp_path_factory.mktemp("refused"), with_threshold(1.0))
    with pytest.raises(CheckFailedError, match="accuracy"):
        release(workspace, "2026-01")
    return workspace.root


@pytest.fixture
def failed(refused: Path, tmp_path: Path) -> Workspace:
    """A copy of it."""
    return Workspace(Path(shutil.copytree(refused, tmp_path / "workspace")))


BOTH = {"accuracy": {"budget": 0.05, "at_least": 0.6}, "silhouette": {"budget": 0.05, "clusters": 3}}
VARIANTS: dict[str, dict[str, Any]] = {
    "label": specification(LABELLED, BOTH),
    "target, gaussian": specification(
        TARGETED,
        {"rmse": {"budget": "1/20", "at_most": 20.0}},
        privacy={
            "population": "people",
            "epsilon": 2.0,
            "delta": 0.000001,
            "lifetime": {"epsilon": 8.0, "delta": 0.00001},
        },
        model={"projection": {"kind": "none"}, "mechanism": "gaussian"},
    ),
    "mixed table": specification(LABELLED, BOTH, model={"generator": "copula"}),
    "persons": specification(
        LABELLED,
        {"accuracy": {"budget": 0.1}},
        source={"path": "landing/*.parquet"},
        privacy={
            "population": "people",
            "epsilon": 2.0,
            "lifetime": {"epsilon": 8.0},
            "unit": {"person": "id", "rows": "weight"},
        },
    ),
}
SLOW = ("target, gaussian", "mixed table", "persons")


@pytest.mark.parametrize("variant", [pytest.param(v, marks=pytest.mark.slow) if v in SLOW else v for v in VARIANTS])
def test_a_release_with_bought_checks_is_published_and_audited(
    labelled: tuple[Workspace, Path], tmp_path: Path, variant: str
) -> None:
    spec = VARIANTS[variant]
    workspace, bundle = labelled
    if variant != "label":
        workspace = workspace_of(tmp_path, spec)
        bundle = release(workspace, "2026-01")
    assert [check for check in audit_workspace(workspace) if not check.ok] == []
    assert_valid_documents(bundle)
    record = record_of(bundle)
    measured = {m["name"]: m for m in record["privacy"]["measurements"]}
    for name, check in spec["checks"].items():
        share = 0.05 if name == "rmse" else check["budget"]
        assert measured[name]["mechanism"] == ("score-gaussian" if "gaussian" in variant else "score-laplace")
        assert record["model"]["allocation"][name] == pytest.approx(share)
        assert measured[name]["ledger_entry"]["seq"] > measured["moments"]["ledger_entry"]["seq"]
    scores = {score["name"]: score for score in record["utility"]["scores"]}
    assert scores.keys() == spec["checks"].keys()
    judged = {check["name"]: check for check in record["checks"]}
    for name, score in scores.items():
        assert score["low"] <= score["value"] <= score["high"]
        assert judged[name]["value"] == score["value"]
    told = [json.loads(line) for line in (bundle / "lineage.ndjson").read_text().splitlines()]
    (done,) = (e for e in told if e["job"]["name"].endswith(".score") and e["eventType"] == "COMPLETE")
    assert len([name for name in done["run"]["facets"] if name.startswith("dp_spend")]) == len(scores)


def test_the_noisy_score_is_near_the_true_one(labelled: tuple[Workspace, Path]) -> None:
    """The classes lie so far apart that any sensible model is right about nine of ten."""
    record = record_of(labelled[1])
    accuracy, silhouette = (next(s for s in record["utility"]["scores"] if s["name"] == n) for n in BOTH)
    assert 0.85 < accuracy["value"] < 1.0
    assert accuracy["high"] - accuracy["low"] < 0.08
    assert accuracy["value"] == pytest.approx(accuracy["on_synthetic"], abs=0.1)
    assert 0.2 < silhouette["value"] < 0.9


def with_threshold(threshold: float, **changes: Any) -> dict[str, Any]:
    return specification(LABELLED, {"accuracy": {"budget": 0.05, "at_least": threshold}}, **changes)


def test_a_check_that_fails_refuses_to_publish_and_stays_charged_and_is_never_drawn_again(failed: Workspace) -> None:
    before = spends(failed)
    assert set(before) == {"moments", "accuracy"}
    assert not list((failed.releases / "checked").glob("checked-2026-01-1"))
    failed.spec_path.write_text(written(with_threshold(0.5)))
    record = record_of(release(failed, "2026-01"))
    assert spends(failed) == before
    assert {m["name"]: m["digest"] for m in record["privacy"]["measurements"]} == before


def spends(workspace: Workspace) -> dict[str, str]:
    from tasks.ledger.entries.bodies import Spend
    from tasks.ledger.store import Ledger

    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        return {
            name: entry.parse(Spend).digest
            for name, entry in ledger.state().releases["checked-2026-01-1"].spends.items()
        }


@pytest.mark.parametrize("change", [{"rows": 77}, {"checks": {"accuracy": {"budget": 0.06, "at_least": 0.5}}}])
def test_what_a_bought_check_tested_cannot_be_changed_afterwards(failed: Workspace, change: dict[str, Any]) -> None:
    failed.spec_path.write_text(written(with_threshold(0.5) | change))
    with pytest.raises(LedgerError, match="changed since"):
        release(failed, "2026-01")


def test_a_table_that_fails_a_free_check_takes_nothing_for_a_bought_one(tmp_path: Path) -> None:
    checks = {"accuracy": {"budget": 0.05}, "min_rows": 10 * ROWS}
    workspace = workspace_of(tmp_path, specification(LABELLED, checks))
    with pytest.raises(CheckFailedError, match="min_rows"):
        release(workspace, "2026-01")
    assert set(spends(workspace)) == {"moments"}


def test_thresholds_do_not_change_the_digest_and_budgets_do() -> None:
    def digest(**check: Any) -> str:
        return parse_spec(written(specification(LABELLED, {"accuracy": check}))).digest()

    assert digest(budget=0.05) == digest(budget=0.05, at_least=0.9)
    assert digest(budget=0.05) != digest(budget=0.06)
    plain = parse_spec(written(specification(LABELLED, {})))
    assert plain.digest() == parse_spec(written(specification(LABELLED, {"min_rows": 5}, rows=9))).digest()


@pytest.mark.parametrize(
    ("checks", "rule", "where"),
    [
        ({"accuracy": {}}, "missing-key", "checks.accuracy.budget"),
        ({"accuracy": {"budget": 0}}, "budget-range", "checks.accuracy.budget"),
        ({"accuracy": {"budget": 1}}, "budget-range", "checks.accuracy.budget"),
        ({"accuracy": {"budget": 0.1, "at_least": 1.5}}, "share-range", "checks.accuracy.at_least"),
        ({"accuracy": {"budget": 0.1, "at_most": 0.5}}, "unknown-key", "checks.accuracy.at_most"),
        ({"silhouette": {"budget": 0.1, "clusters": 1}}, "too-few-clusters", "checks.silhouette.clusters"),
        ({"silhouette": {"budget": 0.5}, "accuracy": {"budget": 0.5}}, "check-budgets", "checks"),
        ({"means_inside": 1.1}, "share-range", "checks.means_inside"),
        ({"pairs_inside": 0}, "not-positive", "checks.pairs_inside"),
    ],
)
def test_checks_that_make_no_sense_are_refused_with_their_place(checks: dict[str, Any], rule: str, where: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(written(specification(LABELLED, checks)))
    assert (caught.value.rule, caught.value.where) == (rule, where)


@pytest.mark.parametrize(("columns", "check"), [(TARGETED, "accuracy"), (LABELLED, "rmse")])
def test_nothing_is_predicted_where_there_is_nothing_to_predict(columns: list[dict[str, Any]], check: str) -> None:
    spec = parse_spec(written(specification(columns, {check: {"budget": 0.1}})))
    with pytest.raises(SpecError) as caught:
        plan_release(spec)
    assert caught.value.where == f"checks.{check}"


def test_the_free_checks_decide_too(tmp_path: Path) -> None:
    easy = {"means_inside": 0.5, "category_coverage": 1.0, "spectrum_above_noise": 0.5, "pairs_inside": 0.2}
    easy["isotropy"] = 0.05
    workspace = workspace_of(tmp_path, specification(LABELLED, easy))
    record = record_of(release(workspace, "2026-01"))
    judged = {check["name"]: check for check in record["checks"]}
    for name, threshold in easy.items():
        assert judged[name]["threshold"] == threshold
        assert judged[name]["value"] >= threshold
        assert judged[name]["direction"] == "at-least"
    assert load_spec(workspace.spec_path).checks.means_inside == 0.5


def test_a_table_that_is_wide_in_one_direction_is_refused_by_its_isotropy(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, specification(LABELLED, {"isotropy": 0.9}))
    with pytest.raises(CheckFailedError, match="isotropy"):
        release(workspace, "2026-01")


def test_an_unexpected_fault_on_the_real_rows_is_told_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(tmp_path, with_threshold(0.5))

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("row 17 holds 918273645")

    monkeypatch.setattr("tasks.score.sum_scores", broken)
    with pytest.raises(StageFailedError) as caught:
        release(workspace, "2026-01")
    assert "918273645" not in f"{caught.value!r} {caught.value.__context__!r} {workspace.lineage_path.read_text()}"
    assert set(spends(workspace)) == {"moments"}, "nothing was drawn, nothing is spent"
