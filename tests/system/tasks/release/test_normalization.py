"""The landing suite's check of lengths: of records before they are cut to their ball, for the operator alone."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.tasks.staged import release, run_of

from dpcore.records.encoding import Encoding
from dpcore.records.schema import IntervalColumn, Kind, NominalColumn, RecordSchema
from tasks.boundary import PROGRESS
from tasks.validate import validate_landing
from tasks.workspace.folders import Workspace

WHOLE: dict[str, Any] = {"projection": {"kind": "none"}}
CENTRAL = [(50, 0.0)] * 40
"""Rows of length 0 between the bounds [0, 100] and [-1, 1]."""


def workspace_of(folder: Path, rows: list[tuple[float, float]], model: dict[str, Any]) -> Workspace:
    place = Workspace(folder)
    place.create()
    spec = {
        "name": "small",
        "source": {"path": "landing/*.csv"},
        "privacy": {"population": "people", "epsilon": 1, "lifetime": {"epsilon": 2}},
        "expected_rows": 200,
        "columns": [
            {"name": "age", "kind": "numeric", "bounds": [0, 100]},
            {"name": "score", "kind": "numeric", "bounds": [-1, 1]},
        ],
        "model": model,
        "rows": 50,
    }
    place.spec_path.write_text(yaml.safe_dump(spec))
    (place.landing / "small.csv").write_text("age,score\n" + "".join(f"{a},{b}\n" for a, b in rows))
    return place


def verdicts(place: Workspace, scratch: Path) -> list[dict[str, Any]]:
    """What is kept for the operator of one validation."""
    run = run_of(place, scratch, period="2026-01")
    validate_landing.fn(run, "small-2026-01-1")
    kept: list[dict[str, Any]] = json.loads((place.landing / "verdicts" / "small-2026-01-1.json").read_text())[
        "verdicts"
    ]
    return kept


def broken(place: Workspace, scratch: Path) -> set[tuple[str | None, str]]:
    return {(v["column"], v["rule"]) for v in verdicts(place, scratch) if not v["ok"]}


AGE, BALL = ("age", "in-bounds"), (None, "unit-ball")
CASES: dict[str, tuple[tuple[float, float], dict[str, Any], set[tuple[str | None, str]]]] = {
    "at the corner of the bounds": ((100, -1.0), WHOLE, set()),
    "out of bounds in one column, and still short": ((110, 0.0), WHOLE, {AGE}),
    "out of bounds, and longer than the ball": ((130, 0.0), WHOLE, {AGE, BALL}),
    "infinitely long": ((math.inf, 0.0), WHOLE, {AGE, BALL}),
    "longer than the radius, inside the bounds": ((100, 0.0), {**WHOLE, "radius": 0.5}, {BALL}),
    "at the radius": ((75, 0.5), {**WHOLE, "radius": 0.5}, set()),
    "longer than a radius along a projection": (
        (100, 0.0),
        {"projection": {"kind": "ron", "dimension": 1}, "radius": 0.5},
        set(),
    ),
    "longer than the ball before a radius is bought": ((130, 0.0), {**WHOLE, "radius": "auto"}, {AGE, BALL}),
    "inside the ball before a radius is bought": ((100, 1.0), {**WHOLE, "radius": "auto"}, set()),
}
"""A row beside the others, the model, and the rules that it breaks: (130 - 50) / 50 = 1.6 is above the root of 2."""


@pytest.mark.parametrize("case", CASES)
def test_one_record_decides_what_the_operator_is_told(case: str, tmp_path: Path) -> None:
    row, model, expected = CASES[case]
    assert broken(workspace_of(tmp_path / "w", [*CENTRAL, row], model), tmp_path) == expected


def test_the_verdict_says_what_it_means_and_no_number_and_no_value(tmp_path: Path) -> None:
    """One long record or thirty, of other values: the operator reads the same."""
    said: list[tuple[str, str]] = []
    for name, rows in (("one", [(130, 0.0)]), ("many", [(-977, 0.25)] * 30)):
        place = workspace_of(tmp_path / name, [*CENTRAL, *rows], WHOLE)
        heard: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record, heard=heard: heard.append(record.getMessage())  # type: ignore[method-assign]
        PROGRESS.addHandler(handler)
        try:
            kept = [v for v in verdicts(place, tmp_path) if not v["ok"]]
        finally:
            PROGRESS.removeHandler(handler)
        said.append((json.dumps(kept), "\n".join(heard)))
    assert said[0] == said[1]
    for text in said[0]:
        assert not any(sign.isdigit() for sign in text)
        assert "some encoded records lie outside the ball" in text
        assert "model.radius" in text


def test_nobody_but_the_operator_is_told(tmp_path: Path) -> None:
    """Nothing in bundle, lineage or ledger names the rule, or differs in its words."""
    place = workspace_of(tmp_path / "w", [*CENTRAL * 4, (130, 0.0)], WHOLE)
    bundle = release(place, "2026-01")
    assert broken(place, tmp_path) == {AGE, BALL}
    told = [path for path in place.root.rglob("*") if path.is_file() and place.landing not in path.parents]
    assert any(bundle in path.parents for path in told)
    for path in told:
        text = path.read_bytes()
        assert b"unit-ball" not in text, path
        assert b"longer than the ball" not in text, path


COLUMNS = RecordSchema(
    (
        IntervalColumn(name="a", kind=Kind.NUMERIC, lower=-3.0, upper=9.0, missing_level=True),
        IntervalColumn(name="b", kind=Kind.INTEGER, lower=0.0, upper=20.0, impute=4.0),
        NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=("x", "y", "z"), other=2),
    )
)


def test_a_length_is_the_norm_of_the_point_inside_the_bounds_and_grows_beyond_them() -> None:
    rng = np.random.default_rng(1)
    cells = {"a": rng.uniform(-3, 9, 50), "b": rng.integers(0, 21, 50).astype(float), "c": rng.integers(-1, 3, 50)}
    cells["a"][:5], cells["b"][5:9] = np.nan, np.nan
    encoding = Encoding(COLUMNS)
    assert np.allclose(encoding.unclipped_lengths(cells), np.linalg.norm(encoding.encode(cells), axis=1), rtol=1e-12)
    far = {"a": np.array([33.0, 1e308]), "b": np.array([10.0, -np.inf]), "c": np.array([0, 0])}
    first, last = encoding.unclipped_lengths(far)
    assert first == pytest.approx(math.sqrt((5**2 + 0 + 1) / 3))  # (33 - 3) / 6 half widths, the middle, a corner
    assert last == math.inf
