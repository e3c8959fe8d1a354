"""Verdicts on data: which rule held for which column, and nothing else.

A verdict never carries a value, a count or an error's text, so that private data
may be validated without anything of them leaving this room.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpcore.errors import StageFailedError
from expectations.quiet import quietly, silent_context

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations import ExpectationSuite
    from great_expectations.core.batch_manager import BatchManager


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rule held for a column; `column` is None where the rule is about the whole table."""

    column: str | None
    rule: str
    ok: bool


def label(column: str | None, rule: str) -> dict[str, str | None]:
    """The `meta` of an expectation, by which its result is recognised."""
    return {"column": column, "rule": rule}


def neutral_name(column: str) -> str:
    """Return the name under which a column is validated.

    Great Expectations looks names up without regard to case, and would take one column for another.
    """
    return column.encode("utf-8", "surrogatepass").hex()


class SuiteRunner:
    """A suite ready to validate one frame after another; keeps no frame.

    The suite names columns by `neutral_name`.

    Expectations with the same column and rule give one verdict, which is ok only
    if all of them hold. One that errors or goes unreported counts as not ok.

    Raises: StageFailedError, with the fault's type and without its text.
    """

    def __init__(self, suite: ExpectationSuite) -> None:
        """Sets up the one context and the one source that all frames go through."""
        self._suite = suite
        self._wanted = Counter(_key(expectation.meta) for expectation in suite.expectations)
        with quietly():
            source = silent_context().data_sources.add_pandas("frames")
            self._whole = source.add_dataframe_asset("frame").add_batch_definition_whole_dataframe("whole")

    def validate(self, frame: pd.DataFrame) -> tuple[Verdict, ...]:
        """The verdicts on one frame, in the order of the suite."""
        fault = None
        try:
            held = self._held(frame)
        except Exception as error:  # noqa: BLE001 - whatever it is, its text may quote cells
            fault = type(error).__name__
        if fault is not None:  # raised out here, so that the error has no __context__
            raise StageFailedError("validate", fault, "great_expectations")
        return tuple(Verdict(*key, ok=held[key] == times) for key, times in self._wanted.items())

    def _held(self, frame: pd.DataFrame) -> Counter[tuple[str | None, str]]:
        """How many expectations of each column and rule succeeded."""
        with quietly():
            batch = self._whole.get_batch({"dataframe": frame.set_axis(map(neutral_name, frame.columns), axis=1)})
            try:
                results = batch.validate(self._suite, result_format="BOOLEAN_ONLY").results
            finally:
                _forget(batch.data.execution_engine.batch_manager)
        return Counter(_key(result.expectation_config.meta) for result in results if result.success)


def validate(frame: pd.DataFrame, suite: ExpectationSuite) -> tuple[Verdict, ...]:
    """The verdicts of a suite on one frame."""
    return SuiteRunner(suite).validate(frame)


def _forget(batches: BatchManager) -> None:
    """Drops the rows that Great Expectations would hold until the next frame comes."""
    batches.reset_batch_cache()
    batches.batch_data_cache.clear()


def _key(meta: dict[str, Any]) -> tuple[str | None, str]:
    return meta["column"], meta["rule"]
