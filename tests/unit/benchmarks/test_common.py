"""What every benchmark rests on: public schemas, fixed splits, honest intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import common
from benchmarks.common import paired, summary
from benchmarks.datasets import SOURCES, DataAbsentError, data_folder, has_data, level_codes, load
from dpcore.records.encoding import Encoding
from dpcore.records.schema import IntervalColumn, NominalColumn, RecordSchema

SETS = [name for name in SOURCES if name not in ("covertype", "mnist")]  # those two take seconds to read


def test_without_data_the_error_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for named in ("", str(tmp_path / "nowhere")):
        monkeypatch.setenv("DPRELEASE_DATA", named)
        with pytest.raises(DataAbsentError, match="set DPRELEASE_DATA"):
            data_folder()
    assert not has_data("adult")
    assert has_data("digits")  # comes with scikit-learn


@pytest.mark.parametrize("name", SETS)
def test_rows_lie_in_the_public_schema_and_survive_the_way_through_cells(name: str) -> None:
    if not has_data(name):
        pytest.skip("DPRELEASE_DATA names no folder with this data set")
    data = load(name, train_rows=300, test_rows=100)
    again = data.frame(data.cells(data.train))
    for column in data.schema.columns:
        assert (again[column.name].to_numpy() == data.train[column.name].to_numpy()).all()
        if isinstance(column, NominalColumn):
            assert (level_codes(data.train, column) >= 0).all()
    features = data.features(data.train)
    assert features.min() >= -1
    assert features.max() <= 1
    assert np.linalg.norm(Encoding(data.schema).encode(data.cells(data.train)), axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("name", ["waveform40", "semeion"])
def test_splits_are_fixed_and_a_subsample_is_their_beginning(name: str) -> None:
    if not has_data(name):
        pytest.skip("DPRELEASE_DATA names no folder with this data set")
    whole, part = load(name), load(name, train_rows=50)
    assert whole.train.iloc[:50].equals(part.train)
    assert whole.test.equals(part.test)
    assert len(whole.test) == pytest.approx(0.25 * (len(whole.train) + len(whole.test)), abs=1)


def test_bounds_and_categories_are_constants_that_need_no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DPRELEASE_DATA", str(tmp_path / "nowhere"))
    for source in SOURCES.values():
        columns = RecordSchema(source.columns).columns
        assert all(isinstance(column, IntervalColumn | NominalColumn) for column in columns)


def test_an_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    found = [summary(rng.normal(size=10)) for _ in range(1_000)]
    covered = sum(interval.low <= 0 <= interval.high for interval in found)
    assert stats.binomtest(covered, 1_000, 0.95).pvalue > 1e-6


def test_a_single_run_claims_no_interval() -> None:
    assert summary([0.3]).low == -np.inf
    assert "±" not in str(summary([0.3]))


def test_a_paired_interval_forgets_what_runs_have_in_common() -> None:
    rng = np.random.default_rng(3)
    shared, gain = rng.normal(scale=100.0, size=10), rng.normal(loc=1.0, scale=0.01, size=10)
    difference = paired(shared + gain, shared)
    assert 0.9 < difference.low < difference.high < 1.1


def test_results_are_written_beside_the_plots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(common, "ROOT", tmp_path)
    curve = common.Curve("one", [1.0, 2.0], [summary([1, 2, 3]), summary([2, 3, 4])])
    path = common.write_results("table", {"curve": [curve]})
    assert '"mean": 2.0' in path.read_text()
    picture = common.write_plot("plot", {"panel": [curve]}, x="epsilon", y="score")
    assert picture.read_bytes().startswith(b"\x89PNG")
