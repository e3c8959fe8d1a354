"""Plans are made from public constants only, with reasons, and predict the error of the release."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.dpcore.planning import REQUEST, plan
from support.dpcore.strategies import schema_with

from dpcore.accounting import Budget, Epsilon, Rho, release_statement
from dpcore.measure import PrivateGram, measure_gram
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.mechanisms.base import ExpectedError
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.registry import cost_of
from dpcore.noise.sources import SeededNoise
from dpcore.planning import planner
from dpcore.planning.allocation import PRESETS, best_share, separate_error
from dpcore.planning.layouts import count_weight
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PLANNED, PlanError, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramSum
from dpcore.records.schema import (
    IntervalColumn,
    Kind,
    Neighbours,
    NominalColumn,
    PrivacyUnit,
    RecordSchema,
    Role,
    RowRule,
)


def wide_schema(levels: int = 200) -> RecordSchema:
    column = NominalColumn(name="c", kind=Kind.CATEGORICAL, levels=tuple(f"l{i}" for i in range(levels)))
    return RecordSchema((*REQUEST.schema.columns, column))


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_the_dimension_grows_with_rows_and_with_epsilon(neighbours: Neighbours, delta: Fraction) -> None:
    schema = wide_schema()
    by_rows = [
        plan(schema=schema, neighbours=neighbours, delta=delta, expected_rows=n).dimension
        for n in (10, 10**3, 10**4, 10**5, 10**7)
    ]
    by_epsilon = [
        plan(schema=schema, neighbours=neighbours, delta=delta, epsilon=Fraction(e)).dimension
        for e in ("0.01", "0.1", "1", "5")
    ]
    assert by_rows == sorted(by_rows)
    assert by_epsilon == sorted(by_epsilon)
    assert by_rows[0] == 1
    assert by_rows[-1] > by_rows[1]


def test_the_chosen_dimension_is_the_largest_quiet_one() -> None:
    schema = wide_schema()
    chosen = plan(schema=schema)
    ratios = {d: plan(schema=schema, dimension=d).signal_to_noise for d in (chosen.dimension, chosen.dimension + 1)}
    assert ratios[chosen.dimension] >= 4 > ratios[chosen.dimension + 1]


@pytest.mark.parametrize(
    "plan_request", [REQUEST, replace(REQUEST, delta=Fraction(1, 10**6), schema=schema_with(target=True, label=True))]
)
def test_every_automatic_choice_has_its_reason(plan_request: PlanRequest) -> None:
    decided = make_plan(plan_request)
    text = "\n".join(decided.reasons)
    for word in (
        f"dimension {decided.dimension}",
        f"mechanism {decided.event.mechanism}",
        f"generator {decided.generator}",
        "count weight",
    ):
        assert word in text
    assert decided.as_json()["reasons"] == list(decided.reasons)


@pytest.mark.parametrize("name", [e.name for e in BY_NAME.values() if e.status is Status.REFUTED])
def test_a_refuted_mechanism_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(PlanError, match="is refuted") as refusal:
        plan(mechanism=name)
    assert refusal.value.rule == "mechanism-refuted"
    assert refusal.value.where == "model.mechanism"
    assert BY_NAME[name].reason in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"mechanism": "magic"}, "mechanism-unknown"),
        ({"mechanism": "ron"}, "mechanism-unknown"),
        ({"mechanism": "gaussian"}, "mechanism-needs-delta"),
        ({"mechanism": "wishart-difference-trace", "neighbours": Neighbours.ADD_REMOVE}, "mechanism-not-applicable"),
        ({"mechanism": "laplace", "epsilon": Fraction(1, 10**12)}, "mechanism-not-applicable"),
        ({"schema": wide_schema(9000)}, "record-too-wide"),
        ({"dimension": 500}, "dimension-out-of-range"),
        ({"dimension": 0}, "dimension-out-of-range"),
        ({"projection": "magic"}, "projection-unknown"),
        ({"projection": "published-lap-pca"}, "projection-unknown"),
        ({"projection": "private-pca", "allocation": {"marginals": Fraction(1)}}, "allocation-unused"),
        ({"generator": "copula"}, "projection-unused"),
        ({"generator": "copula", "projection": "none", "mechanism": "gaussian"}, "mechanism-needs-delta"),
        ({"generator": "copula", "projection": "none", "allocation": {"moments": Fraction(1)}}, "allocation-missing"),
        ({"allocation": {"moments": Fraction(1, 2), "projection": Fraction(1, 2)}}, "allocation-unused"),
        ({"allocation": {"marginals": Fraction(1)}}, "allocation-unused"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(PlanError) as refusal:
        plan(**changes)
    assert refusal.value.rule == rule
    assert refusal.value.where
    assert refusal.value.hint


@pytest.mark.parametrize("mechanism", ["auto", "wishart-difference", "laplace", "gaussian"])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_a_plan_spends_the_promised_epsilon_and_not_more(mechanism: str, neighbours: Neighbours) -> None:
    delta = Fraction(1, 10**6)
    decided = plan(mechanism=mechanism, neighbours=neighbours, delta=delta, allocation={"moments": Fraction(1)})
    statement = release_statement(decided.cost, delta=delta)
    assert float(statement.epsilon) <= 1
    assert float(statement.epsilon) > 0.999
    assert decided.event.neighbours is neighbours


def test_the_pure_mechanism_is_chosen_without_delta_and_the_quieter_one_with_it() -> None:
    assert plan().event.mechanism == "wishart-difference-trace"
    assert plan(neighbours=Neighbours.ADD_REMOVE).event.mechanism == "wishart-difference"
    small, large = (plan(schema=wide_schema(), dimension=d, delta=Fraction(1, 10**6)) for d in (2, 60))
    assert small.event.mechanism == "wishart-difference-trace"
    assert large.event.mechanism == "gaussian"
    for decided in (small, large):
        rivals = [
            plan(
                schema=wide_schema(), dimension=decided.dimension, delta=Fraction(1, 10**6), mechanism=m
            ).expected.frobenius
            for m in ("wishart-difference-trace", "gaussian")
        ]
        assert decided.expected.frobenius == min(rivals)


def test_persons_with_several_whole_rows_cost_as_many_times_the_noise() -> None:
    one = plan(dimension=3)
    weight = plan(dimension=3, unit=PrivacyUnit(person="id"))
    three = plan(dimension=3, unit=PrivacyUnit(person="id", row_rule=RowRule.AT_MOST, most_rows=3))
    assert weight.event == one.event
    assert three.event.noise * 3 == one.event.noise
    assert three.expected.frobenius == pytest.approx(3 * one.expected.frobenius)


@pytest.mark.parametrize(("size", "expected"), [(8, 0.46), (32, 0.34)])
def test_the_count_weight_is_the_root_of_its_equation(size: int, expected: float) -> None:
    s = count_weight(size)
    assert float(s) == pytest.approx(expected, abs=0.01)
    exact = np.roots([2 * (size + 1), 1, -1]).max()
    assert float(s) == pytest.approx(math.sqrt(exact), abs=1 / 128)
    assert (s * 64).denominator == 1


def test_generators_follow_the_roles_of_the_columns() -> None:
    assert plan().generator == "gaussian"
    assert plan(schema=schema_with(target=True)).generator == "supervised"
    mixture = plan(schema=schema_with(label=True))
    assert (mixture.generator, mixture.event.layout.blocks) == ("mixture", 4)
    flat = plan(schema=schema_with(label=True), generator="gaussian")
    assert flat.event.layout.blocks == 1
    assert flat.encoded_width == mixture.encoded_width + 4
    assert any("the label is modelled as a feature" in reason for reason in flat.reasons)


def test_a_reason_names_the_smallest_dimension_where_the_noise_is_too_large_at_every_one() -> None:
    noisy, clear = (next(r for r in plan(expected_rows=n).reasons if "dimension" in r) for n in (1, 10**9))
    assert "the smallest, because at no dimension" in noisy
    assert "the largest at which" in clear


def test_a_reason_for_the_mechanism_is_given_only_for_a_choice_and_names_what_decided_it() -> None:
    split, small = {"mean": Fraction(1, 2), "moments": Fraction(1, 2)}, Fraction(1, 10**6)

    def why(**changes: Any) -> str:
        return " ".join(reason for reason in plan(**changes).reasons if reason.startswith("mechanism"))

    assert "delta is 0" in why()
    assert "the least expected noise" in why(delta=small)
    assert "a separately measured mean needs pure noise" in why(delta=small, allocation=split)
    for generator in ("gaussian", "copula"):
        assert why(mechanism="laplace", projection="none", generator=generator) == ""


def test_without_projection_every_coordinate_is_measured() -> None:
    decided = plan(projection="none", generator="supervised", schema=schema_with(target=True))
    width = Encoding(schema_with(target=True)).width
    assert (decided.dimension, decided.event.layout.dimension) == (width, width + 1)


def test_a_plan_touches_no_data() -> None:
    """The planner takes a schema and numbers; its module imports nothing for cells, Gram matrices or rows."""
    parameters = inspect.signature(make_plan).parameters
    assert list(parameters) == ["request"]
    names = set(inspect.getmodule(make_plan).__dict__)  # type: ignore[union-attr]
    assert not names & {"Cells", "PrivateGram", "GramSum", "measure_gram", "integer_records", "np"}
    assert isinstance(plan().expected, ExpectedError)
    assert planner.make_plan(REQUEST) == plan(), "the same request gives the same plan"


def test_moments_of_a_planned_measurement_have_the_planned_shape() -> None:
    decided = plan(schema=schema_with(label=True), dimension=3)
    released = measure_gram(PrivateGram(GramSum(decided.event.layout)), decided.event, SeededNoise(1))
    moments = NoisyMoments.from_released(released)
    assert len(moments.classes) == 4
    assert moments.classes[0].mean.shape == (3,)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
@pytest.mark.parametrize("share", [None, Fraction(0), Fraction(1, 10), Fraction(3, 10), Fraction(9, 10)])
def test_private_components_and_moments_together_stay_within_the_budget(
    delta: Fraction, share: Fraction | None
) -> None:
    allocation = None if share is None else {"moments": 1 - share, **({"projection": share} if share else {})}
    decided = plan(projection="private-pca", dimension=2, delta=delta, allocation=allocation)
    stated = release_statement(decided.cost, delta=delta)
    assert stated.epsilon <= REQUEST.epsilon
    assert float(stated.epsilon) == pytest.approx(1.0, rel=1e-6)
    assert decided.reuses_gram == (decided.projection_event is None)
    if share is not None:
        assert decided.reuses_gram == (share == 0)
        assert decided.allocation.get("projection", 0.0) == float(share)
    assert any("private principal components" in reason for reason in decided.reasons)


def test_components_are_measured_apart_where_rows_are_many_and_dimensions_few() -> None:
    """The error of a perturbed subspace is quadratic in noise over rows, that of noisy moments linear."""

    def reuses(dimension: int, rows: int) -> bool:
        return plan(schema=wide_schema(), projection="private-pca", dimension=dimension, expected_rows=rows).reuses_gram

    assert not reuses(2, 10**6)
    assert reuses(2, 10**3)
    assert reuses(150, 10**6)


@pytest.mark.parametrize("kind", [Epsilon, Rho])
@pytest.mark.parametrize(("components", "moments"), [(0.3, 0.01), (0.01, 0.3), (0.1, 0.1)])
def test_the_best_share_is_that_of_a_fine_search(kind: type[Budget], components: float, moments: float) -> None:
    found = best_share(components, moments, kind)
    fine = min((Fraction(i, 1000) for i in range(1, 1000)), key=lambda s: separate_error(components, moments, s, kind))
    assert abs(found - fine) <= Fraction(1, 20)
    assert separate_error(components, moments, found, kind) <= 1.1 * separate_error(components, moments, fine, kind)


@pytest.mark.parametrize("name", PRESETS)
def test_the_splits_of_the_papers_are_presets_whose_parts_add_up_to_the_budget(name: str) -> None:
    projection = "private-pca" if "projection" in PRESETS[name] else "ron"
    decided = plan(projection=projection, dimension=2, allocation=PRESETS[name], delta=Fraction(1, 10**6))
    assert sum(PRESETS[name].values()) == 1
    assert decided.allocation == {part: float(share) for part, share in PRESETS[name].items()}
    assert set(decided.events) == set(PRESETS[name])
    for part, event in decided.events.items():
        assert cost_of(event).epsilon == pytest.approx(float(PRESETS[name][part]), rel=1e-9)
    assert release_statement(decided.cost, delta=Fraction(0)).epsilon <= REQUEST.epsilon


def test_the_papers_splits_are_those_that_they_print() -> None:
    assert PRESETS["ron-gauss"] == {"mean": Fraction("0.3"), "moments": Fraction("0.7")}
    assert PRESETS["pca-gauss"] == {"mean": Fraction("0.1"), "moments": Fraction("0.9")}
    assert PRESETS["pca-gauss-0.5"]["projection"] == Fraction("0.5")


def test_one_joint_measurement_has_less_noise_on_the_mean_than_the_papers_split_at_hardly_more_on_the_moments() -> None:
    """RON-Gauss's 0.3/0.7 at 8 dimensions."""
    joint = plan(dimension=8)
    split = plan(dimension=8, allocation=PRESETS["ron-gauss"])
    ours, papers = joint.expected_error(), split.expected_error()
    assert ours["mean_sd"] < papers["mean_sd"] / 1.5
    assert ours["operator"] < papers["operator"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"allocation": {"mean": Fraction(1)}}, "allocation-missing"),
        ({"projection": "private-pca", "allocation": PRESETS["ron-gauss"]}, "allocation-missing"),
        ({"allocation": PRESETS["pca-gauss-0.5"]}, "allocation-unused"),
        ({"allocation": PRESETS["ron-gauss"], "mechanism": "gaussian"}, "allocation-not-pure"),
    ],
)
def test_a_split_that_cannot_be_measured_is_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(PlanError) as refusal:
        plan(dimension=2, delta=Fraction(1, 10**6), **changes)
    assert refusal.value.rule == rule


