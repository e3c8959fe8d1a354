"""The build audit detects noise that is too small, whatever a mechanism releases."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special

from dpcore.accounting import Cost, Epsilon, Rho
from dpcore.auditing.attack_table import ATTACKS, SEVERAL
from dpcore.auditing.build_audit import ATTACK_DRAWS, audit_event, draw_noise_size
from dpcore.auditing.known_noise import NoiseSize, loss_at
from dpcore.auditing.simulated_attacks import claim_of, epsilon_and_delta
from dpcore.measure import PrivateGram, measure_gram
from dpcore.mechanisms import gaussian, laplace, laplace_sums, nuclear_knorm, queries, wishart
from dpcore.mechanisms.base import UNIT, GramEvent, Triangles
from dpcore.mechanisms.catalogue import ENTRIES
from dpcore.mechanisms.components import exponential_pca, power_method
from dpcore.mechanisms.components.orthonormal import FRAME_UNIT
from dpcore.mechanisms.queries import HistogramsQuery, MomentsQuery, Query, RowsQuery, ScoreQuery
from dpcore.mechanisms.registry import mechanism_of, vector_mechanism
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.noise.certified import NormalSums
from dpcore.noise.sources import SeededNoise
from dpcore.noise.wishart import WishartDifference
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours

LAYOUT = GramLayout(4, 1, Fraction(1, 4))
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


def event_of(name: str, layout: GramLayout = LAYOUT) -> GramEvent:
    budget = Rho(Fraction(1, 2)) if name in ("gaussian", "noisy-power-method") else Epsilon(Fraction(1))
    mechanism: Any = mechanism_of(name)
    parts = {"components": COMPONENTS[name]} if name in COMPONENTS else {}
    event: GramEvent = mechanism.calibrate(layout, Neighbours.REPLACE_ONE, budget, **parts)
    return event


def shrink_noise(monkeypatch: pytest.MonkeyPatch, factor: Fraction) -> None:
    """Multiply the noise of every sampler by this factor."""
    laplace, rounded, start = SeededNoise.discrete_laplace, NormalSums.add_and_round, WishartDifference.__init__

    def less_laplace(self: SeededNoise, scale: float, size: int) -> list[int]:
        return laplace(self, scale * float(factor), size)

    def less_normal(self: NormalSums, offsets: Any, variances: Any) -> list[int]:
        return rounded(self, offsets, [variance * factor**2 for variance in variances])

    def less_wishart(self: WishartDifference, *, rate: Fraction, **others: Any) -> None:
        start(self, rate=rate / factor, **others)

    def less_spread(matrix: Any, *others: Any) -> Any:
        return frame(matrix / float(factor), *others)

    frame = exponential_pca.sample_bingham_frame
    monkeypatch.setattr(exponential_pca, "sample_bingham_frame", less_spread)
    monkeypatch.setattr(SeededNoise, "discrete_laplace", less_laplace)
    monkeypatch.setattr(NormalSums, "add_and_round", less_normal)
    monkeypatch.setattr(WishartDifference, "__init__", less_wishart)


@pytest.mark.parametrize("name", NAMES)
def test_honest_noise_has_its_planned_size(name: str) -> None:
    size = draw_noise_size(event_of(name), SeededNoise(1))
    assert size.holds
    assert abs(size.share - 1) < 5 * size.error
    assert size.entries >= 8000
    assert size.as_json()["holds"]


@pytest.mark.parametrize("name", NAMES)
def test_noise_that_is_a_tenth_too_small_is_seen_almost_surely(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result lies two standard errors inside the rejection region: such noise passes at most once in 40 audits."""
    shrink_noise(monkeypatch, Fraction(9, 10))
    size = draw_noise_size(event_of(name), SeededNoise(1))
    assert not size.holds
    assert size.most + 2 * size.error < 1


