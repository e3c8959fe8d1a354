"""The gate sees noise that is too small, whatever a mechanism releases."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dpcore.accounting import Epsilon, Rho
from dpcore.exactgram import Layout
from dpcore.gate import audit_event, noise_size
from dpcore.mechanisms.base import GramEvent
from dpcore.noise import NormalSums, SeededNoise, WishartDifference
from dpcore.queries import HistogramsQuery, MomentsQuery, Query, RowsQuery, ScoreQuery
from dpcore.registry import ENTRIES, mechanism_of, vector_mechanism
from dpcore.schema import Neighbours
from dpcore.vectors import VectorEvent

LAYOUT = Layout(4, 1, Fraction(1, 4))
COMPONENTS = {"noisy-power-method": 2, "exponential-pca": 2, "eigenvalues-only": 3}
NAMES = [entry.name for entry in ENTRIES if entry.mechanism is not None]
ONE = Fraction(1)
VECTORS: list[tuple[str, Query]] = [
    ("histogram-gaussian", HistogramsQuery((3, 9), (ONE, ONE / 4))),
    ("histogram-laplace", HistogramsQuery((5, 2, 2), (ONE, ONE, ONE), 3)),
    ("jiang-laplace", MomentsQuery(2, (3,), 2)),
    ("noisy-rows", RowsQuery(3, 2)),
    ("score-gaussian", ScoreQuery("accuracy")),
    ("score-laplace", ScoreQuery("accuracy")),
]
UNSIZED = "exponential-pca"
"""Draws directions from a law of its own: nothing is added to anything."""


def event_of(name: str, layout: Layout = LAYOUT) -> GramEvent:
    budget = Rho(Fraction(1, 2)) if name in ("gaussian", "noisy-power-method") else Epsilon(Fraction(1))
    mechanism: Any = mechanism_of(name)
    parts = {"components": COMPONENTS[name]} if name in COMPONENTS else {}
    event: GramEvent = mechanism.calibrate(layout, Neighbours.REPLACE_ONE, budget, **parts)
    return event


def shrink_noise(monkeypatch: pytest.MonkeyPatch, factor: Fraction) -> None:
    """Every sampler draws noise of this size, whatever it is asked for."""
    laplace, rounded, start = SeededNoise.discrete_laplace, NormalSums.rounded, WishartDifference.__init__

    def less_laplace(self: SeededNoise, scale: float, size: int) -> list[int]:
        return laplace(self, scale * float(factor), size)

    def less_normal(self: NormalSums, offsets: Any, variances: Any) -> list[int]:
        return rounded(self, offsets, [variance * factor**2 for variance in variances])

    def less_wishart(self: WishartDifference, *, rate: Fraction, **others: Any) -> None:
        start(self, rate=rate / factor, **others)

    monkeypatch.setattr(SeededNoise, "discrete_laplace", less_laplace)
    monkeypatch.setattr(NormalSums, "rounded", less_normal)
    monkeypatch.setattr(WishartDifference, "__init__", less_wishart)


@pytest.mark.parametrize("name", NAMES)
def test_honest_noise_has_its_planned_size(name: str) -> None:
    size = noise_size(event_of(name), SeededNoise(1))
    if name == UNSIZED:
        assert size is None
        return
    assert size is not None
    assert size.holds
    assert abs(size.share - 1) < 5 * size.error
    assert size.entries >= 4000
    assert size.as_json()["holds"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != UNSIZED])
def test_noise_of_three_quarters_of_its_size_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_noise(monkeypatch, Fraction(3, 4))
    size = noise_size(event_of(name), SeededNoise(1))
    assert size is not None
    assert not size.holds


def test_a_wide_block_with_classes_is_judged_on_a_small_one() -> None:
    for layout in (Layout(40, 3, Fraction(1, 4), 2), Layout(40, 1, Fraction(1, 4), 1, labels=3)):
        size = noise_size(event_of("wishart-difference-trace", layout), SeededNoise(2))
        assert size is not None
        assert size.holds


def test_the_gate_holds_for_an_honest_build_and_not_for_one_with_less_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    event = event_of("laplace-sums")
    assert audit_event(event, SeededNoise(3)).as_json()["holds"]
    shrink_noise(monkeypatch, Fraction(3, 4))
    assert not audit_event(event, SeededNoise(3)).holds


def vector_event_of(name: str, query: Query) -> VectorEvent:
    budget = Rho(Fraction(1, 2)) if name.endswith("gaussian") else Epsilon(Fraction(1))
    return vector_mechanism(name).calibrate(query, Neighbours.REPLACE_ONE, budget)


def test_every_mechanism_of_vectors_is_sized_here() -> None:
    assert {name for name, _ in VECTORS} == {entry.name for entry in ENTRIES if entry.vector is not None}


@pytest.mark.parametrize(("name", "query"), VECTORS)
def test_the_noise_on_vectors_has_its_planned_size_and_three_quarters_of_it_are_seen(
    name: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = noise_size(vector_event_of(name, query), SeededNoise(1))
    assert size is not None
    assert size.holds
    assert abs(size.share - 1) < 5 * size.error
    assert 4000 <= size.entries < 4000 + query.size
    shrink_noise(monkeypatch, Fraction(3, 4))
    less = noise_size(vector_event_of(name, query), SeededNoise(1))
    assert less is not None
    assert not less.holds


def test_one_draw_of_a_large_vector_still_knows_its_error() -> None:
    """Numbers are samples of their own: the error of a mean of 5,000 normal squares is the root of 2 / 5,000."""
    size = noise_size(vector_event_of("histogram-gaussian", HistogramsQuery((5000,), (ONE,))), SeededNoise(2))
    assert size is not None
    assert size.entries == 5000
    assert size.error == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(("name", "query"), VECTORS[:2])
def test_the_gate_holds_for_honest_histograms_and_not_for_less_noise(
    name: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = audit_event(vector_event_of(name, query), SeededNoise(3))
    assert audit.holds
    assert audit.as_json()["attack"]["mechanism"] == name
    shrink_noise(monkeypatch, Fraction(3, 4))
    assert not audit_event(vector_event_of(name, query), SeededNoise(3)).holds
