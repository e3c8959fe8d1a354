"""What enforcing rules moved, against laws of which it is known."""

from __future__ import annotations

import numpy as np
import pytest
from support.dpcore.ruled import levels, number, rules_of

from dpcore.errors import CheckFailedError
from dpcore.evaluation.rules_effect import rules_effect
from dpcore.records.schema import Codes, Column, RecordSchema
from dpcore.synthesis.generators import SyntheticRows
from dpcore.synthesis.ruled_rows import DrawnRows, ProposedRows, RuledRows

COLUMNS: tuple[Column, ...] = (number("x", 0, 1), levels("c", "a", "b"))


def uniform(classes: Codes, rng: np.random.Generator) -> DrawnRows:
    x = rng.random(len(classes))
    return DrawnRows(x[:, None], {"x": x, "c": rng.integers(0, 2, len(classes))})


def effect_of(rule: str, rows: int = 1000) -> dict[str, object]:
    schema = RecordSchema(COLUMNS, rules_of([rule], COLUMNS))
    plain = ProposedRows(np.ones(1), uniform)
    ruled = RuledRows(plain, schema, uniform)
    return rules_effect(SyntheticRows(rows, "ab", ruled), SyntheticRows(rows, "ab", plain), schema)


def test_broken_rows_and_shifts_are_those_of_the_law():
    """Three quarters of a uniform law obey: there x has the mean 5/12, and a has a share of 2/3."""
    found = effect_of("x < 0.5 OR c = 'a'")
    assert found["broken"] == pytest.approx(0.25, abs=0.02)
    assert found["redrawn"] == pytest.approx(0.25, abs=0.02)
    shifts = {column["name"]: column["shift"] for column in found["shifts"]}  # type: ignore[attr-defined]
    assert shifts["x"] == pytest.approx(1 / 2 - 5 / 12, abs=0.02)
    assert shifts["c"] == pytest.approx(2 / 3 - 1 / 2, abs=0.02)


def test_a_rare_rule_is_measured_with_fewer_rows():
    assert effect_of("x < 0.001")["redrawn"] == pytest.approx(0.999, abs=0.001)


def test_a_table_that_would_take_days_to_draw_fails_with_the_share():
    with pytest.raises(CheckFailedError, match="so that 900,000,000 rows would take more than"):
        effect_of("x < 0.001", rows=900_000_000)
