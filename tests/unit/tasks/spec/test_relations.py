"""What a release says of values and of being in the data: figures of its measurements, in record, words and entry."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tasks.staged import PLAIN, SPEC, UNMODELLED, plain_model

from dpcore.accounting import Epsilon
from dpcore.measurements.histograms import count_cells, histograms_query
from dpcore.mechanisms.queries import RowsQuery
from dpcore.mechanisms.vectors import NOISY_ROWS
from dpcore.records.binning import ColumnCells
from dpcore.records.schema import Kind, Neighbours, NominalColumn, PrivacyUnit
from tasks.bundle.guarantee_text import guarantee
from tasks.bundle.query_text import query_words
from tasks.bundle.registry_entry import build_deployment
from tasks.landing.person_rows import person_rows
from tasks.spec import parse_spec
from tasks.spec.plan import PlannedRelease
from tasks.spec.relations import at_least, at_most, in_words, relation_figures
from tasks.workspace.folders import Workspace

PURE = "privacy: {population: people, epsilon: 0.1, lifetime: {epsilon: 1.2}}"
PERSON = "unit: {person: who, rows: weight}"
AT_MOST = "unit: {person: who, rows: at-most 3}"


def planned(privacy: str, model: str = PLAIN) -> PlannedRelease:
    assert PURE in UNMODELLED
    spec = parse_spec(UNMODELLED.replace(PURE, f"privacy: {{population: people, {privacy}}}") + model)
    return PlannedRelease.of(spec)


GAUSSIAN = "epsilon: 1, delta: 1.0e-6, lifetime: {epsilon: 12, delta: 1.0e-5}"
ADD_REMOVE = "epsilon: 1, neighbours: add-remove, lifetime: {epsilon: 12}"
RELEASES = {
    "trace": (planned("epsilon: 1, lifetime: {epsilon: 12}"), 1.0, 1.0),
    "persons by weight": (planned(f"epsilon: 1, {PERSON}, lifetime: {{epsilon: 12}}"), 1.0, 1.0),
    "three rows a person": (planned(f"epsilon: 1, {AT_MOST}, lifetime: {{epsilon: 12}}"), 1.0, 1.0),
    "plain Wishart": (
        planned(
            "epsilon: 1, lifetime: {epsilon: 12}",
            plain_model(", mechanism: wishart-difference"),
        ),
        1.0,
        0.5,
    ),
    "add-remove": (
        planned(ADD_REMOVE, plain_model(", mechanism: wishart-difference")),
        2.0,
        1.0,
    ),
}


@pytest.mark.parametrize("case", RELEASES)
def test_a_release_states_the_epsilon_for_values_and_the_one_for_being_in_the_data(case: str):
    run, values, participation = RELEASES[case]
    figures = run.relations
    assert figures == {
        "values": {"epsilon": values, "delta": 0.0, "delta_num": 0.0},
        "participation": {"epsilon": participation, "delta": 0.0, "delta_num": 0.0},
    }


def gaussian_delta(epsilon: float, rho: float) -> float:
    """The exact curve, by the error function alone."""
    mu = math.sqrt(2 * rho)
    first, second = (math.erfc((epsilon / mu + side * mu / 2) / math.sqrt(2)) / 2 for side in (-1, 1))
    return first - math.exp(epsilon) * second


def test_gaussian_noise_is_converted_at_half_its_rho_and_the_same_delta():
    run = planned(GAUSSIAN, plain_model(", mechanism: gaussian"))
    figures = run.relations["participation"]
    assert figures is not None
    assert figures["delta"] == run.stated["delta"] == 1e-6
    rho = float(run.plan.cost.rho) / 2
    assert gaussian_delta(figures["epsilon"], rho) == pytest.approx(1e-6, rel=1e-5)
    assert gaussian_delta(figures["epsilon"], rho) <= 1e-6
    assert figures["epsilon"] < 0.75


def test_published_rows_promise_nothing_for_being_in_the_data():
    rows = NOISY_ROWS.calibrate(RowsQuery(10, 2), Neighbours.REPLACE_ONE, Epsilon(Fraction(1)))
    figures = relation_figures([rows], Neighbours.REPLACE_ONE, {"epsilon": 1.0, "delta": 0.0})
    assert figures["participation"] is None
    assert figures["values"] is not None


# ---------------------------------------------------------------- words


@given(st.floats(1e-9, 1e9), st.integers(1, 8))
def test_a_figure_in_words_is_never_smaller_and_hardly_larger(number: float, digits: int):
    shown = float(at_most(number, digits))
    assert number <= shown
    assert shown <= number * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)


@given(st.floats(1e-9, 1e9), st.integers(1, 8))
def test_what_was_found_is_never_overstated_and_hardly_less(number: float, digits: int):
    shown = float(at_least(number, digits))
    assert number * (1 - 10.0 ** (1 - digits)) * (1 - 1e-15) <= shown <= number


@pytest.mark.parametrize(("number", "shown"), [(0.0, "0"), (0.1, "0.1"), (1.0, "1"), (0.3535533905, "0.353554")])
def test_figures_read_as_people_write_them(number: float, shown: str):
    assert at_most(number) == shown


SENTENCE = re.compile(
    r"(The guarantee is about .*e\^(\S+) \(below ([\d.e+-]*\d)\)(?:, and by at most delta = (\S+) beyond.*)?\.)"
)


def stated(run: PlannedRelease) -> tuple[str, float, float, float]:
    """The sentence, and its epsilon, factor and delta."""
    (found,) = (match for match in map(SENTENCE.fullmatch, guarantee(run)) if match)
    return found[1], float(found[2]), float(found[3]), float(found[4] or 0)


@pytest.mark.parametrize("case", RELEASES)
def test_the_guarantee_states_the_other_figure_with_its_factor(case: str):
    run, values, participation = RELEASES[case]
    sentence, epsilon, factor, delta = stated(run)
    added = run.spec.neighbours is Neighbours.ADD_REMOVE
    assert epsilon == (values if added else participation)
    assert math.exp(epsilon) <= factor <= 1.01 * math.exp(epsilon)
    assert delta == 0
    assert ("had contained anything else, every" if added else "had not been there, every") in sentence
    assert ("person" in sentence) is (run.spec.unit.person is not None)


def histogram(scratch: Path, cells: list[int]) -> list[int]:
    """The histogram of a column of two categories over persons by weight, where no row bears an identifier."""
    persons = person_rows([[pa.nulls(len(cells))]], PrivacyUnit(person="who"), scratch)
    return count_cells([({"ill": np.array(cells)}, 1 / persons.of(0))], [ColumnCells(ILL)], histograms_query([ILL]))


ILL = NominalColumn(name="ill", kind=Kind.CATEGORICAL, levels=("no", "yes"))


def test_somebody_without_an_identifier_who_leaves_is_covered_by_the_figure_for_values_only(tmp_path: Path):
    """Nine rows of A in one cell and one of B in the other: the pool's (0.1, 0.9) becomes (1, 0)."""
    query = histograms_query([ILL])
    one = query.l1_sensitivity(Neighbours.ADD_REMOVE)
    together, alone = histogram(tmp_path, [1] * 9 + [0]), histogram(tmp_path, [0])
    moved = sum(abs(x - y) for x, y in zip(together, alone, strict=True))
    assert moved / one == pytest.approx(1.8, abs=float(10 / one)), "each of ten rows is cut on the grid"
    assert one < moved <= query.l1_sensitivity(Neighbours.REPLACE_ONE)
    promise = "whether they are in the data is protected only to the same extent as the contents of a person's rows"
    for case, (run, *_) in RELEASES.items():
        assert (promise in guarantee(run)[0]) is (run.spec.unit.person is not None), case


