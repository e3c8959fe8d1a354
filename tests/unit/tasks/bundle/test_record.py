"""Record, codebook and registry entry: complete, by their schemas, and in words that hold."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml
from support.tasks.bundle.documents import registry_faults
from support.tasks.staged import SPEC, UNMODELLED

from dpcore.records.encoding import Encoding
from tasks.audit.documents import _variant_faults
from tasks.audit.recomputed import RecomputedBundle
from tasks.bundle import codebook
from tasks.bundle.record import _numerics, record_faults
from tasks.bundle.registry_entry import NOT_STATED, build_deployment, deployment_text
from tasks.bundle.sampling_text import INDEPENDENT_ROWS, NO_SAMPLE, ROUNDED_GROUPS, ROUNDED_POINTS, sampling_words
from tasks.report.cards import release_card
from tasks.spec import load_spec, parse_spec
from tasks.spec.plan import PlannedRelease
from tasks.workspace.build_identity import code_digest, code_facts, installed_distributions
from tasks.workspace.folders import Workspace


@pytest.fixture(scope="session")
def bundle(published: Path) -> Path:
    return Workspace(published).bundle("small", "small-2026-02-1")


@pytest.fixture
def record(bundle: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((bundle / "record.json").read_text())
    return content


# ---------------------------------------------------------------- the schema


def test_a_real_record_keeps_to_its_schema(record: dict[str, Any]):
    assert record_faults(record) == []


def test_record_and_codebook_say_how_rows_were_drawn(bundle: Path, record: dict[str, Any]):
    """Records of earlier versions do not, and their codebooks neither."""
    assert record["model"]["sampling"] == "rounded"
    assert json.loads((bundle / "model.json").read_text())["sampler"] == 2
    assert json.loads((bundle / "codebook.json").read_text())["rows"] == sampling_words(record["model"])
    schema = load_spec(bundle.parents[2] / "release.yaml").schema
    record["model"]["sampling"] = "independent"
    assert codebook.build_codebook(schema, record)["rows"] == INDEPENDENT_ROWS
    del record["model"]["sampling"]
    assert "rows" not in codebook.build_codebook(schema, record)


@pytest.mark.parametrize("generator", ["copula", "gaussian", "supervised", "mixture", "lda"])
def test_rounded_rows_are_called_close_to_the_model_only_where_they_are(generator: str):
    """Shares of levels and pairs of columns come close under a copula alone."""
    kept = ROUNDED_GROUPS if generator == "copula" else ROUNDED_POINTS
    assert sampling_words({"generator": generator, "sampling": "rounded"}) == f"{kept} {NO_SAMPLE}"
    assert sampling_words({"generator": generator, "sampling": "independent"}) == INDEPENDENT_ROWS
    assert sampling_words({"generator": generator}) == INDEPENDENT_ROWS


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "rows drawn in some other way": (lambda r: r["model"].update(sampling="stratified"), "$.model.sampling"),
    "no epsilon": (lambda r: r["privacy"].pop("epsilon"), "$.privacy"),
    "epsilon of zero": (lambda r: r["privacy"].update(epsilon=0), "$.privacy.epsilon"),
    "a large delta": (lambda r: r["privacy"].update(delta=0.5), "$.privacy.delta"),
    "seeded noise": (lambda r: r["privacy"]["measurements"][0].update(seeded=True), "$.privacy.measurements[0].seeded"),
    "a refuted mechanism": (
        lambda r: r["privacy"]["measurements"][0].update(status="refuted"),
        "$.privacy.measurements[0].status",
    ),
    "a build that failed": (
        lambda r: r["privacy"]["measurements"][0]["build"].update(holds=False),
        "$.privacy.measurements[0].build.holds",
    ),
    "one relation alone": (lambda r: r["privacy"].pop("participation"), "$.privacy"),
    "a promise for free": (lambda r: r["privacy"]["participation"].update(epsilon=0), "$.privacy.participation"),
    "nothing measured": (lambda r: r["privacy"].update(measurements=[]), "$.privacy.measurements"),
    "a failed check": (lambda r: r["checks"][0].update(ok=False), "$.checks[0].ok"),
    "the source": (lambda r: r["specification"].update(source={"path": "x"}), "$.specification"),
    "a short hash": (lambda r: r["ledger"].update(head="ab"), "$.ledger.head"),
    "an exact count": (lambda r: r.update(exact_rows=5000), "$"),
    "no code": (lambda r: r.pop("code"), "$"),
    "an address installed from": (
        lambda r: r["code"]["dependencies"].insert(0, "numpy==2.4.6 @ file:///home/me/numpy"),
        "$.code.dependencies[0]",
    ),
    "version 1": (lambda r: r.update(record_version=1), "$.record_version"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_record_breaks_the_schema_where_it_is_wrong(record: dict[str, Any], case: str):
    change, where = WRONG[case]
    change(record)
    assert record_faults(record) == [where]


def test_every_key_of_the_record_is_required(record: dict[str, Any]):
    for key in record:
        assert record_faults({name: value for name, value in record.items() if name != key}) == ["$"], key


# ---------------------------------------------------------------- code


def test_the_record_names_program_interpreter_and_everything_installed(record: dict[str, Any]):
    code = record["code"]
    assert code["digest"] == code_digest()
    assert code["dependencies"] == sorted(code["dependencies"]) == list(installed_distributions())
    text = "".join(f"{line}\n" for line in code["dependencies"])
    assert code["dependencies_digest"] == hashlib.sha256(text.encode()).hexdigest()
    assert any(re.fullmatch(r"numpy==\S+ sha256:[0-9a-f]{64}", line) for line in code["dependencies"])
    assert code == code_facts()


# ---------------------------------------------------------------- registry entry of a cap with delta


def test_the_registry_entry_states_the_cap_with_its_conditions(record: dict[str, Any]):
    budget = {
        "lifetime": {"epsilon": 3.0000001, "delta": 1e-5, "delta_num": 1.0000001e-9},
        "after": {"epsilon": 0.20000001},
    }
    entry = build_deployment(record | {"budget": record["budget"] | budget})["deployment"]
    details = entry["deployment_model"]["release_type_details"]
    assert "a lifetime epsilon of 3.00001 and delta of 1e-05 (at worst twice that delta" in details
    assert "with at most 1.00001e-09 added by finite precision, as far as the cost of every measurement is" in details
    assert "counted for replace-one neighbours" in details, "the cap says nothing of the other relation"
    assert "epsilon 0.200001 at delta 1e-05 is spent" in details
    choices = entry["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "released noisy values" in choices, "a radius, groups and components are chosen by them"
    assert "never of the data" not in choices
    assert "workers of its cluster" in entry["deployment_model"]["actors"]


# ---------------------------------------------------------------- balance


def test_the_balance_before_and_after_differ_by_the_release(record: dict[str, Any]):
    budget = record["budget"]
    assert (budget["before"]["epsilon"], budget["after"]["epsilon"]) == (0.1, 0.2)
    assert budget["releases_left"] == 10


# ---------------------------------------------------------------- words


def test_the_guarantee_says_whom_against_whom_over_what_and_what_not(record: dict[str, Any]):
    whom, promise, *_, composition, limits = record["privacy"]["guarantee"]
    assert whom.startswith("Each row of the data is protected.")
    assert "not for all of them together" in whom, "a row is less than a person"
    assert "e^0.1 (below 1.106)" in promise
    assert "52.5% sure" in promise, "1 / (1 + e^-0.1)"
    assert "'people'" in composition
    assert "cost with respect to the contents of a row (replace-one) within a lifetime epsilon of 1.2" in composition
    assert "with at most 1e-09 added by finite precision, as far as the cost of every measurement is" in composition
    other = "total cost with respect to whether a row is in the data at all"
    assert f"adds up their {other}; the cap binds that sum only if another release" in " ".join(composition.split())
    assert limits.startswith("The guarantee does not cover")
    assert not any("treated as known" in sentence for sentence in record["privacy"]["guarantee"])


def test_the_codebook_has_bounds_margins_and_the_records_warnings(bundle: Path, record: dict[str, Any]):
    book = json.loads((bundle / "codebook.json").read_text())
    age, ill = book["columns"]
    assert age["bounds"] == [0, 100]
    assert 0 < age["measured"]["mean_within"] < 10
    assert 0 < ill["measured"]["shares_within"] < 0.1
    assert book["do_not_trust"] == record["limits"]


@pytest.mark.parametrize(("correlation", "hidden"), [(0.0, True), (0.09, True), (-0.11, False), (0.9, False)])
def test_a_relation_that_the_noise_hides_is_called_noise(
    record: dict[str, Any], monkeypatch: pytest.MonkeyPatch, correlation: float, hidden: bool
):
    names = record["utility"]["correlation"]["names"]
    monkeypatch.setattr(codebook, "relation_margins", lambda *_: (names, np.full((2, 2), 0.1)))
    record["utility"]["correlation"]["measured"] = [[1.0, correlation], [correlation, 1.0]]
    limits = codebook.noise_limits(Encoding(parse_spec(SPEC).schema), None, None, record["utility"])
    assert any("age with ill" in limit for limit in limits) == hidden


def test_columns_that_are_not_measured_or_coarse_are_named(record: dict[str, Any]):
    encoding, utility = Encoding(parse_spec(SPEC).schema), record["utility"]
    age, ill = utility["columns"]
    age["measured"] = {"mean": None, "mean_margin": None, "sd": None}
    ill["measured"]["margins"] = [0.2, 0.2]
    guessed, coarse = codebook.noise_limits(encoding, None, None, utility)
    assert guessed.endswith("not measured and are only guesses: age.")
    assert coarse.endswith("at best: ill.")


# ---------------------------------------------------------------- the registry entry

ABOUT = {
    "curator": "The clinic",
    "description": "Visits.",
    "use": "Teaching",
    "region": "Nowhere",
    "sector": "Healthcare",
    "access": "Two stewards.",
    "why": "The board chose.",
    "links": ["https://example.org"],
    "authors": ["A steward"],
}


def with_about(record: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    told = copy.deepcopy(record)
    told["specification"]["about"] = about
    return told


@pytest.mark.parametrize("about", [{}, {"curator": "The clinic"}, ABOUT], ids=["silent", "curator", "all"])
def test_the_entry_is_valid_in_the_registry(record: dict[str, Any], about: dict[str, Any]):
    assert registry_faults(deployment_text(with_about(record, about))) == []


def test_the_registry_schema_would_catch_a_wrong_entry(record: dict[str, Any]):
    entry = build_deployment(record)
    entry["deployment"]["basic"]["data_product_type"] = "Gossip"
    assert registry_faults(yaml.safe_dump(entry))


def test_what_only_the_steward_knows_is_not_invented(record: dict[str, Any]):
    silent, told = build_deployment(record), build_deployment(with_about(record, ABOUT))
    assert silent["tier"] == 2
    assert silent["deployment"]["basic"]["data_curators"] == [NOT_STATED]
    assert told["tier"] == 3
    assert NOT_STATED not in json.dumps(told)


def test_the_record_states_the_minute_in_which_it_was_made(record: dict[str, Any]):
    assert re.fullmatch(r"[0-9-]{10}T[0-9]{2}:[0-9]{2}:00Z", record["created_at"])


def test_the_entry_in_the_bundle_is_that_of_its_record(bundle: Path, record: dict[str, Any]):
    entry = yaml.safe_load((bundle / "registry.yaml").read_text())
    assert entry == build_deployment(record)
    assert entry["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.1, "delta": 0.0}
    assert record["code"]["digest"] in entry["deployment"]["implementation"]["mechanisms"]


@pytest.mark.parametrize("delta_num", [0.0, 1e-100])
def test_an_approximate_release_has_neither_a_pure_variant_nor_a_delta(record: dict[str, Any], delta_num: float):
    record["privacy"]["delta_num"] = delta_num
    record["privacy"]["measurements"][0]["status"] = "approximate"
    entry = build_deployment(record)["deployment"]
    assert entry["dp_variant"]["variant_name"] == "Custom"
    assert entry["privacy_loss"]["privacy_parameters"]["delta"] == "not proved"
    details = entry["privacy_loss"]["privacy_parameters_details"]
    assert "neither epsilon nor a delta is proved" in details
    assert "bounds what finite precision adds" not in details
    assert "neither of them is proved" in release_card(record, status="published", entries=[], folder="bundle")
    assert registry_faults(yaml.safe_dump(build_deployment(record))) == []


@pytest.mark.parametrize("same_program", [True, False])
def test_older_programs_may_have_called_an_approximate_release_pure(record: dict[str, Any], same_program: bool):
    """Their bundles stay whole; one of this program, or one with another epsilon, is broken."""
    record["privacy"]["measurements"][0]["status"] = "approximate"
    again = cast(RecomputedBundle, SimpleNamespace(record=record, same_program=same_program))
    formerly = {"epsilon": record["privacy"]["epsilon"], "delta": 0.0}
    assert (_variant_faults(again, "Pure DP", formerly) == []) is not same_program
    assert _variant_faults(again, "Pure DP", formerly | {"epsilon": 0.01}) != []
    record["privacy"]["measurements"][0]["status"] = "proved"
    assert _variant_faults(again, "Custom", formerly) == ["it names another variant"]


@pytest.mark.parametrize(("delta", "delta_num"), [(1e-6, 0.0), (0.0, 1e-100), (1e-6, 1e-12)])
def test_no_delta_is_left_out_and_none_is_called_pure(record: dict[str, Any], delta: float, delta_num: float):
    record["privacy"] |= {"delta": delta, "delta_num": delta_num}
    entry = build_deployment(record)["deployment"]
    assert entry["dp_variant"]["variant_name"] == "Approximate DP"
    assert entry["privacy_loss"]["privacy_parameters"]["delta"] == delta + delta_num


MIXED_NOISE = """
model:
  mechanism: laplace
  generator: gaussian
  radius: 1
  projection: {kind: private-pca, dimension: 1, mechanism: wishart-difference-trace}
"""


def test_the_record_names_the_numerics_of_every_measurement(tmp_path: Path, record: dict[str, Any]):
    """Certified balls for the components do not speak for the discrete Laplace noise on the moments."""
    path = tmp_path / "release.yaml"
    path.write_text(UNMODELLED + MIXED_NOISE)
    method = _numerics(PlannedRelease.of(load_spec(path)))["method"]
    assert re.fullmatch(r"projection: certified balls.*delta_num = 0; moments: discrete Laplace.*", method)
    assert "moments:" not in record["numerics"]["method"], "one measurement needs no name"
