"""Releases with `generator: lda`: one block with labels, published, added up and audited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.tasks.bundle.documents import assert_valid_documents
from support.tasks.staged import release

from dpcore.errors import SpecError
from tasks.audit import audit_workspace
from tasks.spec import load_spec
from tasks.spec.plan import plan_release
from tasks.workspace.folders import Workspace

ROWS = 8000


def table() -> pa.Table:
    """Two features whose means differ by class and which move together inside each, in the same way."""
    rng = np.random.Generator(np.random.PCG64(6))
    kind = rng.choice(3, ROWS, p=[0.5, 0.3, 0.2])
    common = rng.normal(0, 2, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS) // 2),
            "a": np.clip(common + np.array([0, 4, -4])[kind] + rng.normal(0, 0.5, ROWS), -10, 10),
            "b": np.clip(common + rng.normal(0, 0.5, ROWS), -10, 10),
            "c": rng.integers(0, 2, ROWS).astype(bool),
            "kind": np.array(["x", "y", "z"])[kind],
        }
    )


def specification(**model: Any) -> dict[str, Any]:
    return {
        "name": "classes",
        "source": {"path": "landing/*.parquet", "drop": ["id"]},
        "privacy": {"population": "people", "epsilon": 2.0, "lifetime": {"epsilon": 2.0}},
        "expected_rows": ROWS,
        "columns": [
            {"name": "a", "kind": "numeric", "bounds": [-10, 10]},
            {"name": "b", "kind": "numeric", "bounds": [-10, 10]},
            {"name": "c", "kind": "boolean"},
            {"name": "kind", "kind": "categorical", "categories": ["x", "y", "z"], "role": "label"},
        ],
        "model": {"generator": "lda", **model},
    }


def workspace_of(folder: Path, spec: dict[str, Any]) -> Workspace:
    workspace = Workspace(folder)
    workspace.create()
    workspace.spec_path.write_text(yaml.safe_dump(spec))
    pq.write_table(table(), workspace.landing / "rows.parquet")
    return workspace


VARIANTS: dict[str, dict[str, Any]] = {
    "no projection": {"projection": {"kind": "none"}},
    "random directions": {"projection": {"kind": "ron", "dimension": 2}},
    "components out of the moments": {
        "projection": {"kind": "private-pca", "dimension": 2},
        "allocation": {"moments": 1},
    },
    "components bought apart": {
        "projection": {"kind": "private-pca", "dimension": 2},
        "allocation": {"projection": 0.5, "moments": 0.5},
    },
    "laplace": {"projection": {"kind": "none"}, "mechanism": "laplace"},
}


SLOW = ("random directions", "laplace")
"""Each needs an audit of the build of its own, which takes seconds."""


@pytest.mark.parametrize("variant", [pytest.param(v, marks=pytest.mark.slow) if v in SLOW else v for v in VARIANTS])
def test_a_release_with_a_shared_covariance_is_published_and_audited(tmp_path: Path, variant: str) -> None:
    workspace = workspace_of(tmp_path, specification(**VARIANTS[variant]))
    bundle = release(workspace, "2026-01")
    assert [check for check in audit_workspace(workspace) if not check.ok] == []
    assert_valid_documents(bundle)
    record = json.loads((bundle / "record.json").read_text())
    assert record["model"]["generator"] == "lda"
    assert sum(m["epsilon"] or 0.0 for m in record["privacy"]["measurements"]) <= 2.0 + 1e-12
    moments = next(m for m in record["privacy"]["measurements"] if m["name"] == "moments")
    assert (moments["parameters"]["labels"], moments["parameters"]["blocks"]) == (3, 1)
    assert all(check["ok"] for check in record["checks"])
    assert (bundle / "report.html").exists()


def test_the_released_classes_have_their_own_means_and_one_covariance(tmp_path: Path) -> None:
    bundle = release(workspace_of(tmp_path, specification(projection={"kind": "none"})), "2026-01")
    frame, real = pq.read_table(bundle / "data.parquet").to_pandas(), table().to_pandas()
    for kind in ("x", "y", "z"):
        mine, truth = frame[frame["kind"] == kind], real[real["kind"] == kind]
        assert len(mine) / len(frame) == pytest.approx(len(truth) / len(real), abs=0.05)
        assert mine["a"].mean() == pytest.approx(truth["a"].mean(), abs=0.8)
        assert mine["a"].corr(mine["b"]) == pytest.approx(truth["a"].corr(truth["b"]), abs=0.15)


@pytest.mark.parametrize("mechanism", ["noisy-rows", "jiang-laplace"])
def test_what_cannot_be_released_is_refused_by_name(tmp_path: Path, mechanism: str) -> None:
    workspace = workspace_of(tmp_path, specification(mechanism=mechanism))
    with pytest.raises(SpecError, match=mechanism) as caught:
        plan_release(load_spec(workspace.spec_path))
    assert caught.value.where == "model.mechanism"


def test_persons_are_the_unit_there_too(tmp_path: Path) -> None:
    spec = specification(projection={"kind": "none"})
    spec["source"]["drop"] = []
    spec["privacy"]["unit"] = {"person": "id", "rows": "weight"}
    workspace = workspace_of(tmp_path, spec)
    release(workspace, "2026-01")
    assert [check for check in audit_workspace(workspace) if not check.ok] == []
