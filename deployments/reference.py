"""Generates the reference pages of the guides from the code that they describe.

`python -m deployments.reference` rewrites the generated parts of `guides/specification.md` and `guides/commands.md`. A
generated part is between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of a page is written by hand. The
meaning of a key is its field's description in `tasks/spec`, and that of an option is its help text in `flows/cli`.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from flows.cli import app
from tasks.spec import ReleaseSpec
from tasks.spec.values import Section

GUIDES = Path(__file__).parent / "guides"
TOP = "release.yaml"
COMMANDS = "commands"

_PART = re.compile(r"(?<=<!-- generated: )(?P<name>\S+)(?P<open> -->\n).*?(?=<!-- end -->)", re.DOTALL)
_TYPES = {str: "text", int: "whole number", float: "number", Fraction: "number", bool: "`true` or `false`"}
_PLURALS = {"text": "texts", "mapping": "mappings"}
_METAVARS = {Path: "PATH", int: "N", float: "NUMBER"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# ---------------------------------------------------------------- the keys of release.yaml


def specification_parts() -> dict[str, str]:
    """A table of keys for every section of release.yaml, by the section's place, such as `source.query`."""
    return {
        place: table(
            ["key", "values", "default", "meaning"],
            [_key_row(name, field) for name, field in section.model_fields.items()],
        )
        for place, section in _sections(TOP, ReleaseSpec)
    }


def _sections(place: str, section: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    yield place, section
    for name, field in section.model_fields.items():
        for inner, ending in _inner_sections(field.annotation):
            yield from _sections(name + ending if place == TOP else f"{place}.{name}{ending}", inner)


def _inner_sections(annotation: Any) -> Iterator[tuple[type[Section], str]]:
    """The sections that a field may contain; brackets mark those in a list."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation, ""
    in_list = typing.get_origin(annotation) is tuple
    for argument in typing.get_args(annotation):
        for inner, ending in _inner_sections(argument):
            yield inner, "[]" if in_list else ending


def _key_row(name: str, field: FieldInfo) -> list[str]:
    extra = field.json_schema_extra
    values = extra.get("values") if isinstance(extra, dict) else None
    return [f"`{name}`", str(values or _values(field.annotation)), _default_of_key(field), field.description or ""]


def _values(annotation: Any) -> str:
    """A description of the values that a field accepts."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _values(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_values(part) for part in reversed(arguments) if part is not types.NoneType)
    if origin is tuple:
        item = _values(arguments[0])
        return f"list of {_PLURALS.get(item, item)}"
    if issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    return "mapping" if issubclass(annotation, Section) else _TYPES[annotation]


def _default_of_key(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if field.default_factory is not None or default in (None, "", ()):
        return ""
    if isinstance(default, Fraction):
        return f"`{float(default):g}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


# ---------------------------------------------------------------- the commands


def command_parts() -> dict[str, str]:
    """All commands, each with its usage, what it does and a table of its arguments and options."""
    return {COMMANDS: "\n".join(_command(name, callback) for name, callback in commands())}


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command and subcommand with its function, in the order of `--help`."""
    yield from _registered(app, "")
    for group in app.registered_groups:
        inner = group.typer_instance
        if inner is None:
            continue
        if inner.registered_callback is not None and inner.registered_callback.callback is not None:
            yield str(group.name), inner.registered_callback.callback
        yield from _registered(inner, f"{group.name} ")


def _registered(group: typer.Typer, prefix: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in group.registered_commands:
        if command.callback is not None:
            yield f"{prefix}{command.name}", command.callback


def _command(name: str, callback: Callable[..., Any]) -> str:
    types_of = typing.get_type_hints(callback)
    given = {
        parameter.name: parameter.default
        for parameter in inspect.signature(callback).parameters.values()
        if isinstance(parameter.default, ParameterInfo)
    }
    rows = [_option_row(word, info, types_of[word]) for word, info in given.items()]
    arguments = [_argument_name(word, info) for word, info in given.items() if isinstance(info, ArgumentInfo)]
    usage = " ".join(["dprelease", name, *arguments, "[OPTIONS]"])
    head = f"## {name}\n\n`{usage}`\n\n{inspect.getdoc(callback)}\n"
    return f"{head}\n{table(['argument or option', 'default', 'meaning'], rows)}"


def _option_row(name: str, info: ParameterInfo, kind: Any) -> list[str]:
    if isinstance(info, ArgumentInfo):
        return [f"`{_argument_name(name, info)}`", _default_of_option(info), info.help or ""]
    assert isinstance(info, OptionInfo)  # noqa: S101  there is no third kind
    spelled = sorted(info.param_decls or (), key=len)
    value = "" if kind is bool else f" {info.metavar or _metavar(kind)}"
    return [f"`{', '.join(spelled)}{value}`", _default_of_option(info), info.help or ""]


def _argument_name(name: str, info: ParameterInfo) -> str:
    return info.metavar or name.upper()


def _metavar(kind: Any) -> str:
    """The placeholder of an option's value, also if the option may be omitted or repeated."""
    parts = [part for part in typing.get_args(kind) if part is not types.NoneType]
    return _metavar(parts[0]) if parts else _METAVARS.get(kind, "TEXT")


def _default_of_option(info: ParameterInfo) -> str:
    if isinstance(info.show_default, str):
        return info.show_default
    if info.default is ...:
        return "required"
    is_silent = info.default is None or info.default is False or info.default in ("", [])
    return "" if is_silent else f"`{info.default:g}`" if isinstance(info.default, float) else f"`{info.default}`"


# ---------------------------------------------------------------- the pages

PAGES: Mapping[str, Callable[[], dict[str, str]]] = {
    "specification.md": specification_parts,
    "commands.md": command_parts,
}


def rewrite(text: str, parts: Mapping[str, str]) -> str:
    """A page with its generated parts replaced.

    Raises: ValueError if the page lacks a part, has it twice, or has one that is not generated.
    """
    found = sorted(match["name"] for match in _PART.finditer(text))
    if found != sorted(parts):
        raise ValueError(f"the page has the parts {found}, and {sorted(parts)} are generated")
    return _PART.sub(lambda match: f"{match['name']}{match['open']}\n{parts[match['name']]}\n", text)


def main() -> None:
    """Rewrite the pages whose generated parts are not current, and name them."""
    for name, parts in PAGES.items():
        page = GUIDES / name
        text = page.read_text(encoding="utf-8")
        current = rewrite(text, parts())
        if current != text:
            page.write_text(current, encoding="utf-8")
            sys.stdout.write(f"rewrote {page}\n")


if __name__ == "__main__":
    main()