def test_the_ratio_of_gain_to_loss_is_one_without_a_projection_and_grows_as_dimensions_fall() -> None:
    assert plan(projection="none", generator="gaussian").expected_error()["sir"] == pytest.approx(1.0)
    ratios = [
        plan(schema=wide_schema(), dimension=d, mechanism="laplace").expected_error()["sir"] for d in (100, 40, 10)
    ]
    assert 1 < ratios[0] < ratios[1] < ratios[2]


@pytest.mark.parametrize(
    ("budget", "match"),
    [
        ({"epsilon": Fraction(1, 10**320)}, "epsilon must lie between"),
        ({"epsilon": Fraction(10**400)}, "epsilon must lie between"),
        ({"delta": Fraction(1, 10**320)}, "delta must be 0 or at least"),
        ({"delta": Fraction(1)}, "delta must lie in"),
    ],
)
def test_a_budget_beyond_all_reason_is_refused_with_the_rule(budget: dict[str, Fraction], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        plan(**budget)


# ---- mixed tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
@pytest.mark.parametrize("allocation", [None, {"marginals": Fraction(1, 3), "moments": Fraction(2, 3)}])
def test_a_copula_spends_the_promised_epsilon_on_histograms_and_their_groups(
    neighbours: Neighbours, delta: Fraction, allocation: dict[str, Fraction] | None
) -> None:
    decided = plan(generator="copula", projection="none", neighbours=neighbours, delta=delta, allocation=allocation)
    assert list(decided.events) == ["marginals", "moments"]
    assert sum(decided.shares.values()) == 1
    if allocation:
        assert decided.shares == allocation
    spent = release_statement(decided.cost, delta=delta)
    assert float(REQUEST.epsilon) * 0.999 < float(spent.epsilon) <= float(REQUEST.epsilon)
    costs = [cost_of(event) for event in decided.events.values()]
    kind = "rho" if costs[0].rho else "epsilon"
    assert getattr(costs[0], kind) / getattr(costs[1], kind) == pytest.approx(
        decided.shares["marginals"] / decided.shares["moments"], rel=1e-6
    )


def test_a_mixed_table_that_is_not_projected_is_left_to_the_copula_where_the_noise_allows_it() -> None:
    mixed = schema_with(label=True)
    assert plan(projection="none", schema=mixed, expected_rows=10**6).generator == "copula"
    assert plan(projection="none", schema=mixed, expected_rows=20).generator == "lda"
    assert plan(schema=mixed, expected_rows=10**6).generator == "mixture", "a projection was asked for"
    numbers = RecordSchema(
        tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(3))
    )
    assert plan(projection="none", schema=numbers, expected_rows=10**6).generator == "gaussian"
    label = NominalColumn(name="y", kind=Kind.CATEGORICAL, levels=("a", "b"), role=Role.LABEL)
    labelled = replace(numbers, columns=(*numbers.columns, label))
    assert plan(projection="none", schema=labelled, expected_rows=10**6).generator == "mixture", "as asked before"
    free = {"projection": PLANNED, "radius": PLANNED, "schema": labelled}
    assert plan(expected_rows=10**6, **free).generator == "copula"
    assert plan(expected_rows=100, **free).generator != "copula"