def test_a_wide_block_with_classes_is_judged_on_a_small_one() -> None:
    for layout in (GramLayout(40, 3, Fraction(1, 4), 2), GramLayout(40, 1, Fraction(1, 4), 1, labels=3)):
        size = draw_noise_size(event_of("wishart-difference-trace", layout), SeededNoise(2))
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
def test_the_noise_on_vectors_has_its_planned_size_and_a_tenth_less_is_seen(
    name: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = draw_noise_size(vector_event_of(name, query), SeededNoise(1))
    assert size.holds
    assert abs(size.share - 1) < 5 * size.error
    assert 8000 <= size.entries < 8000 + query.size
    shrink_noise(monkeypatch, Fraction(9, 10))
    less = draw_noise_size(vector_event_of(name, query), SeededNoise(1))
    assert less.most + 2 * less.error < 1


def test_one_draw_of_a_large_vector_still_knows_its_error() -> None:
    """Entries are independent: the standard error of the mean of 20,000 normal squares is sqrt(2 / 20,000)."""
    size = draw_noise_size(vector_event_of("histogram-gaussian", HistogramsQuery((20_000,), (ONE,))), SeededNoise(2))
    assert size.entries == 20_000
    assert size.error == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize(("name", "query"), VECTORS[:2])
def test_the_gate_holds_for_honest_histograms_and_not_for_less_noise(
    name: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = audit_event(vector_event_of(name, query), SeededNoise(3))
    assert audit.holds
    assert audit.as_json()["attack"]["mechanism"] == name
    shrink_noise(monkeypatch, Fraction(3, 4))
    assert not audit_event(vector_event_of(name, query), SeededNoise(3)).holds


# ---- a record that changes its class -----------------------------------------------------------------

BOUNDS: dict[str, tuple[Any, str]] = {
    "wishart-difference-trace": (wishart, "gram_nuclear"),
    "wishart-difference": (wishart, "gram_nuclear"),
    "nuclear-k-norm": (nuclear_knorm, "gram_nuclear"),
    "gaussian": (gaussian, "gram_frobenius"),
    "laplace": (laplace, "gram_weighted_l1"),
    "laplace-sums": (laplace_sums, "record_sums_l1"),
    "jiang-laplace": (queries, "jiang_moments_l1"),
}
"""The module and function that give each mechanism that measures classes separately its sensitivity."""

CLASSES = [pytest.param(name, marks=pytest.mark.slow) if name == "nuclear-k-norm" else name for name in BOUNDS]


def test_the_sensitivity_is_known_of_every_mechanism_that_is_attacked_with_two_classes() -> None:
    assert set(BOUNDS) == {name for name, parts in SEVERAL.items() if parts == "two classes"}


def event_with_classes(name: str) -> GramEvent | VectorEvent:
    if name == "jiang-laplace":
        return vector_event_of(name, MomentsQuery(2, (3,), 2))
    return event_of(name, GramLayout(4, 3, Fraction(1, 4)))


def understate(monkeypatch: pytest.MonkeyPatch, name: str, share: Fraction) -> None:
    """Make the sensitivity too small for several classes, if it depends on classes."""
    module, function = BOUNDS[name]
    whole = getattr(module, function)

    def smaller(*place: Any, **named: Any) -> Fraction:
        several = max(named.get("blocks", 0), named.get("classes", 0)) != 1
        bound: Fraction = whole(*place, **named)
        return bound * share if several else bound

    monkeypatch.setattr(module, function, smaller)


def surely_caught(name: str, relation: Neighbours, several: bool, draws: int = ATTACK_DRAWS) -> bool:
    """Return whether the bound stays above the claim if the noise appears larger by three standard errors."""
    prepared = ATTACKS[name](relation, several)
    assert prepared.law is not None
    size, planned = prepared.law(
        prepared, *(prepared.draw(table, draws, SeededNoise(seed)) for seed, table in enumerate(prepared.tables, 5))
    )
    later = replace(size, share=size.share + 3 * size.error)
    return epsilon_and_delta(Cost.of(loss_at(later, planned)))[0] > claim_of(prepared.event)[0]


@pytest.mark.parametrize("name", CLASSES)
def test_a_sensitivity_to_changed_labels_that_is_a_tenth_too_small_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert audit_event(event_with_classes(name), SeededNoise(6)).holds
    understate(monkeypatch, name, Fraction(9, 10))
    audit = audit_event(event_with_classes(name), SeededNoise(6))
    assert not audit.finding.holds
    assert "two classes" in audit.finding.how
    assert audit.size.holds, "its noise is as planned: the plan is wrong"
    assert surely_caught(name, Neighbours.REPLACE_ONE, several=True)


@pytest.mark.parametrize("name", CLASSES)
def test_noise_between_two_classes_that_is_a_tenth_too_small_is_caught_by_the_attack_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_noise(monkeypatch, Fraction(9, 10))
    assert surely_caught(name, Neighbours.REPLACE_ONE, several=True)


def test_a_trace_factor_in_every_block_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace factor belongs to all blocks together (M2); one per block is too little noise for a change of class."""
    whole = wishart.WishartMechanism.draw

    def block_by_block(self: Any, sums: Triangles, event: GramEvent, noise: Any) -> Triangles:
        one = replace(event, layout=replace(event.layout, blocks=1))
        return [whole(self, [block], one, noise)[0] for block in sums]

    monkeypatch.setattr(wishart.WishartMechanism, "draw", block_by_block)
    audit = audit_event(event_with_classes("wishart-difference-trace"), SeededNoise(7))
    assert not audit.finding.holds


@pytest.mark.parametrize("law", ["laplace", "normal"])
def test_honest_noise_stays_far_from_what_is_refused(law: str) -> None:
    """The smallest of 20,000 audits of single numbers, whose squares are the most skewed; 6 standard errors fail."""
    rng = np.random.default_rng(8)
    draw = {"laplace": lambda: rng.laplace(size=2400) / math.sqrt(2), "normal": lambda: rng.standard_normal(2400)}[law]
    sizes = [NoiseSize.of(draw()[:, None]) for _ in range(20_000)]
    assert min((size.share - 1) / size.error for size in sizes) > -5.5


# ---- directions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "how"), [("exponential-pca", "real"), ("eigenvalues-only", "real, two eigenvalues, known shape")]
)
def test_the_gate_audits_what_gives_several_directions_or_eigenvalues(name: str, how: str) -> None:
    audit = audit_event(event_of(name), SeededNoise(12))
    assert audit.holds
    assert audit.finding.how == how


POWER = "noisy-power-method"
RELATIONS = [(relation, several) for relation in Neighbours for several in (False, True)]


@pytest.mark.parametrize(("relation", "several"), RELATIONS)
def test_products_with_a_tenth_less_noise_are_caught(
    relation: Neighbours, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one or two directions, for added and replaced points; a random first frame may miss an added point."""
    across = relation is Neighbours.ADD_REMOVE and not several
    assert not surely_caught(POWER, relation, several, draws=200)
    shrink_noise(monkeypatch, Fraction(9, 10))
    assert surely_caught(POWER, relation, several, draws=ATTACK_DRAWS if across else 400)


def test_the_calibration_for_one_entry_of_the_matrix_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """PPM's noise is calibrated to one changed entry, which moves the product by the largest entry of the frame."""
    whole = power_method.draw_noisy_product

    def for_entries(moments: Any, frame: Any, scale: Fraction, noise: Any) -> Any:
        return whole(moments, frame, scale * Fraction(int(abs(frame).max()), FRAME_UNIT), noise)

    monkeypatch.setattr(power_method, "draw_noisy_product", for_entries)
    assert surely_caught(POWER, Neighbours.REPLACE_ONE, several=False, draws=400)
    assert surely_caught(POWER, Neighbours.REPLACE_ONE, several=True, draws=400)


def test_the_divergence_of_transcripts_attains_the_whole_cost() -> None:
    """In the plane every frame spans both records (M7), so half of the squared shifts add up to rho."""
    for several in (False, True):
        prepared = ATTACKS[POWER](Neighbours.REPLACE_ONE, several)
        draws = [prepared.draw(table, 4, SeededNoise(9)) for table in prepared.tables]
        assert prepared.law is not None
        assert float(prepared.law(prepared, *draws)[1].value) == pytest.approx(1 / 2, rel=1e-4)


def test_the_released_directions_are_the_last_of_the_transcript() -> None:
    event = event_of(POWER)
    moments = GramSum(event.layout)
    moments.blocks[0] = np.diag([5, 3, 2, 1]).astype(object) * UNIT
    released = measure_gram(PrivateGram(moments), event, SeededNoise(10)).basis()
    *_, (_, product) = power_method.POWER.draw_transcript(moments.upper_triangles(), event, SeededNoise(10))
    left = product - released @ np.linalg.lstsq(released, product, rcond=None)[0]
    assert np.linalg.norm(left) < 1e-4 * np.linalg.norm(product)


def beta_mean(width: int, components: int, loss: float) -> float:
    """Return the mean of b under the density b^(k/2 - 1) (1 - b)^((m - k)/2 - 1) exp(loss b), by quadrature."""

    def weight(angle: float) -> float:
        sine, cosine = math.sin(angle), math.cos(angle)
        return sine ** (components - 1) * cosine ** (width - components - 1) * math.exp(loss * (sine**2 - 1))

    mass, mean = (
        integrate.quad(lambda a, power=power: weight(a) * math.sin(a) ** power, 0, math.pi / 2, limit=200)[0]
        for power in (0, 2)
    )
    return mean / mass


@pytest.mark.parametrize(("width", "components"), [(2, 1), (3, 1), (8, 1), (4, 2), (6, 4)])
@pytest.mark.parametrize("loss", [0.5, 4.0, 40.0])
def test_the_mean_overlap_is_that_of_a_tilted_beta_variable(width: int, components: int, loss: float) -> None:
    assert exponential_pca.mean_overlap(width, components, loss) == pytest.approx(
        beta_mean(width, components, loss), rel=1e-7
    )


@pytest.mark.parametrize("loss", [0.5, 4.0, 40.0])
def test_in_the_plane_the_mean_overlap_is_that_of_von_mises(loss: float) -> None:
    """The doubled angle follows von Mises' law of concentration loss / 2, whose mean cosine is I1 / I0."""
    cosine = special.ive(1, loss / 2) / special.ive(0, loss / 2)
    assert exponential_pca.mean_overlap(2, 1, loss) == pytest.approx((1 + cosine) / 2, rel=1e-12)


@pytest.mark.parametrize(("width", "components", "draws"), [(2, 1, 2000), (5, 4, 2000), (4, 2, 100)])
def test_every_sampler_of_frames_has_the_mean_overlap(width: int, components: int, draws: int) -> None:
    """The samplers are rejection, the complement for all directions but one, and Gibbs sampling for the rest."""
    loss, rng = 6.0, SeededNoise(11).generator()
    matrix = loss * np.diag([1.0] + [0.0] * (width - 1))
    overlaps = np.array(
        [(exponential_pca.sample_bingham_frame(matrix, components, rng)[0] ** 2).sum() for _ in range(draws)]
    )
    error = overlaps.std() / math.sqrt(draws)
    assert abs(overlaps.mean() - beta_mean(width, components, loss)) < 5 * error
    assert abs(overlaps.mean() - beta_mean(width, components, 2 * loss)) > 5 * error
