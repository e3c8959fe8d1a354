"""Even points: every stretch of them fills the unit interval, and classes are shared out to about a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dpcore.synthesis.even_points import Chunk, even_classes, even_normals, new_words, to_unit

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


def quantiles(rows: int, coordinates: int, seed: int) -> np.ndarray:
    found: np.ndarray = norm.cdf(even_normals(rows, coordinates, np.random.Generator(np.random.PCG64(seed))))
    return found


@pytest.mark.parametrize("rows", [1, 2, 100, 4099])
def test_quantiles_of_a_coordinate_are_equally_spaced(rows: int) -> None:
    for column in quantiles(rows, 3, rows):
        assert 0 < column.min() < 1 / rows
        assert np.sort(column) == pytest.approx(column.min() + np.arange(rows) / rows, abs=1e-9)


def test_a_row_alone_is_uniform_in_every_coordinate_and_coordinates_are_independent() -> None:
    """Over many draws of three rows, the first row's two quantiles fill a grid of 4 x 4 squares evenly."""
    draws = 4000
    first = np.array([quantiles(3, 2, seed)[:, 0] for seed in range(draws)])
    squares = np.bincount(np.floor(first * 4).astype(int) @ [4, 1], minlength=16)
    assert np.all(np.abs(squares - draws / 16) < 6.1 * np.sqrt(draws / 16))


def test_means_and_spreads_of_normals_are_nearly_exact_in_hundreds_of_coordinates() -> None:
    normals = even_normals(2000, 300, np.random.Generator(np.random.PCG64(5)))
    farthest = np.abs(normals).max()  # what one number more or less at an end can change
    assert np.abs(normals.mean(axis=1)).max() < 2 * farthest / 2000
    assert np.abs(normals.var(axis=1) - 1).max() < 2 * farthest**2 / 2000
    correlations = np.corrcoef(normals)[np.triu_indices(300, 1)]
    assert np.abs(correlations).max() < 6.1 / np.sqrt(2000)


@pytest.mark.parametrize("start", [0.0, 1 - 2.0**-53])
def test_normals_are_finite_at_the_ends_of_the_unit_interval(start: float) -> None:
    class Edge(np.random.Generator):
        def random(self, size: int) -> np.ndarray:  # type: ignore[override]
            return np.full(size, start)

    assert np.isfinite(even_normals(5, 2, Edge(np.random.PCG64(1)))).all()
