"""How a broken rule becomes a SpecError: one rule, one place, one hint."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from dpcore.errors import SpecError

Place = tuple[int | str, ...]
"""Keys and indices that lead to a value, outermost first."""

UNION_TAG = "#"
"""First character of the tags by which pydantic tells a union's members apart; no part of the file."""

_MISSING_HINTS = {
    "privacy.epsilon": "there is no default: choose how much one release may reveal, for example `epsilon: 1.0`",
    "privacy.lifetime": "say what all releases together may reveal, for example `lifetime: {epsilon: 12.0}`",
    "privacy.lifetime.epsilon": "say what all releases together may reveal, for example `epsilon: 12.0`",
    "privacy.unit": "say whom the guarantee protects: `unit: row`, or `unit: {person: COLUMN, rows: weight}`",
    "privacy.neighbours": "write `neighbours: replace-one` or `neighbours: add-remove`",
    "expected_rows": "a public guess of the number of rows; it drives every automatic choice",
}

# What pydantic calls a wrong type -> our rule, what we say, what to do.
_WRONG_TYPES = {
    "string_type": ("not-text", "this must be text", "put the value in quotes"),
    "bool_type": ("not-a-boolean", "this must be true or false", "write true or false, without quotes"),
    "model_type": ("not-a-mapping", "this must be a mapping", "write `{key: value}`, or remove the key"),
    "tuple_type": ("not-a-list", "this must be a list", "write `[first, second]`, or one `- item` per line"),
    "invalid_key": ("unknown-key", "a key must be text", "remove the key"),
}


def refuse(rule: str, message: str, hint: str, *where: int | str) -> NoReturn:
    """Refuse the value under validation; `where` leads from it to the culprit inside it."""
    # Through the context, because pydantic reads braces in a message as placeholders.
    raise PydanticCustomError(rule, "{message}", {"message": message, "hint": hint, "where": where})


def shown(value: object) -> str:
    """A value of the specification as a message quotes it: scalars in short, the rest by its type."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "nothing"}[value]
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that may have been meant, whatever its case."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(word).lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[near[0]] if near else None


def suggestion(word: object, known: Collection[str]) -> str:
    """Which of the known words may have been meant, as a hint."""
    near = nearest(word, known)
    return f"did you mean `{near}`?" if near else f"use one of {', '.join(known)}"


def dotted(place: Place) -> str:
    """A place as people write it: `columns[2].bounds`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def first_problem(error: ValidationError) -> SpecError:
    """The first of pydantic's problems as ours; says how many more there are."""
    problems = error.errors(include_url=False)
    rule, message, hint, place = _explain(problems[0])
    more = len(problems) - 1
    if more:
        message += f" (and {more} more problem{'s' if more > 1 else ''})"
    return SpecError(message, rule=rule, where=dotted(place) or "release.yaml", hint=hint)


def _explain(problem: ErrorDetails) -> tuple[str, str, str, Place]:
    context: dict[str, Any] = problem.get("ctx", {})
    place = tuple(part for part in problem["loc"] if not str(part).startswith(UNION_TAG))
    if "hint" in context:
        return problem["type"], context["message"], context["hint"], (*place, *context["where"])
    if problem["type"] == "missing":
        return (*_explain_missing(place), place)
    if problem["type"] in ("literal_error", "enum"):
        known = re.findall(r"'([^']*)'", context["expected"])
        message = f"{shown(problem['input'])} is not one of {', '.join(known)}"
        return "unknown-value", message, suggestion(problem["input"], known), place
    rule, message, hint = _WRONG_TYPES.get(
        problem["type"], (problem["type"].replace("_", "-"), problem["msg"], "see the guide on the specification")
    )
    return rule, f"{message}, got {shown(problem['input'])}", hint, place


def _explain_missing(place: Place) -> tuple[str, str, str]:
    key = place[-1]
    rule = "epsilon-missing" if key == "epsilon" else "missing-key"
    return rule, f"the key `{key}` is missing", _MISSING_HINTS.get(dotted(place), f"add `{key}:` here")