def test_a_condition_that_takes_some_of_a_persons_rows_is_covered_by_the_figure_for_values():
    source = "source: {query: {url: 'sqlite:///c.db', sql: 'SELECT * FROM visits WHERE age > 3'}}"
    some = "A change that does so with some of them is protected to the same extent as the contents of a person's rows"
    for unit in (PERSON, "unit: row"):
        text = SPEC.replace(PURE, PURE.replace("epsilon: 0.1,", f"epsilon: 0.1, {unit},"))
        spec = parse_spec(re.sub("^source:.*$", source, text, flags=re.MULTILINE))
        (said,) = query_words(spec)
        assert (f"or takes all of them out is protected to the same extent as being in the data. {some}." in said) is (
            unit == PERSON
        )
        assert (
            "change that brings it into the answer or takes it out is protected to the same extent as being" in said
        ) is (unit != PERSON)
        assert "a view or virtual table" in said


def test_an_add_remove_epsilon_is_not_promised_for_other_values():
    """Had the row contained something else, the factor would be e^2: the sentence with e^1 must not speak of that."""
    run, values, _ = RELEASES["add-remove"]
    (promise,) = (sentence for sentence in guarantee(run) if "changes by a factor of at most e^1" in sentence)
    assert values == 2
    assert "contain" not in promise
    assert "almost as likely if one row had been added to the data or removed from it" in promise
    (replaced,) = (s for s in guarantee(RELEASES["trace"][0]) if "changes by a factor of at most e^1" in s)
    assert "almost as likely if one row had contained anything else" in replaced


