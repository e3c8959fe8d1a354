"""A calibrated event costs at most its budget, in exact arithmetic, and hardly less."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.mechanisms.base import LARGEST_SCALE, UNIT, GramEvent, integer_scale, is_diagonal, triangle_size
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.registry import cost_of, gram_mechanism
from dpcore.mechanisms.sensitivity import best_l1_weight, gram_frobenius, gram_nuclear, gram_weighted_l1
from dpcore.noise.certified import NormalSums
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

PURE = ["wishart-difference", "wishart-difference-trace", "laplace"]
NAMES = [*PURE, "gaussian"]

layouts = st.builds(
    GramLayout,
    st.integers(2, 40),
    st.integers(1, 6),
    st.sampled_from([Fraction(1, 2), Fraction(29, 64), Fraction(1)]),
    st.integers(1, 5),
)
values = st.fractions(Fraction(1, 1000), Fraction(50), max_denominator=10**6)
pairs = st.sampled_from([(name, n) for name in NAMES for n in BY_NAME[name].neighbours])


def budget_for(name: str, value: Fraction) -> Budget:
    return Rho(value) if name == "gaussian" else Epsilon(value)


@given(pair=pairs, layout=layouts, value=values)
def test_the_cost_of_a_calibrated_event_is_the_budget_to_nine_digits_and_never_above(
    pair: tuple[str, Neighbours], layout: GramLayout, value: Fraction
) -> None:
    name, neighbours = pair
    event = gram_mechanism(name).calibrate(layout, neighbours, budget_for(name, value))
    cost = gram_mechanism(name).cost(event)
    assert isinstance(cost, Rho if name == "gaussian" else Epsilon)
    assert value * (1 - Fraction(1, 10**9)) <= cost.value <= value
    if name.startswith("wishart"):
        assert cost.value == value


@given(pair=pairs, layout=layouts, value=values)
def test_the_calibration_is_the_theorem_of_the_mechanism(
    pair: tuple[str, Neighbours], layout: GramLayout, value: Fraction
) -> None:
    """c = eps / nuclear; b >= L1 / eps; s² >= F² / (2 rho), each recomputed from the bounds."""
    name, neighbours = pair
    event = gram_mechanism(name).calibrate(layout, neighbours, budget_for(name, value))
    r = layout.squared_norm
    if name.startswith("wishart"):
        assert event.noise * gram_nuclear(neighbours, squared_norm=r) == value
        return
    if name == "gaussian":
        assert event.noise**2 >= (gram_frobenius(neighbours, squared_norm=r) * UNIT) ** 2 / (2 * value)
    else:
        bound = gram_weighted_l1(
            neighbours,
            squared_norm=r,
            dimension=layout.dimension,
            blocks=layout.blocks,
            weight=best_l1_weight(neighbours),
        )
        assert event.noise >= bound * UNIT / value
        assert Fraction(float(event.noise)) == event.noise, "the sampler takes the scale as it stands"


@given(pair=pairs, layout=layouts, value=values)
def test_an_event_survives_its_json_and_so_does_its_cost(
    pair: tuple[str, Neighbours], layout: GramLayout, value: Fraction
) -> None:
    name, neighbours = pair
    event = gram_mechanism(name).calibrate(layout, neighbours, budget_for(name, value))
    back = GramEvent.from_json(json.loads(json.dumps(event.as_json())))
    assert back == event
    assert cost_of(back) == cost_of(event)
    with pytest.raises(ValueError, match="grid_bits"):
        GramEvent.from_json(event.as_json() | {"grid_bits": 15})


class Watching(SeededNoise):
    """Seeded noise that records the requested scales."""

    def __init__(self) -> None:
        super().__init__(1)
        self.scales: list[tuple[float, int]] = []

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        self.scales.append((scale, size))
        return super().discrete_laplace(scale, size)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_laplace_sampler_is_asked_for_scales_that_are_exact_and_rounded_up(neighbours: Neighbours) -> None:
    """b on the diagonal, and at least b/w off it."""
    layout, noise, mechanism = GramLayout(5, 3, Fraction(1, 2)), Watching(), gram_mechanism("laplace")
    event = mechanism.calibrate(layout, neighbours, Epsilon(Fraction(1, 7)))
    mechanism.draw([[0] * 15] * 3, event, noise)
    (diagonal, on), (other, off) = noise.scales
    assert (on, off) == (15, 30)
    assert Fraction(diagonal) == event.noise
    wanted = event.noise / best_l1_weight(neighbours)
    assert Fraction(math.nextafter(other, 0)) <= wanted <= Fraction(other)


def test_the_gaussian_sampler_is_asked_for_variances_that_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """s² on the diagonal and s²/2 off it, for every block."""
    asked: list[list[Fraction]] = []

    class Noted(NormalSums):
        def add_and_round(self, offsets: Sequence[int], variances: Sequence[Fraction]) -> list[int]:
            asked.append(list(variances))
            return super().add_and_round(offsets, variances)

    monkeypatch.setattr("dpcore.mechanisms.gaussian.NormalSums", Noted)
    mechanism = gram_mechanism("gaussian")
    event = mechanism.calibrate(GramLayout(3, 2, Fraction(1, 2)), Neighbours.REPLACE_ONE, Rho(Fraction(1, 7)))
    mechanism.draw([[0] * 6] * 2, event, SeededNoise(1))
    whole, half = event.noise**2, event.noise**2 / 2
    assert asked == [[whole, half, half, whole, half, whole]] * 2


@pytest.mark.parametrize("name", NAMES)
def test_noise_is_added_to_the_sums_entry_by_entry(name: str) -> None:
    """With the same noise, the outputs of two tables differ by exactly their difference, in whole steps."""
    layout = GramLayout(3, 2, Fraction(1, 2))
    event = gram_mechanism(name).calibrate(layout, Neighbours.REPLACE_ONE, budget_for(name, Fraction(1)))
    sums = [[event.step * (10**6 * block + 1000 * i) for i in range(6)] for block in range(2)]
    drawn = [gram_mechanism(name).draw(s, event, SeededNoise(4)) for s in (sums, [[0] * 6] * 2)]
    difference = [[a - b for a, b in zip(one, two, strict=True)] for one, two in zip(*drawn, strict=True)]
    assert difference == [[cell // event.step for cell in block] for block in sums]
    assert all(cell for block in drawn[1] for cell in block), "every entry got noise"
    assert len({cell for block in drawn[1] for cell in block}) == 12, "of its own"


@pytest.mark.parametrize(
    ("name", "wrong"), [*((n, Rho(Fraction(1))) for n in PURE), ("gaussian", Epsilon(Fraction(1)))]
)
def test_a_budget_of_the_wrong_kind_is_refused(name: str, wrong: Budget) -> None:
    with pytest.raises(ValueError, match="spends"):
        gram_mechanism(name).calibrate(GramLayout(3, 1, Fraction(1)), Neighbours.REPLACE_ONE, wrong)


def test_the_trace_variant_is_refused_under_add_remove_also_as_a_stored_event() -> None:
    mechanism, layout = gram_mechanism("wishart-difference-trace"), GramLayout(3, 1, Fraction(1))
    with pytest.raises(ValueError, match="replace-one only"):
        mechanism.calibrate(layout, Neighbours.ADD_REMOVE, Epsilon(Fraction(1)))
    event = mechanism.calibrate(layout, Neighbours.REPLACE_ONE, Epsilon(Fraction(1)))
    forged = GramEvent.from_json(event.as_json() | {"neighbours": "add-remove"})
    with pytest.raises(ValueError, match="replace-one only"):
        cost_of(forged)


def test_noise_that_could_saturate_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="2\\^54"):
        gram_mechanism("laplace").calibrate(
            GramLayout(500, 1, Fraction(1)), Neighbours.REPLACE_ONE, Epsilon(Fraction(1, 10**18))
        )
    assert integer_scale("laplace", Fraction(LARGEST_SCALE)) == LARGEST_SCALE
    with pytest.raises(ValueError, match="2\\^54"):
        integer_scale("laplace", Fraction(LARGEST_SCALE) + Fraction(1, 10**30))


@pytest.mark.parametrize("exponent", [20, 40, 54])
def test_delta_num_covers_the_probability_that_64_bits_saturate(exponent: int) -> None:
    """Logarithms of the true tail times (1 + e^epsilon), for epsilon up to 100."""
    event = GramEvent(
        mechanism="laplace",
        neighbours=Neighbours.ADD_REMOVE,
        layout=GramLayout(8, 3, Fraction(1)),
        noise=Fraction(1 << exponent),
        step=1,
    )
    stated = gram_mechanism("laplace").delta_num(event)
    entries = 3 * triangle_size(8)
    log_tail = math.log(2 * entries) - 2.0 ** (63 - exponent) + 101
    log_stated = math.log(stated.numerator) - math.log(stated.denominator)
    assert log_stated >= min(log_tail, -500.0) if exponent < 54 else log_stated >= log_tail
    assert log_stated < math.log(1e-100)


@pytest.mark.parametrize("value", [Fraction(1, 10**24), Fraction(1, 10), Fraction(100)])
def test_gaussian_noise_has_no_finite_precision_delta_at_any_scale(value: Fraction) -> None:
    mechanism = gram_mechanism("gaussian")
    event = mechanism.calibrate(GramLayout(3, 1, Fraction(1)), Neighbours.REPLACE_ONE, Rho(value))
    assert mechanism.delta_num(event) == 0
    (triangle,) = mechanism.draw([[0] * 6], event, SeededNoise(3))
    assert max(map(abs, triangle)) < 20 * event.noise
    assert any(abs(cell) > event.noise / 20 for cell in triangle)


@pytest.mark.parametrize("trace", ["", "-trace"])
def test_wishart_noise_has_no_finite_precision_delta_and_a_step_below_a_thousandth_of_it(trace: str) -> None:
    mechanism = gram_mechanism(f"wishart-difference{trace}")
    for p in (2, 3, 8, 33, 100):
        for epsilon in (Fraction(1, 1000), Fraction(1), Fraction(200)):
            event = mechanism.calibrate(GramLayout(p, 2, Fraction(1, 2)), Neighbours.REPLACE_ONE, Epsilon(epsilon))
            assert mechanism.delta_num(event) == 0
            spread = mechanism.expected_error(event).off_diagonal_sd * UNIT
            assert event.step >= 1
            assert event.step & (event.step - 1) == 0, "a power of two"
            assert event.step == 1 or spread / 2**13 <= event.step <= spread / 2**10 * 1.2


@pytest.mark.parametrize("p", [1, 2, 5])
def test_triangles_are_counted_row_by_row(p: int) -> None:
    pattern = is_diagonal(p)
    assert len(pattern) == triangle_size(p) == sum(1 for i in range(p) for j in range(p) if i <= j)
    assert sum(pattern) == p
    assert pattern[0]
    assert pattern[-1]
