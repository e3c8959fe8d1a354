"""`plan` as a steward calls it: the months ahead, other epsilons, columns, and the picture."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.flows.command_line import call
from support.flows.pure_rows import SPECIFICATION

from dpcore.accounting import epsilon_of_rho, population_balance, times
from dpcore.errors import LedgerError
from flows.cli import plans
from tasks.ledger import store as ledger_module
from tasks.ledger.opening import writable_ledger
from tasks.ledger.releases import ReserveRequest
from tasks.ledger.store import Ledger
from tasks.spec import load_spec
from tasks.spec.plan import basis_of, cap_of, plan_release
from tasks.workspace.folders import Workspace

NOW = datetime(2026, 8, 20, 9, 30, tzinfo=UTC)
TWELVE = [f"2026-{month:02}" for month in range(7, 13)] + [f"2027-{month:02}" for month in range(1, 7)]
"""The month of the last firing, which has no release yet, and those to come."""
CONTRACT = {
    "epsilon", "delta", "allocation", "dimension", "mechanism", "generator", "reasons", "expected_error",
    "remaining_after", "releases_left", "values", "participation",
}  # fmt: skip
ADDED = {"year", "cap_reached", "alternatives", "fits_the_year", "columns"}

GAUSSIAN = {
    "  delta: 0\n": "  delta: 1.0e-6\n",
    "mechanism: auto": "mechanism: gaussian",
    "lifetime: {epsilon: 12.0, delta: 0": "lifetime: {epsilon: 2.5, delta: 1.0e-5",
}

Plan = Callable[..., dict[str, Any]]


class Steward:
    """A workspace with a specification, edited, and no data, and the command line on it."""

    def __init__(self, folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self._monkeypatch = folder, capsys, monkeypatch
        Workspace(folder).create()
        (folder / "release.yaml").write_text(SPECIFICATION)

    def call(self, *argv: str) -> tuple[int, str, str]:
        return call(self._capsys, self._monkeypatch, *argv)

    def edit(self, edits: dict[str, str]) -> None:
        path = self.folder / "release.yaml"
        text = path.read_text()
        for old, new in edits.items():
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text)

    def plan(self, *options: str) -> dict[str, Any]:
        code, out, err = self.call("plan", "-w", str(self.folder), *options, "--json")
        assert code == 0, out + err
        content: dict[str, Any] = json.loads(out)
        return content

    def shown(self, *options: str) -> str:
        code, out, err = self.call("plan", "-w", str(self.folder), *options)
        assert code == 0, out + err
        return out

    @property
    def spec(self) -> Any:
        return load_spec(self.folder / "release.yaml")

    def ledger(self) -> Ledger:
        return writable_ledger(Workspace(self.folder.resolve()), self.spec)

    def reserve(self, period: str, *, name: str | None = None) -> str:
        """Reserve a release, as a run does before it measures."""
        spec, plan, ledger = self.spec, plan_release(self.spec), self.ledger()
        ledger.ensure_cap(spec.privacy.population, cap_of(spec), basis_of(spec))
        release = ledger.reserve(
            ReserveRequest(
                name=name or spec.name,
                period=period,
                population=spec.privacy.population,
                events=plan.events,
                stated={"epsilon": float(spec.privacy.epsilon), "delta": 0.0},
                spec_digest=spec.digest(),
                seeds={"projection": "1", "sampling": "2"},
                flow_run_id="run",
            )
        )
        return release.release_id


@pytest.fixture
def steward(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Steward:
    monkeypatch.setattr(ledger_module, "utc_now", lambda: NOW)
    return Steward(tmp_path / "w", capsys, monkeypatch)


# -- the months ahead --------------------------------------------------------------


def test_the_contract_is_kept_and_the_year_is_added(steward: Steward) -> None:
    plan = steward.plan()
    assert set(plan) >= CONTRACT | ADDED
    assert [step["period"] for step in plan["year"]] == TWELVE
    assert [step["epsilon_remaining"] for step in plan["year"]] == list(range(11, -1, -1))
    assert plan["year"][0]["epsilon_remaining"] == plan["remaining_after"]["epsilon"]
    assert all(step["allowed"] for step in plan["year"])
    assert plan["cap_reached"] is None
    assert (plan["lasts_until"], plan["months"]) == ("2027-06", plan["releases_left"])


def test_a_plan_says_what_a_release_promises_under_either_relation(steward: Steward) -> None:
    """A Gaussian plan: half of rho for a row that comes or goes, by the exact curve at the same delta."""
    steward.edit(GAUSSIAN)
    plan, shown = steward.plan(), steward.shown()
    assert plan["values"]["epsilon"] == plan["epsilon"]
    planned = plan_release(steward.spec)
    mu, epsilon = math.sqrt(float(planned.cost.rho)), plan["participation"]["epsilon"]  # rho / 2 is mu^2 / 2
    tails = [math.erfc((epsilon / mu + side * mu / 2) / math.sqrt(2)) / 2 for side in (-1, 1)]
    assert tails[0] - math.exp(epsilon) * tails[1] == pytest.approx(plan["delta"], rel=1e-5)
    said = dict(re.findall(r"(values|being in the data) +epsilon (\S+), delta 1e-06", shown))
    assert float(said["values"]) == plan["epsilon"]
    assert epsilon <= float(said["being in the data"]) <= epsilon * (1 + 1e-5)


def asking(sql: str, rows: str) -> dict[str, str]:
    """The edits of the specification that take its data from a query."""
    given = "path: landing/*.parquet\n", '  period: "visits-(?P<period>\\\\d{4}-\\\\d{2})"\n'
    return {given[0]: f'query: {{url: "env:CLINIC_DB", rows: {rows}, sql: "{sql}"}}\n', given[1]: ""} | NO_LANDING


NO_LANDING = {"on_landing: true": "on_landing: false"}
COUNTED = "SELECT ward, count(*) FROM visits GROUP BY ward"


def test_a_plan_says_whose_rows_a_query_protects(steward: Steward) -> None:
    steward.edit(asking(COUNTED, "answer"))
    assert steward.plan()["unit"] == "row of the query's answer"
    _, out, _ = steward.call("plan", "-w", str(steward.folder))
    assert "influences several rows of the answer is not protected as a whole" in " ".join(out.split())


def test_a_query_that_is_not_row_by_row_has_no_plan(steward: Steward) -> None:
    steward.edit(asking(COUNTED, "table"))
    code, out, _ = steward.call("plan", "-w", str(steward.folder), "--json")
    refused = json.loads(out)
    assert (code, refused["rule"], refused["where"]) == (2, "query-rows", "source.query.sql")
    assert f"(line 1, column {COUNTED.index('GROUP') + 1} of" in refused["error"]


QUARTERLY, YEARLY, DAILY = ({"0 6 1 * *": cron} for cron in ("0 6 5 1,4,7,10 *", "0 6 5 1 *", "0 6 * * *"))
NO_CRON = {'cron: "0 6 1 * *", ': ""}
SCHEDULES: dict[str, tuple[dict[str, str], str | None, int, list[str]]] = {
    "monthly": ({}, "2026-07", 3, ["2026-08", "2026-09", "2026-10"]),
    "monthly, the last one late": ({}, None, 3, ["2026-07", "2026-08", "2026-09"]),
    "quarterly": (QUARTERLY, "2026-06", 12, ["2026-09", "2026-12", "2027-03", "2027-06"]),
    "quarterly, the last one late": (QUARTERLY, None, 7, ["2026-06", "2026-09", "2026-12"]),
    "yearly, beyond the window": (YEARLY, "2025-12", 4, []),
    "yearly, the last one late": (YEARLY, None, 4, ["2025-12"]),
    "every day is still once a month": (DAILY, None, 3, ["2026-07", "2026-08", "2026-09"]),
    "every day, the last month released": (DAILY, "2026-07", 3, ["2026-07", "2026-08", "2026-09"]),
    "none: monthly from the last month on": (NO_CRON, None, 3, ["2026-07", "2026-08", "2026-09"]),
    "none, the last month released": (NO_CRON, "2026-07", 3, ["2026-08", "2026-09", "2026-10"]),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_the_periods_are_those_that_the_schedule_releases(steward: Steward, case: str) -> None:
    edits, released, months, periods = SCHEDULES[case]
    steward.edit(edits)
    if released:
        steward.reserve(released)
    plan = steward.plan("--months", str(months))
    assert [step["period"] for step in plan["year"]] == periods
    assert plan["cap_reached"] is None
    assert ("releases nothing" in steward.shown("--months", str(months))) == (not periods)


def test_the_plan_does_not_promise_what_a_late_month_will_take(
    steward: Steward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 16 November the release of October, due on the 1st, is still to come: its epsilon is not there for another."""
    monkeypatch.setattr(ledger_module, "utc_now", lambda: datetime(2026, 11, 16, 9, tzinfo=UTC))
    steward.edit({"lifetime: {epsilon: 12.0": "lifetime: {epsilon: 2.0"})
    late = steward.plan()
    assert [step["period"] for step in late["year"]][:2] == ["2026-10", "2026-11"]
    assert (late["lasts_until"], late["cap_reached"]) == ("2026-11", "2026-12")
    steward.reserve("2026-10")
    done = steward.plan()
    assert done["year"][0]["period"] == "2026-11"
    assert (done["lasts_until"], done["cap_reached"]) == ("2026-11", "2026-12"), "as was promised"


