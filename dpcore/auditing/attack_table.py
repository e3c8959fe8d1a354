"""The worst pair of tables for every mechanism that draws noise, and how its draws are told apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import NDArray

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
from dpcore.records.schema import Neighbours

Floats = NDArray[np.float64]

LAYOUT = GramLayout(2, 1, Fraction(1))
"""Records (1, y) with |y| at most 1: squared norm 2."""

PLANE = GramLayout(3, 1, Fraction(1))
"""Records (1, y) with y in the plane, for mechanisms that release directions."""

ATTACKED_EPSILON, ATTACKED_RHO = Epsilon(Fraction(2)), Rho(Fraction(1, 2))
"""Budgets of the attacked mechanisms: n draws cannot show more than log(n / 29), so claims must lie well below."""


def _outer(record: Floats) -> Floats:
    """The only block of a table that holds one record."""
    return np.outer(record, record)[None]


def _full_length_records(
    name: str, judge: Judge, budget: Budget = ATTACKED_EPSILON
) -> Callable[[Neighbours, bool], Attack]:
    """Records of full length: one or nothing under add-remove; under replace-one orthogonal ones.

    With several classes the record goes into another one. Either attains the bounds S1, S2 and, where entries are
    flat, S3 and S6 for several blocks.
    """

    def prepare(neighbours: Neighbours, several: bool) -> Attack:
        layout = replace(LAYOUT, blocks=2) if several else LAYOUT
        event = cast(GramMechanism, mechanism_of(name)).calibrate(layout, neighbours, budget)
        one, other = (_outer(record) for record in orthogonal_pair(2))
        nothing = 0 * one
        if several:
            one, other, nothing = (np.concatenate(x) for x in ((one, nothing), (nothing, one), (nothing, nothing)))
        if neighbours is Neighbours.ADD_REMOVE:
            return Attack(event, "(1, 1) or nothing", (one, nothing), judge, added_noise)
        return Attack(event, "another class" if several else "(1, 1) or (1, -1)", (one, other), judge, added_noise)

    return prepare


def _laplace_gram(neighbours: Neighbours, several: bool) -> Attack:
    prepared = _full_length_records("laplace", number_by_number)(neighbours, several)
    if several or neighbours is Neighbours.ADD_REMOVE:
        return prepared
    x, y = steep_pair(2, float(best_l1_weight(neighbours)))
    return replace(prepared, pair="orthogonal and turned", tables=(2 * _outer(x), 2 * _outer(y)))


def _point(x: float, y: float) -> Floats:
    """Second moments of the record (1, x, y)."""
    return _outer(np.array([1.0, x, y]))


E1, E2 = _point(1, 0), _point(0, 1)
MANY = 1000 * E1
"""Enough of one direction to turn a noisy product to it."""


def _directions_or_eigenvalues(
    name: str, judge: Judge, law: Law | None, budget: Budget, most: int, replaced: Tables, removed: Tables
) -> Callable[[Neighbours, bool], Attack]:
    """Directions or eigenvalues of points in the plane, on given tables: one, or with `several` as many as `most`."""

    def prepare(neighbours: Neighbours, several: bool) -> Attack:
        mechanism = cast(ComponentMechanism, mechanism_of(name))
        event = mechanism.calibrate(PLANE, neighbours, budget, components=most if several else 1)
        if neighbours is Neighbours.ADD_REMOVE:
            return Attack(event, "a point or nothing, beside others", removed, judge, law)
        return Attack(event, "one point or another, beside others", replaced, judge, law)

    return prepare


def _jiang(neighbours: Neighbours, several: bool) -> Attack:
    """A number, a category of two and with `several` a class of two; all but the number change, or one record comes."""
    classes = 2 if several else 1
    query = MomentsQuery(1, (2,), classes)
    event = vector_mechanism("jiang-laplace").calibrate(query, neighbours, Epsilon(Fraction(10)))
    one = _jiang_answer(np.array([1.0, 1, 0]), 0, classes)
    two = _jiang_answer(np.array([1.0 if several else 0.0, 0, 1]), classes - 1, classes)
    if neighbours is Neighbours.ADD_REMOVE:
        return Attack(event, "(1, a) or nothing", (one, 0 * one), number_by_number, added_noise)
    pair = "(1, a) or (1, b), in another class" if several else "(1, a) or (0, b)"
    return Attack(event, pair, (one, two), number_by_number, added_noise)


def _jiang_answer(x: Floats, label: int, classes: int) -> Floats:
    """Counts, class sums, upper triangle of a single record."""
    member = np.eye(classes)[label]
    return np.concatenate([member, np.outer(member, x).ravel(), np.outer(x, x)[np.triu_indices(len(x))]])


def _rows(neighbours: Neighbours, several: bool) -> Attack:
    event = vector_mechanism("noisy-rows").calibrate(RowsQuery(1, 2), neighbours, ATTACKED_EPSILON)
    corner = np.full(2, 1 / np.sqrt(2))
    return Attack(event, "opposite diagonals", (corner, -corner), number_by_number, added_noise)


def _histograms(name: str, judge: Judge, budget: Budget) -> Callable[[Neighbours, bool], Attack]:
    """Two columns of two cells: a record that changes both, or comes."""

    def prepare(neighbours: Neighbours, several: bool) -> Attack:
        event = vector_mechanism(name).calibrate(
            HistogramsQuery((2, 2), (Fraction(1), Fraction(1))), neighbours, budget
        )
        one, two = np.array([1.0, 0, 1, 0]), np.array([0.0, 1, 0, 1])
        if neighbours is Neighbours.ADD_REMOVE:
            return Attack(event, "(a, a) or nothing", (one, 0 * one), judge, added_noise)
        return Attack(event, "(a, a) or (b, b)", (one, two), judge, added_noise)

    return prepare


def _score(name: str, judge: Judge, budget: Budget) -> Callable[[Neighbours, bool], Attack]:
    """A record that a model gets right, or one that it gets wrong, or none: the same for the sum."""

    def prepare(neighbours: Neighbours, several: bool) -> Attack:
        event = vector_mechanism(name).calibrate(ScoreQuery("accuracy"), neighbours, budget)
        other = "nothing" if neighbours is Neighbours.ADD_REMOVE else "wrong"
        return Attack(event, f"right or {other}", (np.array([1.0]), np.array([0.0])), judge, added_noise)

    return prepare


ATTACKS: dict[str, Callable[[Neighbours, bool], Attack]] = {
    "wishart-difference-trace": _full_length_records("wishart-difference-trace", along_the_change),
    "wishart-difference": _full_length_records("wishart-difference", along_the_change),
    "nuclear-k-norm": _full_length_records("nuclear-k-norm", nuclear_ratio),
    "gaussian": _full_length_records("gaussian", along_the_change, ATTACKED_RHO),
    "laplace": _laplace_gram,
    "laplace-sums": _full_length_records("laplace-sums", number_by_number),
    "jiang-laplace": _jiang,
    "noisy-rows": _rows,
    "histogram-laplace": _histograms("histogram-laplace", number_by_number, Epsilon(Fraction(4))),
    "histogram-gaussian": _histograms("histogram-gaussian", along_the_change, ATTACKED_RHO),
    "score-laplace": _score("score-laplace", number_by_number, ATTACKED_EPSILON),
    "score-gaussian": _score("score-gaussian", along_the_change, ATTACKED_RHO),
    "noisy-power-method": _directions_or_eigenvalues(
        "noisy-power-method", along_the_transcript, noise_of_products, ATTACKED_RHO, 2, (E1, E2), (MANY + E1, MANY)
    ),
    "exponential-pca": _directions_or_eigenvalues(
        "exponential-pca", along_the_directions, None, ATTACKED_EPSILON, 1, (E1 + E2, 2 * E2), (E1 + E2, E2)
    ),
    "eigenvalues-only": _directions_or_eigenvalues(
        "eigenvalues-only", number_by_number, added_noise, ATTACKED_EPSILON, 2, (2 * E1, E1 + E2), (E1, 0 * E1)
    ),
}
"""One entry a mechanism that draws noise; a test says that none is missing."""

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
"""Mechanisms that are attacked with several classes, directions or eigenvalues as well as with one."""


def has_several(event: GramEvent | VectorEvent) -> bool:
    """Whether an event measures several classes, directions or eigenvalues, and that is attacked apart."""
    if isinstance(event, VectorEvent):
        return isinstance(event.query, MomentsQuery) and event.query.classes > 1
    return event.mechanism in SEVERAL and (event.layout.blocks > 1 or event.components > 1)
