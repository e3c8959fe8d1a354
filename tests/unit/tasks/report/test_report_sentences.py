"""Figures of report, site, registry entry and plan: computed once more, and never rounded to the flattering side."""

from __future__ import annotations

import io
import math
import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from rich.console import Console
from scipy import integrate, optimize
from scipy.stats import norm
from support.tasks.report.pages import Page, checked_record, clinic_record

from dpcore.accounting import Cost, Epsilon, Rho, population_balance, times
from dpcore.auditing.membership import MembershipFigure
from flows.cli import audits, plans
from tasks.bundle import odds
from tasks.bundle.guarantee_text import guarantee
from tasks.bundle.registry_entry import build_deployment
from tasks.ledger.state import LedgerState
from tasks.report import cards
from tasks.report.fit import INSIDE
from tasks.report.report import render_report
from tasks.schedule.outlook import Outlook
from tasks.site.ledger import format_cost
from tasks.spec import parse_spec
from tasks.spec.plan import PlannedRelease, cap_of

SPEC = """
name: visits
source: {path: landing/*.csv, period: '(?P<period>[0-9]{4}-[0-9]{2})'}
privacy:
  {population: people, epsilon: %s, delta: %s, neighbours: %s, lifetime: {epsilon: %s, delta: %s, delta_num: 1.0e-9}}
expected_rows: 20000
columns:
  - {name: age, kind: numeric, bounds: [0, 100]}
  - {name: weight, kind: numeric, bounds: [0, 200]}
model: {mechanism: %s, generator: gaussian, radius: 1}
"""
NUMBER = r"([0-9][0-9.,]*(?: × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?|10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
PARTS = "Spent before # Added by this release # Remaining # Lifetime epsilon #"
LOWERED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def gaussian(epsilon: str = "1.23442", cap: str = "3.34543", neighbours: str = "replace-one") -> PlannedRelease:
    return PlannedRelease.of(parse_spec(SPEC % (epsilon, "1.2342e-6", neighbours, cap, "1.0002e-5", "gaussian")))


def pure(epsilon: str = "1.23442", neighbours: str = "replace-one", mechanism: str = "laplace") -> PlannedRelease:
    return PlannedRelease.of(parse_spec(SPEC % (epsilon, "0", neighbours, "3.34543", "0", mechanism)))


def epsilon_at(rho: float, delta: float) -> float:
    """The epsilon of two normal laws at distance mu, by quadrature of the gap between them."""
    mu = math.sqrt(2 * rho)

    def gap(x: float) -> float:
        start = x / mu + mu / 2
        return integrate.quad(lambda z: norm.pdf(z - mu) - math.exp(x) * norm.pdf(z), start, start + 12, epsabs=0)[0]

    return float(optimize.brentq(lambda x: math.log(max(gap(x), 1e-300)) - math.log(delta), 1e-3, 60, xtol=1e-12))