@pytest.mark.parametrize("edits", [{"lifetime: {epsilon: 12.0": "lifetime: {epsilon: 4.5"}, GAUSSIAN])
def test_the_cap_is_reached_where_the_accountant_says(steward: Steward, edits: dict[str, str]) -> None:
    steward.edit(edits)
    plan, spec = steward.plan(), steward.spec
    cost, cap = plan_release(spec).cost, cap_of(spec)
    admitted = [cap.admits(times(cost, count)) for count in range(1, 13)]
    assert [step["allowed"] for step in plan["year"]] == admitted
    assert not all(admitted)
    assert plan["cap_reached"] == TWELVE[admitted.index(False)]
    last = plan["year"][admitted.index(False) - 1]
    expected = population_balance(times(cost, plan["releases_left"]), delta=cap.delta)
    assert (last["epsilon_spent"], last["delta_spent"]) == (float(expected.epsilon), float(expected.delta))
    shown = steward.shown()
    assert f"is reached: {plan['cap_reached']}" in shown
    assert shown.count("refused") == admitted.count(False) + 1


MIXING = GAUSSIAN | {
    "mechanism: auto": "mechanism: wishart-difference-trace",
    "{kind: ron, dimension: auto}": "{kind: private-pca, dimension: auto, mechanism: gaussian}",
}


