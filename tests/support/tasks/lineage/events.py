"""Releases as lineage tells them, and OpenLineage's schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from dpcore.records.schema import IntervalColumn, Kind, NominalColumn, RecordSchema
from tasks.landing.cells import arrow_schema
from tasks.lineage.datasets import ReleaseDatasets
from tasks.lineage.events import LineageRun
from tasks.lineage.facets import DpGuaranteeFacet, DpSpendFacet, facet_schema

SCHEMAS = Path(__file__).parent / "openlineage"
RELEASE = "visits-2026-10-1"
SCHEMA = arrow_schema(
    RecordSchema(
        (
            IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0, upper=120),
            NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m")),
        )
    )
)
DATASETS = ReleaseDatasets(schema=SCHEMA, measured={"estimate": ("moments",)}, projected_in="project")
BASIS = {"population": "people", "unit": "row", "neighbours": "replace-one"}
NOTHING = {"epsilon": 0.0, "delta": 0.0, "delta_num": 0.0}
SPEND = DpSpendFacet(
    **BASIS,
    measurement="moments",
    mechanism="wishart-difference",
    proof="proved: M1",
    epsilon=1.0,
    rho=None,
    deltaNum=0.0,
    alone={"epsilon": 1.0, "delta": 0.0},
    ofRelease={"epsilon": 1.0, "delta": 0.0},
    ledgerEntry=4,
    ledgerHash="a" * 64,
    before=NOTHING,
    after=NOTHING | {"epsilon": 1.0},
)
GUARANTEE = DpGuaranteeFacet(
    **BASIS,
    epsilon=1.0,
    delta=0.0,
    deltaNum=0.0,
    measurements=["moments"],
    spent=NOTHING | {"epsilon": 1.0},
    ledgerEntry=3,
    ledgerHash="b" * 64,
)


class PlantedError(Exception):
    """A fault with a value in its text."""


def whole_release(run: LineageRun) -> None:
    """Every stage that the flow has, with its datasets and facets."""
    with run.flow() as whole:
        for name in STAGES:
            with run.stage(name) as stage:
                if name == "estimate":
                    stage.facets["dp_spend_moments"] = whole.facets["dp_spend_moments"] = SPEND
                    whole.facets["dp_guarantee"] = GUARANTEE
        whole.inputs, whole.outputs = ["landing"], ["bundle"]


def failed_release(run: LineageRun, fault: BaseException) -> None:
    with run.flow(), run.stage("estimate"):
        raise fault


def all_schemas() -> Registry:
    """OpenLineage's schemas and our own."""
    contents = [facet_schema(), *(json.loads(path.read_text()) for path in SCHEMAS.rglob("*.json"))]
    return Registry().with_resources((content["$id"], Resource.from_contents(content)) for content in contents)


def assert_valid(event: dict[str, Any], registry: Registry) -> None:
    """Against the event's own schema, and every facet against the schema that it names."""
    core = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    Draft202012Validator({"$ref": core}, registry=registry, format_checker=_formats()).validate(event)
    datasets = event.get("inputs", []) + event.get("outputs", [])
    holders = [event["run"], event["job"], *datasets]
    for holder in holders:
        for kind in ("facets", "inputFacets", "outputFacets"):
            for facet in holder.get(kind, {}).values():
                Draft202012Validator({"$ref": facet["_schemaURL"]}, registry=registry).validate(facet)


def _formats() -> Any:
    return Draft202012Validator.FORMAT_CHECKER


STAGES = ("validate", "allocate", "project", "estimate", "sample", "decode", "check", "publish")
