"""The runner gives verdicts and lets nothing else out."""

from __future__ import annotations

import gc
import logging
import tempfile
import traceback
import warnings
import weakref

import pandas as pd
import pytest

from dpcore.errors import StageFailedError
from dpcore.records.schema import IntervalColumn, Kind, RecordSchema
from expectations.landing import ENCODED_NORM, cell_suite
from expectations.quiet import quietly, silent_context
from expectations.verdicts import SuiteRunner, Verdict, neutral_name, validate

SECRET_NUMBER = 123456.789
SECRET_TEXT = "SECRET-TEXT"  # noqa: S105
SCHEMA = RecordSchema((IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0, upper=120),))


class Hostile:
    """A cell whose comparison fails with the cell's own text."""

    def _refuse(self, _: object) -> bool:
        raise ValueError(SECRET_TEXT)

    __ge__ = __le__ = __gt__ = __lt__ = _refuse

    def __repr__(self) -> str:
        return SECRET_TEXT


LEAKY_COLUMNS = {
    "a number out of bounds": pd.Series([1.0, SECRET_NUMBER]),
    "strings where floats are expected": pd.Series([SECRET_TEXT, "2"]),
    "mixed objects": pd.Series([1.0, SECRET_TEXT], dtype=object),
    "cells whose errors quote them": pd.Series([Hostile(), Hostile()], dtype=object),
}


@pytest.fixture(scope="module")
def runner() -> SuiteRunner:
    return SuiteRunner(cell_suite(SCHEMA))


def cells(age: object) -> pd.DataFrame:
    return pd.DataFrame({"age": age, ENCODED_NORM: 1.0})


def has_secret(text: str) -> bool:
    return SECRET_TEXT in text or str(SECRET_NUMBER) in text


@pytest.mark.parametrize("age", LEAKY_COLUMNS.values(), ids=LEAKY_COLUMNS.keys())
def test_a_failing_or_erring_rule_says_only_that_it_failed(age, runner, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    verdicts = runner.validate(cells(age))
    assert verdicts[0] == Verdict("age", "in-bounds", ok=False)
    assert not has_secret(repr(verdicts))
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("name", "result_format"),
    [("a number out of bounds", "BASIC"), ("cells whose errors quote them", "BOOLEAN_ONLY")],
)
def test_the_leak_cases_have_teeth(name, result_format):
    """What the runner throws away does carry the planted values."""
    with quietly():
        source = silent_context().data_sources.add_pandas("frames")
        whole = source.add_dataframe_asset("frame").add_batch_definition_whole_dataframe("whole")
        frame = cells(LEAKY_COLUMNS[name])
        batch = whole.get_batch({"dataframe": frame.set_axis(map(neutral_name, frame.columns), axis=1)})
        result = batch.validate(cell_suite(SCHEMA), result_format=result_format)
        assert has_secret(repr(result.results))


def test_a_fault_is_raised_again_without_its_text_and_context(runner):
    with pytest.raises(StageFailedError) as caught:
        runner.validate([SECRET_TEXT])
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert not has_secret("".join(traceback.format_exception(caught.value)))


def test_a_runner_serves_again_after_a_fault(runner):
    with pytest.raises(StageFailedError):
        runner.validate(None)
    assert all(verdict.ok for verdict in runner.validate(cells([1.0])))


def test_a_runner_keeps_no_frame(runner):
    frame = cells([1.0, 2.0])
    kept = weakref.ref(frame)
    runner.validate(frame)
    del frame
    gc.collect()
    assert kept() is None


def test_one_runner_judges_each_frame_on_its_own(runner):
    ages = [[1.0], [SECRET_NUMBER], [3.0]]
    assert [runner.validate(cells(age))[0].ok for age in ages] == [True, False, True]


def test_expectations_of_one_rule_give_one_verdict():
    unit_ball = [v for v in validate(cells([1.0]), cell_suite(SCHEMA)) if v.rule == "unit-ball"]
    assert unit_ball == [Verdict(None, "unit-ball", ok=True)]


def test_a_missing_column_counts_as_not_ok(runner):
    assert not any(verdict.ok for verdict in runner.validate(pd.DataFrame({"other": [1.0]})))


def test_the_library_is_mute_while_it_runs(capfd, caplog):
    caplog.set_level(logging.DEBUG)
    with quietly():
        logging.getLogger("great_expectations.validator.validation_graph").error(SECRET_TEXT)
        logging.getLogger("great_expectations.data_context.types.base").info(SECRET_TEXT)  # has its own level
        warnings.warn(SECRET_TEXT, stacklevel=1)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_the_context_has_no_analytics_no_progress_bars_and_no_sites():
    with quietly():
        variables = silent_context().variables
    assert variables.analytics_enabled is False
    assert variables.progress_bars["globally"] is False
    assert not variables.data_docs_sites


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    validate(cells([SECRET_NUMBER]), cell_suite(SCHEMA))
    assert list(tmp_path.iterdir()) == []
