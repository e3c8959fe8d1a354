"""Releases of projected rows: the same records as points, described, projected again by analysts, and audited."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.tasks.bundle.documents import assert_valid_documents
from support.tasks.release.variants import specification, table, with_role
from support.tasks.staged import release

from dpcore.errors import SpecError
from tasks.answers.projecting import project_rows
from tasks.audit import audit_workspace, broken
from tasks.audit.redrawn_rows import data_faults
from tasks.bundle.staging import DATA, PROJECTED
from tasks.lineage.graph import lineage_graph
from tasks.release.approval import approve
from tasks.spec import parse_spec
from tasks.spec.plan import plan_release
from tasks.workspace.folders import Workspace

RANDOM = {"kind": "ron", "dimension": 3}


def released(root: Path, **changes: Any) -> tuple[Workspace, Path]:
    workspace = Workspace(root)
    workspace.create()
    workspace.spec_path.write_text(yaml.safe_dump(specification(**changes)))
    pq.write_table(table(), workspace.landing / "rows.parquet")
    return workspace, release(workspace, "2026-01")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Path]:
    """A release with both tables and a label, and with little noise, so that hardly a point leaves its bounds."""
    privacy = {"privacy__epsilon": 20.0, "privacy__lifetime": {"epsilon": 20.0}}
    root = tmp_path_factory.mktemp("both")
    model = {"model__projection": RANDOM, "model__radius": 1, "model__output": "both"}
    return released(root, columns=with_role("d", "label"), **model, **privacy)


def json_in(bundle: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((bundle / name).read_text())
    return content


def test_both_tables_hold_the_same_rows_in_the_same_order(both: tuple[Workspace, Path]) -> None:
    original, points = (pq.read_table(both[1] / name) for name in (DATA, PROJECTED))
    assert points.column_names == ["c1", "c2", "c3", "d"]
    assert original.column("d").to_pylist() == points.column("d").to_pylist()
    again = project_rows(both[1], original).to_pandas()
    alike = [np.corrcoef(again[name], points.column(name).to_numpy())[0, 1] for name in ("c1", "c2", "c3")]
    assert sum(alike) > 6 * math.sqrt(3 / original.num_rows), "rows in another order would be unrelated"


def test_the_points_follow_the_released_moments(both: tuple[Workspace, Path]) -> None:
    frame, model = pq.read_table(both[1] / PROJECTED).to_pandas(), json_in(both[1], "model.json")
    levels = json_in(both[1], "record.json")["model"]["classes"]
    for level, moments in zip(levels, model["classes"], strict=True):
        is_mine = frame["d"] == level if level in ("x", "y", "z") else frame["d"].isna()
        mine = frame.loc[is_mine, ["c1", "c2", "c3"]].to_numpy()
        mean, covariance = np.array(moments["mean"]), np.array(moments["covariance"])
        spread = np.diag(covariance)
        errors = np.sqrt((np.outer(spread, spread) + covariance**2) / len(mine))  # of a sample of this size
        assert np.all(np.abs(mine.mean(axis=0) - mean) <= 7 * np.sqrt(spread / len(mine)))
        assert np.all(np.abs(np.cov(mine.T) - covariance) <= 7 * errors)


def test_codebook_report_registry_and_lineage_describe_the_points(both: tuple[Workspace, Path]) -> None:
    workspace, bundle = both
    assert_valid_documents(bundle)
    book = json_in(bundle, "codebook.json")
    assert book["table"] == DATA
    assert book["projected"]["table"] == PROJECTED
    assert [c["name"] for c in book["projected"]["columns"]] == ["c1", "c2", "c3", "d"]
    assert book["projected"]["columns"][0]["bounds"] == [-1.0, 1.0]
    assert any("projected.parquet" in words for words in book["do_not_trust"])
    assert "data.parquet and projected.parquet" in (bundle / "report.html").read_text()
    assert "also as points along the projection" in (bundle / "registry.yaml").read_text()
    graph = lineage_graph(workspace, bundle.name)
    assert {"synthetic-table", "projected-table"} <= {node["name"] for node in graph["nodes"]}


def test_columns_of_points_come_from_every_projected_column(both: tuple[Workspace, Path]) -> None:
    events = [json.loads(line) for line in (both[1] / "lineage.ndjson").read_text().splitlines()]
    (outputs,) = [e["outputs"] for e in events if e["eventType"] == "COMPLETE" and e["job"]["name"].endswith(".decode")]
    (points,) = [one for one in outputs if one["name"].endswith("projected-table")]
    sources = points["facets"]["columnLineage"]["fields"]
    assert {field["field"] for field in sources["c1"]["inputFields"]} == {"a", "b", "c", "e"}
    assert {field["field"] for field in sources["d"]["inputFields"]} == {"d"}
    assert points["outputFacets"]["outputStatistics"]["rowCount"] == pq.read_metadata(both[1] / PROJECTED).num_rows


def test_the_audit_draws_the_points_again_and_names_their_table(both: tuple[Workspace, Path]) -> None:
    checks = audit_workspace(both[0])
    assert broken(checks) == []
    (rows,) = [check for check in checks if check.name.endswith(": rows")]
    assert "and as projected points: identical" in rows.detail


class Claimed:
    """What the step over data files sees of a bundle, with the files that somebody put there."""

    def __init__(self, folder: Path, output: str | None) -> None:
        self.folder = folder
        self.record = {"rows": pq.read_metadata(next(folder.glob("*.parquet"))).num_rows}
        columns = pq.read_schema(folder / DATA).names if (folder / DATA).exists() else []
        self.record["specification"] = {"columns": [{"name": n} for n in columns], "model": {"output": output}}

    def by_its_sampler(self, find: Any) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("output", "removed", "fault"),
    [
        (None, None, "projected.parquet is no table of this release"),
        ("projected", None, "data.parquet is no table of this release"),
        ("both", PROJECTED, "projected.parquet is missing"),
        ("both", DATA, "data.parquet is missing"),
        ("both", None, None),
    ],
)
def test_a_table_too_many_or_too_few_is_a_fault(
    both: tuple[Workspace, Path], tmp_path: Path, output: str | None, removed: str | None, fault: str | None
) -> None:
    """A table of raw rows must not pass as the one that the specification does not ask for."""
    shutil.copytree(both[1], tmp_path / "bundle")
    if removed:
        (tmp_path / "bundle" / removed).unlink()
    found = data_faults(Claimed(tmp_path / "bundle", output))  # type: ignore[arg-type]
    assert found == ([fault] if fault else [])


def test_projected_rows_alone_publish_no_original_column(tmp_path: Path) -> None:
    projection = {"kind": "private-pca", "dimension": 2}
    workspace, bundle = released(tmp_path, model__projection=projection, model__output="projected", model__radius=0.5)
    assert not (bundle / DATA).exists()
    assert pq.read_schema(bundle / PROJECTED).names == ["c1", "c2"]
    book, record = json_in(bundle, "codebook.json"), json_in(bundle, "record.json")
    assert book["table"] is None
    assert "data.parquet" not in (bundle / "SHA256SUMS").read_text()
    assert any("does not publish" in words for words in record["limits"])
    assert "data.parquet" not in (bundle / "report.html").read_text()
    assert broken(audit_workspace(workspace)) == []
    other = pa.table({name: table().column(name) for name in ("a", "b", "c", "d", "e")})
    assert project_rows(bundle, other).column_names == ["c1", "c2"]


def test_a_changed_point_breaks_the_rows(both: tuple[Workspace, Path], tmp_path: Path) -> None:
    from tasks.audit.tables import read_table
    from tasks.bundle.rebuild import rebuild

    record, model = json_in(both[1], "record.json"), json_in(both[1], "model.json")
    seeds = {"projection": record["model"]["projection"]["seed"], "sampling": record["model"]["sampling_seed"]}
    rebuilt = rebuild(record, model, seeds)
    points = pq.read_table(both[1] / PROJECTED)
    first = points.column("c2").to_numpy().copy()
    first[7] += 1e-3
    changed = tmp_path / PROJECTED
    index = points.column_names.index("c2")
    pq.write_table(points.set_column(index, points.schema.field("c2"), pa.array(first)), changed, compression="zstd")
    (form,) = [one for one in rebuilt.tables if one.file == PROJECTED]
    found = read_table(changed, rebuilt, form, exact=True, sample=None, progress=lambda *_: None)
    assert dict(found.odd) == {"c1": 0, "c2": 1, "c3": 0, "d": 0}
    assert not found.identical


def test_points_that_wait_are_published_as_they_were_sealed_and_their_columns_told(tmp_path: Path) -> None:
    workspace, _ = released(tmp_path, model__projection=RANDOM, model__output="projected", approve="required")
    bundle, _, _ = approve(workspace, "odd-2026-01-1", who="steward", reason="fine")
    assert {path.name for path in bundle.glob("*.parquet")} == {PROJECTED}
    assert broken(audit_workspace(workspace)) == []
    last = [json.loads(line) for line in workspace.lineage_path.read_text().splitlines()][-1]
    (published,) = last["outputs"]
    fields = published["facets"]["columnLineage"]["fields"]
    assert list(fields) == ["c1", "c2", "c3"]
    assert {source["field"] for source in fields["c1"]["inputFields"]} == {"a", "b", "c", "d", "e"}


# ---- what is refused ---------------------------------------------------------------------------------------------

NAMED_LIKE_A_COORDINATE = [
    {**column, "name": "c1"} if column["name"] == "d" else column for column in with_role("d", "label")
]


NUMBERS_ALONE = [{"name": name, "kind": "numeric", "bounds": [0, 1]} for name in "abcd"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"model__generator": "copula"}, "output-without-projection"),
        ({"model__projection": {"kind": "none"}}, "output-without-projection"),
        ({"columns": NAMED_LIKE_A_COORDINATE, "model__projection": RANDOM}, "output-name-taken"),
        ({"columns": NUMBERS_ALONE, "model__projection": RANDOM, "model__normalise": "length"}, "output-normalised"),
        (
            {
                "columns": with_role("d", "label"),
                "model__projection": RANDOM,
                "checks": {"accuracy": {"budget": 0.1}},
            },
            "output-checks",
        ),
    ],
)
def test_projected_rows_that_cannot_be_are_refused_with_a_hint(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(SpecError) as refused:
        plan_release(parse_spec(yaml.safe_dump(specification(**changes, model__output="projected"))))
    assert (refused.value.rule, refused.value.where) == (rule, "model.output")
    assert refused.value.hint


def test_rows_that_lack_a_column_or_a_release_without_projection_are_refused(
    both: tuple[Workspace, Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="columns are missing: e"):
        project_rows(both[1], pq.read_table(both[1] / DATA).drop_columns(["e"]))
    assert "d" not in project_rows(both[1], pq.read_table(both[1] / DATA).drop_columns(["d"])).column_names
    assert project_rows(both[1], pq.read_table(both[1] / DATA).slice(0, 0)).num_rows == 0
    model = json_in(both[1], "model.json") | {"projection": None}
    shutil.copytree(both[1], tmp_path / "bundle")
    (tmp_path / "bundle" / "model.json").chmod(0o644)
    (tmp_path / "bundle" / "model.json").write_text(json.dumps(model))
    with pytest.raises(ValueError, match="no projection"):
        project_rows(tmp_path / "bundle", pq.read_table(both[1] / DATA))


def test_the_lines_of_the_guide_project_as_the_library_does(tmp_path: Path) -> None:
    columns = [{"name": n, "kind": "numeric", "bounds": [-10, 10]} for n in ("a", "b")]
    _, bundle = released(
        tmp_path,
        columns=columns,
        source__drop=["id", "c", "d", "e"],
        model__projection={"kind": "ron", "dimension": 1},
        model__output="both",
        model__radius="auto",
    )
    guide = (Path(__file__).parents[4] / "deployments" / "guides" / "analyst.md").read_text()
    (lines,) = [
        part.split("```")[0] for part in guide.split("```python\n") if 'model["coordinates"]' in part.split("```")[0]
    ]
    rows = table().select(["a", "b"]).to_pandas()
    known: dict[str, Any] = {"np": np, "json": json, "bundle": bundle, "rows": rows}
    known["codebook"] = json_in(bundle, "codebook.json")
    exec(lines, known)  # noqa: S102  lines of the project's own guide
    assert known["points"][:, 0] == pytest.approx(project_rows(bundle, table()).column("c1").to_numpy())
