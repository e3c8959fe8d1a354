"""Drift from real measurements: the same table measured again and again raises no more alarms than stated."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.dpcore.samplers import seed_the_noise
from support.tasks.report.pages import clinic_record

from dpcore.estimators import gaussian_copula
from dpcore.estimators.gaussian_copula import measure_copula
from dpcore.evaluation.copula_fit import measured_summary
from dpcore.evaluation.table_summary import TableSummary
from dpcore.evaluation.utility import MeasuredSummary, utility_report
from dpcore.measure import PrivateGram, Released, exact_gram, measure_gram
from dpcore.measurements.frame_measurements import measure_frame, measurement_inputs
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import (
    Projection,
    measured_coordinates,
    no_projection,
    principal_projection,
    private_projection,
    ron_projection,
)
from dpcore.mechanisms.base import GramEvent
from dpcore.noise.sources import SeededNoise
from dpcore.records.encoding import Encoding
from dpcore.series.drift import LEVEL, DriftVerdict, compare_quantities
from dpcore.synthesis.generators import ClassGaussians
from tasks.report.quantities import LeftOut, Name, definitions, left_out, quantities
from tasks.site.months import Month, comparisons
from tasks.spec import ReleaseSpec
from tasks.spec.plan import plan_release

MONTHS = 240
ROWS = 4000


def spec_of(generator: str = "mixture", radius: str | int = 1, **privacy: Any) -> ReleaseSpec:
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
            "model": {"projection": {"kind": "none"}, "generator": generator, "radius": radius},
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

    def __init__(self, spec: ReleaseSpec) -> None:
        self.plan = plan_release(spec)
        self.encoding = Encoding(self.plan.schema)

    def records(self, cells: dict[str, Any], count: int, seed: int = 0) -> list[dict[str, Any]]:
        """One table, released again and again."""
        gram = self._gram(cells, self.plan.event, no_projection(self.encoding))
        assert self.plan.projection == "none"
        return [
            self._record(measure_gram(gram, self.plan.event, SeededNoise(seed + i)), no_projection(self.encoding))
            for i in range(count)
        ]

    def record(self, cells: dict[str, Any], seed: int) -> dict[str, Any]:
        """One table, released under the plan's projection."""
        plan, encoding, noise = self.plan, self.encoding, SeededNoise(seed)
        projection = no_projection(encoding)
        if plan.projection == "ron":
            projection = ron_projection(encoding, plan.dimension, str(seed))
        elif plan.projection == "public-pca":
            public = encoding.encode(cells)  # whatever is public: here only what is compared matters
            mean, covariance = public.mean(axis=0), np.cov(public.T)
            projection = principal_projection(
                "public-pca", encoding, mean=mean, covariance=covariance, dimension=plan.dimension
            )
        elif plan.projection_event is not None:
            where = measured_coordinates(plan.projection_event, encoding)
            first = measure_gram(self._gram(cells, plan.projection_event, where), plan.projection_event, noise)
            projection = private_projection(first, encoding, plan.dimension)
        if plan.frame_events:
            drawn = partial(self._framing, cells, noise)
            projection = measure_frame(projection, drawn, whole_mean=plan.frame_knows_mean)
        released = measure_gram(self._gram(cells, plan.event, projection), plan.event, noise)
        if plan.reuses_gram:
            projection = private_projection(released, encoding, plan.dimension)
        return self._record(released, projection)

    def grouped_record(self, cells: dict[str, Any]) -> dict[str, Any]:
        """One table, released by histograms and the Gram of their groups."""
        copula = measure_copula(cells, self.plan)
        measured = measured_summary(self.encoding, copula.moments, copula.projection)
        return self._described(measured, copula.moments, copula.projection)

    def _framing(self, cells: dict[str, Any], noise: SeededNoise, name: str, seen: Projection) -> Released:
        event, (encoding, projection) = self.plan.frame_events[name], measurement_inputs(name, self.encoding, seen)
        return measure_gram(exact_gram(iter([(cells, None)]), encoding, event.layout, projection), event, noise)

    def _gram(self, cells: dict[str, Any], event: GramEvent, projection: Projection) -> PrivateGram:
        return exact_gram(iter([(cells, None)]), self.encoding, event.layout, projection)

    def _record(self, released: Released, projection: Projection) -> dict[str, Any]:
        moments = NoisyMoments.from_released(released, projection.basis() if self.plan.reuses_gram else None)
        measured = MeasuredSummary.of(self.encoding, ClassGaussians(moments, projection))
        return self._described(measured, moments, projection)

    def _described(self, measured: MeasuredSummary, moments: NoisyMoments, projection: Projection) -> dict[str, Any]:
        utility = utility_report(measured, TableSummary(self.encoding))
        events = {name: event.as_json() for name, event in self.plan.events.items()}
        measurements = [{"name": name, "parameters": event} for name, event in events.items()]
        privacy = {"measurements": measurements, "unit": "row", "neighbours": "replace-one"}
        shape = {"kind": projection.kind, "dimension": self.plan.dimension, "encoded_width": self.encoding.width}
        return {"noisy_count": moments.count, "utility": utility, "privacy": privacy, "model": {"projection": shape}}


