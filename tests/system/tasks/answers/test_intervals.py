"""Intervals from a published bundle: its record and model are enough, whatever was measured."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.tasks.release.variants import specification, table, with_role
from support.tasks.staged import release

from dpcore.inference.functionals import NotIdentifiedError
from dpcore.inference.intervals import Estimand, Interval
from dpcore.inference.release_estimates import ReleaseInference
from dpcore.measure import Released
from dpcore.measurements.noise_law import noise_facts
from tasks.answers.intervals import inference_of, read_inference
from tasks.workspace.folders import Workspace

DAY = {"name": "day", "kind": "date", "bounds": ["2020-01-01", "2030-01-01"]}
NONE = {"model__projection": {"kind": "none"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "a label, a date": {"columns": [*with_role("d", "label"), DAY], "model__generator": "mixture", **NONE},
    "a label as a feature": {"columns": with_role("d", "label"), "model__generator": "gaussian", **NONE},
    "every coordinate, rotated": {"model__generator": "gaussian", "model__projection": {"kind": "ron", "dimension": 8}},
    "components bought apart": {
        "model__projection": {"kind": "private-pca", "dimension": 2},
        "model__allocation": {"projection": 0.4, "moments": 0.6},
    },
    "components out of the moments": {
        "model__projection": {"kind": "private-pca", "dimension": 3},
        "model__allocation": {"moments": 1},
    },
    "the mean apart": {"model__generator": "gaussian", "model__allocation": {"mean": 0.3, "moments": 0.7}, **NONE},
    "histograms": {"columns": with_role("d", "label"), "model__generator": "copula", **NONE},
    "persons": {
        "source__drop": [],
        "privacy__unit": {"person": "id", "rows": "at-most 2"},
        "model__generator": "gaussian",
        **NONE,
    },
}
IN_SHORT = {"a label, a date", "histograms"}
EACH = [v if v in IN_SHORT else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS]


def rows() -> pa.Table:
    days = np.datetime64("2024-01-01") + np.arange(8000) % 100
    return table().append_column("day", pa.array(days.astype("datetime64[D]")))


def released(root: Path, changes: dict[str, Any]) -> Path:
    workspace = Workspace(root)
    workspace.create()
    spec = specification(**({"model__radius": 1} | changes))
    spec["source"]["drop"] += [] if DAY in spec["columns"] else ["day"]
    workspace.spec_path.write_text(yaml.safe_dump(spec))
    pq.write_table(rows(), workspace.landing / "rows.parquet")
    return release(workspace, "2026-01")


def near(interval: Interval, truth: float) -> bool:
    """Within three times the interval: noise goes beyond once in some hundred thousand releases."""
    assert interval.estimand is Estimand.TABLE
    assert 0 < interval.width < np.inf
    return interval.low - interval.width <= truth <= interval.high + interval.width


@pytest.mark.parametrize("variant", EACH)
def test_a_bundle_s_record_and_model_are_enough_for_intervals(tmp_path: Path, variant: str) -> None:
    bundle = released(tmp_path, VARIANTS[variant])
    inference, truth = read_inference(bundle), rows()
    of_table = {"estimand": Estimand.TABLE}
    for name in ("a", "c"):
        assert near(inference.mean(name, **of_table), float(np.mean(truth[name].to_numpy())))
    gaps = truth["d"].null_count / len(truth)
    assert near(inference.proportion("d", "(missing)", **of_table), gaps)
    assert near(inference.proportion("e", True, **of_table), float(np.mean(truth["e"].to_numpy(zero_copy_only=False))))
    if variant == "a label, a date":
        own = truth.filter(pa.compute.equal(truth["d"], "x"))
        assert near(inference.mean("a", given={"d": "x"}, **of_table), float(np.mean(own["a"].to_numpy())))
        middle = float(np.mean(truth["day"].to_numpy().astype(int)))
        assert near(inference.mean("day", **of_table), middle), "dates are days since 1970"
        assert date(1970, 1, 1).toordinal() + inference.mean("day").low < date(2030, 1, 1).toordinal()
    if variant == "histograms":
        with pytest.raises(NotIdentifiedError, match="groups of values"):
            inference.regression("a", ["b"])
        return
    slope = np.polyfit(truth["b"].to_numpy(), truth["a"].to_numpy(), 1)[0]
    assert near(inference.regression("a", ["b"], **of_table)["b"], float(slope))


def test_few_random_directions_know_no_column(tmp_path: Path) -> None:
    changes = {"model__projection": {"kind": "ron", "dimension": 3}, "model__generator": "gaussian"}
    inference = read_inference(released(tmp_path, changes))
    for name in ("a", "b", "c"):
        with pytest.raises(NotIdentifiedError, match="leaves a part of it out"):
            inference.mean(name)


def test_the_record_says_how_noisy_each_number_of_the_model_is(published: Path) -> None:
    bundle = Workspace(published).bundle("small", "small-2026-01-1")
    record, model = (json.loads((bundle / name).read_text()) for name in ("record.json", "model.json"))
    (measurement,) = record["privacy"]["measurements"]
    event = Released.from_json(model["measurements"]["moments"]).event
    assert measurement["noise"] == noise_facts(event)
    assert measurement["noise"]["law"] == "wishart-difference-trace"
    variances = measurement["noise"]["covariance"]
    assert variances["diagonal"] > variances["off_diagonal"] > 0 > variances["diagonals_of_a_block"]
    assert isinstance(inference_of(record, model), ReleaseInference)
