"""The best known attack on every mechanism of the registry: a worst pair of tables, an event, a bound.

Releasable mechanisms are attacked through the real door, `measure_gram` or
`measure_vector`; `dpcore.bulk` attacks the laws of their noise at more dimensions and with
more draws. Published calibrations are attacked by their witnesses. What an attack finds
is a lower bound on epsilon: it must not lie above what a proved mechanism claims, and must
lie above what a refuted one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.auditing import audit
from dpcore.bulk import DIMENSIONS, SIMULATED, claim_of, simulate
from dpcore.exactgram import GramSum, Layout
from dpcore.measure import PrivateGram, Released, measure_gram, measure_vector
from dpcore.mechanisms.base import UNIT, Gives, GramEvent, GramMechanism, PartMechanism
from dpcore.noise import Noise, fresh_seed, public_generator
from dpcore.published import WITNESSES, by_entries
from dpcore.queries import HistogramsQuery, MomentsQuery, RowsQuery, ScoreQuery
from dpcore.registry import BY_NAME, ENTRIES, Entry, Status, gram_mechanism, mechanism_of, vector_mechanism
from dpcore.schema import Neighbours
from dpcore.sensitivity import best_l1_weight
from dpcore.vectors import PrivateVector, VectorEvent
from dpcore.worstpairs import orthogonal_pair, steep_pair

Floats = NDArray[np.float64]

LAYOUT = Layout(2, 1, Fraction(1))
"""Records (1, y) with |y| at most 1: squared norm 2."""

PLANE = Layout(3, 1, Fraction(1))
"""Records (1, y) with y in the plane, for mechanisms that release directions."""

PURE, CONCENTRATED = Epsilon(Fraction(2)), Rho(Fraction(1, 2))
"""Budgets of the attacked mechanisms: n draws cannot show more than log(n / 29), so claims must lie well below."""

ERROR = 1e-6
"""Probability with which an honest mechanism may look guilty."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an attack found: at least `measured` of the `claimed` epsilon is really lost.

    `how`: by real draws through the door, on the simulated law of the noise, or by a published sampler.
    """

    mechanism: str
    neighbours: str
    claimed: float
    delta: float
    measured: float
    draws: int
    status: Status = Status.PROVED
    how: str = "real"

    @property
    def holds(self) -> bool:
        """Whether the claim survived."""
        return self.measured <= self.claimed

    @property
    def expected(self) -> str:
        """What must come out: a refuted claim is caught, every other one holds."""
        return "caught" if self.status is Status.REFUTED else "holds"

    @property
    def ok(self) -> bool:
        """Whether it came out as the registry says."""
        return self.holds is (self.expected == "holds")

    @property
    def verdict(self) -> str:
        """One word; in capitals where the registry is wrong."""
        return self.expected if self.ok else "BROKEN" if self.expected == "holds" else "ESCAPED"

    def as_json(self) -> dict[str, Any]:
        """The finding for record, ledger and command line."""
        return {
            "mechanism": self.mechanism,
            "neighbours": self.neighbours,
            "claimed": self.claimed,
            "delta": self.delta,
            "measured": self.measured,
            "draws": self.draws,
            "error": ERROR,
            "holds": self.holds,
            "status": self.status.value,
            "expected": self.expected,
            "ok": self.ok,
            "verdict": self.verdict,
            "how": self.how,
        }


Tables = tuple[Floats, Floats]
Judge = Callable[["Attack", Floats, Floats], float]


@dataclass(frozen=True, slots=True)
class Attack:
    """One line of the table of attacks: what is drawn on which two tables, and how these are told apart.

    `tables` hold exact answers, in records. `judge` gives a bound from draws on each.
    """

    event: GramEvent | VectorEvent
    pair: str
    tables: Tables
    judge: Judge

    def draws(self, table: Floats, count: int, noise: Noise) -> Floats:
        """What the door releases of a table, many times over."""
        event = self.event
        if isinstance(event, VectorEvent):
            whole = np.rint(table * event.query.unit).astype(np.int64).tolist()
            vector = PrivateVector(event.query, whole)
            return np.array([measure_vector(vector, event, noise).numbers() for _ in range(count)])
        total = GramSum(event.layout)
        total.blocks[0] = np.rint(table * UNIT).astype(np.int64).astype(object)
        gram = PrivateGram(total)
        return np.array([_view(measure_gram(gram, event, noise)) for _ in range(count)])


def _view(released: Released) -> Floats:
    """What the attacker sees of a released value: a matrix, directions as columns, or a list of numbers."""
    gives = mechanism_of(released.event.mechanism).gives
    if gives is Gives.BASIS:
        return released.basis()
    if gives is Gives.GRAM:
        return np.asarray(released.matrices()[0], dtype=np.float64)
    return np.array([value * released.event.step / UNIT for value in released.values[0]], dtype=np.float64)


# ---- how tables are told apart ---------------------------------------------------------------------


def along_the_change(attack: Attack, first: Floats, second: Floats) -> float:
    """How much lies along the difference of the tables: the likelihood ratio of Gaussian noise."""
    change = attack.tables[0] - attack.tables[1]
    return _audited(attack, *(np.tensordot(draws, change, change.ndim) for draws in (first, second)))


def nuclear_ratio(attack: Attack, first: Floats, second: Floats) -> float:
    """The likelihood ratio of nuclear K-norm noise: the larger of the positive and the negative part, or both."""
    both = attack.event.neighbours is Neighbours.ADD_REMOVE

    def norm(matrices: Floats) -> Floats:
        values = np.linalg.eigvalsh(matrices)
        up, down = np.maximum(values, 0).sum(axis=1), np.maximum(-values, 0).sum(axis=1)
        norms: Floats = up + down if both else np.maximum(up, down)
        return norms

    one, two = attack.tables
    return _audited(attack, *(np.round(norm(draws - two) - norm(draws - one), 9) for draws in (first, second)))


def entry_by_entry(attack: Attack, first: Floats, second: Floats) -> float:
    """Independent Laplace noise: each number at or beyond its value on the first table, and the bounds add."""
    one, two = attack.tables
    return by_entries(one, two, first, second, error=ERROR)


def cell_by_cell(attack: Attack, first: Floats, second: Floats) -> float:
    """As `entry_by_entry`, of the upper triangle: each pair of equal entries once."""
    upper = np.triu_indices(len(attack.tables[0]))
    one, two = (table[upper] for table in attack.tables)
    return by_entries(one, two, first[:, *upper], second[:, *upper], error=ERROR)


def sum_by_sum(attack: Attack, first: Floats, second: Floats) -> float:
    """As `entry_by_entry`, of the first row: the count and the sums."""
    return by_entries(attack.tables[0][0], attack.tables[1][0], first, second, error=ERROR)


def along_the_directions(attack: Attack, first: Floats, second: Floats) -> float:
    """How much of the difference of the points' moments the released directions capture."""
    change = _points(attack.tables[0] - attack.tables[1])
    return _audited(attack, *(np.einsum("nik,ij,njk->n", draws, change, draws) for draws in (first, second)))


