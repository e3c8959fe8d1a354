"""Changes of a specification by the place of a key, such as `columns.age.bounds=[0, 100]`.

A change edits the document that release.yaml holds. The result is read and validated as release.yaml itself, so a
change can say nothing that the file could not say. Columns are addressed by name, which may hold dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpcore.errors import RefusedError, SpecError
from tasks.spec import ReleaseSpec, spec_of
from tasks.spec.loader import read_value
from tasks.spec.refusals import shown, suggestion

OPTION = "--what-if"
DROP = "drop"
"""In place of a column's keys: the column is left out of the release."""

_FORM = "write KEY=VALUE, such as privacy.epsilon=0.5, 'columns.age.bounds=[0, 100]' or columns.age=drop"
_INDEX = re.compile(r"columns\[(\d+)\]")

Document = dict[Any, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A key, as a path into the document in which columns have names, and its new value; None leaves the key out."""

    path: tuple[str, ...]
    value: Any
    written: str

    @property
    def key(self) -> str:
        """The path as people write it."""
        return ".".join(self.path)

    @property
    def words(self) -> str:
        """The change as people read it."""
        return f"without {self.key}" if self.drops_column or self.value is None else f"{self.key} = {self.written}"

    @property
    def drops_column(self) -> bool:
        """Whether the change leaves out a column."""
        return len(self.path) == 2 and self.path[0] == "columns" and self.value in (None, DROP)

    def as_json(self) -> Any:
        """The value with numbers as floats."""
        return _plain(self.value)


def changed_spec(document: Document, written: Sequence[str]) -> tuple[ReleaseSpec, list[Change]]:
    """The specification that a document states after all changes, and the changes; the document is edited.

    Raises: SpecError where a change cannot be read, or leads to a specification that breaks a rule.
    """
    changes: list[Change] = []
    for text in written:
        change = read_change(text, _names(document))
        _refuse_repetition(change, changes)
        _apply(change, document)
        changes.append(change)
    with naming_columns(_names(document)):
        return spec_of(document), changes


@contextmanager
def naming_columns(names: Sequence[str]) -> Iterator[None]:
    """Let a refusal of a changed specification say that it is one, and name columns as changes do."""
    try:
        yield
    except RefusedError as error:
        place = _INDEX.sub(lambda match: _named_place(match, names), error.where)
        error.where = f"{place} (with {OPTION})"
        raise


def read_change(text: str, columns: Sequence[str]) -> Change:
    """A change as it is written on the command line, beside columns of these names.

    Raises: SpecError.
    """
    path, value = _split(text, columns)
    what = f"the value of {'.'.join(path)}"
    given = read_value(value, what=what, where=f"{OPTION} {'.'.join(path)}") if value.strip() else None
    return Change(path, given, value.strip())


def _split(text: str, columns: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The path and the value's text; names of columns may hold dots and equals signs."""
    section, _, rest = text.strip().partition(".")
    if section == "columns":
        found = [name for name in columns if name and rest.startswith((f"{name}.", f"{name}="))]
        if found:
            name = max(found, key=len)
            below, mark, value = rest[len(name) :].partition("=")
            _require_form(text, mark)
            return ("columns", name, *(part.strip() for part in below.split(".")[1:])), value
    key, mark, value = text.partition("=")
    _require_form(text, mark and key.strip())
    path = tuple(part.strip() for part in key.split("."))
    if path[0] == "columns" and len(path) > 1:
        raise _unknown_column(path, columns)
    return path, value


def _require_form(text: str, given: str) -> None:
    if not given:
        raise SpecError(f"{shown(text)} is no change of a key", rule="what-if-form", where=OPTION, hint=_FORM)


def _unknown_column(path: tuple[str, ...], columns: Sequence[str]) -> SpecError:
    return SpecError(
        f"there is no column {shown(path[1])}",
        rule="unknown-column",
        where=f"{'.'.join(path)} (with {OPTION})",
        hint=suggestion(path[1], columns[:50]),
    )


def _refuse_repetition(change: Change, before: Sequence[Change]) -> None:
    if any(change.path == other.path for other in before):
        message, hint = f"the key `{change.key}` is changed twice", "keep one of the changes"
        raise SpecError(message, rule="duplicate-key", where=f"{OPTION} {change.key}", hint=hint)


# -- edits of the document ---------------------------------------------------------


def _apply(change: Change, document: Document) -> None:
    if change.drops_column:
        _drop_column(change.path[1], document)
        return
    node, keys = document, change.path
    if len(keys) > 1 and keys[0] == "columns":
        node, keys = _column(keys[1], document), keys[2:]
        if not keys:
            _replace_column(node, change)
            return
    node = _section(node, keys[:-1], change)
    if change.value is not None:
        node[keys[-1]] = change.value
    elif node.pop(keys[-1], None) is None:
        raise SpecError(
            f"the key `{change.key}` is not given, so it cannot be left out",
            rule="key-not-given",
            where=f"{change.key} (with {OPTION})",
            hint=suggestion(keys[-1], [str(key) for key in node]) if node else f"give it a value: {_FORM}",
        )


def _section(node: Document, keys: Sequence[str], change: Change) -> Document:
    """The mapping under some keys; where a short form such as `unit: row` stands, or nothing, it becomes one."""
    for depth, key in enumerate(keys):
        inner = node.get(key)
        if isinstance(inner, list):
            above = (*change.path[: len(change.path) - len(keys) - 1], *keys[: depth + 1])
            message, hint = f"`{key}` is a list, which has no keys", f"give all of it: '{'.'.join(above)}=[...]'"
            raise SpecError(message, rule="what-if-list", where=f"{change.key} (with {OPTION})", hint=hint)
        if not isinstance(inner, dict):
            inner = node[key] = {}
        node = inner
    return node


def _column(name: str, document: Document) -> Document:
    return next(column for column in document["columns"] if _name(column) == name)


def _replace_column(column: Document, change: Change) -> None:
    if not isinstance(change.value, dict):
        message = f"a column is changed by a mapping of its keys, or left out by `{DROP}`, got {shown(change.value)}"
        raise SpecError(message, rule="what-if-column", where=f"{change.key} (with {OPTION})", hint=_FORM)
    column.clear()
    column |= {"name": change.path[1], **change.value}


def _drop_column(name: str, document: Document) -> None:
    """Leave a column out; the data go on to have it, and undeclared columns must be dropped or needed."""
    document["columns"] = [column for column in document["columns"] if _name(column) != name]
    source = document.get("source")
    if isinstance(source, dict) and source.get("period_column") != name:
        dropped = source.get("drop", [])
        source["drop"] = [*dropped, name] if isinstance(dropped, list) else dropped


def _names(document: Document) -> list[str]:
    """The names of the columns; those of a document that an earlier change broke are none."""
    columns = document.get("columns")
    return [_name(column) for column in columns] if isinstance(columns, list) else []


def _name(column: Any) -> str:
    name = column.get("name") if isinstance(column, dict) else None
    return name if isinstance(name, str) else ""


def _named_place(match: re.Match[str], names: Sequence[str]) -> str:
    index = int(match[1])
    return f"columns.{names[index]}" if index < len(names) else match[0]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value
