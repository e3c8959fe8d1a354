"""The JSON Schema of release.yaml: what it accepts, and that it refuses nothing which the loader accepts."""

from __future__ import annotations

import copy
import tarfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support import ROOT
from support.deployments.guides import GUIDES, blocks_of
from support.flows.pure_rows import SPECIFICATION
from support.tasks.staged import SPEC

from dpcore.errors import SpecError
from flows.demos import DEMOS
from tasks.spec import ReleaseSpec, spec_of
from tasks.spec.loader import read_value, read_yaml
from tasks.spec.structure.schema import NARROWED, READ, READ_WITH, SpecSchema, spec_schema

SCHEMA = spec_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
GOLDEN = ROOT / "tests" / "support" / "tasks" / "golden"


def plain(value: Any) -> Any:
    """A document as programs other than ours read it: numbers as floats."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value


def faults(document: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(plain(document))]


def examples() -> Iterator[tuple[str, str]]:
    """Every specification that users read, and those that golden workspaces were made from."""
    for name, demo in DEMOS.items():
        yield name, demo.specification()
    for page in sorted(GUIDES.glob("*.md")):
        for block in blocks_of(page.read_text()):
            if block.note == "file" and block.value.endswith("release.yaml"):
                yield f"{page.name}: {block.value}", block.body
    for path in sorted(GOLDEN.glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if Path(member.name).name == "release.yaml":
                    file = archive.extractfile(member)
                    assert file is not None
                    yield f"{path.name}: {member.name}", file.read().decode()
    yield "visits", SPECIFICATION
    yield "staged", SPEC


EXAMPLES = dict(examples())

RICH = r"""
name: everything
source:
  path: landing/*.csv
  period: 'visits-(?P<period>\d{4}-\d{2})'
  period_column: seen
  drop: [note]
  csv: {delimiter: ";", encoding: latin-1, decimal: ",", quote: "'"}
privacy:
  population: people
  unit: {person: id, rows: at-most 3, span: 12}
  neighbours: add-remove
  epsilon: 1
  delta: 1.0e-6
  lifetime: {epsilon: "12", delta: 1.0e-5, delta_num: 1.0e-9, kind: split, pure: 0.5}
expected_rows: 4e4
columns:
  - {name: age, kind: numeric, bounds: [0, 110], breaks: [15, 65.5], unit: years, missing: {impute: 30}}
  - {name: seen, kind: timestamp, bounds: [2020-01-01, "2030-01-01T06:00:00"], timezone: Europe/Berlin}
  - {name: born, kind: date, bounds: [1900-01-01, 2030-01-01], breaks: [2000-01-01], missing: category}
  - {name: smoker, kind: boolean}
  - {name: grade, kind: categorical, categories: [1, 2, 3], other: 3}
  - {name: ward, kind: categorical, categories: [a, b], role: label}
model:
  projection: {kind: private-pca, dimension: {share: 0.9}, mechanism: laplace}
  mechanism: laplace
  generator: mixture
  allocation: {projection: 1/3, moments: 2/3}
  radius: 0.5
  accept_noise: true
  normalise: none
  sampling: independent
  output: both
rules:
  - age >= 0
  - {implies: ["age < 15", "ward = 'a'"]}
  - {not_applicable: {when: "age < 3", columns: {born: null}}}
rows: 1000
checks:
  min_rows: 100
  mean_gap: 0.1
  means_inside: 0.9
  accuracy: {budget: 0.05, at_least: 0.5}
  silhouette: {budget: 1/20, at_least: 0.1, clusters: 8}
schedule: {cron: "0 6 1 * *", timezone: UTC, on_landing: true}
approve: {by: [board], at_least: 1}
about: {curator: us, sector: Healthcare, links: ["https://example.org"]}
runner: {dask: local}
ledger: postgresql://user@host/database
lineage: {url: "https://marquez.example.org:5000"}
"""
QUERY = (
    RICH.replace(
        r"""  path: landing/*.csv
  period: 'visits-(?P<period>\d{4}-\d{2})'
""",
        "  query: {url: env:DB, sql: SELECT age FROM visits, rows: table}\n",
    )
    .replace("""  csv: {delimiter: ";", encoding: latin-1, decimal: ",", quote: "'"}\n""", "")
    .replace(", on_landing: true", "")
)
BASES = {"everything": RICH, "query": QUERY}

VALUES = """
[null, true, false, 0, 1, 2, -1, 12, 1201, 1.5, 0.5, 1.0e-13, 1.0e+20, 3.0, .inf, "", " ", a, auto, none, row, all, dfm,
 "0.5", "1/3", "1e3", at-most 2, category, required, UTC, 2020-01-01, [], [1], [a, b], [1, 2], [2, 1], [a, a],
 [2020-01-01, 2021-01-01], [null], [true, 1], {}, {impute: 1}, {a: 1}, {at-most: 2}, {share: 0.5}, {by: [a]},
 {person: id}, {rows: weight}, {span: 1}, {person: null}, {implies: [a, b]}, label, target, numeric, categorical]
"""


def places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value of a document."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inner:
        yield (*above, key)
        yield from places(value, (*above, key))


def replaced(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(document)
    *path, last = place
    node = result
    for key in path:
        node = node[key]
    node[last] = value
    return result


def removed(document: Any, place: tuple[Any, ...]) -> Any:
    result = copy.deepcopy(document)
    *path, last = place
    node = result
    for key in path:
        node = node[key]
    del node[last]
    return result


def variants(document: Any) -> Iterator[tuple[str, Any]]:
    """A document with each of its values replaced by many others, without each, and with a key too many each."""
    values = read_value(VALUES)
    assert isinstance(values, list)
    for place in places(document):
        if place[0] != "source" and "query" in document["source"]:
            continue  # the same as in the other document
        for value in values:
            yield f"{place} = {value!r}", replaced(document, place, value)
        yield f"without {place}", removed(document, place)
        yield (
            f"{place} with a sibling",
            replaced(document, (*place[:-1], "nonesuch"), 1)
            if isinstance(place[-1], str)
            else replaced(document, place, {"nonesuch": 1}),
        )


def is_loaded(document: Any) -> bool:
    try:
        spec_of(document)
    except SpecError:
        return False
    return True


def test_the_schema_is_one_of_draft_2020_12() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_follows_the_schema(name: str) -> None:
    assert faults(read_yaml(EXAMPLES[name])) == []


def test_the_examples_are_those_of_demos_guides_and_golden_workspaces() -> None:
    assert {"clinic", "digits", "steward.md: library/release.yaml"} <= set(EXAMPLES)
    assert sum(".tar.gz" in name for name in EXAMPLES) >= 8


@pytest.mark.parametrize("name", BASES)
def test_a_specification_with_nearly_all_keys_follows_the_schema_and_is_loaded(name: str) -> None:
    document = read_yaml(BASES[name])
    assert faults(document) == []
    spec_of(document)


@pytest.mark.parametrize("name", BASES)
def test_what_the_schema_refuses_the_loader_refuses_as_well(name: str) -> None:
    found = dict(variants(read_yaml(BASES[name])))
    refused = [words for words, document in found.items() if not VALIDATOR.is_valid(plain(document))]
    assert len(refused) > len(found) / 2, "the schema refuses what it can"
    assert [words for words in refused if is_loaded(found[words])] == []


INVALID = {
    "an unknown key": ("", "nonesuch: 1"),
    "an unknown key of a section": ("  delta: 0\n", "  delta: 0\n  epsilonn: 1\n"),
    "no epsilon": ("  epsilon: 1.0\n", ""),
    "no cap": ("  lifetime: {epsilon: 12.0, delta: 0, delta_num: 1.0e-9}\n", ""),
    "an epsilon that is no number": ("epsilon: 1.0\n", "epsilon: little\n"),
    "an epsilon of nothing": ("epsilon: 1.0\n", "epsilon: 0\n"),
    "an epsilon above 100": ("epsilon: 1.0\n", "epsilon: 101\n"),
    "a kind of column that there is not": ("kind: boolean", "kind: bool"),
    "free text": ("kind: boolean", "kind: text"),
    "numbers without bounds": (",     bounds: [0, 110],  unit: years", ""),
    "categories without a list": ("categories: [f, m, x]", "categories: f"),
    "categories that are not given": ("categories: [f, m, x], ", ""),
    "one bound": ("[0, 110]", "[0]"),
    "bounds of a boolean": ("kind: boolean", "kind: boolean, bounds: [0, 1]"),
    "a date that is a number": ("[2025-11-01, 2026-11-01]", "[2025, 2026]"),
    "a label that is a number": ("unit: euros", "role: label"),
    "a unit without a person": ("unit: row", "unit: {rows: weight}"),
    "a unit in another word": ("unit: row", "unit: person"),
    "half a row": ("expected_rows: 20000", "expected_rows: 0.5"),
    "a generator that there is not": ("generator: auto", "generator: nonesuch"),
    "a list in place of a mapping": ("checks: {min_rows: 1000, mean_gap: 0.05, category_gap: 0.05}", "checks: []"),
    "a name with spaces": ("name: clinic-visits", "name: clinic visits"),
    "no source": ("  path: landing/*.parquet\n", ""),
    "a rule of an unknown form": ("rows: auto", "rows: auto\nrules: [{nonesuch: 1}]"),
    "a switch in quotes": ("on_landing: true", 'on_landing: "true"'),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_structure_shows_to_be_wrong_is_refused(name: str) -> None:
    old, new = INVALID[name]
    assert old in SPECIFICATION
    document = read_yaml(SPECIFICATION.replace(old, new, 1) if old else f"{SPECIFICATION}\n{new}\n")
    assert faults(document)
    assert not is_loaded(document)


def described(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every key of the schema with what the schema says of it, or else of the section that it refers to."""
    for name, section in {"release.yaml": schema, **schema["$defs"]}.items():
        for key, value in section.get("properties", {}).items():
            yield f"{name}: {key}", schema["$defs"].get(value.get("$ref", "").rpartition("/")[2], {}) | value


def test_every_key_is_described_for_whoever_points_at_it() -> None:
    assert [name for name, value in described(SCHEMA) if not value.get("description")] == []


def test_nothing_for_the_reference_page_is_in_the_schema() -> None:
    assert not [name for name, value in described(SCHEMA) if "values" in value or value.get("title")]


def test_every_validator_in_the_tables_is_one_of_the_models() -> None:
    """A name that is misspelt, or a validator that was renamed, would let the schema accept more than it should."""
    asked: set[str] = set()

    class Asking(SpecSchema):
        def function_plain_schema(self, schema: Any) -> Any:
            asked.add(schema["function"]["function"].__qualname__)
            return super().function_plain_schema(schema)

        def function_after_schema(self, schema: Any) -> Any:
            asked.add(schema["function"]["function"].__qualname__)
            return super().function_after_schema(schema)

    ReleaseSpec.model_json_schema(schema_generator=Asking)
    assert {*READ, *READ_WITH, *NARROWED} <= asked
