"""Stage 1: structure decides, cells are only told to the operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from dpcore.encoding import Encoding
from dpcore.errors import LandingError
from expectations.landing import ENCODED_NORM, cell_suite, structure_suite
from expectations.verdicts import SuiteRunner, Verdict, combine
from tasks.boundary import private_task, tell, tell_operator
from tasks.stores.landing import canonical_dtypes
from tasks.stores.run import ReleaseRun
from tasks.stores.tables import cells_of

HINTS = {
    "column-missing": "land data with every declared column, or take it out of `columns`",
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


@private_task("validate")
def validate_landing(run: ReleaseRun, release_id: str) -> None:
    """Refuse data of another structure; tell the operator which columns hold cells to clamp.

    Raises: LandingError.
    """
    require_structure(run)
    verdicts = cell_verdicts(run)
    kept = [{"column": v.column, "rule": v.rule, "ok": v.ok} for v in verdicts]
    run.workspace.keep_verdicts(release_id, kept)
    tell("validated: the structure holds")
    broken: dict[str, list[str]] = {}
    for verdict in verdicts:
        if not verdict.ok:
            broken.setdefault(verdict.column or "record", []).append(verdict.rule)
    if broken:
        listed = "; ".join(f"{column} ({', '.join(rules)})" for column, rules in broken.items())
        tell_operator(f"some cells break these rules and are clamped or mapped: {listed}")


def require_structure(run: ReleaseRun) -> None:
    """Check columns and types of every landing file.

    Raises: LandingError for the first rule that does not hold.
    """
    landing, schema, person = run.arrival.landing, run.spec.schema, run.spec.unit.person
    shapes = {tuple(canonical_dtypes(landed, schema).items()): None for landed in landing.schemas()}
    suite = structure_suite(
        schema,
        extra_columns=run.spec.source.drop,
        required=[person] if person else [],
        typed=not landing.is_text,
    )
    runner = SuiteRunner(suite)
    for shape in shapes:
        frame = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in shape})
        _require_all(runner.validate(frame))
    if person and not landing.is_text:
        _require_one_spelling(person, {dict(shape)[person] for shape in shapes})


def _require_all(verdicts: Iterable[Verdict]) -> None:
    for verdict in verdicts:
        if not verdict.ok:
            raise LandingError(
                MESSAGES[verdict.rule].format(column=verdict.column),
                rule=verdict.rule,
                where=f"columns.{verdict.column}" if verdict.column else "columns",
                hint=HINTS[verdict.rule],
            )


def _require_one_spelling(person: str, dtypes: set[str]) -> None:
    """An identifier must have one spelling in all files, or one person would count as several."""
    if dtypes not in ({"str"}, {"int64"}):
        raise LandingError(
            f"the person column {person!r} must hold text in every file, or integers in every file",
            rule="person-type",
            where="privacy.unit.person",
            hint="write identifiers as text, or as integers without missing ones",
        )


def cell_verdicts(run: ReleaseRun) -> tuple[Verdict, ...]:
    """Verdicts on all cells, which also shows that the data can be read to their end.

    Raises: LandingError if there are no rows.
    """
    runner = SuiteRunner(cell_suite(run.spec.schema))
    verdicts = combine(runner.validate(frame) for frame in _cell_frames(run))
    if not verdicts:
        raise LandingError(
            "the landing data have no rows",
            rule="landing-empty",
            where=run.arrival.landing.where,
            hint="land the data again, complete",
        )
    return verdicts


def _cell_frames(run: ReleaseRun) -> Iterator[pd.DataFrame]:
    schema, landing = run.spec.schema, run.arrival.landing
    encoding = Encoding(schema)
    for batch in landing.batches([column.name for column in schema.columns]):
        cells = cells_of(batch, schema, decimal=landing.decimal)
        norms = np.linalg.norm(encoding.encode(cells), axis=1)
        yield pd.DataFrame({**cells, ENCODED_NORM: norms})
