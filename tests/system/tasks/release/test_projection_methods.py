"""Whole releases whose components come from every member of the private PCA family, and what they say about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from support.tasks.bundle.documents import assert_valid_documents
from support.tasks.release.variants import ZCDP, specification, table, with_role
from support.tasks.staged import release

from dpcore.errors import SpecError
from tasks.audit import audit_workspace
from tasks.bundle.rebuild import rebuild
from tasks.lineage.graph import guarantee_in_words, lineage_graph, spends_in_words
from tasks.spec import parse_spec
from tasks.spec.plan import PlannedRelease, plan_release
from tasks.spec.relations import in_words
from tasks.workspace.folders import Workspace


def components(mechanism: str, **changes: Any) -> dict[str, Any]:
    projection = {"kind": "private-pca", "dimension": 2, "mechanism": mechanism}
    return {"model__projection": projection, **changes}


MIXED = ZCDP | {"privacy__lifetime": {"epsilon": 12.0, "delta": 0.000001}}
"""A cap that pure costs and Gaussian noise fit together, counted as zCDP."""

VARIANTS: dict[str, dict[str, Any]] = {
    "power method, pure moments": components("noisy-power-method", model__mechanism="laplace", **MIXED),
    "power method, Gaussian moments": components("noisy-power-method", model__mechanism="gaussian", **ZCDP),
    "power method, a target": components("noisy-power-method", columns=with_role("a", "target"), **MIXED),
    "exponential mechanism": components("exponential-pca"),
    "exponential mechanism, Gaussian moments": components("exponential-pca", model__mechanism="gaussian", **ZCDP),
    "exponential mechanism, add-remove, persons": components(
        "exponential-pca",
        privacy__neighbours="add-remove",
        source__drop=[],
        privacy__unit={"person": "id", "rows": "at-most 2"},
    ),
    "exponential mechanism, a label, a share by hand": components(
        "exponential-pca", columns=with_role("d", "label"), model__allocation={"projection": 0.5, "moments": 0.5}
    ),
    "a Gram mechanism by name": components("laplace"),
}


def released(root: Path, changes: dict[str, Any]) -> tuple[Workspace, Path]:
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(yaml.safe_dump(specification(**changes)))
    pq.write_table(table(), workspace.landing / "rows.parquet")
    return workspace, release(workspace, "2026-01")


IN_SHORT = {"power method, a target", "exponential mechanism, Gaussian moments", "a Gram mechanism by name"}
EACH = [v if v in IN_SHORT else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS]


@pytest.mark.parametrize("variant", EACH)
def test_a_release_with_named_components_is_published_audited_and_says_what_it_is(tmp_path: Path, variant: str) -> None:
    workspace, bundle = released(tmp_path, VARIANTS[variant])
    checks = audit_workspace(workspace)
    assert_valid_documents(bundle)
    assert [check for check in checks if not check.ok] == []
    record = json.loads((bundle / "record.json").read_text())
    name = VARIANTS[variant]["model__projection"]["mechanism"]
    (first,) = [m for m in record["privacy"]["measurements"] if m["name"] == "projection"]
    assert first["mechanism"] == name
    doubtful = name == "exponential-pca"
    nodes = lineage_graph(workspace, record["release_id"])["nodes"]
    (flow,) = (node for node in nodes if node["kind"] == "flow")
    assert first["status"] == ("approximate" if doubtful else "proved")
    for text in (
        " ".join(record["privacy"]["guarantee"]),
        " ".join(record["model"]["reasons"]),
        " ".join(check.detail for check in checks),
        " ".join(in_words(record["privacy"]).values()),
        guarantee_in_words(flow) or "",
        " ".join(spends_in_words(flow)),
        (bundle / "report.html").read_text(),
    ):
        assert ("approximate" in text) == doubtful
    entry = yaml.safe_load((bundle / "registry.yaml").read_text())["deployment"]
    assert (entry["dp_variant"]["variant_name"] == "Custom") == doubtful
    promised = " ".join(record["privacy"]["guarantee"])
    if doubtful:
        assert "pure: nothing is added" not in promised
        assert "finite precision adds at most" not in promised
        assert "neither the epsilon nor a delta of this release is proved" in promised
    guessed = any("are only guesses" in limit for limit in record["limits"])
    assert guessed == (name != "laplace")
    means = [c["measured"]["mean"] for c in record["utility"]["columns"] if c["name"] == "b"]
    assert (means == [None]) == guessed, "what the components do not know is not shown as measured"
    assert all(check["ok"] for check in record["checks"])


@pytest.mark.parametrize(
    ("changes", "rule", "where"),
    [
        (
            {"model__projection": {"kind": "ron", "dimension": 2, "mechanism": "noisy-power-method"}},
            "projection-mechanism-unused",
            "model.projection.mechanism",
        ),
        (
            {"model__projection": {"kind": "none", "mechanism": "laplace"}},
            "projection-mechanism-unused",
            "model.projection.mechanism",
        ),
        (components("noisy-power-method"), "mechanism-needs-delta", "privacy.delta"),
        (components("gauss"), "projection-mechanism-unknown", "model.projection.mechanism"),
        (components("published-lap-pca"), "mechanism-refuted", "model.projection.mechanism"),
        (components("exponential-pca", model__allocation={"moments": 1}), "allocation-missing", "model.allocation"),
    ],
)
def test_a_mechanism_that_cannot_give_components_is_refused(changes: dict[str, Any], rule: str, where: str) -> None:
    with pytest.raises(SpecError) as refusal:
        plan_release(parse_spec(yaml.safe_dump(specification(**changes))))
    assert (refusal.value.rule, refusal.value.where) == (rule, where)
    assert refusal.value.hint


def test_auto_is_the_default_and_may_be_written_anywhere() -> None:
    for kind in ("ron", "private-pca"):
        plain, written = (
            parse_spec(yaml.safe_dump(specification(model__projection={"kind": kind, **more})))
            for more in ({}, {"mechanism": "auto"})
        )
        assert plain.digest() == written.digest()
        assert plan_release(plain) == plan_release(written)


# ---- the rules of the dimension ---------------------------------------------------------------------------------

SHARED = {
    "model__radius": 1,
    "model__projection": {"kind": "private-pca", "dimension": {"share": 0.9}},
    "columns": with_role("a", "target"),
}


def test_components_by_their_share_are_counted_again_in_the_released_spectrum(tmp_path: Path) -> None:
    workspace, bundle = released(tmp_path, SHARED)
    record, model = (json.loads((bundle / name).read_text()) for name in ("record.json", "model.json"))
    told, plan = record["model"]["projection"], PlannedRelease.of(parse_spec(workspace.spec_path.read_text())).plan
    assert told["dimension_rule"] == "share"
    assert told["kept"]["share"] == 0.9
    assert told["kept"]["of"] == plan.dimension
    assert told["kept"]["held"] >= 0.9 - 1e-9
    assert [m["name"] for m in record["privacy"]["measurements"]] == ["moments"]
    kept = f"kept {told['dimension']} of {told['kept']['of']} components"
    assert kept in json.loads((bundle / "codebook.json").read_text())["projection"]["rule"]
    assert kept in (bundle / "report.html").read_text()
    seeds = {"projection": told["seed"], "sampling": record["model"]["sampling_seed"]}
    for stated in range(1, plan.dimension + 1):  # whatever the record says, the spectrum is asked
        claimed = json.loads(json.dumps(record))
        claimed["model"]["projection"]["dimension"] = stated
        again = rebuild(claimed, model, seeds)
        assert again.projection.dimension - again.encoding.target_width == told["dimension"]


def test_the_rule_of_ron_gauss_is_told_with_its_warning(tmp_path: Path) -> None:
    _, bundle = released(tmp_path, {"model__projection": {"kind": "ron", "dimension": "dfm"}})
    record = json.loads((bundle / "record.json").read_text())
    assert record["model"]["projection"]["dimension_rule"] == "dfm"
    assert any("not of noise" in reason for reason in record["model"]["reasons"])
    assert "not of noise" in json.loads((bundle / "codebook.json").read_text())["projection"]["rule"]


@pytest.mark.parametrize(
    ("projection", "rule"),
    [
        ({"kind": "private-pca", "dimension": "dfm"}, "dimension-rule-not-applicable"),
        ({"kind": "ron", "dimension": {"share": 0.9}}, "dimension-rule-not-applicable"),
        ({"kind": "private-pca", "dimension": {"share": 0.9}, "mechanism": "laplace"}, "dimension-rule-not-applicable"),
    ],
)
def test_a_rule_for_another_projection_is_refused_before_anything_is_read(
    projection: dict[str, Any], rule: str
) -> None:
    with pytest.raises(SpecError) as refused:
        plan_release(parse_spec(yaml.safe_dump(specification(model__projection=projection))))
    assert (refused.value.rule, refused.value.where) == (rule, "model.projection.dimension")
