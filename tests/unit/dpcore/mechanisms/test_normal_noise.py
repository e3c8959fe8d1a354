"""What is converted by the exact curve of Gaussian noise is continuous normal noise, rounded afterwards.

Discrete Gaussian noise would satisfy zCDP alone (GUARANTEE.md, M3).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from support import ROOT

from dpcore.accounting import Rho
from dpcore.mechanisms.catalogue import ENTRIES
from dpcore.mechanisms.components.power_method import POWER
from dpcore.mechanisms.gaussian import GAUSSIAN
from dpcore.mechanisms.queries import HistogramsQuery, Query, ScoreQuery
from dpcore.mechanisms.vectors import HISTOGRAM_GAUSSIAN, SCORE_GAUSSIAN, VectorGaussian
from dpcore.noise.certified import NormalSums
from dpcore.noise.sources import SeededNoise
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

RHO, REPLACED = Rho(Fraction(1, 2)), Neighbours.REPLACE_ONE


class Uniforms(SeededNoise):
    """Random bits, and no law that is discrete by itself."""

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        raise AssertionError("drawn from a discrete law")


def gram(noise: Uniforms) -> int:
    event = GAUSSIAN.calibrate(GramLayout(3, 2, Fraction(1, 2)), REPLACED, RHO)
    return sum(len(block) for block in GAUSSIAN.draw([[0] * 6, [0] * 6], event, noise))


def steps(noise: Uniforms) -> int:
    event = POWER.calibrate(GramLayout(4, 1, Fraction(1, 2)), REPLACED, RHO, components=2)
    sums = [[1 << 30] * 10]
    return sum(product.size for _, product in POWER.draw_transcript(sums, event, noise))


def vector(mechanism: VectorGaussian, query: Query) -> Callable[[Uniforms], int]:
    def draw(noise: Uniforms) -> int:
        return len(mechanism.draw([0] * query.size, mechanism.calibrate(query, REPLACED, RHO), noise))

    return draw


DRAWS = {
    GAUSSIAN.name: gram,
    POWER.name: steps,
    HISTOGRAM_GAUSSIAN.name: vector(HISTOGRAM_GAUSSIAN, HistogramsQuery((3, 2), (Fraction(1), Fraction(1)))),
    SCORE_GAUSSIAN.name: vector(SCORE_GAUSSIAN, ScoreQuery("accuracy", of="y")),
}


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if "exact curve" in entry.guarantee])
def test_every_number_with_gaussian_noise_is_a_rounded_normal_number(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded = []
    exact = NormalSums.add_and_round

    def add_and_round(self: NormalSums, offsets: list[int], variances: list[Fraction]) -> list[int]:
        rounded.extend(offsets)
        return exact(self, offsets, variances)

    monkeypatch.setattr(NormalSums, "add_and_round", add_and_round)
    assert DRAWS[name](Uniforms(5)) == len(rounded) > 0


def test_no_module_of_the_mathematics_draws_discrete_gaussian_noise() -> None:
    sources = {path: path.read_text() for path in (ROOT / "dpcore").rglob("*.py")}
    assert [path for path, text in sources.items() if "make_laplace" in text], "OpenDP's samplers would be seen"
    assert [path for path, text in sources.items() if "make_gaussian" in text or "discrete_gaussian" in text] == []
