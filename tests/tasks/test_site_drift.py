"""Drift from real measurements: the same table measured again and again raises no more alarms than stated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_report import clinic_record

from dpcore.drift import LEVEL, Verdict, compare
from dpcore.encoding import Encoding
from dpcore.generators import ClassGaussians
from dpcore.measure import Released, exact_gram, measure_gram
from dpcore.moments import NoisyMoments
from dpcore.noise import SeededNoise
from dpcore.projection import no_projection
from dpcore.utility import Measured, TableSummary, utility_report
from tasks.pages.quantities import Name, definitions, quantities
from tasks.pages.site.months import Month, comparisons
from tasks.stores.run import plan_release
from tasks.stores.spec import ReleaseSpec

MONTHS = 240
ROWS = 4000


def spec_of(**privacy: Any) -> ReleaseSpec:
    return ReleaseSpec.model_validate(
        {
            "name": "small",
            "source": {"path": "landing/*.csv"},
            "privacy": {
                "population": "people",
                "epsilon": 1,
                "lifetime": {"epsilon": 100, "delta": privacy.get("delta", 0)},
                **privacy,
            },
            "expected_rows": ROWS,
            "columns": [
                {"name": "age", "kind": "numeric", "bounds": [0, 100]},
                {"name": "far", "kind": "numeric", "bounds": [0, 100]},
                {"name": "kind", "kind": "categorical", "categories": ["a", "b", "c"], "other": "c"},
                {"name": "label", "kind": "categorical", "categories": ["no", "yes"], "other": "no", "role": "label"},
            ],
            "model": {"projection": {"kind": "none"}},
        }
    )


def table(shift: float = 0.0) -> dict[str, Any]:
    """A column near the middle of its bounds, one near their end, and levels."""
    dice = np.random.Generator(np.random.PCG64(1))
    return {
        "age": dice.uniform(20, 70, ROWS) + shift,
        "far": dice.uniform(90, 100, ROWS),
        "kind": dice.choice(3, ROWS, p=[0.7, 0.2, 0.1]).astype(np.int64),
        "label": (dice.random(ROWS) < 0.2).astype(np.int64),
    }


class Measurer:
    """Measures tables as a release does, and writes the parts of a record that are compared."""

    def __init__(self, **privacy: Any) -> None:
        self.plan = plan_release(spec_of(**privacy))
        self.encoding = Encoding(self.plan.schema)

    def records(self, cells: dict[str, Any], count: int, seed: int = 0) -> list[dict[str, Any]]:
        gram = exact_gram(iter([(cells, None)]), self.encoding, self.plan.event.layout, no_projection(self.encoding))
        return [self._record(measure_gram(gram, self.plan.event, SeededNoise(seed + i))) for i in range(count)]

    def _record(self, released: Released) -> dict[str, Any]:
        moments = NoisyMoments.from_released(released)
        measured = Measured.of(self.encoding, ClassGaussians(moments, no_projection(self.encoding)))
        utility = utility_report(measured, TableSummary(self.encoding))
        measurement = {"name": "moments", "parameters": released.event.as_json()}
        privacy = {"measurements": [measurement], "unit": "row", "neighbours": "replace-one"}
        return {"noisy_count": moments.count, "utility": utility, "privacy": privacy}


PRIVACY = [{}, {"delta": "1e-6"}, {"neighbours": "add-remove"}]


@pytest.mark.parametrize("privacy", PRIVACY, ids=["wishart", "gaussian", "add-remove"])
def test_one_table_measured_again_and_again_raises_no_more_alarms_than_stated(privacy: dict[str, Any]) -> None:
    months = [quantities(record) for record in Measurer(**privacy).records(table(), MONTHS)]
    assert len(months[0]) == 7, "rows, two means, three levels and one of two"
    pairs = [compare(one, other) for one, other in zip(months[::2], months[1::2], strict=True)]
    alarms = sum(any(c.verdict is not Verdict.NOISE for c in pair.values()) for pair in pairs)
    assert alarms <= LEVEL * len(pairs) + 5 * math.sqrt(LEVEL * len(pairs))
    for name in months[0]:
        values = np.array([month[name].value for month in months])
        stated = float(np.mean([month[name].noise for month in months]))
        assert values.std() <= 1.25 * stated, name
        assert values.std() >= 0.3 * stated, name


def test_a_change_of_the_table_is_found() -> None:
    measurer = Measurer()
    before, after = measurer.records(table(), 1)[0], measurer.records(table(shift=15.0), 1, seed=99)[0]
    verdicts = {name: c.verdict for name, c in compare(quantities(before), quantities(after)).items()}
    assert verdicts.pop(Name("age")) is Verdict.DRIFT
    assert set(verdicts.values()) == {Verdict.NOISE}


# ---------------------------------------------------------------- what is compared


def month(record: dict[str, Any], period: str) -> Month:
    columns = record["utility"]["columns"]
    return Month(period, f"small-{period}-1", columns, quantities(record), definitions(record))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return Measurer().records(table(), 1)[0]


def changed(record: dict[str, Any], **changes: Any) -> dict[str, Any]:
    first, *others = record["utility"]["columns"]
    return record | {"utility": record["utility"] | {"columns": [first | changes, *others]}}


def test_a_column_that_was_declared_otherwise_is_not_compared(record: dict[str, Any]) -> None:
    other = changed(record, synthetic={**record["utility"]["columns"][0]["synthetic"], "edges": [0.0, 120.0]})
    pair = comparisons([month(record, "2026-01"), month(other, "2026-02")])[0]
    assert pair.apart == ["age"]
    assert Name("age") not in pair.changes
    assert Name("far") in pair.changes


def test_another_unit_of_privacy_is_not_compared(record: dict[str, Any]) -> None:
    other = record | {"privacy": record["privacy"] | {"unit": "person"}}
    assert comparisons([month(record, "2026-01"), month(other, "2026-02")])[0].changes == {}


def test_a_record_that_does_not_state_its_noise_is_left_out() -> None:
    assert quantities(clinic_record()) == {}


def test_a_count_that_is_mostly_noise_is_not_divided_by(record: dict[str, Any]) -> None:
    assert quantities(record | {"noisy_count": 20.0}) == {}


def dated(record: dict[str, Any], days: float) -> dict[str, Any]:
    measured = {"mean": days, "mean_margin": 0.5, "sd": 5.0}
    column = record["utility"]["columns"][0]
    return changed(record, kind="date", measured=measured, synthetic={**column["synthetic"], "edges": [0.0, 40000.0]})


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (20454.0 + 15, 20485.0 + 15, Verdict.NOISE),  # visits: the middle of January and of February 2026
        (11000.0, 11000.0, Verdict.NOISE),  # dates of birth
        (20454.0 + 15, 20485.0 - 300, Verdict.DRIFT),
    ],
)
def test_dates_may_go_with_the_calendar_or_stay(
    record: dict[str, Any], before: float, after: float, verdict: Verdict
) -> None:
    quiet = record | {"noisy_count": 1e7}  # the noise of the count moves a mean that is far from the middle
    pair = comparisons([month(dated(quiet, before), "2026-01"), month(dated(quiet, after), "2026-02")])[0]
    assert pair.changes[Name("age")].verdict is verdict