@pytest.mark.parametrize(("edits", "mixes"), [(GAUSSIAN, False), (MIXING, True)])
def test_a_specification_that_mixes_kinds_of_noise_is_warned_of(
    steward: Steward, edits: dict[str, str], mixes: bool
) -> None:
    steward.edit(edits)
    plan = steward.plan()
    assert bool(plan["warnings"]) == mixes
    assert ("! This specification mixes noise" in " ".join(steward.shown().split())) == mixes
    cost = plan_release(steward.spec).cost
    assert bool(cost.epsilon and cost.rho) == mixes
    if mixes:
        taken = epsilon_of_rho(float(cost.rho + cost.epsilon**2 / 2), delta=1e-5)
        told = re.search(r"epsilon ([0-9.]+) of 2.5 is taken", plan["warnings"][0])
        assert told
        assert taken <= float(told[1]) < taken + 0.001  # rounded up


def test_a_release_of_the_other_kind_than_the_populations_is_warned_of(steward: Steward) -> None:
    steward.edit({"lifetime: {epsilon: 12.0, delta: 0": "lifetime: {epsilon: 12.0, delta: 1.0e-5"})
    steward.reserve("2026-07")
    assert steward.plan()["warnings"] == []
    steward.edit({"  delta: 0\n": "  delta: 1.0e-6\n", "mechanism: auto": "mechanism: gaussian"})
    (warning,) = steward.plan()["warnings"]
    assert warning.startswith("A run is refused: the cap counts pure epsilon alone, and this release costs Gaussian")


def test_what_is_in_the_ledger_is_not_counted_again_and_reservations_count(steward: Steward) -> None:
    steward.reserve("2026-08")
    steward.reserve("2026-10")
    steward.reserve("2026-10", name="another-spec")
    year = {step["period"]: step for step in steward.plan()["year"]}
    assert [period for period, step in year.items() if step["counted"]] == ["2026-08", "2026-10"]
    assert year["2026-07"]["epsilon_spent"] == 4, "all three reservations are held against the cap from the start"
    assert year["2026-08"]["epsilon_spent"] == 4
    assert year["2026-09"]["epsilon_spent"] == 5
    assert year["2026-10"]["epsilon_spent"] == 5
    assert year["2027-05"]["allowed"]
    assert [step["period"] for step in year.values() if not step["allowed"]] == ["2027-06"]
    assert "in the ledger" in steward.shown()


