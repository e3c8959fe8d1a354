"""Whole releases under unusual but legal specifications: each publishes, adds up and passes the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from support.tasks.bundle.documents import assert_valid_documents
from support.tasks.release.variants import COLUMNS, ZCDP, specification, table, with_role
from support.tasks.staged import release

from dpcore.inference.functionals import NotIdentifiedError
from tasks.answers.intervals import read_inference
from tasks.audit import audit_workspace, broken, not_shown
from tasks.workspace.folders import Workspace

NUMBERS = {"columns": COLUMNS[:3], "source__drop": ["id", "d", "e"]}
VARIANTS: dict[str, dict[str, Any]] = {
    "no projection": {"model__projection": {"kind": "none"}},
    "few random directions": {"model__projection": {"kind": "ron", "dimension": 3}},
    "components out of the moments": {
        "model__projection": {"kind": "private-pca", "dimension": 3},
        "model__allocation": {"moments": 1},
    },
    "components bought apart": {
        "model__projection": {"kind": "private-pca", "dimension": 2},
        "model__allocation": {"projection": 0.4, "moments": 0.6},
    },
    "components bought apart, zCDP": {
        "model__projection": {"kind": "private-pca", "dimension": 2},
        "model__allocation": {"projection": 0.5, "moments": 0.5},
        "model__mechanism": "gaussian",
        **ZCDP,
    },
    "components by their share, a label": {
        "columns": with_role("d", "label"),
        "model__projection": {"kind": "private-pca", "dimension": {"share": 0.9}},
    },
    "a frame and components by their share, a target": {
        "columns": with_role("a", "target"),
        "model__radius": "auto",
        "model__projection": {"kind": "private-pca", "dimension": {"share": "2/3"}},
    },
    "as many random directions as are Gaussian": {"model__projection": {"kind": "ron", "dimension": "dfm"}},
    "projected points beside the rows, a label": {
        "columns": with_role("d", "label"),
        "model__projection": {"kind": "ron", "dimension": 3},
        "model__output": "both",
    },
    "projected points alone, a target, a frame, components by their share": {
        "columns": with_role("a", "target"),
        "model__radius": "auto",
        "model__projection": {"kind": "private-pca", "dimension": {"share": 0.8}},
        "model__output": "projected",
    },
    "projected points along public components": {
        "model__projection": {"kind": "public-pca", "dimension": 3, "public": "public.parquet"},
        "model__output": "both",
    },
    "components, all automatic": {"model__projection": {"kind": "private-pca"}},
    "the split of RON-Gauss": {
        "model__projection": {"kind": "ron", "dimension": 3},
        "model__allocation": "ron-gauss",
    },
    "the split of PCA-Gauss, a label": {
        "columns": with_role("d", "label"),
        "model__projection": {"kind": "private-pca", "dimension": 2},
        "model__allocation": "pca-gauss-0.4",
    },
    "public components": {"model__projection": {"kind": "public-pca", "dimension": 3, "public": "public.parquet"}},
    "gaussian": {"model__mechanism": "gaussian", **ZCDP},
    "laplace": {"model__mechanism": "laplace"},
    "add-remove": {"privacy__neighbours": "add-remove"},
    "a label": {"columns": with_role("d", "label")},
    "a label as a feature": {"columns": with_role("d", "label"), "model__generator": "gaussian"},
    "a target": {"columns": with_role("a", "target")},
    "a target, few directions": {
        "columns": with_role("a", "target"),
        "model__projection": {"kind": "ron", "dimension": 2},
    },
    "a target and components": {
        "columns": with_role("a", "target"),
        "model__projection": {"kind": "private-pca", "dimension": 2},
    },
    "persons weighted": {"source__drop": [], "privacy__unit": {"person": "id", "rows": "weight"}},
    "persons with two rows": {"source__drop": [], "privacy__unit": {"person": "id", "rows": "at-most 2"}},
    "one column": {"columns": COLUMNS[:1], "source__drop": ["id", "b", "c", "d", "e"]},
    "a frame": {"model__radius": "auto", "model__projection": {"kind": "none"}, "model__generator": "gaussian"},
    "a frame, zCDP, a label, few directions": {
        "columns": with_role("d", "label"),
        "model__radius": "auto",
        "model__projection": {"kind": "ron", "dimension": 3},
        **ZCDP,
    },
    "a frame and components bought apart, persons with two rows": {
        "model__radius": "auto",
        "model__projection": {"kind": "private-pca", "dimension": 2},
        "model__allocation": {"radius": 0.05, "centre": 0.1, "spread": 0.05, "projection": 0.4, "moments": 0.4},
        "source__drop": [],
        "privacy__unit": {"person": "id", "rows": "at-most 2"},
    },
    "a frame and components out of the moments": {
        "model__radius": "auto",
        "model__projection": {"kind": "private-pca", "dimension": 3},
        "model__allocation": {"radius": 0.05, "centre": 0.1, "spread": 0.05, "moments": 0.8},
    },
    "a frame and public components": {
        "model__radius": "auto",
        "model__projection": {"kind": "public-pca", "dimension": 3, "public": "public.parquet"},
    },
    "a public radius": {"model__radius": 0.5, "model__projection": {"kind": "ron", "dimension": 3}},
    "normalised": {"model__normalise": "length", "model__projection": {"kind": "ron", "dimension": 2}, **NUMBERS},
    "normalised, every coordinate, a radius, add-remove": {
        "model__normalise": "length",
        "model__radius": 0.5,
        "model__projection": {"kind": "none"},
        "model__generator": "gaussian",
        "privacy__neighbours": "add-remove",
        **NUMBERS,
    },
    "normalised, a bought radius, zCDP, a label": {
        "columns": [*COLUMNS[:3], COLUMNS[3] | {"role": "label"}],
        "source__drop": ["id", "e"],
        "model__normalise": "length",
        "model__radius": "auto",
        "model__projection": {"kind": "ron", "dimension": 2},
        **ZCDP,
    },
    "normalised, a target, persons with two rows, the split of RON-Gauss": {
        "columns": [COLUMNS[0] | {"role": "target"}, *COLUMNS[1:3]],
        "source__drop": ["d", "e"],
        "privacy__unit": {"person": "id", "rows": "at-most 2"},
        "model__normalise": "length",
        "model__projection": {"kind": "ron", "dimension": 2},
        "model__allocation": {"radius": 0.02, "centre": 0.3, "moments": 0.68},
    },
    "only categories": {"columns": COLUMNS[3:], "source__drop": ["id", "a", "b", "c"]},
    "a fixed number of rows": {"rows": 100},
    "a copula": {"model__generator": "copula"},
    "a copula, zCDP, a label": {"columns": with_role("d", "label"), "model__generator": "copula", **ZCDP},
    "a copula, add-remove, persons with two rows": {
        "model__generator": "copula",
        "privacy__neighbours": "add-remove",
        "source__drop": [],
        "privacy__unit": {"person": "id", "rows": "at-most 2"},
    },
    "a copula, persons weighted, shares by hand": {
        "model__generator": "copula",
        "model__allocation": {"marginals": 0.3, "moments": 0.7},
        "source__drop": [],
        "privacy__unit": {"person": "id", "rows": "weight"},
    },
}
IN_SHORT = {
    "projected points beside the rows, a label",
    "projected points alone, a target, a frame, components by their share",
    "components by their share, a label",
    "components out of the moments",
    "the split of PCA-Gauss, a label",
    "gaussian",
    "a target, few directions",
    "persons weighted",
    "only categories",
    "normalised",
    "normalised, a target, persons with two rows, the split of RON-Gauss",
    "a frame, zCDP, a label, few directions",
    "a copula, zCDP, a label",
    "a copula, add-remove, persons with two rows",
}
EACH = [v if v in IN_SHORT else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS]


@pytest.mark.parametrize("variant", EACH)
def test_an_unusual_specification_is_released_and_audited(tmp_path: Path, variant: str) -> None:
    workspace = Workspace(tmp_path)
    workspace.create()
    workspace.spec_path.write_text(yaml.safe_dump(specification(**VARIANTS[variant])))
    pq.write_table(table(), workspace.landing / "rows.parquet")
    pq.write_table(table().slice(0, 500), workspace.root / "public.parquet")
    bundle = release(workspace, "2026-01")
    checks = audit_workspace(workspace)
    assert broken(checks) == []
    open_ends = [check.name.partition(": ")[2] for check in not_shown(checks)]
    assert open_ends == (["model"] if "public components" in variant else []), "public data are not in a bundle"
    assert_valid_documents(bundle)
    record = json.loads((bundle / "record.json").read_text())
    costs = [m["epsilon"] or 0.0 for m in record["privacy"]["measurements"]]
    assert sum(costs) <= 1.0 + 1e-12
    for table_file in bundle.glob("*.parquet"):
        assert record["rows"] == pq.read_table(table_file).num_rows
    assert all(check["ok"] for check in record["checks"])


@pytest.mark.parametrize(
    "variant",
    [
        "components out of the moments",
        pytest.param("components bought apart", marks=pytest.mark.slow),
        pytest.param("public components", marks=pytest.mark.slow),
        pytest.param("a frame", marks=pytest.mark.slow),
        pytest.param("a frame and components out of the moments", marks=pytest.mark.slow),
        "a frame and public components",
    ],
)
def test_principal_components_keep_the_strong_direction(tmp_path: Path, variant: str) -> None:
    workspace = Workspace(tmp_path)
    workspace.create()
    spec = specification(**VARIANTS[variant], privacy__epsilon=5.0, privacy__lifetime={"epsilon": 5.0})
    workspace.spec_path.write_text(yaml.safe_dump(spec))
    pq.write_table(table(), workspace.landing / "rows.parquet")
    pq.write_table(table().slice(0, 2000), workspace.root / "public.parquet")
    frame = pq.read_table(release(workspace, "2026-01") / "data.parquet").to_pandas()
    real = table().to_pandas()
    assert frame["a"].corr(frame["b"]) == pytest.approx(real["a"].corr(real["b"]), abs=0.1)
    assert frame["a"].std() == pytest.approx(real["a"].std(), rel=0.2)


def test_a_release_of_points_of_one_length_says_what_it_lost(tmp_path: Path) -> None:
    """No mean of a column is stated, by the report or to somebody who asks; each measurement is charged by its name."""
    workspace = Workspace(tmp_path)
    workspace.create()
    workspace.spec_path.write_text(yaml.safe_dump(specification(**VARIANTS["normalised"])))
    pq.write_table(table(), workspace.landing / "rows.parquet")
    bundle = release(workspace, "2026-01")
    record, model = (json.loads((bundle / f"{name}.json").read_text()) for name in ("record", "model"))
    assert {m["name"] for m in record["privacy"]["measurements"]} == {"radius", "centre", "moments"}
    assert any("scaled to the same length" in limit for limit in record["limits"])
    assert {column["measured"]["mean"] for column in record["utility"]["columns"]} == {None}
    assert model["frame"]["normalised"]["length"] == 1
    assert 0 < model["frame"]["normalised"]["typical"] <= 1
    with pytest.raises(NotIdentifiedError, match="brought to one length"):
        read_inference(bundle).mean("a")