def read(text: str) -> float:
    """A number as pages write it."""
    written = re.fullmatch(r"(?:([0-9.]+) × )?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)
    if written is None:
        return float(text.replace(",", ""))
    return float(f"{written[1] or 1}e{written[2].translate(LOWERED)}")


def figures(pattern: str, text: str) -> list[float]:
    """The numbers at the places marked #, where the words occur; they must occur once."""
    (found,) = re.findall(pattern.replace("#", NUMBER), text)
    return [read(number.rstrip(".,")) for number in (found if isinstance(found, tuple) else (found,))]


def above(stated: float, exact: float, *, digits: int = 4) -> bool:
    """Whether a figure is the exact one, rounded up in its last digit."""
    return exact * (1 - 1e-9) <= stated <= exact + 1.001 * 10 ** (math.floor(math.log10(exact)) - digits + 1)


def below(stated: float, exact: float, *, digits: int = 4) -> bool:
    return exact - 1.001 * 10 ** (math.floor(math.log10(exact)) - digits + 1) <= stated <= exact * (1 + 1e-9)


def text_of(record: dict[str, Any]) -> str:
    return " ".join(Page(render_report(record)).text().split())


def record_of(run: PlannedRelease, earlier: int) -> dict[str, Any]:
    """The clinic's record with a run's privacy and the budget of so many releases before it."""
    record, cap, cost = clinic_record(), cap_of(run.spec), run.plan.cost
    after = times(cost, earlier + 1)
    record["privacy"] |= {**run.stated, **run.relations, "guarantee": guarantee(run)}
    record["budget"] = {
        "lifetime": {name: float(getattr(cap, name)) for name in ("epsilon", "delta", "delta_num")},
        "before": population_balance(times(cost, earlier), delta=cap.delta).as_json(),
        "after": population_balance(after, delta=cap.delta).as_json(),
        "releases_left": cap.releases_left(after, cost),
    }
    return record


# ---------------------------------------------------------------- the report


def test_the_epsilon_and_delta_on_top_of_a_report_are_rounded_up() -> None:
    text = text_of(record_of(gaussian(), 0))
    epsilon, delta = figures("passed ε # δ # rows", text)
    assert above(epsilon, 1.23442)
    assert above(delta, 1.2342e-6, digits=3)


def test_a_report_states_what_gaussian_releases_have_spent_together() -> None:
    """Composed by quadrature at the delta of the lifetime: it is not the sum of what each of them states."""
    run = gaussian()
    text, rho = text_of(record_of(run, 2)), float(run.plan.cost.rho)
    before, after = (epsilon_at(count * rho, 1.0002e-5) for count in (2, 3))
    told = figures(PARTS, text)
    assert above(told[0], before)
    assert above(told[1], after - before)
    assert below(told[2], 3.34543 - after)
    assert above(told[3], 3.34543)
    assert [told[3], *told[:3]] == figures("Remaining ε # # # # δ ", text), "the table says the same"
    fits = sum(epsilon_at(count * rho, 1.0002e-5) <= 3.34543 for count in range(4, 20))
    assert figures("# more releases of this cost fit the lifetime budget", text) == [fits]
    assert "It is not the sum of the ε that each release states" in text


def test_a_report_adds_pure_costs_up() -> None:
    text = text_of(record_of(pure(), 1))
    told = figures(PARTS, text)
    assert above(told[0], 1.23442)
    assert above(told[1], 1.23442)
    assert below(told[2], 3.34543 - 2 * 1.23442)
    assert "No further release of this cost fits the lifetime budget" in text
    assert "at its own δ" not in text


def test_a_report_rounds_what_an_attack_was_set_to_up_and_what_it_found_down() -> None:
    record = clinic_record()
    attack = {
        "claimed": 2.31742,
        "delta": 0.010001,
        "measured": 2.0973,
        "draws": 1200,
        "error": 1.0001e-6,
        "how": "real",
    }
    build = {"code_digest": "0" * 64, "attack": attack, "noise": None, "replay": {"largest_share": 0.99942}}
    record["privacy"]["measurements"] = [record["privacy"]["measurements"][0] | {"build": build}]
    text = text_of(record)
    claimed, delta, found = figures("set to ε = # at δ = #. The attack measured an ε of at least # at that δ", text)
    assert above(claimed, 2.31742)
    assert above(delta, 0.010001)
    assert below(found, 2.0973, digits=2)
    assert above(figures("its error probability is #.", text)[0], 1.0001e-6, digits=3)
    assert above(figures("used up to # % of the sensitivity", text)[0], 99.942, digits=3)


# ---------------------------------------------------------------- record and registry


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_figure_of_the_other_relation_follows_from_the_geometry(neighbours: str) -> None:
    """Gaussian noise: replacing moves the sums by the square root of 2 times as much as coming or going (S2)."""
    run = gaussian(neighbours=neighbours)
    text = " ".join(guarantee(run))
    ((stated, factor),) = re.findall(r"would change by a factor of at most e\^([0-9.]+) \(below ([0-9.]+)\)", text)
    rho = float(run.plan.cost.rho) * (2 if neighbours == "add-remove" else 0.5)
    exact = epsilon_at(rho, 1.2342e-6)
    assert above(float(stated), exact, digits=6)
    assert float(factor) > math.exp(exact)


@pytest.mark.parametrize(("neighbours", "capped", "other"), [
    ("replace-one", "the contents of a row (replace-one)", "whether a row is in the data at all"),
    ("add-remove", "whether a row is in the data at all (add-remove)", "the contents of a row"),
])  # fmt: skip
def test_a_cap_is_said_to_hold_for_the_relation_that_it_is_counted_for(
    neighbours: str, capped: str, other: str
) -> None:
    text = " ".join(guarantee(pure(neighbours=neighbours)))
    assert f"their total cost with respect to {capped} within a lifetime epsilon of 3.34543" in text
    assert f"also adds up their total cost with respect to {other}; the cap binds that sum only if" in text


def test_a_cap_and_a_group_state_what_finite_precision_adds() -> None:
    """Twelve exact sums of delta_num stay under the figure that the cap's sentence has."""
    run = pure("0.2")
    text = " ".join(guarantee(run))
    ((most,),) = [
        re.findall(r"a lifetime epsilon of 3.34543, with at most ([0-9.e-]+) added by finite precision", text)
    ]
    assert cap_of(run.spec).admits(times(run.plan.cost, 12))
    assert 0 < 12 * run.plan.cost.delta_num <= Fraction(most) == cap_of(run.spec).delta_num
    assert "10 rows with epsilon 2, up to what finite precision adds." in text
    assert "10 rows with epsilon 2." in " ".join(guarantee(pure("0.2", mechanism="wishart-difference")))
    assert odds.lifetime(1, 0, Fraction("1.0000001e-9")) == (
        "a lifetime epsilon of 1, with at most 1.00001e-09 added by finite precision"
    )


def test_the_chances_of_becoming_surer_are_larger_than_delta_as_the_record_says() -> None:
    for epsilon in ("0.1", "1.23442", "3"):
        text = " ".join(guarantee(gaussian(epsilon)))
        ((measured, viewed),) = re.findall(
            r"probability of at most ([0-9.e-]+) for .*? of at most ([0-9.e-]+) for", text
        )
        assert 1.2342e-6 < float(measured) < float(viewed)
        assert "These probabilities are not delta; they are larger." in text


def test_the_registry_entry_states_what_the_population_has_spent() -> None:
    run = gaussian()
    record = {"specification": {"columns": []}, "rows": 1, "numerics": {"grid_bits": 16, "method": ""}, "code": CODE}
    record = record_of(run, 2) | record
    attack = {"claimed": 2.3177892, "delta": 0.01, "measured": 2.0973, "verdict": "holds"}
    record["privacy"]["measurements"] = [record["privacy"]["measurements"][0] | {"build": {"attack": attack}}]
    entry = build_deployment(record)["deployment"]
    details = entry["deployment_model"]["release_type_details"]
    ((spent, delta),) = re.findall(r"epsilon ([0-9.]+) at delta ([0-9.e-]+) is spent", details)
    assert above(float(spent), epsilon_at(3 * float(run.plan.cost.rho), 1.0002e-5), digits=6)
    assert float(delta) == 1.0002e-5
    assert (
        "counted for replace-one neighbours, stay within a lifetime epsilon of 3.34543 and delta of 1.0002e-05"
        in details
    )
    built = entry["implementation"]["mechanisms"]
    assert "epsilon 2.31779, delta 0.01 claimed, at least 2.09 measured by attack" in built


CODE = {"version": "1", "digest": "0", "python": "3", "dependencies_digest": "0", "dependencies": []}


# ---------------------------------------------------------------- the plan


def shown_plan(run: PlannedRelease) -> tuple[str, Outlook]:
    """The months ahead of a population that has spent nothing, as `dprelease plan` prints them."""
    outlook = Outlook(run.spec, run.plan, LedgerState(), datetime(2026, 11, 18, tzinfo=UTC))
    out = Console(file=io.StringIO(), width=200)
    plans._show_year(out, outlook, outlook.as_json())
    plans._show_alternatives(out, outlook)
    return out.file.getvalue(), outlook  # type: ignore[attr-defined]


def test_the_months_ahead_are_composed_and_rounded_to_the_safe_side() -> None:
    run = gaussian()
    text, rho = shown_plan(run)[0], float(run.plan.cost.rho)
    months = re.findall(r"20\d\d-\d\d +([0-9.]+) +([0-9.]+) +[0-9.e-]+ +([0-9.]+) +(allowed|refused)", text)
    assert len(months) == 12
    allowed = [month for month in months if month[3] == "allowed"]
    for count, (costs, spent, left, _) in enumerate(allowed, start=1):
        exact = epsilon_at(count * rho, 1.0002e-5)
        assert above(float(costs), 1.23442)
        assert above(float(spent), exact)
        assert below(float(left), 3.34543 - exact)
    assert epsilon_at((len(allowed) + 1) * rho, 1.0002e-5) > 3.34543
    ((cap,),) = [re.findall("The cap of epsilon ([0-9.]+) is reached", text)]
    assert float(cap) >= 3.34543


def test_the_epsilon_that_fits_the_year_fits_it() -> None:
    text, _ = shown_plan(gaussian())
    ((fits,),) = [re.findall("an epsilon of at most ([0-9.]+) allows all 12 releases", text)]
    whole = [
        epsilon_at(12 * float(gaussian(size).plan.cost.rho), 1.0002e-5) for size in (fits, f"{float(fits) + 0.02}")
    ]
    assert whole[0] <= 3.34543 < whole[1]


@pytest.mark.parametrize(("left", "due"), [(1.2345678, "epsilon 1.23456"), (-1.0, "none"), (None, "none")])
def test_what_a_plan_leaves_is_rounded_down(left: float | None, due: str) -> None:
    assert plans._epsilon_left(left).startswith(due)


# ---------------------------------------------------------------- site, cards and the attacks of the registry


def test_costs_in_ledger_and_cards_are_rounded_up() -> None:
    cost = Cost.of(Epsilon(Fraction("1.23442"))) + Cost.of(Rho(Fraction("0.0123442")), Fraction("1.00001e-30"))
    assert format_cost(cost) == "ε 1.235, ρ 0.01235, δ num. 1.01 × 10⁻³⁰"
    assert cards.describe_cost(cost) == "epsilon 1.235, rho 0.01235"
    balance = {
        name: {"epsilon": size} for name, size in (("before", 1.2345612), ("after", 2.4691212), ("lifetime", 12))
    }
    assert (
        cards._budget_words(balance | {"releases_left": 3})
        == "epsilon 1.23457 spent before, 2.46913 after, of 12; 3 more of this cost fit"
    )


def test_the_ceiling_of_an_attack_on_membership_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """At epsilon 1 the best guess is right with chance 0.731058: 73.1% would be exceeded."""
    out = Console(file=io.StringIO(), width=200)
    monkeypatch.setattr(audits, "console", lambda: out)
    replay = type("Replay", (), {"ok": True, "nuclear": 0.9942, "frobenius": 0.5, "weighted_l1": 0.5})()
    audits._show_audit(audits.MechanismAudit([], [replay], MembershipFigure(60, 100, 1.0, 0.0)))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    ((ceiling,),) = [re.findall("ceiling ([0-9.]+)%", text)]
    assert 100 / (1 + math.exp(-1)) <= float(ceiling) <= 73.2
    ((used,),) = [re.findall("uses at most ([0-9.]+)% of a sensitivity", text)]
    assert 99.42 <= float(used) <= 99.5


def test_noise_stays_within_its_band_as_often_as_the_report_says() -> None:
    """The share of each law within 1.96 of its own standard deviations, by quadrature."""
    text = Page(render_report(checked_record())).text()
    said = re.search(r"lies within it about (\d+) times out of 100 if it is Laplace noise, and (\d+) times if", text)
    assert said
    scale = 1 / math.sqrt(2)  # of Laplace noise with variance 1
    laplace = 2 * integrate.quad(lambda x: math.exp(-x / scale) / (2 * scale), 0, INSIDE)[0]
    gaussian = 2 * integrate.quad(lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi), 0, INSIDE)[0]
    assert [int(figure) for figure in said.groups()] == [round(100 * laplace), round(100 * gaussian)]
    assert f"at least about {min(round(100 * laplace), round(100 * gaussian))} of 100 differences" in text
