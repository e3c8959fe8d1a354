"""The structure of landing data: readability, the declared columns, their types, and one spelling of persons.

The number of rows is not part of the structure: an empty table is measured like any other (GUARANTEE.md, R).
The validation stage of a release and the intake of single files use the same rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

from dpcore.errors import LandingError
from expectations.landing import structure_verdicts
from tasks.landing.column_faults import period_faults, require_none
from tasks.landing.datasets import Landing, canonical_dtypes
from tasks.workspace.helper_process import in_helper


def require_sound(landing: Landing) -> bool:
    """Check every reason to refuse the files of a release: their shape, and whether all rows can be read.

    Returns whether there is any row.
    Raises: LandingError for the first rule that does not hold.
    """
    require_shape(landing)
    columns = [*(column.name for column in landing.spec.schema.columns), *landing.spec.undeclared]
    return sum(1 for _ in landing.batches(columns)) > 0


def require_shape(landing: Landing) -> None:
    """Check columns and types of every file.

    Raises: LandingError with every rule that does not hold.
    """
    schema, person = landing.spec.schema, landing.spec.unit.person
    known, files = {*schema.by_name, *landing.spec.source.drop, *landing.spec.undeclared}, landing.schemas()
    distinct = {tuple(_shape(canonical_dtypes(landed, schema), known)): None for landed in files}
    shapes = [dict(shape) for shape in distinct]
    verdicts = in_helper(
        structure_verdicts,
        shapes,
        schema,
        extra_columns=landing.spec.source.drop,
        required=landing.spec.undeclared,
        typed=not landing.is_text,
    )
    broken = (
        (verdict.rule, verdict.column)
        for shape, found in zip(shapes, verdicts, strict=True)
        for verdict in found
        if not verdict.ok and (verdict.rule != "column-type" or verdict.column in shape)
    )
    require_none(chain(broken, *(period_faults(landing, landed) for landed in files)))
    if person and not _has_one_spelling(person, landing, shapes):
        raise LandingError(
            f"the person column {person!r} must hold text in every file, or integers in every file",
            rule="person-type",
            where="privacy.unit.person",
            hint="write identifiers into the files, as text, or as integers without missing ones",
        )


def _shape(dtypes: Mapping[str, str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """The known columns with their types, and one of the unknown columns, of which there may be any number."""
    yield from ((name, dtypes[name]) for name in dtypes if name in known)
    yield from islice(((name, dtypes[name]) for name in dtypes if name not in known), 1)


def _has_one_spelling(person: str, landing: Landing, shapes: Iterable[Mapping[str, str]]) -> bool:
    """Whether identifiers have the same type in all files; otherwise one person could count as several."""
    if any(name == person for part in landing.parts() for name, _ in part.constants):
        return False
    return landing.is_text or {shape[person] for shape in shapes} in ({"str"}, {"int64"})
