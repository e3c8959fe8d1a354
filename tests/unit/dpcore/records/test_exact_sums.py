"""The Gram matrix has the same bits for any order, chunks or machine, and hostile values cannot enter it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.dpcore.samplers import generator

from dpcore.mechanisms.base import UNIT
from dpcore.records import exact_sums
from dpcore.records.exact_sums import (
    GRID_BITS,
    POINT_BITS,
    PROJECTION_BITS,
    GramLayout,
    GramSum,
    InexactProductError,
    check_exact_product,
    integer_records,
    quantised_projection,
    require_exact_product,
)

LAYOUT = GramLayout(4, 2, Fraction(1, 2))

hostile_points = hnp.arrays(np.float64, st.tuples(st.integers(1, 20), st.just(3)), elements=st.floats(width=64))


def oracle_gram(records: np.ndarray, classes: np.ndarray, layout: GramLayout) -> np.ndarray:
    """Sums of products of Python integers, one row at a time."""
    blocks = np.full((layout.blocks, layout.dimension, layout.dimension), 0, dtype=object)
    for record, block in zip(records.tolist(), classes.tolist(), strict=True):
        whole = [int(x) for x in record]
        for i, a in enumerate(whole):
            for j, b in enumerate(whole):
                blocks[block][i, j] += a * b
    return blocks


def same(one: np.ndarray, two: np.ndarray) -> bool:
    return one.shape == two.shape and all(type(a) is int and a == b for a, b in zip(one.flat, two.flat, strict=True))


@given(points=hostile_points, data=st.data())
def test_the_gram_is_an_integer_oracle_in_any_order_and_any_chunks(points: np.ndarray, data: st.DataObject) -> None:
    records = integer_records(points, None, LAYOUT)
    classes = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(points), max_size=len(points))))
    whole = GramSum(LAYOUT)
    whole.add(records, classes)
    assert same(whole.blocks, oracle_gram(records, classes, LAYOUT))

    order = np.array(data.draw(st.permutations(range(len(points)))))
    cut = data.draw(st.integers(0, len(points)))
    parts = [GramSum(LAYOUT), GramSum(LAYOUT)]
    parts[0].add(records[order[:cut]], classes[order[:cut]])
    parts[1].add(records[order[cut:]], classes[order[cut:]])
    parts[1] = parts[1].with_sum(parts[0])
    assert same(parts[1].blocks, whole.blocks)


def test_long_tables_are_cut_into_exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = generator(1)
    points = rng.uniform(-1, 1, (5000, 3))
    records, classes = integer_records(points, None, LAYOUT), rng.integers(0, 2, 5000)
    whole, cut = GramSum(LAYOUT), GramSum(LAYOUT)
    whole.add(records, classes)
    monkeypatch.setattr(exact_sums, "ROWS_AT_ONCE", 7)
    cut.add(records, classes)
    assert same(whole.blocks, cut.blocks)
    assert same(whole.blocks, oracle_gram(records, classes, LAYOUT))


def test_a_product_of_the_most_rows_at_once_stays_exact() -> None:
    assert exact_sums.ROWS_AT_ONCE * 2 * UNIT <= exact_sums.EXACT


def test_the_sum_of_a_billion_rows_does_not_overflow() -> None:
    total, step = GramSum(LAYOUT), GramSum(LAYOUT)
    step.blocks = step.blocks + (1 << 62)
    for _ in range(5):
        total = total.with_sum(step)
    assert total.blocks[0, 0, 0] == 5 << 62


@given(points=hostile_points, data=st.data())
def test_integer_records_are_pure_whole_and_short(points: np.ndarray, data: st.DataObject) -> None:
    """Alone or among others, projected or not, weighted or not; NaN and infinity never pass."""
    projection = None
    if data.draw(st.booleans()):
        projection = quantised_projection(np.linalg.qr(generator(2).standard_normal((3, 3)))[0])
    shares = None
    if data.draw(st.booleans()):
        shares = 1 / np.array(data.draw(st.lists(st.integers(1, 9), min_size=len(points), max_size=len(points))))
    records = integer_records(points, projection, LAYOUT, shares)
    assert records.shape == (len(points), 4)
    assert np.all(np.isfinite(records))
    assert np.all(records == np.trunc(records))
    for i, record in enumerate(records):
        share = Fraction(1) if shares is None else 1 / Fraction(round(1 / shares[i]))
        squared = sum(int(x) ** 2 for x in record)
        assert squared <= share * LAYOUT.squared_norm * UNIT
        assert sum(int(x) ** 2 for x in record[1:]) <= share * UNIT
        alone = integer_records(points[i : i + 1], projection, LAYOUT, None if shares is None else shares[i : i + 1])
        assert np.array_equal(alone[0], record)


@given(points=hnp.arrays(np.float64, (5, 3), elements=st.floats(-0.57, 0.57)))
def test_a_record_inside_the_ball_is_only_truncated_toward_zero(points: np.ndarray) -> None:
    """Python's exact integers are the oracle: trunc(x 2^16)."""
    records = integer_records(points, None, LAYOUT)
    for point, record in zip(points, records, strict=True):
        assert [int(x) for x in record] == [
            LAYOUT.weight_on_grid,
            *(math.trunc(Fraction(float(x)) * (1 << 16)) for x in point),
        ]


