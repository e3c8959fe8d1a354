"""Two plans side by side: what a changed specification would make better or worse, and what its planner chooses anew.

Both come as the objects that `dprelease plan --json` prints, so that people and scripts see the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.spec.privacy import ROW, kind_of
from tasks.spec.relations import at_least, at_most

BETTER, WORSE, CHANGED = "better", "worse", "changed"
PROTECTS_MORE, PROTECTS_LESS = "protects more", "protects less"
LEFT_OUT, NEW = "left out", "new"

CHOICES = ("generator", "projection", "dimension", "mechanism", "allocation")
"""What the planner chooses where the specification leaves it open, by the names of the plan's JSON."""

DIGITS = 3
"""Digits of a noise that people read; what agrees in them is called the same."""

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the present plan and of the changed one, as people read them, and which is better."""

    name: str
    now: str
    then: str
    verdict: str = ""
    unit: str = ""
    of: str = ""


def release_rows(now: Content, then: Content) -> list[Row]:
    """The figures of the release as a whole; whom it protects, and how, only where that changes."""
    costs, gains = (PROTECTS_MORE, PROTECTS_LESS), (WORSE, BETTER)
    told = _participation(now), _participation(then)
    left = now["releases_left"], then["releases_left"]
    whom = [
        Row("protects", now["unit"], then["unit"], _whom_verdict(now, then)),
        _number(
            "months together",
            (_endless(now["span"]), _endless(then["span"])),
            verdicts=_months(now, then),
            endless="all",
        ),
        _number("being in the data", told, verdicts=costs, text=at_most, endless="not protected"),
    ]
    return [
        *(row for row in whom if row.verdict),
        _number("epsilon", (now["epsilon"], then["epsilon"]), verdicts=costs, text=at_most),
        _number("delta", (now["delta"], then["delta"]), verdicts=costs, text=at_most),
        _words("generator", now["generator"], then["generator"]),
        _words("projection", _projection(now), _projection(then)),
        _words("mechanism", now["mechanism"], then["mechanism"]),
        _number("foreseen signal", (now["signal"], then["signal"]), verdicts=gains, text=lambda x: at_least(x, DIGITS)),
        _number("releases left", (_endless(left[0]), _endless(left[1])), verdicts=gains, endless="no end"),
    ]


def column_rows(now: Content, then: Content) -> list[Row]:
    """The largest expected noise of every column, in its own unit; columns of one plan alone are there too."""
    before, after = ({column["name"]: column for column in plan["columns"]} for plan in (now, then))
    names = dict.fromkeys((*before, *after))
    return [row for name in names for row in _column_rows(before.get(name), after.get(name))]


def changed_choices(now: Content, then: Content) -> dict[str, dict[str, Any]]:
    """The planner's choices that differ, each now and then."""
    return {name: {"now": now[name], "then": then[name]} for name in CHOICES if now[name] != then[name]}


def new_reasons(now: Content, then: Content) -> list[str]:
    """The planner's reasons that only the changed plan has."""
    return [reason for reason in then["reasons"] if reason not in now["reasons"]]


# -- one row -----------------------------------------------------------------------


def _whom_verdict(now: Content, then: Content) -> str:
    """Whether persons with all their rows are protected in place of single rows, or the other way around."""
    before, after = kind_of(now["unit"]), kind_of(then["unit"])
    if {before, after} == {ROW, "person"}:
        return PROTECTS_LESS if after == ROW else PROTECTS_MORE
    return "" if now["unit"] == then["unit"] else CHANGED


def _months(now: Content, then: Content) -> tuple[str, str]:
    """The verdicts on fewer and on more months; months of persons and months of rows do not compare."""
    same = kind_of(now["unit"]) == kind_of(then["unit"])
    return (PROTECTS_LESS, PROTECTS_MORE) if same else (CHANGED, CHANGED)


def _words(name: str, now: str, then: str) -> Row:
    return Row(name, now, then, "" if now == then else CHANGED)


def _number(
    name: str,
    pair: tuple[float, float],
    *,
    verdicts: tuple[str, str],
    text: Callable[[float], str] = "{:g}".format,
    endless: str = "-",
) -> Row:
    """A row with the first verdict where the number falls, and the second where it rises."""
    now, then = pair
    before, after = (endless if math.isinf(number) else text(number) for number in pair)
    return Row(name, before, after, "" if now == then else verdicts[then > now])


def _endless(count: int | None) -> float:
    return math.inf if count is None else count


def _participation(content: Content) -> float:
    """Epsilon for being in the data; infinite where that is not protected."""
    figures = content["participation"]
    return math.inf if figures is None else float(figures["epsilon"])


def _projection(content: Content) -> str:
    return f"{content['projection']}, {content['dimension']} of {content['encoded_width']} coordinates"


def _column_rows(now: Content | None, then: Content | None) -> Iterator[Row]:
    """One row for a column; two where its noise is not in the same unit as before."""
    if now is None or then is None or (now["of"], now["unit"]) == (then["of"], then["unit"]):
        yield _column_row(now, then)
    else:
        yield _column_row(now, None)
        yield _column_row(None, then)


def _column_row(now: Content | None, then: Content | None) -> Row:
    column = now or then
    assert column is not None  # noqa: S101  at least one plan has the column
    verdict = LEFT_OUT if then is None else NEW if now is None else _noise_verdict(now, then)
    return Row(column["name"], _noise(now), _noise(then), verdict, column["unit"] or "", column["of"])


def _noise(column: Content | None) -> str:
    """The largest noise; more than that where a projection omits a part of the mean."""
    if column is None:
        return "-"
    return f"{'' if column['known'] else '> '}{column['noise_sd']['most']:.{DIGITS}g}"


def _noise_verdict(now: Content, then: Content) -> str:
    """Better or worse, with the change in percent; nothing where an error that is not known may be either."""
    if _noise(now) == _noise(then):
        return ""
    before, after = now["noise_sd"]["most"], then["noise_sd"]["most"]
    is_better = after < before
    is_doubtful = not then["known"] if is_better else not now["known"]
    if now["known"] != then["known"] and is_doubtful:
        return ""
    return f"{BETTER if is_better else WORSE} ({100 * (after / before - 1):+.0f} %)"
