"""Groups drawn together: tables come out as expected, and nothing impossible is drawn."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from support.dpcore.samplers import generator
from support.dpcore.table_laws import drawn_rows, exact_shares, table_law

from dpcore.synthesis.copula.group_draws import BALANCED, by_dependence, draw_groups
from dpcore.synthesis.copula.max_entropy import TableLaw
from dpcore.synthesis.copula.pair_balance import even_blocks
from dpcore.synthesis.copula.rows_so_far import RowsSoFar
from dpcore.synthesis.copula.whole_chances import PARTS, chance_edges, chances_between, pick_groups

HALF = [0.4, 0.3, 0.2, 0.1]


def test_chances_are_whole_parts_that_sum_to_one_and_are_zero_where_the_mass_is() -> None:
    mass = np.array([[0.0, 3.0, 1e-300], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    chances = chances_between(chance_edges(mass.copy()))
    assert np.array_equal(chances, np.rint(chances))
    assert chances.sum(axis=0).tolist() == [PARTS] * 3
    assert chances[:, 0].tolist() == [0, PARTS, 0]
    assert chances[:, 1].tolist() == [PARTS * 3 / 4, PARTS / 4, 0]
    assert chances[:, 2].tolist() == [0, 0, PARTS]


def test_a_point_picks_the_group_whose_part_it_lies_in() -> None:
    edges = chance_edges(np.tile(np.array([[1.0], [0.0], [3.0]]), 4))
    words = np.array([0, 2**62 - 1, 2**62, 2**64 - 1], dtype=np.uint64)
    assert pick_groups(edges, words).tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1000, 32_768])
def test_blocks_hold_every_place_once_and_each_is_spread_over_all_places(rows: int) -> None:
    blocks = even_blocks(rows)
    assert np.array_equal(np.sort(np.concatenate(blocks)), np.arange(rows))
    for block in blocks:
        assert np.all(np.diff(block) > 0)
        early = np.count_nonzero(block < rows / 2)
        assert abs(early - len(block) / 2) <= 4


def pair_tables(law: TableLaw, classes: np.ndarray) -> list[np.ndarray]:
    """The expected rows in each pair of a class and a group, and of two groups."""
    counts = np.bincount(classes, minlength=len(law.weights))
    joint = np.array([count * exact_shares(law, k) for k, count in enumerate(counts)])
    return [joint.sum(axis=tuple(set(range(joint.ndim)) - set(pair))) for pair in combinations(range(joint.ndim), 2)]


def pair_counts(law: TableLaw, classes: np.ndarray, groups: np.ndarray) -> list[np.ndarray]:
    """The rows in each of these pairs."""
    every, found = np.column_stack([classes, groups]), []
    for a, b in combinations(range(every.shape[1]), 2):
        table = np.zeros((len(law.weights), *law.sizes)[a : b + 1 : b - a], dtype=np.int64)
        np.add.at(table, (every[:, a], every[:, b]), 1)
        found.append(table)
    return found


def distance(law: TableLaw, classes: np.ndarray, groups: np.ndarray) -> float:
    """Mean squared difference from the expected pairs: about 1 for independent rows."""
    both = zip(pair_counts(law, classes, groups), pair_tables(law, classes), strict=True)
    return float(np.mean([((found - due) ** 2 / due).mean() for found, due in both]))


def test_pairs_of_groups_are_much_closer_to_the_law_than_those_of_independent_rows() -> None:
    law, classes = table_law([HALF] * 4, [0.7, 0.3], strength=0.5), np.repeat([0, 1], [5600, 2400])
    together = [distance(law, classes, drawn_rows(law, classes, generator(seed)).groups) for seed in range(8)]
    assert np.mean(together) < 0.1
    assert max(together) < 0.2
    groups, drawn = law.draw(8000, generator(1))
    assert distance(law, drawn, groups) > 0.5


def test_a_group_without_probability_is_never_drawn_whatever_the_surplus() -> None:
    law = table_law([HALF, [0.5, 0.5, 0.0], [0.999, 0.001, 0.0, 0.0]], [0.5, 0.5], strength=2.0)
    for seed in range(20):
        rows = drawn_rows(law, np.repeat([0, 1], 300), generator(seed))
        assert rows.groups[:, 1].max() <= 1
        assert rows.groups[:, 2].max() <= 1


def test_a_row_gets_none_of_the_groups_that_are_not_allowed_to_it() -> None:
    law, dice = table_law([HALF, HALF]), generator(1)
    rows = RowsSoFar(np.zeros(3000, dtype=np.int64), 1, law.sizes)
    draw_groups(rows, np.zeros((3000, 4), dtype=np.float32), [], dice)
    allowed = np.ones((3000, 4), dtype=bool)
    allowed[rows.groups[:, 0] == 2, 1:3] = False
    draw_groups(rows, np.zeros((3000, 4), dtype=np.float32), [0], dice, allowed)
    bound = rows.groups[:, 0] == 2
    counts = np.bincount(rows.groups[bound, 1], minlength=4)
    assert counts[1:3].tolist() == [0, 0]
    assert abs(counts[0] - counts[3]) < 20, "the other groups keep their ratio"


@pytest.mark.parametrize("count", [1, 2, 5, 39])
def test_tiny_tables_and_many_classes_are_drawn(count: int) -> None:
    law = table_law([HALF, [1.0], HALF], [1 / 40] * 40)
    rows = drawn_rows(law, np.sort(generator(count).integers(0, 40, count)), generator(2))
    assert rows.groups.shape == (count, 3)
    assert not rows.groups[:, 1].any()


def test_in_a_wide_table_a_column_is_balanced_with_those_on_which_it_depends_most() -> None:
    rows = RowsSoFar(np.array([0, 0, 1]), 2, [2, 3, 1, 2])
    for groups in ([0, 1, 1], [2, 0, 1], [0, 0, 0]):
        rows.add(np.array(groups))
    assert rows.known([2, 0, 1]).tolist() == [
        [1, 0, 1, 0, 0, 0, 1, 1],
        [1, 0, 0, 1, 1, 0, 0, 1],
        [0, 1, 0, 1, 0, 1, 0, 1],
    ]
    assert rows.known([1]).tolist() == [[1, 0, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 0, 1, 0]]
    slopes = np.array([[1.0, -1], [0, 0], [0, 5], [0, 5], [0, 5], [3, 3]])
    assert by_dependence(slopes, [np.array([0.5, 0.5]), np.array([0.2, 0.3, 0.5]), np.ones(1)]) == [0, 1, 2]
    assert by_dependence(slopes[1:], [np.array([0.9, 0.1]), np.array([0.5, 0.5]), np.ones(1)]) == [0, 1, 2]
    assert by_dependence(slopes[::-1], [np.array([0.9, 0.1]), np.array([0.5, 0.5]), np.array([0.5, 0.5])]) == [0, 2, 1]


def test_shares_of_a_wide_table_are_close_to_the_laws() -> None:
    law = table_law([[0.7, 0.3]] * (BALANCED + 6), strength=0.0)
    rows = drawn_rows(law, np.zeros(2000, dtype=np.int64), generator(6))
    assert np.abs(rows.groups.sum(axis=0) - 600).max() < 6, "independent columns would differ by 20, and some by 50"


def test_a_single_column_of_one_class_has_its_shares_up_to_a_row() -> None:
    law = table_law([HALF])
    counts = np.bincount(drawn_rows(law, np.zeros(1000, dtype=np.int64), generator(3)).groups[:, 0], minlength=4)
    assert np.all(np.abs(counts - 1000 * np.array(exact_shares(law, 0))) < 3)


def test_groups_follow_from_law_classes_and_random_stream_alone() -> None:
    law, classes = table_law([HALF] * 3, [0.6, 0.4]), np.repeat([0, 1], [60, 40])
    one, two, other = (drawn_rows(law, classes, generator(seed)).groups for seed in (4, 4, 5))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