def eigenvalue_by_eigenvalue(attack: Attack, first: Floats, second: Floats) -> float:
    """As `entry_by_entry`, of the points' eigenvalues."""
    one, two = (_eigenvalues(_points(table)) for table in attack.tables)
    return by_entries(one, two, first, second, error=ERROR)


def _eigenvalues(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)


def _points(table: Floats) -> Floats:
    """Second moments without the record's head."""
    return table[1:, 1:]


def _audited(attack: Attack, first: Floats, second: Floats) -> float:
    return audit(first, second, delta=claim_of(attack.event)[1], error=ERROR)


# ---- the table of attacks --------------------------------------------------------------------------


def _orthogonal(name: str, judge: Judge, budget: Budget = PURE) -> Callable[[Neighbours], Attack]:
    """Records of full length: orthogonal ones under replace-one, one or nothing under add-remove."""

    def prepare(neighbours: Neighbours) -> Attack:
        event = cast(GramMechanism, mechanism_of(name)).calibrate(LAYOUT, neighbours, budget)
        x, y = orthogonal_pair(2)
        if neighbours is Neighbours.ADD_REMOVE:
            return Attack(event, "(1, 1) or nothing", (np.outer(x, x), np.zeros((2, 2))), judge)
        return Attack(event, "(1, 1) or (1, -1)", (np.outer(x, x), np.outer(y, y)), judge)

    return prepare