def test_a_void_reservation_counts_again(steward: Steward) -> None:
    release_id = steward.reserve("2026-07")
    steward.ledger().void(release_id, reason="nothing was drawn")
    first = steward.plan()["year"][0]
    assert (first["period"], first["counted"], first["epsilon_spent"]) == ("2026-07", False, 1)


def test_a_gaussian_plan_under_a_pure_cap_is_refused_from_the_first_month_on(steward: Steward) -> None:
    steward.call("budget", "raise", "--reason", "first use", "-w", str(steward.folder))
    steward.edit(GAUSSIAN)
    plan = steward.plan()
    assert plan["cap_reached"] == TWELVE[0]
    assert {step["epsilon_spent"] for step in plan["year"]} == {0}
    assert (plan["lasts_until"], plan["months"], plan["fits_the_year"]) == (None, 0, None)
    assert "no epsilon allows" in steward.shown()


# -- other epsilons ----------------------------------------------------------------


@pytest.mark.parametrize("edits", [{}, GAUSSIAN], ids=["pure", "gaussian"])
def test_an_alternative_is_what_the_plan_says_with_that_epsilon(steward: Steward, edits: dict[str, str]) -> None:
    steward.edit(edits)
    alternatives = steward.plan()["alternatives"]
    assert [other["epsilon"] for other in alternatives] == [0.25, 0.5, 0.75, 1, 1.5, 2]
    present = "1.0"
    for other in alternatives:
        wanted = str(other["epsilon"])
        steward.edit({f"  epsilon: {present}\n": f"  epsilon: {wanted}\n"})
        present, plan = wanted, steward.plan()
        assert other["releases_left"] == plan["releases_left"]
        assert (other["lasts_until"], other["dimension"]) == (plan["lasts_until"], plan["dimension"])
        shared = {name: other["expected_error"][name] for name in plan["expected_error"]}
        assert shared == plan["expected_error"]
        means = [column["percent_of_range"] for column in plan["columns"] if column["of"] == "mean"]
        shares = [column["noise_sd"]["most"] for column in plan["columns"] if column["of"] == "share"]
        assert other["expected_error"]["mean_percent_of_range"] == pytest.approx(max(means))
        assert other["expected_error"]["share_points"] == pytest.approx(max(shares))


@pytest.mark.parametrize("edits", [{"lifetime: {epsilon: 12.0": "lifetime: {epsilon: 7.0"}, GAUSSIAN])
def test_the_year_fits_with_the_epsilon_that_is_named_and_with_no_larger_one(
    steward: Steward, edits: dict[str, str]
) -> None:
    steward.edit(edits)
    fits = steward.plan()["fits_the_year"]
    digits = Fraction(str(fits))
    larger = float(digits + Fraction(10) ** (len(str(int(digits))) - 2 if digits >= 1 else -2))
    assert f"an epsilon of at most {fits:g} allows all 12 releases" in steward.shown()
    steward.edit({"  epsilon: 1.0\n": f"  epsilon: {fits}\n"})
    assert steward.plan()["cap_reached"] is None
    steward.edit({f"  epsilon: {fits}\n": f"  epsilon: {larger}\n"})
    assert steward.plan()["cap_reached"] is not None


def test_coordinates_of_another_generator_are_not_counted_among_those_of_the_present_one(steward: Steward) -> None:
    """With a larger epsilon this table goes to a copula, whose groups have more coordinates than the columns."""
    assert f"of {steward.plan()['encoded_width']}" in steward.shown().splitlines()[_unit_line(steward)]
    path = steward.folder / "release.yaml"
    path.write_text(
        "name: loans\nsource: {path: landing/*.csv}\n"
        "privacy: {population: p, epsilon: 0.5, lifetime: {epsilon: 5}}\nexpected_rows: 4000\ncolumns:\n"
        + "".join(f"  - {{name: {name}, kind: integer, bounds: [0, 60]}}\n" for name in ("age", "items", "days"))
        + "  - {name: branch, kind: categorical, categories: [a, b, c, d]}\n"
        + '  - {name: late, kind: categorical, categories: ["no", "yes"], role: label}\n'
    )
    dimensions = [other["dimension"] for other in steward.plan()["alternatives"]]
    assert min(dimensions) <= steward.plan()["encoded_width"] < max(dimensions)
    assert steward.shown().splitlines()[_unit_line(steward)].split()[-1] == "measured"


