"""Faults in the columns of landing files: all at once, and the same that the suites of validation find."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tasks.staged import run_of

from dpcore.errors import LandingError
from tasks.landing.column_faults import column_faults, require_none
from tasks.landing.datasets import Landing
from tasks.landing.structure import require_shape
from tasks.release.early_refusals import require_releasable
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

SPEC = """
name: small
source: {path: landing/*, drop: [dropped]}
privacy: {population: people, epsilon: 1, lifetime: {epsilon: 12}, unit: {person: who, rows: at-most 2}}
expected_rows: 100
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: sex, kind: categorical, categories: [f, m]}
  - {name: ill, kind: boolean}
"""
WHOLE = {"who": ["a"], "age": [41.0], "sex": ["f"], "ill": [True]}
FILES = {
    "nothing is wrong": ([WHOLE], []),
    "a dropped column is there": ([WHOLE | {"dropped": [1]}], []),
    "everything is wrong": (
        [{"who": ["a"], "age": ["x"], "ill": [1.5], "planted": [1]}],
        [("column-missing", "sex"), ("column-undeclared", None), ("column-type", "age"), ("column-type", "ill")],
    ),
    "the person is missing": ([{k: v for k, v in WHOLE.items() if k != "who"}], [("column-missing", "who")]),
    "two files have faults of their own": (
        [WHOLE | {"age": ["x"]}, WHOLE | {"ill": [1.5]}],
        [("column-type", "age"), ("column-type", "ill")],
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_all_faults_are_found_and_validation_finds_the_same(tmp_path: Path, case: str):
    files, faults = FILES[case]
    (tmp_path / "release.yaml").write_text(SPEC)
    paths = [tmp_path / f"{number}.parquet" for number in range(len(files))]
    for path, columns in zip(paths, files, strict=True):
        pq.write_table(pa.table(columns), path)
    landing = Landing(tuple(paths), load_spec(tmp_path / "release.yaml"), "source.path")
    assert list(column_faults(landing)) == faults
    assert _words(lambda: require_none(column_faults(landing))) == _words(lambda: require_shape(landing))
    words = _words(lambda: require_shape(landing))
    assert (words is None) is (not faults)
    assert "planted" not in str(words)


def _words(check) -> set[str] | None:
    """What a check refuses, part by part."""
    try:
        check()
    except LandingError as error:
        return {*error.message.split("; "), *error.where.split(", "), *error.hint.split("; ")}
    return None


def test_a_period_that_is_released_is_not_looked_at_again(workspace: Workspace):
    (workspace.landing / "small-2026-02.csv").write_text("other\n1\n")

    def asked(**request: str) -> None:
        require_releasable(run_of(workspace, workspace.vault, **request).planned, workspace)

    asked(period="2026-02")
    with pytest.raises(LandingError):
        asked(period="2026-02", supersedes="small-2026-02-1", reason="other data")
