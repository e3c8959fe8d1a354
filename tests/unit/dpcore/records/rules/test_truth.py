"""Rules on arrays of cells give what a row-by-row reading of SQL's three-valued logic gives."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dpcore.ruled import levels, number, rules_of, whole

from dpcore.records.rules.reading import condition_from_json
from dpcore.records.rules.rule import Rule, broken_rows
from dpcore.records.rules.views import AnyLevel, Span
from dpcore.records.schema import MISSING, UNKNOWN, Cells, Kind

COLUMNS = [
    whole("a", -3, 9, missing=True),
    whole("b", -3, 9),
    levels("c", "x", "y", "z", missing=True),
    levels("d", "y", "x"),
    levels("e", 0, 1, 5),
    levels("f", False, True, missing=True),
    whole("g", 0, 20_000, kind=Kind.DATE),
]
BY_NAME = {column.name: column for column in COLUMNS}

Row = dict[str, Any]
"""A row with Python's own values, None for null: the oracle's view."""


def rows() -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-3, 9),
            "b": st.integers(-3, 9),
            "c": st.none() | st.sampled_from(["x", "y", "z"]),
            "d": st.sampled_from(["y", "x"]),
            "e": st.sampled_from([0, 1, 5]),
            "f": st.none() | st.booleans(),
            "g": st.integers(0, 20_000),
        }
    )


def cells_of(many: list[Row]) -> Cells:
    cells: Cells = {}
    for name, column in BY_NAME.items():
        values = [row[name] for row in many]
        if hasattr(column, "levels"):
            codes = [MISSING if value is None else column.levels.index(value) for value in values]
            cells[name] = np.array(codes, dtype=np.int64)
        else:
            cells[name] = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return cells


# ---------------------------------------------------------------- the oracle: text and a Python function of one row

Truth = bool | None


def both(left: Truth, right: Truth) -> Truth:
    return False if left is False or right is False else None if left is None or right is None else True


def either(left: Truth, right: Truth) -> Truth:
    negated = both(negation(left), negation(right))
    return negation(negated)


def negation(truth: Truth) -> Truth:
    return None if truth is None else not truth


def known(*values: Any) -> bool:
    return all(value is not None for value in values)


def of(*values: Any, holds: Any) -> Truth:
    """What a comparison gives: unknown if a value is null."""
    return bool(holds(*values)) if known(*values) else None


ATOMS: dict[str, Any] = {
    "a < b": lambda r: of(r["a"], r["b"], holds=lambda a, b: a < b),
    "a >= 2": lambda r: of(r["a"], holds=lambda a: a >= 2),
    "a + b = 5": lambda r: of(r["a"], r["b"], holds=lambda a, b: a + b == 5),
    "a * b <> 6": lambda r: of(r["a"], r["b"], holds=lambda a, b: a * b != 6),
    "6 / b > a": lambda r: None if r["b"] == 0 else of(r["a"], r["b"], holds=lambda a, b: 6 / b > a),
    "-a <= b - 1": lambda r: of(r["a"], r["b"], holds=lambda a, b: -a <= b - 1),
    "a BETWEEN b AND 4": lambda r: both(
        of(r["a"], r["b"], holds=lambda a, b: b <= a), of(r["a"], holds=lambda a: a <= 4)
    ),
    "a IN (1, 3, b)": lambda r: of(r["a"], r["b"], holds=lambda a, b: a in (1, 3, b)),
    "c = 'x'": lambda r: of(r["c"], holds=lambda c: c == "x"),
    "c NOT IN ('x', 'z')": lambda r: of(r["c"], holds=lambda c: c not in ("x", "z")),
    "c = d": lambda r: of(r["c"], r["d"], holds=lambda c, d: c == d),
    "c IS NULL": lambda r: r["c"] is None,
    "a IS NOT NULL": lambda r: r["a"] is not None,
    "e > b": lambda r: r["e"] > r["b"],
    "e IN (0, 5)": lambda r: r["e"] in (0, 5),
    "e * 2 = b": lambda r: r["e"] * 2 == r["b"],
    "f": lambda r: r["f"],
    "f IS TRUE": lambda r: r["f"] is True,
    "f <> TRUE": lambda r: negation(r["f"]),
    "EXTRACT(YEAR FROM g) >= 1990": lambda r: (date(1970, 1, 1) + timedelta(r["g"])).year >= 1990,
    "MONTH(g) = 2 OR DAY(g) = 29": lambda r: (
        (date(1970, 1, 1) + timedelta(r["g"])).month == 2 or (date(1970, 1, 1) + timedelta(r["g"])).day == 29
    ),
    "g - DATE '1980-05-01' < 30": lambda r: (date(1970, 1, 1) + timedelta(r["g"]) - date(1980, 5, 1)).days < 30,
    "g < '1999-12-31'": lambda r: date(1970, 1, 1) + timedelta(r["g"]) < date(1999, 12, 31),
}


def trees() -> st.SearchStrategy[tuple[str, Any]]:
    """Texts of conditions, each with its oracle."""
    atoms = st.sampled_from(sorted(ATOMS)).map(lambda text: (f"({text})", ATOMS[text]))

    def joined(inner: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
        return (
            st.tuples(inner, inner).map(
                lambda p: (f"({p[0][0]} AND {p[1][0]})", lambda r: both(p[0][1](r), p[1][1](r)))
            )
            | st.tuples(inner, inner).map(
                lambda p: (f"({p[0][0]} OR {p[1][0]})", lambda r: either(p[0][1](r), p[1][1](r)))
            )
            | inner.map(lambda p: (f"(NOT {p[0]})", lambda r: negation(p[1](r))))
        )

    return st.recursive(atoms, joined, max_leaves=5)


def rule(text: str) -> Rule:
    return rules_of([text], COLUMNS)[0]


@pytest.mark.parametrize("text", ATOMS)
@given(many=st.lists(rows(), min_size=1, max_size=30))
def test_a_comparison_gives_the_truth_of_every_row(text: str, many: list[Row]):
    truth = np.broadcast_to(rule(text).condition.truth(cells_of(many)), len(many))
    assert [{0: False, 1: None, 2: True}[int(value)] for value in truth] == [ATOMS[text](row) for row in many]


@given(tree=trees(), many=st.lists(rows(), min_size=1, max_size=10))
def test_only_rows_where_a_condition_is_false_break_it(tree: tuple[str, Any], many: list[Row]):
    text, oracle = tree
    assert rule(text).broken(cells_of(many)).tolist() == [oracle(row) is False for row in many]


@given(tree=trees(), many=st.lists(rows(), min_size=1, max_size=10))
def test_a_condition_survives_its_record(tree: tuple[str, Any], many: list[Row]):
    condition = rule(tree[0]).condition
    again = condition_from_json(json.loads(json.dumps(condition.as_json())), BY_NAME)
    assert again == condition
    np.testing.assert_array_equal(again.truth(cells_of(many)), condition.truth(cells_of(many)))


@given(tree=trees(), many=st.lists(rows(), min_size=1, max_size=6), hidden=st.sets(st.sampled_from(sorted(BY_NAME))))
def test_what_is_possible_of_a_row_that_is_known_in_part_includes_what_is_true_of_it(
    tree: tuple[str, Any], many: list[Row], hidden: set[str]
):
    condition, cells = rule(tree[0]).condition, cells_of(many)
    view: dict[str, Any] = dict(cells)
    for name in hidden:
        column = BY_NAME[name]
        view[name] = (
            AnyLevel(column.missing_level)
            if hasattr(column, "levels")
            else Span.between(column.lower, column.upper, missing=column.missing_level)
        )
    possible = np.broadcast_to(condition.outcomes(view), len(many))
    truth = np.broadcast_to(condition.truth(cells), len(many))
    assert ((possible >> truth) & 1).all()
    if not hidden:
        np.testing.assert_array_equal(possible, 1 << truth)


@pytest.mark.parametrize("known", [{"a": np.nan, "b": 0.0}, {"a": 1.0, "b": 0.0}, {"a": np.nan, "b": 2.0}])
def test_a_comparison_with_a_null_or_a_division_by_0_is_unknown_and_nothing_else(known: dict[str, float]):
    view: dict[str, Any] = {name: np.array([value]) for name, value in known.items()}
    assert rule("6 / b > a").condition.outcomes(view).tolist() == [2]


def test_a_category_that_is_not_declared_tells_nothing():
    found = rule("c = 'x'").broken({"c": np.array([0, 1, MISSING, UNKNOWN])})
    assert found.tolist() == [False, True, False, False]


def test_numbers_with_decimals_are_equal_up_to_rounding_and_no_further():
    columns = [number("p", 0, 100), number("q", 0, 100)]
    (equal,) = rules_of(["p = q + 0.1"], columns)
    cells = {"p": np.array([0.3, 0.3, 0.3]), "q": np.array([0.2, 0.2 + 1e-12, 0.2 + 1e-6])}
    assert 0.2 + 0.1 != 0.3, "floating point"
    assert broken_rows([equal], cells).tolist() == [False, False, True]


@pytest.mark.parametrize("operator", ["and", "or"])
def test_a_record_joins_at_least_one_condition(operator):
    with pytest.raises(ValueError, match="no such condition"):
        condition_from_json([operator], BY_NAME)
