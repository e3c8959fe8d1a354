"""What the guarantee says if the data are the answer to a query."""

from __future__ import annotations

from dpcore.records.schema import RowRule
from tasks.spec import ReleaseSpec

BEYOND_THE_ANSWER = "A person or a table row that influences several rows of the answer is not protected as a whole."

_CHOSEN = (
    " Which of a person's rows come first is decided by the values of those rows alone, not by the order in which "
    "the database returns them."
)


def query_words(spec: ReleaseSpec) -> list[str]:
    """Say whose rows the guarantee is about if they come from a query; say nothing if they come from files."""
    if spec.query is None:
        return []
    person = spec.unit.person is not None
    said = _of_the_answer(person) if spec.query.rows == "answer" else _of_the_table(person)
    return [said + (_CHOSEN if spec.unit.row_rule is RowRule.AT_MOST else "")]


def _of_the_table(person: bool) -> str:
    selected = (
        "If the values of the row decide whether the query selects it, a change that brings it into the answer or "
        "takes it out is protected to the same extent as being in the data."
    )
    if person:
        selected = (
            "If the values of a person's rows decide whether the query selects them, a change that brings all of them "
            "into the answer or takes all of them out is protected to the same extent as being in the data. A change "
            "that does so with some of them is protected to the same extent as the contents of a person's rows."
        )
    return (
        "The data are the answer to a query that makes each of its rows from one row of one table or view, and the "
        "guarantee is about the rows of that table or view. If that row is in turn made from several rows (by a view "
        "or virtual table, a generated column, a user-defined type or cast, or a function), the guarantee does not "
        f"extend to those. {selected}"
    )


def _of_the_answer(person: bool) -> str:
    grouped = (
        " The rows of the answer are grouped by person: a person is protected with the rows of the answer that have "
        "their identifier, but not with their influence on the rows of others."
        if person
        else ""
    )
    return (
        "The data are the answer to a query, and the specification declares that the rows of that answer are what is "
        f"protected: {BEYOND_THE_ANSWER[0].lower()}{BEYOND_THE_ANSWER[1:]}{grouped}"
    )