def _laplace(neighbours: Neighbours) -> Attack:
    event = gram_mechanism("laplace").calibrate(LAYOUT, neighbours, PURE)
    if neighbours is Neighbours.ADD_REMOVE:
        return Attack(event, "(1, 1) or nothing", (np.ones((2, 2)), np.zeros((2, 2))), cell_by_cell)
    x, y = steep_pair(2, float(best_l1_weight(neighbours)))
    return Attack(event, "orthogonal and turned", (2 * np.outer(x, x), 2 * np.outer(y, y)), cell_by_cell)


def _point(x: float, y: float) -> Floats:
    """Second moments of the record (1, x, y)."""
    record = np.array([1.0, x, y])
    return np.outer(record, record)


E1, E2, LEFT, RIGHT = _point(1, 0), _point(0, 1), _point(-0.6, 0.8), _point(0.6, 0.8)
MANY = 3 * E2
"""Enough of one direction to fix the sign of what a power method finds; a record beside it turns that a little."""


def _part(
    name: str, judge: Judge, budget: Budget, components: int, replaced: Tables, removed: Tables
) -> Callable[[Neighbours], Attack]:
    """Directions or eigenvalues of points in the plane, on given tables."""

    def prepare(neighbours: Neighbours) -> Attack:
        mechanism = cast(PartMechanism, mechanism_of(name))
        event = mechanism.calibrate(PLANE, neighbours, budget, components=components)
        if neighbours is Neighbours.ADD_REMOVE:
            return Attack(event, "a point or nothing, beside others", removed, judge)
        return Attack(event, "one point or another, beside others", replaced, judge)

    return prepare


def _jiang(neighbours: Neighbours) -> Attack:
    """A number, a category of two and a class of two; all but the number change, or one record comes."""
    query = MomentsQuery(1, (2,), 2)
    event = vector_mechanism("jiang-laplace").calibrate(query, neighbours, Epsilon(Fraction(10)))
    one, two = (_jiang_answer(np.array(x, dtype=float), c) for x, c in (((1, 1, 0), 0), ((1, 0, 1), 1)))
    if neighbours is Neighbours.ADD_REMOVE:
        return Attack(event, "(1, a) in a class, or nothing", (one, np.zeros(len(one))), entry_by_entry)
    return Attack(event, "(1, a) or (1, b), in another class", (one, two), entry_by_entry)


def _jiang_answer(x: Floats, label: int) -> Floats:
    """Counts, class sums, upper triangle of a single record."""
    member = np.eye(2)[label]
    return np.concatenate([member, np.outer(member, x).ravel(), np.outer(x, x)[np.triu_indices(len(x))]])


def _rows(neighbours: Neighbours) -> Attack:
    event = vector_mechanism("noisy-rows").calibrate(RowsQuery(1, 2), neighbours, PURE)
    corner = np.full(2, 1 / np.sqrt(2))
    return Attack(event, "opposite diagonals", (corner, -corner), entry_by_entry)


def _histograms(name: str, judge: Judge, budget: Budget) -> Callable[[Neighbours], Attack]:
    """Two columns of two cells: a record that changes both, or comes."""

    def prepare(neighbours: Neighbours) -> Attack:
        event = vector_mechanism(name).calibrate(
            HistogramsQuery((2, 2), (Fraction(1), Fraction(1))), neighbours, budget
        )
        one, two = np.array([1.0, 0, 1, 0]), np.array([0.0, 1, 0, 1])
        if neighbours is Neighbours.ADD_REMOVE:
            return Attack(event, "(a, a) or nothing", (one, 0 * one), judge)
        return Attack(event, "(a, a) or (b, b)", (one, two), judge)

    return prepare


def _score(name: str, judge: Judge, budget: Budget) -> Callable[[Neighbours], Attack]:
    """A record that a model gets right, or one that it gets wrong, or none: the same for the sum."""

    def prepare(neighbours: Neighbours) -> Attack:
        event = vector_mechanism(name).calibrate(ScoreQuery("accuracy"), neighbours, budget)
        other = "nothing" if neighbours is Neighbours.ADD_REMOVE else "wrong"
        return Attack(event, f"right or {other}", (np.array([1.0]), np.array([0.0])), judge)

    return prepare


