"""What the parts of a rule's text mean, and of which type they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from dpcore.records.rules.allowed import widest
from dpcore.records.rules.conditions import Both, Comparison, Condition, LevelIn
from dpcore.records.rules.numbers import Arithmetic, Constant, Number
from dpcore.records.rules.reading import DAY_MICROSECONDS, column_number, is_whole_levels, level_in, same_level
from dpcore.records.rules.views import AnyLevel, Span
from dpcore.records.schema import Column, Kind, LevelValue, NominalColumn
from tasks.spec.refusals import refuse, shown, suggestion
from tasks.spec.ticks import as_ticks

CLOSE = 1e-9
"""Numbers with decimals count as equal if they differ by no more than this part of their largest possible value."""

NUMBER, DATE, TIME = "a number", "a date", "a time"


@dataclass(frozen=True, slots=True)
class NumberTerm:
    """A number, a date (in days) or a time (in microseconds)."""

    number: Number
    type: str
    whole: bool


@dataclass(frozen=True, slots=True)
class TextTerm:
    """Text in single quotes: a category, a date or a time, by what it is compared with."""

    text: str


@dataclass(frozen=True, slots=True)
class TruthTerm:
    """TRUE or FALSE."""

    truth: bool


@dataclass(frozen=True, slots=True)
class LevelTerm:
    """The cell of a boolean or categorical column."""

    column: NominalColumn


Term = NumberTerm | TextTerm | TruthTerm | LevelTerm

TYPE_WORDS = {TextTerm: "text", TruthTerm: "true or false"}


def words_of(term: Term) -> str:
    """The type of a term as messages name it."""
    if isinstance(term, NumberTerm):
        return term.type
    if isinstance(term, LevelTerm):
        return f"the {term.column.kind} column {shown(term.column.name)}"
    return TYPE_WORDS[type(term)]


def column_term(column: Column) -> Term:
    """The cell of a column."""
    if isinstance(column, NominalColumn):
        return LevelTerm(column)
    types = {Kind.DATE: DATE, Kind.TIMESTAMP: TIME}
    return NumberTerm(column_number(column), types.get(column.kind, NUMBER), column.is_whole)


def constant(number: float, type_: str = NUMBER) -> NumberTerm:
    """A number that the rule states."""
    return NumberTerm(Constant(number), type_, float(number).is_integer())


def truth_of(term: Term) -> Condition:
    """A term in the place of a condition: a boolean column alone."""
    if isinstance(term, LevelTerm) and term.column.kind is Kind.BOOLEAN:
        return level_in(term.column, (1,))
    hint = "compare it, as in `age < 15`; only a boolean column is a condition by itself"
    if isinstance(term, TruthTerm):
        word = "TRUE" if term.truth else "FALSE"
        return refuse(
            "rule-not-a-condition", f"{word} by itself says nothing about a row", "compare a boolean column with it"
        )
    return refuse("rule-not-a-condition", f"{words_of(term)} is not true or false", hint)


def compare(operator: str, left: Term, right: Term, bounds: Mapping[str, Column]) -> Condition:
    """The comparison of two terms by `=`, `<` or `<=`; refused where their types do not go together."""
    left, right = _meet(left, right), _meet(right, left)
    if isinstance(left, LevelTerm) or isinstance(right, LevelTerm):
        return _compare_levels(operator, left, right)
    if not isinstance(left, NumberTerm) or not isinstance(right, NumberTerm):
        _refuse_types(left, right)
    left, right = _in_one_unit(left, right)
    tolerance = 0.0 if operator != "=" or (left.whole and right.whole) else CLOSE * _largest(left, right, bounds)
    return Comparison(operator, left.number, right.number, tolerance)


def calculate(operator: str, left: Term, right: Term, bounds: Mapping[str, Column]) -> NumberTerm:
    """The sum, difference, product or quotient of two terms; the difference of dates or times is in days."""
    left, right = _as_number(_meet(left, right)), _as_number(_meet(right, left))
    if operator == "/":
        span = right.number.span(widest_view(bounds))
        if span.low == span.high == 0:
            refuse("rule-division-by-zero", "the divisor is always 0", "divide by another number")
    if left.type == right.type == NUMBER:
        whole = left.whole and right.whole and operator != "/"
        return NumberTerm(Arithmetic(operator, left.number, right.number), NUMBER, whole)
    if operator == "-" and NUMBER not in (left.type, right.type):
        return _days_between(*_in_one_unit(left, right))
    if operator in ("+", "-") and right.type == NUMBER:
        return _moved(operator, left, right)
    if operator == "+" and left.type == NUMBER:
        return _moved(operator, right, left)
    message = f"{left.type} {operator} {right.type} has no meaning"
    return refuse("rule-types", message, "dates and times can be subtracted, and moved by a number of days")


def in_list(term: Term, choices: list[Term], bounds: Mapping[str, Column]) -> Condition:
    """The term equals one of the choices."""
    equal = tuple(compare("=", term, choice, bounds) for choice in choices)
    levels = [one for one in equal if isinstance(one, LevelIn)]
    if isinstance(term, LevelTerm) and len(levels) == len(equal):
        return level_in(term.column, tuple(code for one in levels for code in one.codes))
    return equal[0] if len(equal) == 1 else Both("or", equal)


def widest_view(columns: Mapping[str, Column]) -> dict[str, Span | AnyLevel]:
    """What is public of a row before any of it is known: bounds and levels."""
    return {name: widest(column) for name, column in columns.items()}


def code_of(value: LevelValue, column: NominalColumn) -> int:
    """The code of a category, type and all: true is not 1."""
    for code, level in enumerate(column.levels):
        if type(level) is type(value) and level == value:
            return code
    known = [str(level) for level in column.levels]
    hint = suggestion(value, known[:20]) if value not in known else f"write {quoted(column, known.index(str(value)))}"
    return refuse("rule-unknown-category", f"{shown(value)} is not a category of {shown(column.name)}", hint)


def quoted(column: NominalColumn, code: int) -> str:
    """A level as a rule writes it."""
    level = column.levels[code]
    return f"'{level}'" if isinstance(level, str) else str(level).lower()


def _meet(term: Term, other: Term) -> Term:
    """A term as what it is compared with asks for: text as a date or a time, whole categories as numbers."""
    if isinstance(term, TextTerm) and isinstance(other, NumberTerm):
        kinds = {DATE: Kind.DATE, TIME: Kind.TIMESTAMP}
        if other.type not in kinds:
            _refuse_types(term, other)
        return time_constant(term.text, kinds[other.type])
    return term


def time_constant(text: str, kind: Kind) -> NumberTerm:
    """A date or time out of text."""
    return NumberTerm(Constant(as_ticks(text, kind, "UTC")), DATE if kind is Kind.DATE else TIME, True)


def _compare_levels(operator: str, left: Term, right: Term) -> Condition:
    """A comparison with a column of categories."""
    if isinstance(left, LevelTerm) and isinstance(right, LevelTerm):
        return _compare_columns(operator, left.column, right.column)
    if not isinstance(left, LevelTerm):
        if operator != "=":  # 3 < x is the opposite of x <= 3
            assert isinstance(right, LevelTerm)  # noqa: S101  one of both is
            if isinstance(left, NumberTerm) and is_whole_levels(right.column):
                return Comparison(operator, left.number, column_number(right.column))
            _refuse_order(right.column)
        left, right = right, left
    assert isinstance(left, LevelTerm)  # noqa: S101  one of both is
    column = left.column
    if isinstance(right, NumberTerm) and is_whole_levels(column) and column.kind is not Kind.BOOLEAN:
        if operator == "=" and isinstance(right.number, Constant) and right.whole:
            return level_in(column, (code_of(int(right.number.number), column),))
        if right.type != NUMBER:
            _refuse_types(left, right)
        return Comparison(operator, column_number(column), right.number)
    if operator != "=":
        _refuse_order(column)
    if isinstance(right, TextTerm) and isinstance(column.levels[0], str):
        return level_in(column, (code_of(right.text, column),))
    if isinstance(right, TruthTerm) and isinstance(column.levels[0], bool):
        return level_in(column, (code_of(right.truth, column),))
    return _refuse_types(left, right)


def _compare_columns(operator: str, left: NominalColumn, right: NominalColumn) -> Condition:
    types = {type(level) for level in (*left.levels, *right.levels)}
    if len(types) > 1:
        _refuse_types(LevelTerm(left), LevelTerm(right))
    if operator == "=":
        return same_level(left, right)
    if types != {int}:
        _refuse_order(left)
    return Comparison(operator, column_number(left), column_number(right))


def _refuse_order(column: NominalColumn) -> NoReturn:
    message = f"the categories of {shown(column.name)} have no order"
    refuse("rule-types", message, "use =, <> or IN; only numbers, dates, times and whole-number categories have one")


def _refuse_types(left: Term, right: Term) -> NoReturn:
    message = f"{words_of(left)} and {words_of(right)} do not go together"
    hint = "compare numbers with numbers, dates and times with 'YYYY-MM-DD' in single quotes, categories as declared"
    refuse("rule-types", message, hint)


def _as_number(term: Term) -> NumberTerm:
    if isinstance(term, NumberTerm):
        return term
    if isinstance(term, LevelTerm) and is_whole_levels(term.column):
        return NumberTerm(column_number(term.column), NUMBER, True)
    hint = "calculate with numbers, dates and times only"
    return refuse("rule-types", f"{words_of(term)} is no number", hint)


def _in_one_unit(left: NumberTerm, right: NumberTerm) -> tuple[NumberTerm, NumberTerm]:
    """Dates as midnights in UTC where they meet times."""
    if left.type == right.type:
        return left, right
    if {left.type, right.type} != {DATE, TIME}:
        _refuse_types(left, right)
    return _as_time(left), _as_time(right)


def _as_time(term: NumberTerm) -> NumberTerm:
    if term.type == TIME:
        return term
    return NumberTerm(Arithmetic("*", term.number, Constant(DAY_MICROSECONDS)), TIME, True)


def _days_between(left: NumberTerm, right: NumberTerm) -> NumberTerm:
    difference: Number = Arithmetic("-", left.number, right.number)
    if left.type == DATE:
        return NumberTerm(difference, NUMBER, True)
    return NumberTerm(Arithmetic("/", difference, Constant(DAY_MICROSECONDS)), NUMBER, False)


def _moved(operator: str, moment: NumberTerm, days: NumberTerm) -> NumberTerm:
    """A date or time so many days later or earlier."""
    by = days.number if moment.type == DATE else Arithmetic("*", days.number, Constant(DAY_MICROSECONDS))
    return replace(moment, number=Arithmetic(operator, moment.number, by), whole=days.whole)


def _largest(left: NumberTerm, right: NumberTerm, bounds: Mapping[str, Column]) -> float:
    """The largest absolute value that either side may take."""
    view = widest_view(bounds)
    spans = [term.number.span(view) for term in (left, right)]
    ends = [abs(float(end)) for span in spans for end in (span.low, span.high)]
    return max([end for end in ends if math.isfinite(end)], default=0.0)
