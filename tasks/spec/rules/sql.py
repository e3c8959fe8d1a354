"""From the text of a SQL condition to a checked syntax tree, over an allow-list of what may stand in it.

sqlglot parses; whatever its tree holds that is not listed here is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dpcore.records.rules.conditions import Both, Condition, Not
from dpcore.records.rules.numbers import Constant
from dpcore.records.rules.reading import DAY_MICROSECONDS, date_part, is_null, level_in
from dpcore.records.schema import Column, Kind
from tasks.spec.refusals import refuse, shown, suggestion
from tasks.spec.rules.terms import (
    DATE,
    NUMBER,
    TIME,
    LevelTerm,
    NumberTerm,
    Term,
    TextTerm,
    TruthTerm,
    calculate,
    column_term,
    compare,
    constant,
    in_list,
    time_constant,
    truth_of,
    words_of,
)
from tasks.spec.values import exact_decimal

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

MOST_CHARACTERS = 4_000
"""A longer rule is hardly a rule that somebody has read."""

MOST_NESTED = 40
"""How deep parentheses and operators may be nested."""

_HINT = "rules have comparisons, + - * /, AND, OR, NOT, IN, BETWEEN, IS NULL, EXTRACT and columns; see the guide"
_COMPARISONS = {"EQ": ("=", False), "LT": ("<", False), "LTE": ("<=", False), "GT": ("<", True), "GTE": ("<=", True)}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}
_PARTS = ("year", "month", "day")
_WORDS = {
    "Subquery": "a subquery",
    "Select": "a subquery",
    "Exists": "a subquery",
    "Placeholder": "a parameter",
    "Parameter": "a parameter",
    "Tuple": "a list of values in parentheses",
    "Array": "square brackets",
    "Struct": "braces",
    "Star": "*",
    "Mod": "%",
    "DPipe": "||",
    "Cast": "a change of type",
    "NullSafeEQ": "IS NOT DISTINCT FROM",
    "NullSafeNEQ": "IS DISTINCT FROM",
}


def parse_condition(text: str, columns: Mapping[str, Column]) -> Condition:
    """The condition that a text states; refused, with what is wrong, where it states none."""
    try:
        tree = _parsed(text)
        _refuse_nesting(tree)
        return _Reader(columns).condition(tree)
    except RecursionError:
        pass
    return refuse("rule-nested", "the rule is nested too deeply", "split it into several rules")


def _parsed(text: str) -> Expr:
    """The parser's tree of a text."""
    from sqlglot import exp
    from sqlglot.errors import ErrorLevel, SqlglotError
    from sqlglot.parser import Parser
    from sqlglot.tokenizer_core import TokenType
    from sqlglot.tokens import Tokenizer

    if len(text) > MOST_CHARACTERS:
        message = f"the rule has {len(text)} characters; the limit is {MOST_CHARACTERS}"
        refuse("rule-too-long", message, "split it into several rules")
    if not text.strip():
        refuse("rule-empty", "the rule is empty", "write a condition such as `age >= 0`, or remove the line")
    hint = "look at quotes and brackets: 'text' in single quotes, \"names with spaces\" in double ones"
    try:
        tokens = Tokenizer().tokenize(text)
        if any(token.token_type is TokenType.SEMICOLON for token in tokens):
            refuse("rule-not-a-condition", "a rule is one condition, not a statement", "remove the semicolon")
        if any(token.comments for token in tokens):
            refuse("rule-comment", "a rule has no comments", "write comments as `# ...` beside it, as YAML has them")
        found = Parser(error_level=ErrorLevel.RAISE).parse_into(exp.Condition, tokens, text)
    except SqlglotError:  # its text quotes the rule in colours of a terminal
        found = [None]
    tree = found[0] if len(found) == 1 else None
    if tree is None:
        refuse("rule-syntax", f"{shown(text)} is not a SQL condition", hint)
    return tree


