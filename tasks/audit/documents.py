"""Checks of a bundle's documents: each states what the record states, and nothing else."""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime
from typing import Any

import yaml

from dpcore.synthesis.generators import ROUNDED
from tasks.audit.checks import require
from tasks.audit.recomputed import RecomputedBundle
from tasks.bundle.codebook import build_codebook
from tasks.bundle.guarantee_text import guarantee
from tasks.bundle.rebuild import measured_schema
from tasks.bundle.record import Outcome, planned_facts
from tasks.bundle.registry_entry import REGISTRY, deployment_text, privacy_parameters, unproved, variant_name
from tasks.bundle.staging import render_json
from tasks.report.report import render_report
from tasks.spec.loader import PlainLoader
from tasks.spec.plan import PlannedRelease
from tasks.workspace.reading import parse_json


def codebook_faults(bundle: RecomputedBundle) -> list[str]:
    """Where the codebook states anything but the columns of the record's specification and its warnings."""
    return _column_faults(bundle) or bundle.by_this_program(lambda: _codebook_text_faults(bundle))


def _codebook_text_faults(bundle: RecomputedBundle) -> list[str]:
    due = render_json(build_codebook(measured_schema(bundle.record), bundle.record))
    return require(bundle.text("codebook.json") == due, "it is not what specification and record give")


def _column_faults(bundle: RecomputedBundle) -> list[str]:
    book, record = parse_json(bundle.text("codebook.json")), bundle.record
    used = {column["name"]: column["role"] for column in record["utility"]["columns"]}  # a label may serve as a feature
    stated = {c["name"]: c | {"role": used.get(c["name"])} for c in record["specification"]["columns"]}
    found = require([c["name"] for c in book["columns"]] == list(stated), "its columns are not the specification's")
    for column in book["columns"] if not found else ():
        same = all(column.get(key) == stated[column["name"]].get(key) for key in ("kind", "role", "unit"))
        found += require(same and _same_range(column, stated[column["name"]]), f"it misdescribes {column['name']!r}")
    return found + require(book["do_not_trust"] == record["limits"], "its warnings are not the record's")


def _same_range(column: dict[str, Any], stated: dict[str, Any]) -> bool:
    """Whether bounds or categories agree; bounds of times have two spellings."""
    if "bounds" not in stated:
        return "bounds" not in column and column["categories"] == stated.get("categories", [False, True])
    read = _moment if column["kind"] in ("date", "timestamp") else float
    return [read(bound) for bound in column["bounds"]] == [read(bound) for bound in stated["bounds"]]


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def registry_faults(bundle: RecomputedBundle) -> list[str]:
    """Where the registry entry states anything but the record's guarantee."""
    return _deployment_faults(bundle) or bundle.by_this_program(
        lambda: require(
            bundle.text(REGISTRY) == deployment_text(bundle.record), "it is not the entry that its record gives"
        )
    )


def _deployment_faults(bundle: RecomputedBundle) -> list[str]:
    record = bundle.record
    try:
        entry = yaml.load(bundle.text(REGISTRY), PlainLoader)  # noqa: S506  a safe loader
    except yaml.YAMLError:
        return ["it is not YAML"]
    deployment, person = entry["deployment"], record["privacy"]["unit"].startswith("person")
    loss = deployment["privacy_loss"]
    return [
        *require(entry["url_slug"] == record["release_id"], "it speaks of another release"),
        *_variant_faults(bundle, deployment["dp_variant"]["variant_name"], loss["privacy_parameters"]),
        *require(loss["privacy_unit"].startswith("Person") == person, "its unit is not the record's"),
        *require(
            record["privacy"]["neighbours"] in loss["privacy_unit_details"], "its neighbours are not the record's"
        ),
        *require(deployment["basic"]["publication_date"] == record["created_at"][:10], "its date is not the record's"),
        *require(record["code"]["digest"] in deployment["implementation"]["mechanisms"], "it names another code"),
    ]


def _variant_faults(bundle: RecomputedBundle, variant: str, parameters: dict[str, Any]) -> list[str]:
    """Variant and parameters are the record's; older versions stated a delta for approximate releases too."""
    due, excused = privacy_parameters(bundle.record), bool(unproved(bundle.record)) and not bundle.same_program
    names = due.keys() - ({"delta"} if excused else set())
    same = parameters.keys() == due.keys() and all(parameters[name] == due[name] for name in names)
    return [
        *require(excused or variant == variant_name(bundle.record), "it names another variant"),
        *require(same, "its parameters are not the record's"),
    ]


def plan_faults(bundle: RecomputedBundle) -> list[str]:
    """Where the record's choices, expectations, limits and promises do not follow from its specification."""
    record, rebuilt = bundle.record, bundle.rebuilt
    planned = PlannedRelease.of(rebuilt.spec)
    outcome = Outcome(record["rows"], rebuilt.moments, rebuilt.projection, record["utility"], [])
    due = planned_facts(planned, rebuilt.seeds, outcome) | {"specification": rebuilt.spec.as_public_json()}
    if "sampling" not in record["model"] and rebuilt.sampler < ROUNDED:  # as in records of earlier versions
        del due["model"]["sampling"]
    both = {name: record["privacy"].get(name) for name in planned.relations}
    return [
        *require(record["privacy"]["guarantee"] == guarantee(planned), "its promise is worded differently"),
        *require(bundle.agrees(both, planned.relations), "its figures under a relation are not its plan's"),
        *(f"its {name} differs from what its specification leads to" for name in bundle.other_parts(due)),
    ]


def report_faults(bundle: RecomputedBundle) -> list[str]:
    """Where the report shows anything but the record."""
    due = _rendered(json.dumps(bundle.record))
    return require(bundle.text("report.html") == due, "it is not the page that its record gives")


@functools.lru_cache(maxsize=64)
def _rendered(record: str) -> str:
    """The page of a record, cached: drawing its plots takes longer than the rest of a small release's audit."""
    return render_report(json.loads(record))