@given(points=hnp.arrays(np.float64, (4, 3), elements=st.floats(-0.57, 0.57)))
def test_a_projection_is_exact_integer_arithmetic(points: np.ndarray) -> None:
    basis = quantised_projection(np.linalg.qr(generator(4).standard_normal((3, 2)))[0])
    layout = GramLayout(3, 1, Fraction(1, 2))
    records = integer_records(points, basis, layout)
    shift = 1 << (POINT_BITS + PROJECTION_BITS - GRID_BITS)
    for point, record in zip(points, records, strict=True):
        fine = [math.trunc(Fraction(float(x)) * (1 << POINT_BITS)) for x in point]
        exact = [math.trunc(Fraction(sum(f * int(basis[i, j]) for i, f in enumerate(fine)), shift)) for j in range(2)]
        assert [int(x) for x in record[1:]] == exact


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, -1e308, 1 + 2**-52, -2.0])
def test_a_coordinate_that_is_no_coordinate_counts_as_nothing(value: float) -> None:
    (record,) = integer_records(np.array([[value, 0.5, 0.0]]), None, LAYOUT)
    assert record.tolist() == [1 << 15, 0, 1 << 15, 0]


def test_a_record_outside_the_ball_is_brought_back_in_its_direction() -> None:
    (record,) = integer_records(np.array([[1.0, 1.0, -1.0]]), None, LAYOUT)
    body = record[1:]
    assert body[0] == body[1] == -body[2]
    assert 0.9999 * UNIT < float(body @ body) <= UNIT


def test_a_record_that_clipping_does_not_bound_becomes_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last safeguard: if clipping failed, the record would become (s, 0)."""
    monkeypatch.setattr(exact_sums.np, "sqrt", lambda x: np.asarray(x) * 0 + 1.0)
    records = integer_records(np.array([[1.0, 1.0, 1.0], [0.5, 0.0, 0.0]]), None, LAYOUT)
    assert records.tolist() == [[1 << 15, 0, 0, 0], [1 << 15, 1 << 15, 0, 0]]


def test_the_machines_product_is_exact() -> None:
    check_exact_product(np.matmul)
    require_exact_product()


def wrong_last_bit(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    product = one @ two
    product[3, 5] = np.nextafter(product[3, 5], np.inf)
    return product


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64),
        wrong_last_bit,
        lambda a, b: (a.astype(np.float16 if False else np.float32).astype(float)) @ b * (1 + 2**-52),
        lambda a, b: np.full((a.shape[0], b.shape[1]), np.nan),
    ],
    ids=["single precision", "a wrong last bit", "a scaled product", "NaN"],
)
def test_an_inexact_product_is_refused(product: object) -> None:
    with pytest.raises(InexactProductError, match="exact integers"):
        check_exact_product(product)  # type: ignore[arg-type]


def test_the_products_self_test_uses_nearly_every_bit_and_no_more() -> None:
    """Partial sums of absolute products stay below 2^53, so only an inexact machine can fail it."""
    seen: list[float] = []

    def watch(one: np.ndarray, two: np.ndarray) -> np.ndarray:
        seen.append(float((np.abs(one) @ np.abs(two)).max()))
        return one @ two

    check_exact_product(watch)
    assert 2**49 < seen[0] <= 2**53


@pytest.mark.parametrize(
    "arguments",
    [
        (1, 1, Fraction(1, 2)),
        (2, 0, Fraction(1, 2)),
        (2, 1, Fraction(1, 2), 0),
        (4, 2, Fraction(1, 2), 1, 2),
        (2, 1, Fraction(0)),
        (2, 1, Fraction(2)),
        (2, 1, Fraction(1, 3)),
    ],
)
def test_impossible_layouts_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"layout|count_weight|blocks"):
        GramLayout(*arguments)  # type: ignore[arg-type]


def test_a_projection_too_wide_for_exact_products_is_refused() -> None:
    with pytest.raises(ValueError, match="8192"):
        quantised_projection(np.zeros((8193, 1)))
    assert quantised_projection(np.zeros((8192, 1))).shape == (8192, 1)


def test_a_gram_sum_does_not_print_its_values() -> None:
    total = GramSum(LAYOUT)
    total.blocks = total.blocks + 123456789
    assert "123456789" not in repr(total) + str(total) + f"{total}"


@pytest.mark.parametrize("length", [1.00001, 1.001, 1.004, 1.009, 1.3, 2.0])
@pytest.mark.parametrize("share", [1.0, 1 / 3])
def test_a_point_just_outside_the_ball_is_clipped_to_it(length: float, share: float) -> None:
    """Such points exist: a quantised projection is not exactly orthonormal."""
    layout = GramLayout(6, 1, Fraction(1, 2))
    directions = np.vstack([np.full(5, 5**-0.5), [0.6, 0.8, 0, 0, 0], [0.36, 0.48, 0.8, 0, 0]])
    points = np.clip(length * directions, -1, 1)
    records = integer_records(points, None, layout, np.full(len(points), share))
    for body in records[:, 1:].astype(np.int64).tolist():
        squared = sum(value * value for value in body)
        assert squared <= share * 4**GRID_BITS
        assert squared >= 0.99 * share * 4**GRID_BITS  # clipped to the sphere, not to zero
