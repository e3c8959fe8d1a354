"""What rules leave of a column is what trying values one by one leaves, and values are drawn from there alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.dpcore.ruled import levels, number, rules_of, whole
from support.dpcore.samplers import generator

from dpcore.records.binning import ColumnCells
from dpcore.records.rules.allowed import AllowedCells, allowed_cells, widest
from dpcore.records.rules.rule import Rule, broken_rows
from dpcore.records.schema import MISSING, Cells, Column, IntervalColumn, Kind

ROWS = 40
COLUMNS: list[Column] = [
    whole("few", 0, 20, missing=True),
    whole("many", -300, 4000),
    number("real", -10, 50),
    whole("day", 0, 3000, kind=Kind.DATE),
    levels("word", "x", "y", "z", missing=True),
]
KNOWN: list[Column] = [whole("n", 0, 20), number("r", -5, 30), levels("flag", False, True)]
BY_NAME = {column.name: column for column in (*COLUMNS, *KNOWN)}

RULES: dict[str, list[Any]] = {
    "few": ["few >= n", "few <> 7", "few IS NOT NULL OR flag"],
    "many": ["many >= n * 10 - r", "many < 3000 OR flag", "many <> 50"],
    "real": ["real > r OR flag", "2 * real + n < 60"],
    "day": ["day >= '1971-01-01' OR flag", "EXTRACT(MONTH FROM day) <= 6"],
    "word": ["word = 'x' OR flag", "word IS NULL OR word <> 'z'"],
}
EQUATIONS = {"many": "many = n + 100", "real": "real = r + n / 2", "few": "few = n"}


def known_rows(seed: int = 1) -> Cells:
    rng = generator(seed)
    return {
        "n": rng.integers(0, 21, ROWS).astype(np.float64),
        "r": rng.uniform(-5, 30, ROWS),
        "flag": rng.integers(0, 2, ROWS),
    }


def rules_about(name: str, written: list[Any]) -> list[Rule]:
    return [part for rule in rules_of(written, [*COLUMNS, *KNOWN]) for part in rule.parts()]


def left_of(name: str, written: list[Any], known: Cells) -> AllowedCells:
    return allowed_cells(rules_about(name, written), ColumnCells(BY_NAME[name]), known, ROWS, {})


def values_in(cells: ColumnCells, code: int, steps: int = 400) -> np.ndarray:
    """Values all over a cell."""
    values: np.ndarray = cells.values_at(np.full(steps, code), (np.arange(steps) + 0.5) / steps)
    return values


@pytest.mark.parametrize("name", RULES)
def test_the_part_of_each_cell_is_what_trying_its_values_gives(name: str):
    known = known_rows()
    found = left_of(name, RULES[name], known)
    cells = ColumnCells(BY_NAME[name])
    tolerance = 0.2 if name == "day" else 0.01  # where a rule cannot be solved, a few values of each cell are tried
    for row in range(0, ROWS, 7):
        for code in range(cells.count):
            values = values_in(cells, code)
            whole_row = {c: np.repeat(known[c][row : row + 1], len(values)) for c in known} | {name: values}
            obey = ~broken_rows(rules_about(name, RULES[name]), whole_row)
            portion = found.portions[found.contexts[row], code]
            assert portion == pytest.approx(obey.mean(), abs=tolerance), (row, code)


@pytest.mark.parametrize("name", RULES)
def test_values_are_drawn_from_what_is_allowed(name: str):
    known = known_rows(2)
    found = left_of(name, RULES[name], known)
    rng, checked, broken = generator(3), 0, 0
    for code in range(found.cells.count):
        mine = np.flatnonzero(found.portions[found.contexts, code] > 0)
        if not len(mine):
            continue
        values = found.values_at(mine, np.full(len(mine), code), rng.random(len(mine)))
        drawn = {c: known[c][mine] for c in known} | {name: values}
        broken += int(broken_rows(rules_about(name, RULES[name]), drawn).sum())
        assert (ColumnCells(BY_NAME[name]).codes(values) == code).all()
        checked += len(mine)
    assert checked > ROWS
    assert broken <= (checked / 20 if name == "day" else 0), "a rule that is only tried is broken now and then"


@pytest.mark.parametrize("name", EQUATIONS)
def test_an_equation_leaves_the_one_value_that_solves_it(name: str):
    known = known_rows(4)
    found = left_of(name, [EQUATIONS[name]], known)
    codes = np.argmax(found.portions[found.contexts], axis=1)
    values = found.values_at(np.arange(ROWS), codes, generator(5).random(ROWS)).astype(np.float64)
    due = {"many": known["n"] + 100, "real": known["r"] + known["n"] / 2, "few": known["n"]}[name]
    np.testing.assert_allclose(values, due, rtol=1e-12)


def test_positions_spread_evenly_over_what_is_allowed_of_a_cell():
    """A cell of more than one number is cut where the rule says, and not moved there."""
    known = {name: cells[:1].repeat(2000) for name, cells in known_rows().items()}
    wide = ColumnCells(BY_NAME["many"])
    code = int(np.argmax(np.diff(wide.edges)))
    low, high = wide.edges[code], wide.edges[code + 1]
    middle = int((low + high) // 2)
    found = allowed_cells(rules_about("many", [f"many >= {middle}"]), wide, known, 2000, {})
    values = found.values_at(slice(None), np.full(2000, code), (np.arange(2000) + 0.5) / 2000).astype(np.float64)
    numbers, counts = np.unique(values, return_counts=True)
    assert numbers.tolist() == list(range(middle, int(high)))
    assert counts.max() - counts.min() <= 1


def test_a_value_that_open_columns_cannot_make_up_for_is_left_out():
    columns = [whole("a", 0, 100), whole("b", 0, 100), whole("c", 0, 100)]
    (rule,) = rules_of(["a + b + c >= 290"], columns)
    later = {column.name: widest(column) for column in columns[1:]}
    found = allowed_cells([rule], ColumnCells(columns[0]), {}, 1, later)
    assert np.flatnonzero(found.portions[0]).tolist() == list(range(90, 101))


def test_missing_cells_and_levels_are_allowed_by_themselves():
    known = known_rows()
    found = left_of("word", ["word IS NOT NULL"], known)
    assert found.portions[0].tolist() == [1, 1, 1, 0]
    assert found.values_at(np.arange(1), np.array([3]), np.zeros(1)).tolist() == [MISSING]
    bounds = BY_NAME["few"]
    assert isinstance(bounds, IntervalColumn)
    assert left_of("few", ["few IS NULL"], known).portions[0].tolist() == [0.0] * 21 + [1.0]
