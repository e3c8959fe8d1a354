"""The JSON Schema of release.yaml, from the models that validate it, for editors and other programs.

Pydantic describes sections, keys, defaults and descriptions. Where a function of ours reads a value, a table below says
what kinds of values it takes. The schema refuses nothing that the loader accepts; rules that relate keys to each
other, or to what a text means, are the loader's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema

from dpcore.accounting import LARGEST_FIGURE
from dpcore.planning.request import AUTO, DFM, PLANNED, SMALLEST_EPSILON
from dpcore.records.exact_sums import SMALLEST_RADIUS
from tasks.spec.about import MOST_CHARACTERS
from tasks.spec.checks import MOST_CLUSTERS
from tasks.spec.columns import MOST_BREAKS, MOST_CATEGORIES_AT_ALL, Impute
from tasks.spec.operations import PLAIN, ApproversSpec
from tasks.spec.privacy import ALL_MONTHS, MOST_DELTA, MOST_EPSILON, MOST_SPAN
from tasks.spec.release import MOST_ROWS, ReleaseSpec
from tasks.spec.rules.forms import MOST_RULES, RECORDED
from tasks.spec.values import MOST_NAME_CHARACTERS, MOST_SLUG, MOST_WHOLE

Schema = dict[str, Any]

TITLE = "release.yaml"


def _mapping(required: Mapping[str, Schema]) -> Schema:
    """A mapping with exactly these keys."""
    return {
        "type": "object",
        "properties": dict(required),
        "required": list(required),
        "additionalProperties": False,
    }


def _any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _list_of(items: Schema, least: int, most: int | None = None) -> Schema:
    return {"type": "array", "items": items, "minItems": least} | ({} if most is None else {"maxItems": most})


TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}
DIGITS: Schema = {"type": "string", "pattern": "^[^/A-DF-Za-df-z]+$"}
"""A number in quotes: no letter but that of an exponent."""
RATIO: Schema = {"type": "string", "pattern": "^[^A-DF-Za-df-z]+$"}
"""The same, or two numbers and a stroke."""

NUMBER = _any_of({"type": "number"}, DIGITS)
POSITIVE = _any_of({"type": "number", "exclusiveMinimum": 0}, DIGITS)
WHOLE = _any_of({"type": "integer", "minimum": 1, "maximum": MOST_WHOLE}, DIGITS)
LEVEL: Schema = {"type": ["string", "integer", "boolean"]}

RULE = _any_of(
    TEXT,
    _mapping({"implies": _list_of(TEXT, 2)}),
    _mapping(
        {
            "sum_of": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": _list_of(TEXT, 2),
            }
        }
    ),
    _mapping({"not_applicable": _mapping({"when": TEXT, "columns": {"type": ["array", "object"]}})}),
    _mapping({key: {} for key in sorted(RECORDED)}),
)

READ: Mapping[str, Schema] = {
    "exact_decimal": NUMBER,
    "exact_fraction": _any_of({"type": "number"}, RATIO),
    "positive_float": POSITIVE,
    "positive_whole": WHOLE,
    "auto_or_whole": _any_of({"const": AUTO}, WHOLE),
    "_auto_whole_or_dfm": _any_of({"enum": [AUTO, DFM]}, WHOLE),
    "_auto_or_radius": _any_of(
        {"enum": [AUTO, PLANNED, None]},
        {"type": "number", "minimum": float(SMALLEST_RADIUS), "maximum": 1},
        RATIO,
    ),
    "_read_row_limit": _any_of(
        {"const": "weight"}, {"type": "string", "pattern": r"^at-most\s+\S+$"}, _mapping({"at-most": WHOLE})
    ),
    "_read_span": _any_of({"const": ALL_MONTHS}, {"type": "integer", "minimum": 1, "maximum": MOST_SPAN}),
    "ColumnSpec._read_bounds": {"type": ["array", "null"], "minItems": 2, "maxItems": 2},
    "ColumnSpec._read_breaks": {"type": ["array", "null"], "maxItems": MOST_BREAKS},
    "ColumnSpec._read_categories": {
        "type": ["array", "null"],
        "items": LEVEL,
        "minItems": 2,
        "maxItems": MOST_CATEGORIES_AT_ALL,
        "uniqueItems": True,
    },
    "ColumnSpec._other_is_declared": {"type": [*LEVEL["type"], "null"]},
    "ReleaseSpec._keep_rules_as_written": _any_of(_list_of(RULE, 0, MOST_RULES), NULL),
}
"""What a validator takes that reads a value by itself, by the validator's name."""

READ_WITH: Mapping[str, tuple[Schema, type[BaseModel]]] = {
    "_approval_rule": ({"enum": list(PLAIN)}, ApproversSpec),
    "ColumnSpec._read_missing": ({"enum": ["category", None]}, Impute),
}
"""The same, for validators that take a section as well."""


def _if_kind(kinds: list[str], then: Schema) -> Schema:
    """What holds for some values of the key `kind` beside it."""
    return {"if": {"properties": {"kind": {"enum": kinds}}, "required": ["kind"]}, "then": then}


def _column(kinds: list[str], needs: str | None, roles: list[str], **keys: Schema) -> Schema:
    role = {"role": {"enum": ["feature", *roles]}}
    return _if_kind(kinds, {"properties": role | keys} | ({} if needs is None else {"required": [needs]}))


def _values_of(items: Schema) -> dict[str, Schema]:
    """The keys of a column whose values have an order."""
    return {"bounds": {"type": "array", "items": items}, "breaks": {"type": "array", "items": items}}


