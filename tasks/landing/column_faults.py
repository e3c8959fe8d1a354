"""All faults in the columns of landing files, found without the libraries that validation needs.

A run checks them before it starts a server. The validation stage decides by the suites of
`expectations.landing`, which contain the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpcore.errors import LandingError
from expectations.landing import landing_dtypes
from tasks.landing.datasets import Landing, canonical_dtypes

Fault = tuple[str, str | None]
"""A rule, and the declared column that breaks it, if the rule concerns one."""

HINTS = {
    "column-missing": "land data with every declared column, or remove it from `columns`",
    "column-undeclared": "declare every column in `columns`, or name it in source.drop; its name is not shown, "
    "because in a file without a header it would be data",
    "column-type": "numbers for numeric and integer, booleans for boolean, dates or timestamps for date and timestamp, "
    "text, integers or booleans for categorical",
}
MESSAGES = {
    "column-missing": "the landing data lack the declared column {column!r}",
    "column-undeclared": "the landing data have a column that is neither declared nor dropped",
    "column-type": "the column {column!r} has another type than its kind allows",
}


def column_faults(landing: Landing) -> Iterator[Fault]:
    """The faults in the columns of all files."""
    schema, person = landing.spec.schema, landing.spec.unit.person
    needed = [*schema.by_name, *([person] if person else [])]
    for landed in landing.schemas():
        dtypes = canonical_dtypes(landed, schema)
        yield from (("column-missing", name) for name in needed if name not in dtypes)
        if not dtypes.keys() <= {*needed, *landing.spec.source.drop}:
            yield "column-undeclared", None
        if not landing.is_text:
            wrong = (c.name for c in schema.columns if c.name in dtypes and dtypes[c.name] not in landing_dtypes(c))
            yield from (("column-type", name) for name in wrong)


def require_none(faults: Iterable[Fault]) -> None:
    """Refuse files with faults, and name all of them.

    Raises: LandingError.
    """
    found = list(dict.fromkeys(faults))
    if found:
        raise LandingError(
            "; ".join(MESSAGES[rule].format(column=column) for rule, column in found),
            rule=found[0][0],
            where=", ".join(f"columns.{column}" if column else "columns" for _, column in found),
            hint="; ".join(dict.fromkeys(HINTS[rule] for rule, _ in found)),
        )