PRIVACY = [{}, {"delta": "1e-6"}, {"neighbours": "add-remove"}]


@pytest.mark.parametrize("privacy", PRIVACY, ids=["wishart", "gaussian", "add-remove"])
def test_one_table_measured_again_and_again_raises_no_more_alarms_than_stated(privacy: dict[str, Any]) -> None:
    months = [quantities(record) for record in Measurer(spec_of(**privacy)).records(table(), MONTHS)]
    assert len(months[0]) == 7, "rows, two means, three levels and one of two"
    pairs = [compare_quantities(one, other) for one, other in zip(months[::2], months[1::2], strict=True)]
    alarms = sum(any(c.verdict is not DriftVerdict.NOISE for c in pair.values()) for pair in pairs)
    assert alarms <= LEVEL * len(pairs) + 5 * math.sqrt(LEVEL * len(pairs))
    for name in months[0]:
        values = np.array([month[name].value for month in months])
        stated = float(np.mean([month[name].noise for month in months]))
        assert values.std() <= 1.25 * stated, name
        assert values.std() >= 0.3 * stated, name


@pytest.mark.parametrize("privacy", PRIVACY, ids=["laplace", "gaussian", "add-remove"])
def test_histograms_measured_again_and_again_raise_no_more_alarms_than_stated(
    privacy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_the_noise(monkeypatch, gaussian_copula)
    measurer = Measurer(spec_of("copula", **privacy))
    months = [quantities(measurer.grouped_record(table())) for _ in range(MONTHS // 4)]
    assert len(months[0]) == 7, "rows, two means, three levels and one of two"
    pairs = [compare_quantities(one, other) for one, other in zip(months[::2], months[1::2], strict=True)]
    alarms = sum(any(c.verdict is not DriftVerdict.NOISE for c in pair.values()) for pair in pairs)
    assert alarms <= LEVEL * len(pairs) + 5 * math.sqrt(LEVEL * len(pairs))
    moved = compare_quantities(months[0], quantities(measurer.grouped_record(table(shift=25.0))))
    assert moved[Name("age")].verdict is DriftVerdict.DRIFT


def test_only_rows_and_classes_are_compared_where_each_month_has_a_frame_of_its_own() -> None:
    """Far-off records are drawn back by another radius each month."""
    measurer = Measurer(spec_of("mixture", "auto"))
    months = [quantities(measurer.record(table(), seed)) for seed in range(MONTHS // 4)]
    assert set(months[0]) == {Name(""), Name("label", "yes")}
    pairs = [compare_quantities(one, other) for one, other in zip(months[::2], months[1::2], strict=True)]
    alarms = sum(any(c.verdict is not DriftVerdict.NOISE for c in pair.values()) for pair in pairs)
    assert alarms <= LEVEL * len(pairs) + 5 * math.sqrt(LEVEL * len(pairs))


def test_a_change_of_the_table_is_found() -> None:
    measurer = Measurer(spec_of())
    before, after = measurer.records(table(), 1)[0], measurer.records(table(shift=15.0), 1, seed=99)[0]
    verdicts = {name: c.verdict for name, c in compare_quantities(quantities(before), quantities(after)).items()}
    assert verdicts.pop(Name("age")) is DriftVerdict.DRIFT
    assert set(verdicts.values()) == {DriftVerdict.NOISE}


# ---------------------------------------------------------------- under a projection that leaves directions out

PAIRS = 40
NUMBERS = 10
APART = {"projection": "0.4", "moments": "0.6"}


GENERATORS = {"": "gaussian", "label": "mixture", "target": "supervised"}
"""What a role asks for; left open, a table with levels would be measured by histograms."""


def wide_spec(projection: dict[str, Any], *, allocation: dict[str, str] | None = None, role: str = "") -> ReleaseSpec:
    """Fourteen coordinates, with so little noise that chance decides."""
    columns: list[dict[str, Any]] = [{"name": f"n{i}", "kind": "numeric", "bounds": [0, 100]} for i in range(NUMBERS)]
    columns += [{"name": "kind", "kind": "categorical", "categories": ["a", "b", "c"], "other": "c"}]
    columns += [{"name": "yes", "kind": "boolean"}]
    if role:
        columns[{"label": -1, "target": 0}[role]]["role"] = role
    return ReleaseSpec.model_validate(
        {
            "name": "wide",
            "source": {"path": "landing/*.csv"},
            "privacy": {"population": "people", "epsilon": 20, "lifetime": {"epsilon": 5000}},
            "expected_rows": ROWS,
            "columns": columns,
            "model": {"projection": projection, "generator": GENERATORS[role], "radius": 1}
            | ({"allocation": allocation} if allocation else {}),
        }
    )


def drawn(dice: np.random.Generator, shift: float = 0.0) -> dict[str, Any]:
    """Another draw of one population: three columns move together, and spreads differ."""
    together = dice.normal(0, 6, ROWS)
    cells: dict[str, Any] = {
        f"n{i}": np.clip(50 + (together if i < 3 else 0) + dice.normal(0, 2 + 3 * i, ROWS), 0, 100)
        for i in range(NUMBERS)
    }
    cells["n0"] = cells["n0"] + shift
    cells["kind"] = dice.choice(3, ROWS, p=[0.7, 0.25, 0.05]).astype(np.int64)
    return cells | {"yes": (dice.random(ROWS) < 0.2).astype(np.int64)}


PROJECTED = {
    "components apart": wide_spec({"kind": "private-pca", "dimension": 2}, allocation=APART),
    "components out of the moments": wide_spec({"kind": "private-pca", "dimension": 2}, allocation={"moments": "1"}),
    "components and a label": wide_spec({"kind": "private-pca", "dimension": 2}, allocation=APART, role="label"),
    "components and a target": wide_spec({"kind": "private-pca", "dimension": 2}, allocation=APART, role="target"),
    "random directions and a label": wide_spec({"kind": "ron", "dimension": 2}, role="label"),
    "nothing left out": wide_spec({"kind": "none"}),
}


@pytest.mark.parametrize("case", PROJECTED)
def test_two_draws_of_one_population_are_called_drift_no_more_often_than_stated(case: str) -> None:
    measurer, dice = Measurer(PROJECTED[case]), np.random.Generator(np.random.PCG64(7))
    months = [quantities(measurer.record(drawn(dice), seed)) for seed in range(2 * PAIRS)]
    assert len(months[0]) == (2 if case.startswith("random") else NUMBERS + 5)
    pairs = [compare_quantities(one, other) for one, other in zip(months[::2], months[1::2], strict=True)]
    alarms = sum(any(c.verdict is DriftVerdict.DRIFT for c in pair.values()) for pair in pairs)
    assert alarms <= LEVEL * PAIRS + 5 * math.sqrt(LEVEL * PAIRS)
    for name in months[0]:
        values = np.array([month[name].value for month in months])
        stated = float(np.mean([math.hypot(month[name].noise, month[name].chance) for month in months]))
        assert name == Name("") or values.std() <= 1.4 * stated, name


@pytest.mark.parametrize("share", ["0.1", "0.9"])
def test_a_centre_that_is_noisier_than_the_moments_raises_no_more_alarms_than_stated(share: str) -> None:
    """One table: whatever differs between its releases is noise, that of the mean that stands in included."""
    allocation = {"projection": share, "moments": str(round(1 - float(share), 1))}
    measurer = Measurer(wide_spec({"kind": "private-pca", "dimension": 2}, allocation=allocation))
    cells = drawn(np.random.Generator(np.random.PCG64(7)))
    months = [quantities(measurer.record(cells, seed)) for seed in range(2 * PAIRS)]
    pairs = [compare_quantities(one, other) for one, other in zip(months[::2], months[1::2], strict=True)]
    alarms = sum(any(c.verdict is not DriftVerdict.NOISE for c in pair.values()) for pair in pairs)
    assert alarms <= LEVEL * PAIRS + 5 * math.sqrt(LEVEL * PAIRS)


@pytest.mark.parametrize("case", ["components apart", "components out of the moments"])
def test_a_large_drift_is_found_though_directions_are_left_out(case: str) -> None:
    measurer, dice = Measurer(PROJECTED[case]), np.random.Generator(np.random.PCG64(8))
    before, after = (quantities(measurer.record(drawn(dice, shift), 1)) for shift in (0.0, 12.0))
    verdicts = {name: change.verdict for name, change in compare_quantities(before, after).items()}
    assert verdicts.pop(Name("n0")) is DriftVerdict.DRIFT
    assert DriftVerdict.DRIFT not in verdicts.values()


@pytest.mark.parametrize(
    ("projection", "role", "expected"),
    [
        ({"kind": "none"}, "", LeftOut.NOTHING),
        ({"kind": "private-pca", "dimension": 14}, "", LeftOut.NOTHING),
        ({"kind": "private-pca", "dimension": 13}, "", LeftOut.MEASURED),
        ({"kind": "private-pca", "dimension": 13}, "target", LeftOut.NOTHING),
        ({"kind": "private-pca", "dimension": 12}, "target", LeftOut.MEASURED),
        ({"kind": "private-pca", "dimension": 13}, "label", LeftOut.NOTHING),
        ({"kind": "ron", "dimension": 2}, "", LeftOut.NOTHING),
        ({"kind": "public-pca", "dimension": 2, "public": "public.csv"}, "", LeftOut.PUBLIC),
    ],
)
def test_a_record_says_what_stands_in_for_what_is_left_out(
    projection: dict[str, Any], role: str, expected: LeftOut
) -> None:
    measurer = Measurer(wide_spec(projection, role=role))
    assert left_out(measurer.record(drawn(np.random.Generator(np.random.PCG64(7))), 1)) is expected


def test_means_that_are_partly_those_of_a_public_table_are_not_compared() -> None:
    spec = wide_spec({"kind": "public-pca", "dimension": 2, "public": "public.csv"}, role="target")
    found = quantities(Measurer(spec).record(drawn(np.random.Generator(np.random.PCG64(7))), 1))
    assert list(found) == [Name(""), Name("n0")]


# ---------------------------------------------------------------- what is compared


def month(record: dict[str, Any], period: str) -> Month:
    columns = record["utility"]["columns"]
    return Month(period, f"small-{period}-1", columns, quantities(record), definitions(record))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return Measurer(spec_of()).records(table(), 1)[0]


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
        (20454.0 + 15, 20485.0 + 15, DriftVerdict.NOISE),  # visits: the middle of January and of February 2026
        (11000.0, 11000.0, DriftVerdict.NOISE),  # dates of birth
        (20454.0 + 15, 20485.0 - 300, DriftVerdict.DRIFT),
    ],
)
def test_dates_may_go_with_the_calendar_or_stay(
    record: dict[str, Any], before: float, after: float, verdict: DriftVerdict
) -> None:
    quiet = record | {"noisy_count": 1e7}  # the noise of the count moves a mean that is far from the middle
    pair = comparisons([month(dated(quiet, before), "2026-01"), month(dated(quiet, after), "2026-02")])[0]
    assert pair.changes[Name("age")].verdict is verdict


def test_a_mean_s_margin_counts_the_noise_of_the_centre_that_was_bought_apart() -> None:
    """Components for a tenth of the budget: what they leave out has nine times the noise of what they keep."""
    spec = wide_spec({"kind": "private-pca", "dimension": 2}, allocation={"projection": "0.1", "moments": "0.9"})
    measurer, cells = Measurer(spec), drawn(np.random.Generator(np.random.PCG64(7)))
    shares = []
    for seed in range(40):
        for column in measurer.record(cells, seed)["utility"]["columns"]:
            if column["measured"].get("mean") is not None:
                gap = abs(column["measured"]["mean"] - float(np.mean(cells[column["name"]])))
                shares.append(gap / column["measured"]["mean_margin"])
    assert np.mean(np.array(shares) <= 1) > 0.9, "95 % margins"
    assert np.median(shares) > 0.1, "and no wider than needed: the median of a normal error is 0.34 of them"
