"""The comparison of releases with and without RON-Gauss's pre-processing scores what it says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.datasets import Dataset
from benchmarks.papers.ron_gauss.normalisation import METRICS, PAIRS, release_rows, scores
from dpcore.records.schema import IntervalColumn, Kind, NominalColumn, RecordSchema, Role

SCHEMA = RecordSchema(
    (
        *(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(4)),
        NominalColumn(name="class", kind=Kind.CATEGORICAL, levels=("a", "b"), role=Role.LABEL),
    )
)


def table(rows: int) -> pd.DataFrame:
    rng = np.random.Generator(np.random.PCG64(rows))
    classes = rng.integers(0, 2, rows)
    numbers = np.clip(0.4 * classes[:, None] - 0.2 + 0.2 * rng.standard_normal((rows, 4)), -1, 1)
    return pd.DataFrame({f"x{i}": numbers[:, i] for i in range(4)} | {"class": np.array(["a", "b"])[classes]})


DATA = Dataset("invented", SCHEMA, table(2_000), table(500))


def test_the_rows_themselves_have_no_error_and_train_good_models() -> None:
    found = scores(DATA, DATA.features(DATA.train), DATA.outcomes(DATA.train))
    assert set(found) == set(METRICS)
    assert [found[error] for error in METRICS[2:]] == pytest.approx([0, 0, 0], abs=1e-12)
    assert min(found["LR"], found["GNB"]) > 0.9


def test_each_pair_differs_in_the_length_of_points_alone() -> None:
    for before, after in PAIRS:
        assert (before.normalise, after.normalise) == (False, True)
        assert before.radius == after.radius
        for release in (before, after):
            rows, classes = release_rows(DATA, release, "5eed")
            assert rows.shape == (2_000, 4)
            assert set(classes) <= {0, 1}


def test_rows_of_a_single_class_score_its_share() -> None:
    rows = DATA.features(DATA.train)
    found = scores(DATA, rows, np.zeros(len(rows), dtype=np.int64))
    assert found["LR"] == found["GNB"] == pytest.approx(float(np.mean(DATA.outcomes(DATA.test) == 0)))
