"""The public rule for the class structure, frames in plans, and the effect of both on a release."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.dpcore.samplers import generator

from dpcore import MomentMixture, PcaGauss, RonGauss
from dpcore.accounting import release_statement
from dpcore.planning.class_structure import Structure, StructureInputs, choose_structure
from dpcore.planning.plan import Plan
from dpcore.planning.planner import make_plan
from dpcore.planning.request import PlanError, PlanRequest
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, NominalColumn, PrivacyUnit, RecordSchema, Role

DELTA = Fraction(1, 10**5)


def schema(width: int, classes: int) -> RecordSchema:
    columns = [IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(width)]
    label = NominalColumn(name="y", kind=Kind.CATEGORICAL, levels=tuple(range(classes)), role=Role.LABEL)
    return RecordSchema((*columns, label))


def plan_request(**changes: object) -> PlanRequest:
    usual = PlanRequest(
        schema=schema(40, 3),
        neighbours=Neighbours.REPLACE_ONE,
        unit=PrivacyUnit(),
        epsilon=Fraction(1),
        delta=DELTA,
        expected_rows=4_000,
        projection="none",
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def plan(**changes: object) -> Plan:
    return make_plan(plan_request(**changes))


# ---- the rule -------------------------------------------------------------------------------------


def scale(**changes: float) -> StructureInputs:
    return replace(StructureInputs(rows=1_000, classes=4, size=10, block_noise=20.0, pooled_noise=25.0), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "structure"),
    [
        ({}, Structure.BLOCKS),
        ({"rows": 700}, Structure.POOLED),
        ({"block_noise": 30.0}, Structure.POOLED),
        ({"classes": 6}, Structure.POOLED),
        ({"rows": 80}, Structure.DIAGONAL),
        ({"rows": 700, "pooled_noise": 300.0}, Structure.DIAGONAL),
    ],
)
def test_the_structure_follows_rows_classes_and_noise(changes: dict[str, float], structure: Structure) -> None:
    assert choose_structure(scale(**changes))[0] is structure


def test_with_more_rows_the_plan_goes_from_means_to_a_shared_covariance_to_blocks() -> None:
    chosen = [plan(expected_rows=rows) for rows in (50, 4_000, 100_000)]
    assert [p.generator for p in chosen] == ["lda", "lda", "mixture"]
    assert [p.event.layout.labels for p in chosen] == [3, 3, 0]
    assert chosen[0].event.layout.count_weight == 1 > chosen[1].event.layout.count_weight
    for p, word in zip(chosen, ("own variances", "one covariance", "class blocks"), strict=True):
        assert word in p.reasons[0]
    assert plan(expected_rows=4_000, epsilon=Fraction(30)).generator == "mixture"
    assert plan(expected_rows=4_000, generator="mixture").generator == "mixture"


def test_blocks_are_kept_where_a_dimension_is_chosen_for_them_that_tells_classes_apart() -> None:
    assert plan(projection="ron").generator == "mixture"
    assert plan(projection="ron", dimension=36).generator == "lda"
    assert plan(projection="ron", schema=schema(40, 10), expected_rows=1_000).generator == "lda"


# ---- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [Fraction(0), DELTA])
@pytest.mark.parametrize("projection", ["none", "ron", "private-pca"])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_a_bought_frame_is_paid_out_of_the_same_budget(
    delta: Fraction, projection: str, neighbours: Neighbours
) -> None:
    dimension = "auto" if projection == "none" else 8
    p = plan(radius="auto", delta=delta, projection=projection, dimension=dimension, neighbours=neighbours)
    assert list(p.events)[:3] == ["radius", "centre", "spread"]
    assert sum(p.allocation.values()) == pytest.approx(1)
    spent = release_statement(p.cost, delta=delta)
    assert 0.999 < float(spent.epsilon) <= 1
    assert spent.delta <= delta
    assert any("radius" in reason for reason in p.reasons)


def test_without_a_word_nothing_is_bought_and_a_public_radius_is_free() -> None:
    assert list(plan().events) == ["moments"]
    public = plan(radius=Fraction(1, 2))
    assert list(public.events) == ["moments"]
    assert public.radius == Fraction(1, 2)


def test_the_specification_may_say_what_a_frame_takes() -> None:
    said = {"radius": Fraction(1, 20), "centre": Fraction(1, 5), "spread": Fraction(1, 20), "moments": Fraction(7, 10)}
    assert plan(radius="auto", allocation=said).allocation == {name: float(share) for name, share in said.items()}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"radius": "auto", "allocation": {"moments": Fraction(1)}}, "allocation-missing"),
        ({"allocation": {"moments": Fraction(1, 2), "radius": Fraction(1, 2)}}, "allocation-unused"),
        ({"radius": "auto", "generator": "copula"}, "radius-unused"),
        (
            {"radius": "auto", "projection": "private-pca", "dimension": 8, "projection_mechanism": "laplace"},
            "radius-not-applicable",
        ),
    ],
)
def test_frames_that_cannot_be_bought_are_refused(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(PlanError) as refusal:
        plan(**changes)
    assert refusal.value.rule == rule


@pytest.mark.parametrize("radius", [0, Fraction(1, 1000), Fraction(2), "large", 0.5])
def test_a_radius_is_a_number_up_to_one(radius: object) -> None:
    with pytest.raises(ValueError, match="radius must be"):
        plan_request(radius=radius)


# ---- releases -------------------------------------------------------------------------------------


def off_centre(rows: int = 3_000) -> tuple[np.ndarray, np.ndarray]:
    """Return three classes that are close together and far from the middle of the bounds."""
    rng = generator(3)
    classes = rng.integers(0, 3, rows)
    means = 0.6 + 0.05 * rng.standard_normal((3, 12))
    return means[classes] + 0.04 * rng.standard_normal((rows, 12)), classes


def model(kind: type[MomentMixture], **changes: object) -> MomentMixture:
    usual = {"epsilon": 1, "delta": 1e-5, "bounds": (-1.0, 1.0), "classes": [0, 1, 2], "expected_rows": 3_000}
    return kind(**usual | {"random_state": 1} | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [MomentMixture, RonGauss, PcaGauss])
def test_in_a_frame_class_means_and_spread_come_out_where_they_were_lost(kind: type[MomentMixture]) -> None:
    rows, classes = off_centre()
    truth = np.array([rows[classes == k].mean(axis=0) for k in range(3)])
    errors = {}
    for radius in (1, "auto"):
        changes = {} if kind is MomentMixture else {"n_components": 12}
        drawn, labels = model(kind, radius=radius, **changes).fit(rows, classes).sample(3_000)
        found = np.array([drawn[labels == k].mean(axis=0) for k in range(3)])
        errors[radius] = np.linalg.norm(found - truth) + np.linalg.norm(drawn.std(axis=0) - rows.std(axis=0))
    assert errors["auto"] < 0.5 * errors[1]


@pytest.mark.parametrize("delta", [0, 1e-5])
def test_privacy_states_every_measurement_of_a_frame(delta: float) -> None:
    rows, classes = off_centre()
    fitted = model(MomentMixture, radius="auto", delta=delta).fit(rows, classes)
    assert list(fitted.privacy_["measurements"]) == ["radius", "centre", "spread", "moments"]
    assert fitted.privacy_["epsilon"] <= 1
    assert fitted.projection_.frame.radius < 1


def test_a_public_radius_scales_what_is_measured() -> None:
    rows, classes = off_centre(500)
    fitted = model(MomentMixture, radius=0.75, epsilon=1e6, delta=0).fit(rows, classes)
    assert fitted.projection_.frame.radius == 0.75
    drawn, _ = fitted.sample(2_000)
    assert drawn.mean(axis=0) == pytest.approx(rows.mean(axis=0), abs=0.02)


def test_without_expected_rows_classes_keep_blocks_of_their_own() -> None:
    rows, classes = off_centre(300)
    assert model(MomentMixture, expected_rows=None).fit(rows, classes).plan_.generator == "mixture"
    assert model(MomentMixture, expected_rows=300).fit(rows, classes).plan_.generator == "lda"
    assert model(MomentMixture, generator="lda").fit(rows, classes).plan_.generator == "lda"
