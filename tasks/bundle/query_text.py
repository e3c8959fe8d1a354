"""What the guarantee says where the data are the answer of a query."""

from __future__ import annotations

from dpcore.records.schema import RowRule
from tasks.spec import ReleaseSpec

BEYOND_THE_ANSWER = "A person or a table's row that influences several rows of the answer is not protected as one."

_CHOSEN = (
    " Which of a person's rows come first is decided by the values of those rows alone, not by the order in which "
    "the database gives them."
)


def query_words(spec: ReleaseSpec) -> list[str]:
    """Whose rows the promise is about, where they come from a query; nothing where they come from files."""
    if spec.query is None:
        return []
    person = spec.unit.person is not None
    said = _of_the_answer(person) if spec.query.rows == "answer" else _of_the_table(person)
    return [said + (_CHOSEN if spec.unit.row_rule is RowRule.AT_MOST else "")]


def _of_the_table(person: bool) -> str:
    whom = "a person's rows" if person else "the row"
    taken = "a change that takes them into or out of the answer is protected as far as being in the data is."
    if person:
        taken = (
            "a change that takes all of them into or out of the answer is protected as far as being in the data is, "
            "one that takes some of them as far as what a person contained is."
        )
    return (
        "The data are the answer of a query each of whose rows is made from one row of one table or view: the promise "
        "is about the rows of that table or view. If it is a view or virtual table that makes a row from several "
        "rows, or if a generated column, a type or cast of somebody's own, or a function does, the promise does not "
        f"reach those. Where values of {whom} decide whether the query selects them, {taken}"
    )


def _of_the_answer(person: bool) -> str:
    grouped = (
        " The answer's rows are grouped by person: a person is protected with the rows of the answer that bear that "
        "person's identifier, and not with what that person changes in the rows of others."
        if person
        else ""
    )
    return (
        "The data are the answer of a query, and the specification declares that the rows of that answer are what is "
        f"protected: {BEYOND_THE_ANSWER[0].lower()}{BEYOND_THE_ANSWER[1:]}{grouped}"
    )
