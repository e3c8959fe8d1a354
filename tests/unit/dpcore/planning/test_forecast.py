"""The signal that is foreseen grows with rows and epsilon, and falls where less of a table is seen."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from support.dpcore.planning import plan
from support.dpcore.strategies import schema_with

from dpcore.planning.forecast import FEW_DIRECTIONS, LEVELS_PART, USUAL_PART, expected_signal
from dpcore.records.schema import IntervalColumn, Kind, NominalColumn, RecordSchema

MODELS: dict[str, dict[str, Any]] = {
    "whole": {"projection": "none"},
    "framed": {"projection": "none", "radius": "auto"},
    "random": {"projection": "ron", "dimension": 3},
    "components": {"projection": "private-pca", "dimension": 3},
    "copula": {"projection": "none", "generator": "copula"},
}
NUMBERS = tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(8))
LEVEL = NominalColumn(name="c", kind=Kind.BOOLEAN, levels=(False, True))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("label", [False, True])
def test_it_is_in_proportion_to_the_rows_and_to_a_pure_epsilon(model: str, label: bool) -> None:
    generator = {"generator": "mixture" if label else "gaussian"}  # another structure would be another measurement
    changes = {"schema": schema_with(label=label)} | generator | MODELS[model]

    def signal(rows: int, epsilon: int) -> float:
        return expected_signal(plan(epsilon=Fraction(epsilon), expected_rows=rows, **changes))

    assert signal(20_000, 1) == pytest.approx(2 * signal(10_000, 1), rel=1e-9)
    assert signal(10_000, 2) == pytest.approx(2 * signal(10_000, 1), rel=0.05)


def test_numbers_without_a_frame_are_taken_for_a_part_of_their_bounds() -> None:
    schema = RecordSchema(NUMBERS)
    whole, half, framed = (
        plan(schema=schema, projection="none", radius=radius) for radius in (Fraction(1), Fraction(1, 2), "auto")
    )
    assert expected_signal(half) == pytest.approx(expected_signal(whole) / USUAL_PART)
    assert expected_signal(framed) == pytest.approx(expected_signal(half) * 7 / 8, rel=0.01), "a frame takes an eighth"


def test_few_random_directions_see_little_of_a_table() -> None:
    schema = RecordSchema(NUMBERS)
    one, few = (plan(schema=schema, projection="ron", dimension=size, radius="auto") for size in (1, FEW_DIRECTIONS))
    assert expected_signal(one) < expected_signal(few)


def test_levels_add_less_to_the_strongest_direction_than_numbers() -> None:
    seen = {
        kind: expected_signal(
            plan(schema=RecordSchema(columns), projection="none", radius="auto", generator="gaussian")
        )
        for kind, columns in {"numbers": NUMBERS[:2], "both": (NUMBERS[0], LEVEL)}.items()
    }
    assert seen["both"] == pytest.approx(seen["numbers"] * float(1 + LEVELS_PART) / 2)