def _unit_line(steward: Steward) -> int:
    return next(index for index, line in enumerate(steward.shown().splitlines()) if line.startswith("per release"))


def test_alternatives_above_the_cap_are_not_offered(steward: Steward) -> None:
    steward.edit({"lifetime: {epsilon: 12.0": "lifetime: {epsilon: 1.6"})
    assert [other["epsilon"] for other in steward.plan()["alternatives"]] == [0.25, 0.5, 0.75, 1, 1.5]


# -- columns -----------------------------------------------------------------------


def test_every_column_has_its_noise_in_its_own_unit(steward: Steward) -> None:
    columns = {column["name"]: column for column in steward.plan()["columns"]}
    assert list(columns) == [column.name for column in steward.spec.columns]
    assert (columns["age"]["unit"], columns["arrival"]["unit"], columns["sex"]["unit"]) == ("years", "days", "points")
    ranges = {"age": 110, "systolic": 160, "cost": 5000, "arrival": 365}
    parts = {name: columns[name]["noise_sd"]["most"] / width for name, width in ranges.items()}
    assert list(parts.values()) == pytest.approx([parts["age"]] * len(parts)), "the same part of every range"
    assert columns["age"]["percent_of_range"] == pytest.approx(100 * parts["age"])


def test_columns_whose_means_a_projection_leaves_out_are_named(steward: Steward) -> None:
    assert all(column["known"] for column in steward.plan()["columns"])
    steward.edit({"dimension: auto": "dimension: 4"})
    assert {c["name"] for c in steward.plan()["columns"] if c["known"]} == {"readmitted"}
    assert "omits coordinates" in steward.shown()


# -- for the eye -------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_every_row_fits_its_terminal(steward: Steward, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "console", lambda: Console(highlight=False, width=width))
    lines = steward.shown().splitlines()
    assert max(map(len, lines)) <= width
    for start in (*TWELVE, "0.25 ", "1 (now)", "age ", "readmitted "):
        assert any(line.startswith(start) and len(line.split()) > 4 for line in lines), start


