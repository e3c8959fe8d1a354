"""The attack on every mechanism that draws noise: a worst-case pair of tables and a distinguisher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import cast

import numpy as np

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.auditing.distinguishers import (
    Attack,
    Judge,
    Law,
    Tables,
    added_noise,
    along_the_change,
    along_the_directions,
    along_the_transcript,
    noise_of_products,
    nuclear_ratio,
    number_by_number,
)
from dpcore.auditing.worst_pairs import orthogonal_pair, steep_pair
from dpcore.mechanisms.base import ComponentMechanism, GramEvent, GramMechanism
from dpcore.mechanisms.queries import HistogramsQuery, MomentsQuery, RowsQuery, ScoreQuery
from dpcore.mechanisms.registry import mechanism_of, vector_mechanism
from dpcore.mechanisms.sensitivity import best_l1_weight
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Floats, Neighbours

LAYOUT = GramLayout(2, 1, Fraction(1))
"""Records (1, y) with |y| at most 1, so that the squared norm is at most 2."""

PLANE = GramLayout(3, 1, Fraction(1))
"""Records (1, y) with y in the plane, for mechanisms that release directions or eigenvalues."""

ATTACKED_EPSILON, ATTACKED_RHO = Epsilon(Fraction(2)), Rho(Fraction(1, 2))
"""Budgets of the attacked mechanisms, well below log(n / 29), the largest bound that n draws can give."""


def _outer(record: Floats) -> Floats:
    """Return the Gram block of a table that holds one record."""
    return np.outer(record, record)[None]


def _full_length_records(name: str, judge: Judge, budget: Budget, neighbours: Neighbours, several: bool) -> Attack:
    """Return an attack with records of full length: (1, 1) or none (add-remove), or (1, 1) or (1, -1).

    With several classes, replace-one moves the record to another class. These pairs attain the bounds S1 and S2 and,
    for several blocks of equal entries, S3 and S6.
    """

    layout = replace(LAYOUT, blocks=2) if several else LAYOUT
    event = cast(GramMechanism, mechanism_of(name)).calibrate(layout, neighbours, budget)
    one, other = (_outer(record) for record in orthogonal_pair(2))
    nothing = 0 * one
    if several:
        one, other, nothing = (np.concatenate(x) for x in ((one, nothing), (nothing, one), (nothing, nothing)))
    return Attack(event, (one, nothing if neighbours is Neighbours.ADD_REMOVE else other), judge, added_noise)


def _laplace_gram(neighbours: Neighbours, several: bool) -> Attack:
    """Return an attack with records of full length, turned if that changes more entries."""
    prepared = _full_length_records("laplace", number_by_number, ATTACKED_EPSILON, neighbours, several)
    if several or neighbours is Neighbours.ADD_REMOVE:
        return prepared
    x, y = steep_pair(2, float(best_l1_weight(neighbours)))
    return replace(prepared, tables=(2 * _outer(x), 2 * _outer(y)))


def _point(x: float, y: float) -> Floats:
    """Return the second moments of the record (1, x, y)."""
    return _outer(np.array([1.0, x, y]))


E1, E2 = _point(1, 0), _point(0, 1)
MANY = 1000 * E1
"""Enough records along one direction to align a noisy product with it."""


def _directions_or_eigenvalues(
    name: str,
    neighbours: Neighbours,
    several: bool,
    *,
    judge: Judge,
    law: Law | None,
    budget: Budget,
    most: int,
    replaced: Tables,
    removed: Tables,
) -> Attack:
    """Return an attack on directions or eigenvalues in the plane: on one of them, or with `several` on `most`.

    A point is replaced by another or removed, beside others.
    """
    mechanism = cast(ComponentMechanism, mechanism_of(name))
    event = mechanism.calibrate(PLANE, neighbours, budget, components=most if several else 1)
    return Attack(event, removed if neighbours is Neighbours.ADD_REMOVE else replaced, judge, law)


def _jiang(neighbours: Neighbours, several: bool) -> Attack:
    """Attack records of a number, a binary category and, with `several`, one of two classes.

    Under replace-one the category and the class change; without classes, the number does too.
    """
    classes = 2 if several else 1
    query = MomentsQuery(1, (2,), classes)
    event = vector_mechanism("jiang-laplace").calibrate(query, neighbours, Epsilon(Fraction(10)))
    one = _jiang_answer(np.array([1.0, 1, 0]), 0, classes)
    two = _jiang_answer(np.array([1.0 if several else 0.0, 0, 1]), classes - 1, classes)
    other = 0 * one if neighbours is Neighbours.ADD_REMOVE else two
    return Attack(event, (one, other), number_by_number, added_noise)


def _jiang_answer(x: Floats, label: int, classes: int) -> Floats:
    """Return the counts, class sums and upper triangle of a single record."""
    member = np.eye(classes)[label]
    return np.concatenate([member, np.outer(member, x).ravel(), np.outer(x, x)[np.triu_indices(len(x))]])


def _rows(neighbours: Neighbours, several: bool) -> Attack:
    """Attack a row at one end of a diagonal or at the other."""
    event = vector_mechanism("noisy-rows").calibrate(RowsQuery(1, 2), neighbours, ATTACKED_EPSILON)
    corner = np.full(2, 1 / np.sqrt(2))
    return Attack(event, (corner, -corner), number_by_number, added_noise)


def _histograms(name: str, judge: Judge, budget: Budget, neighbours: Neighbours, several: bool) -> Attack:
    """Return an attack on two columns of two cells: one record changes both columns, or is added."""
    query = HistogramsQuery((2, 2), (Fraction(1), Fraction(1)))
    one, two = np.array([1.0, 0, 1, 0]), np.array([0.0, 1, 0, 1])
    tables = one, 0 * one if neighbours is Neighbours.ADD_REMOVE else two
    return Attack(vector_mechanism(name).calibrate(query, neighbours, budget), tables, judge, added_noise)


def _score(name: str, judge: Judge, budget: Budget, neighbours: Neighbours, several: bool) -> Attack:
    """Return an attack on a score: a record that is predicted right, or one predicted wrong or absent, which add 0."""
    event = vector_mechanism(name).calibrate(ScoreQuery("accuracy"), neighbours, budget)
    return Attack(event, (np.array([1.0]), np.array([0.0])), judge, added_noise)


ATTACKS: dict[str, Callable[[Neighbours, bool], Attack]] = {
    "wishart-difference-trace": partial(
        _full_length_records, "wishart-difference-trace", along_the_change, ATTACKED_EPSILON
    ),
    "wishart-difference": partial(_full_length_records, "wishart-difference", along_the_change, ATTACKED_EPSILON),
    "nuclear-k-norm": partial(_full_length_records, "nuclear-k-norm", nuclear_ratio, ATTACKED_EPSILON),
    "gaussian": partial(_full_length_records, "gaussian", along_the_change, ATTACKED_RHO),
    "laplace": _laplace_gram,
    "laplace-sums": partial(_full_length_records, "laplace-sums", number_by_number, ATTACKED_EPSILON),
    "jiang-laplace": _jiang,
    "noisy-rows": _rows,
    "histogram-laplace": partial(_histograms, "histogram-laplace", number_by_number, Epsilon(Fraction(4))),
    "histogram-gaussian": partial(_histograms, "histogram-gaussian", along_the_change, ATTACKED_RHO),
    "score-laplace": partial(_score, "score-laplace", number_by_number, ATTACKED_EPSILON),
    "score-gaussian": partial(_score, "score-gaussian", along_the_change, ATTACKED_RHO),
    "noisy-power-method": partial(
        _directions_or_eigenvalues,
        "noisy-power-method",
        judge=along_the_transcript,
        law=noise_of_products,
        budget=ATTACKED_RHO,
        most=2,
        replaced=(E1, E2),
        removed=(MANY + E1, MANY),
    ),
    "exponential-pca": partial(
        _directions_or_eigenvalues,
        "exponential-pca",
        judge=along_the_directions,
        law=None,
        budget=ATTACKED_EPSILON,
        most=1,
        replaced=(E1 + E2, 2 * E2),
        removed=(E1 + E2, E2),
    ),
    "eigenvalues-only": partial(
        _directions_or_eigenvalues,
        "eigenvalues-only",
        judge=number_by_number,
        law=added_noise,
        budget=ATTACKED_EPSILON,
        most=2,
        replaced=(2 * E1, E1 + E2),
        removed=(E1, 0 * E1),
    ),
}
"""One entry per mechanism that draws noise; a test checks that none is missing."""

CLASSES = "two classes"
SEVERAL = {
    "wishart-difference-trace": CLASSES,
    "wishart-difference": CLASSES,
    "nuclear-k-norm": CLASSES,
    "gaussian": CLASSES,
    "laplace": CLASSES,
    "laplace-sums": CLASSES,
    "jiang-laplace": CLASSES,
    "noisy-power-method": "two directions",
    "eigenvalues-only": "two eigenvalues",
}
"""Mechanisms that are attacked with one class, direction or eigenvalue, and also with several."""


def has_several(event: GramEvent | VectorEvent) -> bool:
    """Return whether an event has several classes, directions or eigenvalues and its mechanism an attack on those."""
    if isinstance(event, VectorEvent):
        return isinstance(event.query, MomentsQuery) and event.query.classes > 1
    return event.mechanism in SEVERAL and (event.layout.blocks > 1 or event.components > 1)
