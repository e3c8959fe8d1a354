"""All faults in the columns of landing files, found without the libraries that validation needs.

A run checks them before it starts a server. The validation stage decides by the suites of
`expectations.landing`, which contain the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dpcore.errors import LandingError
from expectations.landing import landing_dtypes
from tasks.landing.datasets import Landing, canonical_dtypes
from tasks.landing.months import says_months

Fault = tuple[str, str | None]
"""A rule, and the declared column that breaks it, if the rule concerns one."""

HINTS = {
    "column-missing": "land data with every declared column, or remove it from `columns`",
    "column-undeclared": "declare every column in `columns`, or name it in source.drop; its name is not shown, "
    "because in a file without a header it would be data",
    "column-type": "numbers for numeric and integer, booleans for boolean, dates or timestamps for date and timestamp, "
    "text, integers or booleans for categorical",
    "period-type": "dates, timestamps or text, from which the month of each record can be read",
}
MESSAGES = {
    "column-missing": "the landing data lack the declared column {column!r}",
    "column-undeclared": "the landing data have a column that is neither declared nor dropped",
    "column-type": "the column {column!r} has another type than its kind allows",
    "period-type": "the period column {column!r} holds no dates by its type",
}


def column_faults(landing: Landing) -> Iterator[Fault]:
    """The faults in the columns of all files."""
    schema = landing.spec.schema
    needed = [*schema.by_name, *landing.spec.undeclared]
    for landed in landing.schemas():
        dtypes = canonical_dtypes(landed, schema)
        yield from (("column-missing", name) for name in needed if name not in dtypes)
        if not dtypes.keys() <= {*needed, *landing.spec.source.drop}:
            yield "column-undeclared", None
        if not landing.is_text:
            wrong = (c.name for c in schema.columns if c.name in dtypes and dtypes[c.name] not in landing_dtypes(c))
            yield from (("column-type", name) for name in wrong)
        yield from period_faults(landing, landed)


def period_faults(landing: Landing, landed: pa.Schema) -> Iterator[Fault]:
    """The fault of an undeclared period column whose type no date has; in text every cell decides for itself."""
    name = landing.spec.source.period_column
    if name in landing.spec.undeclared and name in landed.names and not landing.is_text:
        yield from [] if says_months(landed.field(name).type) else [("period-type", name)]


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