def svg_of(path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  our own file


def test_the_picture_as_svg_needs_nothing_else_and_says_what_it_shows(steward: Steward, tmp_path: Path) -> None:
    steward.edit({"lifetime: {epsilon: 12.0": "lifetime: {epsilon: 4.5"})
    plan = steward.plan("--plot", str(tmp_path / "plan.svg"))
    assert plan["plot"] == str(tmp_path / "plan.svg")
    root = svg_of(tmp_path / "plan.svg")
    space = "{http://www.w3.org/2000/svg}"
    title, words = root.findtext(f"{space}title") or "", root.findtext(f"{space}desc") or ""
    assert "clinic-visits" in title
    assert f"reached in {plan['cap_reached']}" in words
    drawn = " ".join("".join(text.itertext()) for text in root.iter(f"{space}text"))
    assert f"refused from {plan['cap_reached']} on" in drawn
    assert "cap 4.5" in drawn
    assert "now: 4" in drawn
    text = (tmp_path / "plan.svg").read_text()
    used = {name for part in text.split("var(--")[1:] for name in [part.partition(")")[0]]}
    assert all(text.count(f"--{name}: #") == 2 for name in used), "every colour is set for light and for dark"
    references = [value for e in root.iter() for key, value in e.attrib.items() if key.endswith("href")]
    assert all(value.startswith("#") for value in references)


def test_the_picture_as_png_and_of_empty_and_long_years(steward: Steward, tmp_path: Path) -> None:
    steward.shown("--months", "120", "--plot", str(tmp_path / "long.PNG"))
    assert (tmp_path / "long.PNG").read_bytes().startswith(b"\x89PNG")
    steward.edit(YEARLY)
    steward.reserve("2025-12")
    steward.shown("--months", "1", "--plot", str(tmp_path / "none.svg"))
    assert "0 of 0 releases are allowed" in (
        svg_of(tmp_path / "none.svg").findtext("{http://www.w3.org/2000/svg}desc") or ""
    )


REFUSED = {
    "another format": ("plan.pdf", "plot-format"),
    "no ending": ("plan", "plot-format"),
    "no such folder": ("nowhere/plan.svg", "plot-folder"),
    "a folder": ("folder.svg", "plot-folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_picture_that_cannot_be_written_is_refused(steward: Steward, tmp_path: Path, case: str) -> None:
    name, rule = REFUSED[case]
    (tmp_path / "folder.svg").mkdir()
    code, out, _ = steward.call("plan", "-w", str(steward.folder), "--plot", str(tmp_path / name), "--json")
    refusal = json.loads(out)
    assert code == 2
    assert (refusal["rule"], refusal["where"]) == (rule, "--plot")
    assert ".svg or .png" in refusal["hint"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.svg", "w"]


def test_planning_imports_nothing_slow(steward: Steward) -> None:
    """Prefect, Great Expectations, OpenDP and matplotlib take seconds; a plan must not wait for them."""
    code = (
        "import sys; from flows.cli import main; sys.argv = ['dprelease', 'plan', '-w', sys.argv[1], '--json']; main();"
        "print(sorted({m.partition('.')[0] for m in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(steward.folder)], capture_output=True, text=True, check=True, timeout=120
    )
    loaded = set(json.loads(done.stderr.strip().splitlines()[-1].replace("'", '"')))
    assert "dpcore" in loaded
    assert not loaded & {"prefect", "great_expectations", "opendp", "matplotlib"}


# -- what a run would refuse -------------------------------------------------------


@pytest.mark.parametrize("command", ["plan", "budget"])
def test_costs_that_do_not_add_to_the_populations_are_refused_as_by_a_run(steward: Steward, command: str) -> None:
    """A ledger of rows; the spec now speaks of persons."""
    steward.reserve("2026-07")
    steward.edit({"unit: row": "unit: {person: patient_id}"})
    code, out, _ = steward.call(command, "-w", str(steward.folder), "--json")
    said = json.loads(out)
    assert (code, said["rule"], said["where"]) == (2, "budget-basis-differs", "privacy.unit")
    assert "releases_left" not in said


def test_a_changed_lifetime_is_warned_of_with_the_hint_of_the_refusal(steward: Steward) -> None:
    steward.reserve("2026-07")
    assert steward.plan()["warnings"] == []
    steward.edit({"lifetime: {epsilon: 12.0": "lifetime: {epsilon: 24.0"})
    with pytest.raises(LedgerError, match="differs from the ledger's") as refused:
        steward.ledger().ensure_cap(steward.spec.privacy.population, cap_of(steward.spec), basis_of(steward.spec))
    (warning,) = steward.plan()["warnings"]
    assert warning.startswith("A run is refused: ")
    assert str(refused.value) in warning
    assert refused.value.hint in warning
    _, out, _ = steward.call("budget", "-w", str(steward.folder))
    assert "! A run is refused: the spec's lifetime" in " ".join(out.split())


def test_the_budget_warns_of_mixed_noise_as_the_plan_does(steward: Steward) -> None:
    steward.edit(MIXING)
    _, out, _ = steward.call("budget", "-w", str(steward.folder), "--json")
    assert json.loads(out)["warnings"] == steward.plan()["warnings"] != []
    assert "! This specification mixes noise" in " ".join(steward.call("budget", "-w", str(steward.folder))[1].split())


def test_a_balance_rounds_what_is_spent_up_and_what_is_left_down(steward: Steward) -> None:
    steward.edit(GAUSSIAN)
    steward.reserve("2026-07")
    content = json.loads(steward.call("budget", "-w", str(steward.folder), "--json")[1])
    out = steward.call("budget", "-w", str(steward.folder))[1]
    shown = {name: float(re.search(rf"{name} +(\S+)", out)[1]) for name in ("reserved", "remaining")}  # type: ignore[index]
    exact = {name: content[name]["epsilon"] for name in shown}
    assert exact["reserved"] <= shown["reserved"] <= exact["reserved"] * (1 + 1e-5)
    assert exact["remaining"] * (1 - 1e-5) <= shown["remaining"] <= exact["remaining"]