def test_the_guarantee_states_delta_beside_gaussian_noise():
    run = planned(GAUSSIAN, plain_model(", mechanism: gaussian"))
    figures = run.relations["participation"]
    assert figures is not None
    _, epsilon, _, delta = stated(run)
    assert figures["epsilon"] <= epsilon <= figures["epsilon"] * (1 + 1e-5)
    assert delta == 1e-6


def test_the_guarantee_says_where_being_in_the_data_is_not_protected(monkeypatch: pytest.MonkeyPatch):
    run, *_ = RELEASES["trace"]
    nothing = {"values": run.relations["values"], "participation": None}
    monkeypatch.setattr(PlannedRelease, "relations", property(lambda _: nothing))
    (said,) = (sentence for sentence in guarantee(run) if "does not cover whether" in sentence)
    assert "whether a row is in the data at all: the release shows how many rows there are" in said


# ---------------------------------------------------------------- a published release


@pytest.fixture
def record(published: Path) -> dict[str, Any]:
    folder = Workspace(published).bundle("small", "small-2026-02-1")
    content: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return content


def test_the_record_states_both(record: dict[str, Any]):
    privacy = record["privacy"]
    assert privacy["values"] == {"epsilon": 0.1, "delta": 0.0, "delta_num": 0.0}
    parameters = privacy["measurements"][0]["parameters"]
    rate, weight = float(Fraction(parameters["noise"])), float(Fraction(parameters["count_weight"]))
    assert privacy["participation"]["epsilon"] == pytest.approx(2 * rate * (1 + weight**2))


def test_report_and_lists_show_both(published: Path, record: dict[str, Any]):
    page = (Workspace(published).bundle("small", "small-2026-02-1") / "report.html").read_text()
    assert "ε for values <b>0.1</b>" in page
    assert "ε for being in the data <b>0.1</b>" in page
    both = "epsilon 0.1, delta 0"
    assert in_words(record["privacy"]) == {"values": both, "being in the data": both}
    nothing = in_words({**record["privacy"], "participation": None})
    assert nothing["being in the data"].startswith("not protected")
    assert in_words({"epsilon": 1.0}) == {}, "of an older program"


def test_the_registry_entry_states_both(record: dict[str, Any]):
    loss = build_deployment(record)["deployment"]["privacy_loss"]
    assert "Replacing the values of one unit: epsilon 0.1, delta 0." in loss["privacy_unit_details"]
    assert "Adding or removing one: epsilon 0.1, delta 0." in loss["privacy_unit_details"]
    record["privacy"]["participation"] = None
    entry = build_deployment(record)["deployment"]
    assert "Adding or removing one: no guarantee." in entry["privacy_loss"]["privacy_unit_details"]
    assert "released without noise: the number of rows (or persons)." in entry["dp_variant"]["unprotected_quantities"]


def test_a_record_of_an_older_program_is_described_as_before(record: dict[str, Any]):
    del record["privacy"]["values"], record["privacy"]["participation"]
    entry = build_deployment(record)["deployment"]
    assert "Adding" not in entry["privacy_loss"]["privacy_unit_details"]
    assert "treated as known" in entry["dp_variant"]["unprotected_quantities"]