_NO_LIST: dict[str, Schema] = {"bounds": NULL, "breaks": {"maxItems": 0}, "timezone": NULL, "unit": NULL}
_NO_LEVELS: dict[str, Schema] = {"categories": NULL, "other": NULL}

COLUMN = [
    _column(["numeric", "integer"], "bounds", ["target"], timezone=NULL, **_values_of(NUMBER), **_NO_LEVELS),
    _column(["date"], "bounds", [], timezone=NULL, unit=NULL, **_values_of(TEXT), **_NO_LEVELS),
    _column(["timestamp"], "bounds", [], unit=NULL, **_values_of(TEXT), **_NO_LEVELS),
    _column(["boolean"], None, ["label"], **_NO_LIST, **_NO_LEVELS),
    _column(["categorical"], "categories", ["label"], **_NO_LIST),
]

NARROWED: Mapping[str, Schema] = {
    "slug": {"pattern": "^[a-z0-9][a-z0-9-]*$", "maxLength": MOST_SLUG},
    "filled": {"minLength": 1},
    "one_line": {"maxLength": MOST_NAME_CHARACTERS},
    "public_text": {"minLength": 1, "maxLength": MOST_CHARACTERS},
    "_one_character": {"minLength": 1, "maxLength": 1},
    "_at_most_all": {"maximum": 1},
    "_part_of_the_budget": {"exclusiveMinimum": 0, "maximum": 1},
    "_some_clusters": {"minimum": 2, "maximum": MOST_CLUSTERS},
    "_writable_rows": {"maximum": MOST_ROWS},
    "DimensionShareSpec._between_nothing_and_all": {"exclusiveMinimum": 0, "maximum": 1},
    "PrivacySpec._epsilon_promises_something": {"minimum": float(SMALLEST_EPSILON), "maximum": MOST_EPSILON},
    "PrivacySpec._delta_promises_something": {"minimum": 0, "maximum": float(MOST_DELTA)},
    "LifetimeSpec._epsilon_is_a_cap": {"exclusiveMinimum": 0, "maximum": float(LARGEST_FIGURE)},
    "LifetimeSpec._delta_is_a_probability": {"minimum": 0, "maximum": 1},
    "LifetimeSpec._kind_has_its_figures": {
        "allOf": [_if_kind(["split"], {"required": ["pure"]}), _if_kind(["slots"], {"required": ["each"]})]
    },
    "ProjectionSpec._public_rows_belong_to_public_pca": {"allOf": [_if_kind(["public-pca"], {"required": ["public"]})]},
    "SourceSpec._files_or_a_query": {"anyOf": [{"required": ["path"]}, {"required": ["query"]}]},
    "ColumnSpec._many_categories_need_an_other": {"allOf": COLUMN},
    "ReleaseSpec._sections_agree": {"properties": {"columns": {"minItems": 1}}},
}
"""What a validator asks beyond the kind of a value, by the validator's name."""

UNIT: Schema = {
    "anyOf": [{"const": "row"}, {"type": "object"}],
    "minProperties": 1,
    "dependentRequired": {"rows": ["person"]},
    "properties": {"person": TEXT},
}
"""One word, or a mapping that must say whom it protects; without a person, nothing says how persons' rows count."""


class SpecSchema(GenerateJsonSchema):
    """Pydantic's generator, which asks the tables above about validators of ours."""

    def function_plain_schema(self, schema: Any) -> JsonSchemaValue:
        """What a validator takes that reads a value by itself; one that is in no table is an error."""
        name = _name(schema)
        if name in READ_WITH:
            others, section = READ_WITH[name]
            return _any_of(others, self.generate_inner(section.__pydantic_core_schema__))
        return dict(READ[name])

    def function_after_schema(self, schema: Any) -> JsonSchemaValue:
        """A value that is read and then judged."""
        return _narrowed(super().function_after_schema(schema), NARROWED.get(_name(schema), {}))

    def function_before_schema(self, schema: Any) -> JsonSchemaValue:
        """A value that is looked at before it is read: `unit` may be one word."""
        read = super().function_before_schema(schema)
        if _name(schema) != "UnitSpec._row_is_short_for_no_person":
            return read
        return _narrowed({key: value for key, value in read.items() if key != "type"}, UNIT)

    def field_title_should_be_set(self, schema: Any) -> bool:
        """A key is its own title."""
        return False

    def encode_default(self, dft: Any) -> Any:
        """A default as the file would state it."""
        return float(dft) if isinstance(dft, Fraction) else super().encode_default(dft)


def spec_schema() -> Schema:
    """The JSON Schema of release.yaml, draft 2020-12."""
    schema = ReleaseSpec.model_json_schema(schema_generator=SpecSchema)
    return {"$schema": SpecSchema.schema_dialect, "title": TITLE, **_tidy(schema)}


def _name(schema: CoreSchema | Any) -> str:
    return str(schema["function"]["function"].__qualname__)


def _narrowed(schema: Schema, further: Schema) -> Schema:
    """A schema with further demands; those on keys are demands on each key."""
    result = schema | {key: value for key, value in further.items() if key != "properties"}
    keys = {key: {**schema["properties"][key], **value} for key, value in further.get("properties", {}).items()}
    return result | ({"properties": {**schema["properties"], **keys}} if keys else {})


def _tidy(node: Any) -> Any:
    """A schema without what is for the reference page, without titles of sections, and without empty defaults."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _tidy(value) for key, value in node.items() if not _is_clutter(key, value)}


def _is_clutter(key: str, value: Any) -> bool:
    return (key in ("values", "title") and isinstance(value, str)) or (key == "default" and value is None)
