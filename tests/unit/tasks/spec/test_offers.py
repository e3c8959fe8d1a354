"""The registry lists every mechanism where it can be had, and nowhere else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support import ROOT

import dpcore
from dpcore.errors import SpecError
from dpcore.mechanisms.catalogue import ENTRIES
from dpcore.mechanisms.entry import COMPONENTS_KEY, MOMENTS_KEY, PROJECTION_KEY, MechanismEntry, Status
from tasks.spec import load_spec
from tasks.spec.plan import plan_release

ESTIMATORS = (ROOT / "dpcore" / "README.md").read_text()
REFERENCE = (ROOT / "deployments" / "guides" / "specification.md").read_text()
NAMING = (MOMENTS_KEY, COMPONENTS_KEY, PROJECTION_KEY)
APART = {"projection": 0.5, "moments": 0.5}
SPEC: dict[str, Any] = {
    "name": "offers",
    "source": {"path": "landing/*.parquet"},
    "privacy": {"population": "people", "epsilon": 1.0, "lifetime": {"epsilon": 2.0, "delta": 1.0e-5}},
    "expected_rows": 5000,
    "columns": [
        {"name": "a", "kind": "numeric", "bounds": [-10, 10]},
        {"name": "b", "kind": "numeric", "bounds": [-10, 10]},
        {"name": "c", "kind": "numeric", "bounds": [0, 10]},
        {"name": "kind", "kind": "categorical", "categories": ["x", "y"], "role": "label"},
    ],
}

CALLING: dict[str, dict[str, Any]] = {
    "model.allocation.mean": {"model": {"allocation": {"mean": 0.5, "moments": 0.5}}},
    "model.radius: auto": {"model": {"radius": "auto"}},
    "model.normalise: length": {"model": {"normalise": "length"}},
    "model.generator: copula": {"model": {"generator": "copula", "projection": {"kind": "none"}}},
    "checks.*.budget": {"checks": {"accuracy": {"budget": 0.1, "at_least": 0.5}}},
}
"""What a specification says to call for a mechanism without its name."""


def naming(key: str, name: str) -> dict[str, Any]:
    """A model that names a mechanism under a key."""
    if key == MOMENTS_KEY:
        return {"model": {"mechanism": name, "projection": {"kind": "none"}}}
    if key == COMPONENTS_KEY:
        projection = {"kind": "private-pca", "dimension": 2, "mechanism": name}
        return {"model": {"projection": projection, "allocation": APART}}
    return {"model": {"projection": {"kind": name} | ({"public": "a.parquet"} if name == "public-pca" else {})}}


def planned(folder: Path, part: dict[str, Any], *, delta: bool) -> set[str]:
    """The mechanisms and the projection of the plan that a specification leads to."""
    spec = copy.deepcopy(SPEC) | part
    if delta:
        spec["privacy"]["delta"] = 1e-6
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(spec))
    plan = plan_release(load_spec(path))
    return {event.mechanism for event in plan.events.values()} | {plan.projection}


def section_of_reference(place: str) -> str:
    """The part of the reference page about a section of release.yaml, with the parts below it."""
    start = REFERENCE.index(f"# {place}\n")
    return REFERENCE[start : REFERENCE.find("\n## ", start)]


def fitted(place: str, mechanism: str) -> dict[str, Any]:
    """What an estimator states after it was fitted to a few public rows, with the mechanism if it takes one by name."""
    kind = getattr(dpcore, place.removeprefix("dpcore."))
    rows, classes = np.linspace(0, 1, 60).reshape(20, 3), ["x", "y"] * 10
    known: dict[str, Any] = {"epsilon": 1.0, "bounds": (0.0, 1.0)}
    if place == "dpcore.DifferentialLda":
        model = kind(**known, classes=["x", "y"], mechanism=mechanism).fit(rows, classes)
    else:
        sized = {"expected_rows": 20} if place == "dpcore.EigenvalueGauss" else {}
        model = kind(**known, **sized, n_components=2).fit(rows)
    return dict(model.privacy_)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.status is not Status.REFUTED], ids=lambda e: e.name)
def test_a_mechanism_can_be_had_wherever_it_is_listed(entry: MechanismEntry, tmp_path: Path) -> None:
    assert entry.offered
    gaussian = "rho" in entry.guarantee
    for place in entry.offered:
        if place.startswith("dpcore."):
            assert place.removeprefix("dpcore.") in ESTIMATORS
            assert entry.name in str(fitted(place, entry.name))
        else:
            part = CALLING[place] if place in CALLING else naming(place, entry.name)
            if entry.kind == "check" and gaussian:  # a check spends what the moments spend
                part = part | {"model": {"mechanism": "gaussian"}}
            assert entry.name in planned(tmp_path, part, delta=gaussian)
            section, _, key = place.partition(":")[0].replace("checks.*", "checks.accuracy").rpartition(".")
            assert f"| `{key}` |" in section_of_reference(section)
            assert place not in NAMING or f"`{entry.name}`" in section_of_reference("model")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
@pytest.mark.parametrize("key", NAMING)
def test_a_name_is_refused_under_every_key_where_it_is_not_listed(
    entry: MechanismEntry, key: str, tmp_path: Path
) -> None:
    if key in entry.offered:
        return
    with pytest.raises(SpecError) as refusal:
        planned(tmp_path, naming(key, entry.name), delta=True)
    assert entry.name in str(refusal.value)
    if key != PROJECTION_KEY:
        offered = [other.name for other in ENTRIES if key in other.offered]
        assert refusal.value.where == key
        assert refusal.value.hint is not None
        assert all(name in refusal.value.hint for name in offered)


def test_what_is_refuted_is_offered_nowhere() -> None:
    assert [e.name for e in ENTRIES if e.status is Status.REFUTED and e.offered] == []


def test_a_mechanism_that_serves_elsewhere_is_refused_with_where(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"jiang-laplace.*dpcore\.DifferentialLda, dpcore\.JiangPca") as refusal:
        planned(tmp_path, naming(MOMENTS_KEY, "jiang-laplace"), delta=False)
    assert refusal.value.rule == "mechanism-not-moments"
