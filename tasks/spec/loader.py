"""YAML with exact numbers, YAML 1.2 booleans and no duplicate keys.

Differences from PyYAML's safe loader, each because a plain scalar must mean what
its writer sees:

* a number with a point or an exponent becomes a `Decimal` of its text, so that
  twelve times 0.1 is 1.2;
* only true and false are booleans: `categories: [no, yes]` are two words;
* whole numbers have no leading zero, no base and no base 60: `007` and `12:30` are text;
* dates stay text, because only the column knows its kind and time zone;
* aliases and merge keys are refused: a few lines of them stand for more than memory holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from dpcore.errors import SpecError
from tasks.spec.refusals import Place, dotted

_TAG = "tag:yaml.org,2002:"
_PLAIN = {
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)",
    "float": r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))"
    r"|\.(?:nan|NaN|NAN)",
    "null": r"~|null|Null|NULL|",
}


class PlainLoader(yaml.SafeLoader):
    """A safe loader without aliases, so that a document is as large as its text."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """One node of the document; an alias is none."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, "aliases (*name) are not allowed: write the value out", mark)
        return super().compose_node(parent, index)


class SpecLoader(PlainLoader):
    """A safe loader that knows the plain scalars above and no other tags."""

    def construct_exact(self, node: yaml.ScalarNode) -> Decimal:
        """The number whose text this is, digit by digit."""
        text = self.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan")
        try:
            return Decimal(text)
        except InvalidOperation:
            raise ConstructorError(None, None, "this is not a number", node.start_mark) from None

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        """The whole number whose text this is."""
        try:
            return int(self.construct_scalar(node))
        except ValueError:
            raise ConstructorError(None, None, "this is not a whole number", node.start_mark) from None

    def construct_truth(self, node: yaml.ScalarNode) -> bool:
        """true or false."""
        text = self.construct_scalar(node).lower()
        if text not in ("true", "false"):
            raise ConstructorError(None, None, "a boolean is true or false", node.start_mark)
        return text == "true"


# None is the rule for any other tag: an error.
_KEPT = (_TAG + "null", _TAG + "str", _TAG + "seq", _TAG + "map", None)
SpecLoader.yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in _KEPT}
SpecLoader.add_constructor(_TAG + "bool", SpecLoader.construct_truth)
SpecLoader.add_constructor(_TAG + "int", SpecLoader.construct_whole)
SpecLoader.add_constructor(_TAG + "float", SpecLoader.construct_exact)
SpecLoader.yaml_implicit_resolvers = {}
for _name, _pattern in _PLAIN.items():
    SpecLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), None)


def read_yaml(text: str) -> dict[Any, Any]:
    """The one mapping that a YAML text holds.

    Raises:
        SpecError: the text is empty, is not YAML, holds a key twice, or is no mapping.
    """
    document = read_value(text)
    if document is None:
        raise SpecError(
            "the specification is empty",
            rule="spec-empty",
            where="release.yaml",
            hint="start from the one that `dprelease init DIR` writes",
        )
    if not isinstance(document, dict):
        raise SpecError(
            "the specification is not a mapping",
            rule="spec-not-a-mapping",
            where="release.yaml",
            hint="write `key: value` lines: name, source, privacy, expected_rows, columns",
        )
    return document


def read_value(text: str, *, what: str = "the specification", where: str | None = None) -> object:
    """Whatever a YAML text holds; refusals name its line, or the place that is given.

    Raises:
        SpecError: the text is not YAML, or holds a key twice.
    """
    try:
        value = _construct(text)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(what, where or _place_of(error), error.problem or "it does not parse") from None
    except yaml.YAMLError:
        raise _syntax_error(what, where or "release.yaml", "it holds characters that YAML does not allow") from None
    except RecursionError:
        raise _syntax_error(what, where or "release.yaml", "it is nested too deeply") from None
    _refuse_half_characters(value, (), set())
    return value


def _construct(text: str) -> object:
    loader = SpecLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_duplicate_keys(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_half_characters(value: object, place: Place, seen: set[int]) -> None:
    """Refuse half of a surrogate pair, which an escape can give: no file of a release could hold it."""
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise SpecError(
            "an escape in this text gives half a character",
            rule="text-unwritable",
            where=dotted(place) or "release.yaml",
            hint='write the character itself, or one escape for all of it, such as "\\U0001F600"',
        )
    if id(value) in seen:
        return
    seen.add(id(value))  # aliases may repeat it
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        _refuse_half_characters(key, place, seen)
        _refuse_half_characters(inner, (*place, key), seen)


def _refuse_duplicate_keys(root: yaml.Node) -> None:
    """Refuse a mapping that says a key twice; PyYAML would let the last one win."""
    for place, mapping in _mappings(root, ()):
        seen = set()
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise SpecError(
                    f"the key `{key.value}` is given twice",
                    rule="duplicate-key",
                    where=dotted((*place, key.value)),
                    hint=f"keep one of them (the second is on line {key.start_mark.line + 1})",
                )
            seen.add(key.value)


def _mappings(node: yaml.Node, place: Place) -> Iterator[tuple[Place, yaml.MappingNode]]:
    """Every mapping under a node with its place."""
    if isinstance(node, yaml.MappingNode):
        yield place, node
        for key, value in node.value:
            yield from _mappings(value, (*place, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _mappings(item, (*place, index))


def _place_of(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return "release.yaml" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"


def _syntax_error(what: str, where: str, problem: str) -> SpecError:
    return SpecError(
        f"{what} is not valid YAML: {problem}",
        rule="yaml-syntax",
        where=where,
        hint="look at the indentation, the brackets and the quotes there and just above",
    )