def test_a_projection_that_is_left_open_is_chosen_from_public_constants_and_said() -> None:
    mixed = schema_with(label=True)
    numbers = RecordSchema(
        tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(30))
    )

    def chosen(**request: Any) -> tuple[str, str]:
        decided = plan(projection="auto", **request)
        assert decided.reasons[0].startswith(f"projection {decided.projection}: ")
        return decided.projection, decided.generator

    assert chosen(schema=mixed, expected_rows=10**6) == ("none", "copula")
    assert chosen(schema=mixed, expected_rows=10, generator="copula") == ("none", "copula")
    assert chosen(schema=numbers, expected_rows=10**7) == ("none", "gaussian")
    assert chosen(schema=numbers, expected_rows=10**3) == ("ron", "gaussian")
    assert chosen(schema=mixed, expected_rows=10**6, dimension=2) == ("ron", "mixture")


def test_the_coordinates_of_a_copula_follow_from_public_figures_more_of_them_where_groups_can_be_fine() -> None:
    few, many = (plan(generator="copula", projection="none", expected_rows=rows) for rows in (10, 10**7))
    assert few.event.layout.dimension < many.event.layout.dimension
    assert plan(generator="copula", projection="none", expected_rows=10**7).event.layout == many.event.layout
    wide = RecordSchema(
        tuple(IntervalColumn(name=f"x{i}", kind=Kind.INTEGER, lower=0.0, upper=9.0) for i in range(100))
    )
    least = {plan(schema=wide, projection="none", generator="copula", expected_rows=n).dimension for n in (10, 10**9)}
    assert least == {400}, "where every column has the fewest, whatever the rows"
