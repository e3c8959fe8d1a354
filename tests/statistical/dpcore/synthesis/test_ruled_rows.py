"""Rows under rules: none breaks one, and their shares are those of the law given the rules, by enumeration."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from support.dpcore.ruled import levels, number, rules_of, whole
from support.dpcore.samplers import SIGMAS, generator
from support.dpcore.table_laws import exact_shares, table_law

from dpcore.errors import CheckFailedError
from dpcore.measurements.groups import ColumnGroups
from dpcore.records.binning import ColumnCells
from dpcore.records.rules.rule import broken_rows
from dpcore.records.schema import Cells, Codes, Column, Floats, RecordSchema, Role
from dpcore.synthesis.copula.max_entropy import TableLaw, fit_table_law
from dpcore.synthesis.copula.pair_tables import PairTables
from dpcore.synthesis.copula.rounded_rows import RoundedTable
from dpcore.synthesis.copula.ruled_columns import RuledColumns
from dpcore.synthesis.copula.ruled_law import RuledLaw
from dpcore.synthesis.even_points import Chunk
from dpcore.synthesis.generators import RoundedTableRows, RuledRows, SyntheticRows
from dpcore.synthesis.ruled_rows import DrawnRows, allowed_class_weights, redraw_broken

SEED = "5eed"
COLUMNS: tuple[Column, ...] = (
    levels("a", "p", "q", "r"),
    whole("b", 0, 3),
    levels("c", "s", "t"),
    levels("k", "u", "v", "w", role=Role.LABEL),
)
SHARES = [[0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1], [0.7, 0.3]]
WEIGHTS = (0.5, 0.3, 0.2)
RULES: dict[str, list[Any]] = {
    "the last column follows an earlier one": ["a <> 'p' OR c = 't'"],
    "the label decides": [{"implies": ["k = 'v'", "b >= 2", "a <> 'q'"]}],
    "rows without a legal continuation": ["a <> 'p' OR c = 't'", "b < 2 OR c = 's'"],
    "a class without rows": ["k <> 'w'", "b <> 1"],
    "exactly where": [{"not_applicable": {"when": "b = 0", "columns": {"c": "t"}}}],
}
each_case = pytest.mark.parametrize("case", RULES)


def schema_of(case: str) -> RecordSchema:
    return RecordSchema(COLUMNS, rules_of(RULES[case], COLUMNS))


def groups_of(columns: tuple[Column, ...]) -> list[ColumnGroups]:
    """Every cell is a group of its own."""
    cells = [ColumnCells(column) for column in columns if column.role is not Role.LABEL]
    return [ColumnGroups(c, np.arange(c.count), np.ones(c.count), np.ones(c.count), np.ones(c.count)) for c in cells]


def law() -> TableLaw:
    return replace(table_law(SHARES, WEIGHTS), tilts=(None,) * len(SHARES))


def every_row(classes: int) -> tuple[Codes, Cells]:
    """All combinations of class and groups, and their cells."""
    rows = np.array(list(product(range(classes), *(range(len(share)) for share in SHARES))))
    return rows, {"a": rows[:, 1], "b": rows[:, 2].astype(np.float64), "c": rows[:, 3], "k": rows[:, 0]}


def shares_of(cells: Cells) -> Floats:
    """The share of each combination of class and groups."""
    sizes = (len(WEIGHTS), *(len(share) for share in SHARES))
    place = np.ravel_multi_index([np.asarray(cells[name], dtype=np.int64) for name in ("k", "a", "b", "c")], sizes)
    return np.bincount(place, minlength=int(np.prod(sizes))) / len(place)


def expected_shares(schema: RecordSchema, per_class: Floats) -> Floats:
    """The law of classes, times a law of the rows of each class given that they obey."""
    rows, cells = every_row(len(WEIGHTS))
    obeying = np.where(broken_rows(schema.rules, cells), 0.0, per_class)
    totals = np.bincount(rows[:, 0], weights=obeying, minlength=len(WEIGHTS))
    weights = np.where(totals > 0, WEIGHTS, 0.0)
    weights /= weights.sum()
    return obeying * (weights / np.maximum(totals, 1e-300))[rows[:, 0]]


def law_per_class() -> Floats:
    return np.concatenate([exact_shares(law(), k).ravel() for k in range(len(WEIGHTS))])


def masked_law_per_class(schema: RecordSchema, rules: RuledColumns) -> Floats:
    """The law in which every column is drawn among what the rules leave, by what the rules leave of every row."""
    rows, cells = every_row(len(WEIGHTS))
    mass = np.ones(len(rows))
    for index, (column, share) in enumerate(zip(law().columns, SHARES, strict=True)):
        indicators = np.hstack(
            [np.eye(len(earlier), dtype=np.float32)[rows[:, 1 + i]] for i, earlier in enumerate(SHARES[:index])]
            or [np.zeros((len(rows), 0), dtype=np.float32)]
        )
        scores = np.zeros((len(rows), len(share)))
        of_class, slopes = np.split(column.common.slopes, [len(WEIGHTS)])
        scores += indicators @ slopes + of_class[rows[:, 0]] + column.common.offsets
        for k, own in enumerate(column.by_class):
            if own is not None:
                scores[rows[:, 0] == k] += own.scores(indicators[rows[:, 0] == k])
        before = {"k": cells["k"], **{name: cells[name] for name in ("a", "b", "c")[:index]}}
        allowed = rules.allowed(index, before, len(rows))
        chances = np.exp(scores) * (1.0 if allowed is None else allowed.shares[allowed.contexts])
        totals = chances.sum(axis=1)
        mass *= np.where(totals > 0, chances[np.arange(len(rows)), rows[:, 1 + index]] / np.maximum(totals, 1e-300), 0)
    return mass


def synthetic(case: str, rows: int, sampling: str) -> SyntheticRows:
    schema = schema_of(case)
    rules = RuledColumns.of(schema, groups_of(COLUMNS))
    assert rules is not None
    ruled = replace(law(), weights=allowed_class_weights(schema, np.array(WEIGHTS)))
    table = RoundedTable.of(ruled, schema, rules.groups, rules)
    propose = RuledLaw(ruled, rules).propose

    class Proposed:
        def draw(self, chunk: Chunk) -> DrawnRows:
            rng = chunk.generator()
            return propose(rng.choice(len(WEIGHTS), chunk.rows, p=ruled.weights), rng)

    source = RoundedTableRows(table) if sampling == "rounded" else Proposed()
    return SyntheticRows(rows, SEED, RuledRows(source, schema, propose))


@each_case
@pytest.mark.parametrize("sampling", ["rounded", "independent"])
def test_no_row_of_a_copula_breaks_a_rule_and_their_shares_are_those_of_the_law_under_rules(case: str, sampling: str):
    schema, rows = schema_of(case), 60_000
    rules = RuledColumns.of(schema, groups_of(COLUMNS))
    assert rules is not None
    cells = synthetic(case, rows, sampling).cells()
    assert not broken_rows(schema.rules, cells).any()
    due = expected_shares(schema, masked_law_per_class(schema, rules))
    slack = 0.004 if sampling == "rounded" else 0.0  # scores on a grid, and two passes where rows are drawn again
    assert (np.abs(shares_of(cells) - due) <= SIGMAS * np.sqrt(due / rows) + slack + 1e-9).all()


@each_case
def test_rows_that_are_drawn_again_follow_the_law_of_their_class_given_the_rules(case: str):
    """The generators that know nothing of rules: rows come from the plain law, and those that break a rule go."""
    schema, rows, plain = schema_of(case), 60_000, law()

    def propose(classes: Codes, rng: np.random.Generator) -> DrawnRows:
        order = np.argsort(classes, kind="stable")
        groups = np.empty((len(classes), len(SHARES)), dtype=np.int64)
        for k in np.unique(classes):
            mine = order[classes[order] == k]
            groups[mine] = replace(plain, weights=np.eye(len(WEIGHTS))[k]).draw(len(mine), rng)[0]
        cells: Cells = {"a": groups[:, 0], "b": groups[:, 1].astype(np.float64), "c": groups[:, 2], "k": classes}
        return DrawnRows(groups, cells)

    rng = generator(8)
    weights = allowed_class_weights(schema, np.array(WEIGHTS))
    drawn = redraw_broken(propose(rng.choice(len(WEIGHTS), rows, p=weights), rng), schema, propose, rng)
    assert not broken_rows(schema.rules, drawn.cells).any()
    due = expected_shares(schema, law_per_class())
    assert (np.abs(shares_of(drawn.cells) - due) <= SIGMAS * np.sqrt(due / rows) + 1e-9).all()


def test_a_row_is_replaced_by_one_of_its_class_and_a_row_that_obeys_stays():
    schema = RecordSchema(COLUMNS, rules_of(["b > 0 OR k = 'u'"], COLUMNS))

    def propose(classes: Codes, rng: np.random.Generator) -> DrawnRows:
        groups = rng.integers(0, 2, (len(classes), 3))
        return DrawnRows(groups, {"a": groups[:, 0], "b": groups[:, 1] * 1.0, "c": groups[:, 2], "k": classes})

    rng = generator(9)
    before = propose(rng.integers(0, 3, 5000), rng)
    after = redraw_broken(before, schema, propose, rng)
    obeyed = ~broken_rows(schema.rules, before.cells)
    np.testing.assert_array_equal(after.cells["k"], before.cells["k"])
    np.testing.assert_array_equal(after.points[obeyed], before.points[obeyed])
    np.testing.assert_array_equal(after.points[:, 1], after.cells["b"])


@pytest.mark.parametrize("sampling", ["rounded", "independent"])
def test_a_chunk_is_the_same_whenever_it_is_drawn(sampling: str):
    rows = synthetic("rows without a legal continuation", 70_000, sampling)
    again = synthetic("rows without a legal continuation", 70_000, sampling)
    last = rows.chunk(2)
    for name, values in rows.chunk(0).items():
        np.testing.assert_array_equal(again.chunk(0)[name], values)
    for name, values in again.chunk(2).items():
        np.testing.assert_array_equal(last[name], values)


# ---------------------------------------------------------------- rare and impossible rows

NUMBERS: tuple[Column, ...] = (number("x", 0, 1), number("y", 0, 1))


def uniform(classes: Codes, rng: np.random.Generator) -> DrawnRows:
    points = rng.random((len(classes), 2))
    return DrawnRows(points, {"x": points[:, 0], "y": points[:, 1]})


def test_rules_with_a_ten_thousandth_of_the_mass_work():
    schema = RecordSchema(NUMBERS, rules_of(["x < 0.01 AND y < 0.01"], NUMBERS))
    rng = generator(3)
    drawn = redraw_broken(uniform(np.zeros(40, dtype=np.int64), rng), schema, uniform, rng)
    assert not broken_rows(schema.rules, drawn.cells).any()
    assert len({*drawn.cells["x"].tolist()}) == 40, "every row is a draw of its own"


def test_rules_with_less_than_can_be_drawn_fail_with_the_rate():
    schema = RecordSchema(NUMBERS, rules_of(["x < 0.0001 AND y < 0.0001"], NUMBERS))
    rng = generator(3)
    with pytest.raises(CheckFailedError, match="the share of draws that obey them is less than 1 in"):
        redraw_broken(uniform(np.zeros(40, dtype=np.int64), rng), schema, uniform, rng)


# ---------------------------------------------------------------- laws that are fitted under rules


def test_a_law_that_is_fitted_under_rules_has_the_measured_tables_and_breaks_none():
    """Age and status are known exactly; the groups of age do not end where the rule does."""
    columns: tuple[Column, ...] = (whole("age", 0, 59), levels("status", "child", "never", "wed"))
    schema = RecordSchema(
        columns, rules_of([{"not_applicable": {"when": "age < 15", "columns": {"status": "child"}}}], columns)
    )
    dice, rows = generator(4), 100_000
    age = dice.integers(0, 60, rows)
    status = np.where(age < 15, 0, 1 + (dice.random(rows) < age / 80))
    ages = ColumnCells(columns[0])
    groups = [
        ColumnGroups(ages, np.arange(60) // 10, np.full(60, 0.1), np.ones(6), np.ones(6)),
        groups_of(columns)[1],
    ]
    rules = RuledColumns.of(schema, groups)
    fitted = fit_table_law(exact_tables([age // 10, status], (6, 3)), generator(5), rules)
    assert rules is not None
    found = RuledLaw(fitted, rules).propose(np.zeros(rows, dtype=np.int64), generator(6))
    assert not broken_rows(schema.rules, found.cells).any()
    table, due = (np.zeros((6, 3)) for _ in range(2))
    np.add.at(table, (found.points[:, 0], found.points[:, 1]), 1 / rows)
    np.add.at(due, (age // 10, status), 1 / rows)
    assert np.abs(table - due).max() < 0.006


def test_a_law_is_fitted_although_some_rows_have_no_legal_continuation():
    """What the first two columns are decides the third, and two rules may leave it nothing."""
    columns: tuple[Column, ...] = (levels("a", "n", "y"), levels("b", "n", "y"), levels("c", "s", "t"))
    schema = RecordSchema(columns, rules_of(["c = 's' OR a = 'n'", "c = 't' OR b = 'n'"], columns))
    dice, rows = generator(4), 100_000
    kind = dice.choice(4, rows, p=[0.3, 0.2, 0.3, 0.2])  # a and b are never both y
    a, b, c = (np.array(values)[kind] for values in ([1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 1]))
    rules = RuledColumns.of(schema, groups_of(columns))
    assert rules is not None
    law = RuledLaw(fit_table_law(exact_tables([a, b, c], (2, 2, 2)), generator(5), rules), rules)
    rng, classes = generator(6), np.zeros(rows, dtype=np.int64)
    found = redraw_broken(law.propose(classes, rng), schema, law.propose, rng)
    assert not broken_rows(schema.rules, found.cells).any()
    for name, values in (("a", a), ("b", b), ("c", c)):
        assert np.mean(found.cells[name]) == pytest.approx(values.mean(), abs=0.02), name


def test_values_within_groups_keep_their_shares_where_a_rule_favours_some_of_them():
    """An end is never before its beginning, and most often close to it: ends must not pile up late in their groups."""
    columns: tuple[Column, ...] = (whole("start", 0, 99), whole("end", 0, 99))
    schema = RecordSchema(columns, rules_of(["end >= start"], columns))
    dice, rows = generator(7), 100_000
    start = dice.integers(0, 100, rows)
    end = np.minimum(start + dice.integers(0, 4, rows), 99)
    groups = [
        ColumnGroups(
            ColumnCells(column), np.arange(100) // 20, np.bincount(values, minlength=100) / rows * 5, *np.ones((2, 5))
        )
        for column, values in zip(columns, (start, end), strict=True)
    ]
    rules = RuledColumns.of(schema, groups)
    assert rules is not None
    fitted = fit_table_law(exact_tables([start // 20, end // 20], (5, 5)), generator(5), rules)
    classes = np.zeros(rows, dtype=np.int64)
    found = RuledLaw(fitted, rules).propose(classes, generator(6)).cells
    plain = RuledLaw(replace(fitted, tilts=(None, None)), rules).propose(classes, generator(6)).cells
    gap = {name: float(abs(np.mean(cells["end"]) - end.mean())) for name, cells in (("fit", found), ("no", plain))}
    assert not broken_rows(schema.rules, found).any()
    assert gap["fit"] < 0.35 * gap["no"]


def exact_tables(groups: list[Codes], sizes: tuple[int, ...]) -> PairTables:
    """The tables of rows of one class, without noise."""
    rows = len(groups[0])
    every = np.hstack([np.eye(size)[group] for group, size in zip(groups, sizes, strict=True)])
    own = np.repeat(np.arange(len(sizes)), sizes)
    excess = (every.T @ every - np.outer(every.mean(axis=0), every.sum(axis=0))) / rows
    shares = [np.bincount(group, minlength=size)[None, :] / rows for group, size in zip(groups, sizes, strict=True)]
    nothing = np.zeros(len(sizes))
    off = np.where(own[:, None] == own[None], 0.0, excess)
    return PairTables(np.array([float(rows)]), shares, nothing, nothing, off[None], 0.0)
