"""Even points: every stretch of them fills the unit interval, and classes are shared out to about a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.synthesis.even_points import Chunk, even_classes, new_words, to_unit

SEED = "0123456789abcdef" * 2


def chunk(start: int, rows: int, *, index: int = 0, seed: str = SEED) -> Chunk:
    return Chunk(index, start, rows, seed, start + rows)


@given(start=st.integers(0, 10**9), rows=st.integers(1, 3000), share=st.floats(0, 1))
def test_any_stretch_of_points_meets_any_share_up_to_a_few_points(start: int, rows: int, share: float) -> None:
    """The golden ratio's discrepancy grows with the logarithm of the number of points."""
    points = chunk(start, rows).even_points(np.uint64(12345))
    assert abs(np.count_nonzero(points < share) - rows * share) <= 1 + np.log(rows + 1)


def test_points_are_the_same_however_rows_are_divided_into_chunks() -> None:
    whole = chunk(0, 1000).even_words(np.uint64(7))
    parts = [chunk(start, 250, index=start // 250).even_words(np.uint64(7)) for start in range(0, 1000, 250)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_points_lie_from_zero_to_below_one() -> None:
    assert to_unit(np.array([0, 2**64 - 1], dtype=np.uint64)).tolist() == [0.0, 1 - 2.0**-53]


def test_a_new_start_is_anywhere_in_the_interval() -> None:
    dice = np.random.Generator(np.random.PCG64(1))
    starts = to_unit(np.array([new_words(1, dice)[0] for _ in range(4000)]))
    assert abs(starts.mean() - 1 / 2) < 6.1 / np.sqrt(12 * 4000)
    assert starts.min() < 0.01 < 0.99 < starts.max()


@pytest.mark.parametrize("rows", [1, 5, 700, 3001])
@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.0, 0.5], [0.97, 0.02, 0.01], [1 / 40] * 40])
def test_classes_of_a_table_follow_their_shares_up_to_about_a_row(rows: int, weights: list[float]) -> None:
    table = [
        even_classes(chunk(start, min(300, rows - start), index=i), np.array(weights), np.uint64(99))
        for i, start in enumerate(range(0, rows, 300))
    ]
    assert all(np.all(np.diff(classes) >= 0) for classes in table)
    counts = np.bincount(np.concatenate(table), minlength=len(weights))
    assert counts.sum() == rows
    assert np.all(np.abs(counts - rows * np.array(weights)) < 3)
    assert not counts[np.array(weights) == 0].any()


def test_a_row_has_each_class_as_often_as_its_share_says() -> None:
    weights, draws = np.array([0.9, 0.09, 0.01]), 4000
    found = [
        even_classes(Chunk(0, 0, 1, f"{k:x}", 1), weights, Chunk(0, 0, 1, f"{k:x}", 1).starts(1)[0])[0]
        for k in range(draws)
    ]
    shares = np.bincount(found, minlength=3) / draws
    assert np.all(np.abs(shares - weights) < 6.1 * np.sqrt(weights * (1 - weights) / draws))
