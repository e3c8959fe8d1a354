"""What users of dpcore rely on: names, parameters of the estimators, imports of the guides, examples that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
from support import ROOT

import dpcore
from dpcore.inference.intervals import Interval
from dpcore.inference.release_estimates import ReleaseInference

REQUIRED = inspect.Parameter.empty
MIXTURE = {
    "epsilon": REQUIRED,
    "bounds": REQUIRED,
    "delta": 0,
    "neighbours": "replace-one",
    "classes": None,
    "target_bounds": None,
    "n_components": "auto",
    "expected_rows": None,
    "mechanism": "auto",
    "allocation": "auto",
    "generator": "auto",
    "radius": 1,
    "normalise": False,
    "random_state": None,
}
LOCAL = {"epsilon": REQUIRED, "bounds": REQUIRED, "n_components": REQUIRED, "categories": None}
ESTIMATORS = {
    "BernoulliRows": LOCAL,
    "DifferentialLda": {
        "epsilon": REQUIRED,
        "bounds": REQUIRED,
        "classes": REQUIRED,
        "delta": 0,
        "neighbours": "replace-one",
        "mechanism": "auto",
        "categories": None,
        "sampler": "squares",
        "random_state": None,
    },
    "EigenvalueGauss": {
        "epsilon": REQUIRED,
        "bounds": REQUIRED,
        "n_components": REQUIRED,
        "expected_rows": REQUIRED,
        "neighbours": "replace-one",
        "random_state": None,
    },
    "GaussianCopula": {
        "epsilon": REQUIRED,
        "bounds": REQUIRED,
        "delta": 0,
        "neighbours": "replace-one",
        "classes": None,
        "categories": None,
        "mechanism": "auto",
        "allocation": "auto",
        "random_state": None,
    },
    "JiangPca": LOCAL,
    "LopRows": LOCAL,
    "Modips": {
        "epsilon": REQUIRED,
        "bounds": REQUIRED,
        "neighbours": "replace-one",
        "classes": None,
        "target_bounds": None,
        "random_state": None,
    },
    "MomentMixture": MIXTURE,
    "PcaGauss": MIXTURE | {"projection_mechanism": "auto", "public_rows": None, "set_aside": None},
    "RonGauss": MIXTURE,
}
"""Every estimator with its constructor's parameters and their defaults."""

SAMPLING = {"DifferentialLda", "EigenvalueGauss", "GaussianCopula", "Modips", "MomentMixture", "PcaGauss", "RonGauss"}


def test_the_package_offers_the_estimators_and_nothing_else() -> None:
    assert dpcore.__all__ == sorted(ESTIMATORS)
    assert all(getattr(dpcore, name).__name__ == name for name in dpcore.__all__)
    with pytest.raises(AttributeError):
        dpcore.nothing  # noqa: B018


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_keeps_its_parameters_and_their_defaults(name: str) -> None:
    parameters = inspect.signature(getattr(dpcore, name)).parameters
    assert {parameter: given.default for parameter, given in parameters.items()} == ESTIMATORS[name]
    assert {given.kind for given in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_who_models_rows_can_sample_them_and_lda_predicts() -> None:
    assert {name for name in ESTIMATORS if hasattr(getattr(dpcore, name), "sample")} == SAMPLING
    assert {name for name in ESTIMATORS if hasattr(getattr(dpcore, name), "predict")} == {"DifferentialLda"}


def test_who_projects_leads_to_the_released_coordinates_and_back() -> None:
    for method in ("transform", "inverse_transform", "fit_transform"):
        assert {name for name in ESTIMATORS if hasattr(getattr(dpcore, name), method)} == {"PcaGauss", "RonGauss"}
    for name in ("PcaGauss", "RonGauss"):
        for method in ("transform", "inverse_transform"):
            assert list(inspect.signature(getattr(getattr(dpcore, name), method)).parameters) == ["self", "X"]
        assert "Projected private rows are private rows" in inspect.getdoc(getattr(dpcore, name).transform)


# ---- what the guides use -------------------------------------------------------------------------------

GUIDES = [ROOT / "README.md", *sorted((ROOT / "deployments" / "guides").glob("*.md"))]
ROOMS = {"dpcore", "expectations", "tasks", "flows", "deployments", "benchmarks"}
IMPORTED = {
    "README.md": {"dpcore.RonGauss"},
    "analyst.md": {"tasks.answers.intervals.read_inference", "tasks.answers.projecting.project_rows"},
}
"""What Python on the pages imports of this project."""


def imported_by(page: Path) -> set[str]:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block))]
    names = {f"{n.module}.{a.name}" for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in names if name.partition(".")[0] in ROOMS}


def test_the_guides_import_what_is_listed_here_and_it_is_there() -> None:
    assert {page.name: imported_by(page) for page in GUIDES if imported_by(page)} == IMPORTED
    for name in set().union(*IMPORTED.values()):
        module, _, attribute = name.rpartition(".")
        assert callable(getattr(importlib.import_module(module), attribute))


QUESTIONS = {
    "mean": ["self", "column", "given", "estimand", "confidence"],
    "proportion": ["self", "column", "level", "given", "estimand", "confidence"],
    "regression": ["self", "target", "features", "given", "estimand", "confidence"],
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_analyst_asks_by_the_parameters_of_the_guide(question: str) -> None:
    parameters = inspect.signature(getattr(ReleaseInference, question)).parameters
    assert list(parameters) == QUESTIONS[question]
    assert {name: parameters[name].default for name in ("given", "estimand", "confidence")} == {
        "given": None,
        "estimand": "population",
        "confidence": 0.95,
    }


def test_an_interval_has_the_fields_of_the_guide() -> None:
    fields = ["estimate", "low", "high", "confidence", "estimand", "noise_share", "remark"]
    assert list(inspect.signature(Interval).parameters) == fields


# ---- examples ------------------------------------------------------------------------------------------

SHOWN = {
    "dpcore.accounting": ["Cap", "release_statement", "rho_of_epsilon"],
    "dpcore.records.schema": ["RecordSchema"],
    "dpcore.records.encoding": ["Encoding"],
    "dpcore.measurements.contribution": ["components_for_share"],
    "dpcore.evaluation.cluster_count": ["choose_clusters"],
    "dpcore.inference.intervals": ["Interval", "Quotient"],
    "dpcore.inference.release_estimates": ["ReleaseInference"],
    "dpcore.auditing.membership": ["infer_membership"],
    "dpcore": sorted(ESTIMATORS),
}
"""Entry points that have an example in their docstring."""


def test_every_entry_point_has_an_example() -> None:
    for module, names in SHOWN.items():
        for name in names:
            assert ">>> " in (getattr(importlib.import_module(module), name).__doc__ or ""), f"{module}.{name}"


def test_every_example_runs_and_gives_what_it_shows() -> None:
    """Examples draw real noise, so they show shapes, costs and bounds, and no noisy value."""
    files = [path for path in sorted((ROOT / "dpcore").rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    assert len(files) >= len(SHOWN)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    for path in files:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for example in doctest.DocTestFinder().find(module):
            runner.run(example, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