ATTACKS: dict[str, Callable[[Neighbours], Attack]] = {
    "wishart-difference-trace": _orthogonal("wishart-difference-trace", along_the_change),
    "wishart-difference": _orthogonal("wishart-difference", along_the_change),
    "nuclear-k-norm": _orthogonal("nuclear-k-norm", nuclear_ratio),
    "gaussian": _orthogonal("gaussian", along_the_change, CONCENTRATED),
    "laplace": _laplace,
    "laplace-sums": _orthogonal("laplace-sums", sum_by_sum),
    "jiang-laplace": _jiang,
    "noisy-rows": _rows,
    "histogram-laplace": _histograms("histogram-laplace", entry_by_entry, Epsilon(Fraction(4))),
    "histogram-gaussian": _histograms("histogram-gaussian", along_the_change, CONCENTRATED),
    "score-laplace": _score("score-laplace", entry_by_entry, PURE),
    "score-gaussian": _score("score-gaussian", along_the_change, CONCENTRATED),
    "noisy-power-method": _part(  # only the last of its six noisy products is seen: a sixth of rho at most
        "noisy-power-method", along_the_directions, CONCENTRATED, 1, (MANY + RIGHT, MANY + LEFT), (MANY + RIGHT, MANY)
    ),
    "exponential-pca": _part("exponential-pca", along_the_directions, PURE, 1, (E1 + E2, 2 * E2), (E1 + E2, E2)),
    "eigenvalues-only": _part("eigenvalues-only", eigenvalue_by_eigenvalue, PURE, 2, (2 * E1, E1 + E2), (E1, 0 * E1)),
}
"""One entry a mechanism that draws noise; a test says that none is missing."""


def targets() -> list[tuple[Entry, Neighbours]]:
    """Every mechanism that draws noise, under every neighbour relation that it claims to hold for."""
    return [(entry, relation) for entry in ENTRIES if _draws_noise(entry) for relation in entry.neighbours]


def _draws_noise(entry: Entry) -> bool:
    return entry.mechanism is not None or entry.vector is not None


def attack(name: str, neighbours: Neighbours, *, draws: int, noise: Noise) -> Finding:
    """Draw from the mechanism on both tables and bound its epsilon from below.

    Guarantee: an honest mechanism's finding exceeds its claim with probability at most `ERROR`.
    Raises: KeyError for a name that has no attack through the door.
    """
    prepared = ATTACKS[name](neighbours)
    claimed, delta = claim_of(prepared.event)
    first, second = (prepared.draws(table, draws, noise) for table in prepared.tables)
    measured = prepared.judge(prepared, first, second)
    return Finding(name, neighbours.value, claimed, delta, measured, draws, BY_NAME[name].status)


def attack_published(name: str, *, seed: str) -> Finding:
    """Run a refuted calibration on the pair of its witness.

    Raises: KeyError for a name that is not refuted.
    """
    witness = WITNESSES[name]
    measured = witness.measured(public_generator(seed, name))
    return Finding(
        name,
        witness.neighbours.value,
        witness.claimed,
        0.0,
        measured,
        witness.draws,
        BY_NAME[name].status,
        "published",
    )


def attack_law(name: str, neighbours: Neighbours, dimension: int, *, draws: int, seed: str) -> Finding:
    """Attack the simulated law of a mechanism's noise at some dimension."""
    generator = public_generator(seed, f"{name} {neighbours.value} {dimension}")
    claimed, delta, measured = simulate(name, neighbours, dimension, draws=draws, rng=generator)
    how = f"law, P = {dimension}"
    return Finding(name, neighbours.value, claimed, delta, measured, draws, BY_NAME[name].status, how)


@dataclass(frozen=True, slots=True)
class Step:
    """One attack that is still to run, and what it is called."""

    name: str
    run: Callable[[], Finding]


def steps(*, draws: int, bulk_draws: int, noise: Noise) -> Iterator[Step]:
    """Attacks on every mechanism of the registry: through the door, on the laws of the noise, on published samplers."""
    seed = fresh_seed()
    for entry, relation in targets():
        yield Step(entry.name, partial(attack, entry.name, relation, draws=draws, noise=noise))
        for p in DIMENSIONS if entry.name in SIMULATED else ():
            simulated = partial(attack_law, entry.name, relation, p, draws=bulk_draws, seed=seed)
            yield Step(f"{entry.name} at dimension {p}", simulated)
    for entry in ENTRIES:
        if entry.status is Status.REFUTED:
            yield Step(entry.name, partial(attack_published, entry.name, seed=seed))