def _refuse_nesting(tree: Expr) -> None:
    """Refuse what is nested deeper than a person reads; chains of AND or of OR are as deep as one of them."""
    waiting: list[tuple[Any, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MOST_NESTED:
            raise RecursionError
        same = type(node).__name__ if type(node).__name__ in ("And", "Or") else None
        waiting += [(inner, depth + (type(inner).__name__ != same)) for inner in node.iter_expressions()]


class _Reader:
    """Reads a tree of sqlglot's; `columns` are those that are declared."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns

    def condition(self, node: Expr) -> Condition:
        """The condition of a node."""
        name = type(node).__name__
        if name in _COMPARISONS:
            operator, turned = _COMPARISONS[name]
            sides = [self.term(node.args["this"]), self.term(node.args["expression"])]
            left, right = reversed(sides) if turned else sides
            return compare(operator, left, right, self._columns)
        readers: dict[str, Callable[[Any], Condition]] = {
            "Paren": lambda node: self.condition(node.this),
            "And": lambda node: self._both("and", node),
            "Or": lambda node: self._both("or", node),
            "Not": lambda node: Not(self.condition(node.this)),
            "NEQ": lambda node: Not(compare("=", self.term(node.this), self.term(node.expression), self._columns)),
            "In": self._in,
            "Between": self._between,
            "Is": self._is,
        }
        if name in readers:
            return readers[name](node)
        return truth_of(self.term(node))

    def term(self, node: Expr) -> Term:
        """The value of a node."""
        name = type(node).__name__
        if name in _ARITHMETIC:
            left, right = self.term(node.args["this"]), self.term(node.args["expression"])
            return calculate(_ARITHMETIC[name], left, right, self._columns)
        readers: dict[str, Callable[[Any], Term]] = {
            "Paren": lambda node: self.term(node.this),
            "Column": self._column,
            "Literal": _literal,
            "Boolean": lambda node: TruthTerm(bool(node.this)),
            "Null": _refuse_null,
            "Neg": self._negative,
            "Cast": self._time,
            "Extract": lambda node: self._part(str(node.this).lower(), node.expression),
            "Year": lambda node: self._part("year", node.this),
            "Month": lambda node: self._part("month", node.this),
            "Day": lambda node: self._part("day", node.this),
            "DateDiff": self._days,
        }
        if name in readers:
            return readers[name](node)
        if name in (*_COMPARISONS, "And", "Or", "Not", "NEQ", "In", "Between", "Is"):
            hint = "compare values with values, and join conditions by AND, OR and NOT"
            refuse("rule-types", f"the condition {shown(node.sql())} stands where a value belongs", hint)
        return refuse("rule-construct", f"{_named(node)} cannot stand in a rule", _HINT)

    def _both(self, operator: str, node: Any) -> Condition:
        parts = (self.condition(part) for part in node.flatten(unnest=False))
        return Both(operator, tuple(parts))

    def _column(self, node: Any) -> Term:
        if node.args.get("table") is not None:
            refuse("rule-construct", f"{shown(node.sql())} names a table", "write the column's name alone")
        return column_term(self.named(str(node.this.this)))

    def named(self, name: str) -> Column:
        """The declared column of this name."""
        if name not in self._columns:
            message = f"there is no column {shown(name)}"
            hint = suggestion(name, list(self._columns)[:50])
            refuse("rule-unknown-column", message, f"{hint} (text stands in single quotes)")
        return self._columns[name]

    def _in(self, node: Any) -> Condition:
        choices = node.expressions
        if not choices or any(node.args.get(key) for key in ("query", "unnest", "field")):
            refuse("rule-construct", "IN needs a list of values, not a subquery", "write `IN ('a', 'b')`")
        return in_list(self.term(node.this), [self.term(choice) for choice in choices], self._columns)

    def _between(self, node: Any) -> Condition:
        if node.args.get("symmetric"):
            refuse("rule-construct", "BETWEEN SYMMETRIC cannot stand in a rule", "write the lower value first")
        value, low, high = self.term(node.this), self.term(node.args["low"]), self.term(node.args["high"])
        return Both("and", (compare("<=", low, value, self._columns), compare("<=", value, high, self._columns)))

    def _is(self, node: Any) -> Condition:
        kind = type(node.expression).__name__
        inner = node.this.unnest()
        if kind == "Null" and type(inner).__name__ == "Column":
            self._column(inner)
            return is_null(self.named(str(inner.this.this)))
        if kind == "Null":
            refuse("rule-construct", "IS NULL is asked of a column only", "write `column IS NULL`")
        if kind != "Boolean":
            refuse("rule-construct", f"IS {shown(node.expression.sql())} cannot stand in a rule", _HINT)
        term = self.term(node.this)
        truth_of(term)
        assert isinstance(term, LevelTerm)  # noqa: S101  nothing else is a condition by itself
        wanted = level_in(term.column, (int(node.expression.this),))
        return Both("and", (Not(is_null(term.column)), wanted))

    def _negative(self, node: Any) -> Term:
        inner = self.term(node.this)
        if isinstance(inner, NumberTerm) and isinstance(inner.number, Constant) and inner.type == NUMBER:
            return constant(-inner.number.number)
        return calculate("-", constant(0.0), inner, self._columns)

    def _time(self, node: Any) -> Term:
        """DATE '2024-01-01' and TIMESTAMP '...'; no other change of type."""
        kind = {"DATE": Kind.DATE, "TIMESTAMP": Kind.TIMESTAMP}.get(str(node.args["to"].this.name))
        if kind is None or type(node.this).__name__ != "Literal" or not node.this.is_string:
            refuse("rule-construct", f"{shown(node.sql())} changes a type", "write DATE '2024-01-01', or plain values")
        return time_constant(str(node.this.this), kind)

    def _part(self, part: str, node: Any) -> Term:
        if part not in _PARTS:
            refuse("rule-construct", f"EXTRACT has no {part.upper()} here", "use YEAR, MONTH or DAY")
        moment = self.term(node)
        if not isinstance(moment, NumberTerm) or moment.type not in (DATE, TIME):
            refuse("rule-types", f"{words_of(moment)} has no {part}", "extract it from a column of dates or times")
        ticks = 1.0 if moment.type == DATE else DAY_MICROSECONDS
        return NumberTerm(date_part(part, moment.number, self._columns, ticks), NUMBER, True)

    def _days(self, node: Any) -> Term:
        """DATEDIFF(a, b): the days from b to a."""
        if node.args.get("unit"):
            refuse("rule-construct", "DATEDIFF counts days only", "write `DATEDIFF(later, earlier)`")
        sides = self.term(node.this), self.term(node.expression)
        if not any(isinstance(side, NumberTerm) and side.type in (DATE, TIME) for side in sides):
            refuse("rule-types", "DATEDIFF needs dates or times", "write `DATEDIFF(later, earlier)`")
        return calculate("-", *sides, self._columns)


def _literal(node: Any) -> Term:
    if node.is_string:
        return TextTerm(str(node.this))
    return constant(float(exact_decimal(str(node.this))))


def _refuse_null(node: Any) -> Term:
    return refuse("rule-null", "a comparison with NULL is never true", "write `column IS NULL` or `column IS NOT NULL`")


def _named(node: Any) -> str:
    """What a message calls a construct."""
    from sqlglot import exp

    name = type(node).__name__
    if name == "Anonymous":
        return f"the function {shown(str(node.this))}"
    if name in _WORDS:
        return _WORDS[name]
    return f"the function {node.sql_name()}" if isinstance(node, exp.Func) and name != "Case" else name.upper()
