"""Every figure in a sentence of the product is computed here once more, in another way."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.stats import binomtest, laplace, norm

from dpcore.accounting import rho_of_epsilon
from dpcore.auditing.membership import MembershipFigure
from dpcore.planning.budgeted_checks import LAPLACE_95
from tasks.bundle import odds
from tasks.bundle.guarantee_text import guarantee, limits
from tasks.report.wording import finite_precision
from tasks.spec import load_spec, parse_spec
from tasks.spec.plan import PlannedRelease
from tasks.spec.relations import at_most

BASE = """
name: visits
source: {path: landing/*.csv, period: '(?P<period>[0-9]{4}-[0-9]{2})'}
privacy: {population: people, epsilon: %s, delta: %s, neighbours: %s, lifetime: {epsilon: 200, delta: 1.0e-4}}
expected_rows: 20000
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: weight, kind: numeric, bounds: [0, 200]}
model: %s
"""
GAUSSIAN = "{mechanism: gaussian, generator: gaussian, radius: 1}"
PURE = "{mechanism: wishart-difference, generator: gaussian, radius: 1}"
FRAMED = "{mechanism: gaussian, generator: gaussian, radius: auto}"
MIXED = "{mechanism: laplace, generator: gaussian, projection: {kind: private-pca, dimension: 1, mechanism: gaussian}}"


@pytest.fixture
def words(tmp_path: Any) -> Any:
    """The guarantee of a specification in one text, and its plan."""

    def of(model: str, epsilon: str = "1", delta: str = "1.0e-6", neighbours: str = "replace-one") -> tuple[str, Any]:
        path = tmp_path / "release.yaml"
        path.write_text(BASE % (epsilon, delta, neighbours, model))
        planned = PlannedRelease.of(load_spec(path))
        return " ".join(guarantee(planned)), planned.plan

    return of


def figures(pattern: str, text: str) -> list[float]:
    """The numbers in a sentence that the pattern finds; it must occur once."""
    (found,) = re.findall(pattern.replace("#", r"([0-9][0-9.e+-]*[0-9]|[0-9])"), text)
    return [float(number) for number in (found if isinstance(found, tuple) else (found,))]


def above(stated: float, exact: float, *, digits: int) -> bool:
    """Whether a figure of so many digits is the exact one rounded up."""
    return exact <= stated * (1 + 1e-9) and stated - exact <= 10 ** (math.floor(math.log10(exact)) - digits + 1)


def gaussian_mu(plan: Any) -> float:
    """The distance of the worst neighbours in standard deviations, from the noise's scale and the sensitivity."""
    return math.sqrt(2 * float(plan.cost.rho))


@pytest.mark.parametrize(
    ("model", "length", "clipped"),
    [
        ("{generator: gaussian, radius: 1}", False, False),
        ("{generator: gaussian, radius: auto}", False, True),
        ("{generator: gaussian, normalise: length}", True, False),
        ("{generator: gaussian, normalise: length, radius: 0.5}", True, True),
        ("{generator: gaussian, normalise: length, radius: auto}", True, True),
    ],
)
def test_the_limits_say_whether_lengths_were_lost_and_points_clipped(
    model: str, length: bool, clipped: bool, tmp_path: Any
) -> None:
    path = tmp_path / "release.yaml"
    path.write_text(BASE % ("1", "0", "replace-one", model))
    planned = PlannedRelease.of(load_spec(path))
    text = " ".join(limits(planned, planned.plan.dimension))
    assert ("scaled to the same length" in text) is length
    assert ("means of single columns are only guesses" in text) is length
    assert ("clipped to a radius" in text) is clipped


def test_the_limits_say_that_a_moved_target_is_clipped() -> None:
    target = BASE.replace("bounds: [0, 200]}", "bounds: [0, 200], role: target}")
    model = "{generator: supervised, normalise: length, projection: {kind: none}}"
    planned = PlannedRelease.of(parse_spec(target % ("1", "0", "replace-one", model)))
    assert "clipped to a radius" in " ".join(limits(planned, planned.plan.dimension))


# ---------------------------------------------------------------- the factor and the odds


@pytest.mark.parametrize("epsilon", ["0.001", "0.2", "0.5", "1", "3", "7.3", "20", "100"])
def test_the_factor_and_the_certainty_are_rounded_upward(words: Any, epsilon: str) -> None:
    text, _ = words(PURE, epsilon)
    stated, factor = figures(r"every probability changes by a factor of at most e\^# \(below #\)(?:, |\. )", text)
    assert stated == float(epsilon)
    exact = sum((Fraction(epsilon) ** k / math.factorial(k) for k in range(1, 400)), Fraction(0))
    assert exact < Fraction(factor) - 1
    assert above(factor - 1, float(exact), digits=3)
    percent = re.findall(r"at most ([0-9.]+)% sure", text)[0]
    exact = 100 * Fraction(math.exp(float(epsilon))) / (1 + Fraction(math.exp(float(epsilon))))
    step = Fraction(1, 10 ** len(percent.partition(".")[2]))
    assert exact <= Fraction(percent) <= exact + step
    assert Fraction(percent) < 100


def test_pure_noise_never_makes_anybody_surer_than_is_stated(words: Any) -> None:
    """Laplace noise on a count, the worst pure case: posteriors of either account over a grid of outcomes."""
    text, _ = words(PURE)
    (most,) = figures(r"at most #% sure of either", text)
    outcomes = np.linspace(-50, 50, 100_001)
    likely, other = laplace.pdf(outcomes), laplace.pdf(outcomes - 1)
    surest = 100 * max((likely / (likely + other)).max(), (other / (likely + other)).max())
    assert surest <= most <= surest + 0.1
    assert "probability" not in text.partition("sure of either")[2].partition(".")[0]


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1.0e-6"), ("0.5", "1.0e-5"), ("3", "1.0e-6")])
def test_the_chance_of_becoming_surer_is_the_tail_of_the_loss(words: Any, epsilon: str, delta: str) -> None:
    """Integrated over the outcomes at which the reader's posterior exceeds what is stated."""
    text, plan = words(GAUSSIAN, epsilon, delta)
    chance, viewed = figures(
        r"probability of at most # for a reader of the noisy measurements, and of at most # for", text
    )
    mu, x = gaussian_mu(plan), float(epsilon)
    start = optimize.brentq(lambda z: norm.logpdf(z - mu) - norm.logpdf(z) - x, 0, 100)
    assert above(chance, integrate.quad(lambda z: norm.pdf(z - mu), start, start + 30, epsabs=0)[0], digits=2)
    assert chance > 5 * float(delta)
    yes = optimize.brentq(lambda z: norm.logsf(z - mu) - norm.logsf(z) - x, 0, 100)
    assert above(viewed, float(norm.sf(yes - mu)), digits=2), "the view 'is it beyond this?'"
    assert viewed > 2 * chance


def test_several_gaussian_measurements_are_stated_with_the_maximum_of_the_loss(words: Any) -> None:
    """A frame's measurements decide the later ones: simulated in small steps, stopped as soon as the loss is high."""
    text, plan = words(FRAMED, "1", "1.0e-4")
    chance, _ = figures(r"probability of at most # for a reader of the noisy measurements, and of at most # for", text)
    dice, paths, steps, rho = np.random.Generator(np.random.PCG64(3)), 200_000, 100, float(plan.cost.rho)
    loss = np.zeros(paths)
    for _ in range(steps):
        loss += (loss <= 1) * (rho / steps + math.sqrt(2 * rho / steps) * dice.standard_normal(paths))
    convinced = int((loss > 1).sum())
    assert binomtest(convinced, paths, chance, "greater").pvalue > 1e-6
    one = float(norm.sf(1 / gaussian_mu(plan) - gaussian_mu(plan) / 2))
    assert binomtest(convinced, paths, one, "greater").pvalue < 1e-9, "as one measurement it would be false"


def test_mixed_noise_leaves_the_gaussian_part_what_the_pure_part_does_not_take(words: Any) -> None:
    text, plan = words(MIXED)
    chance, _ = figures(r"probability of at most # for a reader of the noisy measurements, and of at most # for", text)
    pure, mu = float(plan.cost.epsilon), gaussian_mu(plan)
    assert 0 < pure < 1
    assert above(chance, float(norm.sf((1 - pure) / mu - mu / 2)), digits=2)


def test_under_add_remove_the_promise_is_about_presence(words: Any) -> None:
    """The epsilon of add-remove is not that of another value, which is two steps: out of the data and back in."""
    text, _ = words(PURE, neighbours="add-remove")
    promise, contents = (
        "almost as likely if one row had been added to the data or removed from it: every",
        "anything else",
    )
    assert promise in text
    assert contents not in text.partition(" protected as well")[0], "only the sentence with its own figure says that"


# ---------------------------------------------------------------- groups, finite precision, lifetime


@pytest.mark.parametrize(("model", "delta"), [(GAUSSIAN, "1.0e-6"), (MIXED, "1.0e-6"), (PURE, "0")])
def test_a_group_of_ten_has_its_own_epsilon_and_delta(words: Any, model: str, delta: str) -> None:
    text, plan = words(model, "1", delta)
    if model == PURE:
        assert figures("only with k times epsilon, 10 rows with epsilon #", text) == [10]
        return
    epsilon, stated = figures("10 rows with epsilon # and delta #", text)
    mu, rest = 10 * gaussian_mu(plan), 10 * (1 - float(plan.cost.epsilon))
    start = rest / mu + mu / 2
    exact = integrate.quad(lambda z: norm.pdf(z - mu) - math.exp(rest) * norm.pdf(z), start, start + 30, epsabs=0)[0]
    assert epsilon == 10
    assert above(stated, exact, digits=2)


def test_ten_and_thirty_people_at_one_and_a_millionth() -> None:
    """Noise of the group's own size, drawn: how far one event's probabilities lie apart."""
    mu = 30 * math.sqrt(2 * float(rho_of_epsilon(1.0, delta=1e-6)))
    dice, draws = np.random.Generator(np.random.PCG64(9)), 1_000_000
    event = 30 / mu + mu / 2
    inside = (dice.standard_normal(draws) + mu > event).mean() - math.exp(30) * norm.sf(event)
    assert inside == pytest.approx(0.21, abs=0.005)


def test_the_finite_precision_sentence_is_rounded_upward(words: Any) -> None:
    text, plan = words("{mechanism: laplace, generator: gaussian}", delta="0")
    (stated,) = figures("finite precision adds at most # to every probability", text)
    exact = plan.cost.delta_num
    assert exact <= Fraction(stated) <= 2 * exact


@pytest.mark.parametrize(("value", "digits", "due"), [(1.2214, 3, "1.23"), (2.0e-5, 2, "2e-05"), (0.2099, 2, "0.21")])
def test_figures_are_rounded_upward(value: float, digits: int, due: str) -> None:
    assert at_most(value, digits) == due


def test_the_lifetime_says_when_its_delta_doubles(words: Any) -> None:
    """GUARANTEE.md, "Kinds of caps": at 2 delta at the worst where Gaussian noise came first and was mixed."""
    assert "within a lifetime epsilon of 200 and delta of 0.0001 (at worst twice that delta" in words(GAUSSIAN)[0]
    assert odds.lifetime(Fraction(12), Fraction(0), Fraction(0)) == "a lifetime epsilon of 12"


def test_figures_with_many_digits_are_rounded_upward(words: Any) -> None:
    """Python's `g` would write 1.23457, 12.3457 and 1.23457e-06: the last of them too small."""
    text, _ = words(GAUSSIAN, "1.2345672", "1.2345672e-6")
    stated, factor = figures(r"every probability changes by a factor of at most e\^# \(below #\)", text)
    assert 1.2345672 <= stated <= 1.2345672 + 1e-5
    assert math.exp(stated) < factor
    (delta,) = figures("by at most delta = # beyond that. Someone", text)
    assert 1.2345672e-6 <= delta <= 1.2345672e-6 + 1e-11
    epsilon, _ = figures("10 rows with epsilon # and delta #", words(GAUSSIAN, "1.2345612")[0])
    assert 12.345612 <= epsilon <= 12.345612 + 1e-4
    assert odds.lifetime(Fraction("1.2345612"), Fraction("1.0000001e-6"), Fraction(0)).startswith(
        "a lifetime epsilon of 1.23457 and delta of 1.00001e-06 (at worst twice"
    )
    record = {"delta_num": 2.2e-16, "measurements": [{"status": "proved"}]}
    assert finite_precision(record) == "finite precision 3e-16"


def test_certainty_speaks_of_finite_precision_where_it_adds_something(words: Any) -> None:
    adds = "through this release, up to what finite precision adds."
    laplace_text, plan = words("{mechanism: laplace, generator: gaussian}", delta="0")
    pure_text, pure_plan = words(PURE, delta="0")
    assert plan.cost.delta_num > pure_plan.cost.delta_num == 0
    assert adds in laplace_text
    assert adds not in pure_text


def test_the_limits_say_that_budgeted_checks_measured_scores() -> None:
    checks = "checks: {accuracy: {budget: 0.1}}\n"
    labelled = BASE.replace("{name: age", "{name: ill, kind: boolean, role: label}\n  - {name: age")
    planned = [
        PlannedRelease.of(parse_spec(labelled % ("1", "0", "replace-one", "{}") + more)) for more in ("", checks)
    ]
    said = [" ".join(limits(one, one.plan.dimension)) for one in planned]
    assert ["scores of the synthetic rows" in words for words in said] == [False, True]


def test_the_sum_of_costs_for_persons_names_whose_rows_it_is_about(words: Any) -> None:
    person = "replace-one, unit: {person: who, rows: weight}"
    assert "share one identifier" in words(PURE, neighbours=person)[0]
    assert "share one identifier" not in words(PURE)[0]


# ---------------------------------------------------------------- margins, scores, attacks


def test_the_noise_of_a_bought_score_stays_within_its_margin_95_of_100_times() -> None:
    dice = np.random.Generator(np.random.PCG64(1))
    drawn = np.abs(dice.laplace(size=1_000_000)) / math.sqrt(2)
    assert (drawn <= LAPLACE_95).mean() == pytest.approx(0.95, abs=0.001)
    assert (drawn <= 1.96).mean() < 0.94, "with the normal law's 1.96 it would be false"


def test_members_are_told_from_others_no_more_often_than_the_ceiling() -> None:
    """The best guess about Gaussian noise of (1, 1e-6), which is right with chance 1 - Q(mu / 2), lies below it."""
    mu = math.sqrt(2 * float(rho_of_epsilon(1.0, delta=1e-6)))
    ceiling = MembershipFigure(1, 2, 1.0, 1e-6).ceiling
    assert norm.cdf(mu / 2) <= ceiling
    rare = math.exp(1) / (1 + math.exp(1))
    assert ceiling == pytest.approx(rare + 1e-6 / (1 + math.exp(1)), rel=1e-12)
