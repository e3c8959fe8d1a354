"""The best known attack on every mechanism of the registry: a worst pair of tables, an event, a bound.

Releasable mechanisms are attacked through the real door, `measure_gram` or
`measure_vector`; `dpcore.bulk` attacks the laws of their noise at more dimensions and with
more draws. Published calibrations are attacked by their witnesses. What an attack finds
is a lower bound on epsilon: it must not lie above what a proved mechanism claims, and must
lie above what a refuted one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting import Budget, Cost, Epsilon, Rho
from dpcore.auditing import audit
from dpcore.bulk import DIMENSIONS, SIMULATED, claim_of, simulate, stated
from dpcore.catalogue import BY_NAME, ENTRIES
from dpcore.entry import Entry, Status
from dpcore.exactgram import GramSum, Layout
from dpcore.knownlaws import (
    TOLERANCE,
    NoiseSize,
    deviations,
    loss_at,
    numbers,
    planned_loss,
    seen,
    without_noise,
)
from dpcore.measure import PrivateGram, measure_gram, measure_vector
from dpcore.mechanisms.base import UNIT, GramEvent, GramMechanism, PartMechanism
from dpcore.mechanisms.frames import FRAME_UNIT
from dpcore.mechanisms.power import POWER
from dpcore.noise import Noise, fresh_seed, public_generator
from dpcore.published import WITNESSES, by_entries
from dpcore.queries import HistogramsQuery, MomentsQuery, RowsQuery, ScoreQuery
from dpcore.registry import mechanism_of, vector_mechanism
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

    `how`: by real draws through the door, with or without the shape of the noise; on the simulated law of the
    noise; or by a published sampler.
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

    @staticmethod
    def from_json(body: dict[str, Any]) -> Finding:
        """A finding that was kept."""
        names = ("mechanism", "neighbours", "claimed", "delta", "measured", "draws", "how")
        return Finding(**{name: body[name] for name in names}, status=Status(body["status"]))


Tables = tuple[Floats, Floats]
Judge = Callable[["Attack", Floats, Floats], float]
Law = Callable[["Attack", Floats, Floats], tuple[NoiseSize, Budget]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One line of the table of attacks: what is drawn on which two tables, and how these are told apart.

    `tables` hold exact answers, in records; of Gram matrices one a class block. `judge` gives
    a bound from draws on each, whatever the noise is; `law` the size of the noise and what the pair loses
    as planned, for a bound that rests on the shape of the noise (`dpcore.knownlaws`).
    """

    event: GramEvent | VectorEvent
    pair: str
    tables: Tables
    judge: Judge
    law: Law | None

    def draws(self, table: Floats, count: int, noise: Noise) -> Floats:
        """What the door releases of a table, many times over."""
        event = self.event
        if isinstance(event, VectorEvent):
            whole = np.rint(table * event.query.unit).astype(np.int64).tolist()
            vector = PrivateVector(event.query, whole)
            return np.array([measure_vector(vector, event, noise).numbers() for _ in range(count)])
        if event.mechanism == POWER.name:
            return np.array([_transcript(table, event, noise) for _ in range(count)])
        gram = PrivateGram(_sum_of(table, event.layout))
        return np.array([seen(measure_gram(gram, event, noise)) for _ in range(count)])


def _sum_of(table: Floats, layout: Layout) -> GramSum:
    total = GramSum(layout)
    total.blocks[:] = np.rint(table * UNIT).astype(np.int64).astype(object)
    return total


def _transcript(table: Floats, event: GramEvent, noise: Noise) -> Floats:
    """All that the power method pays for, of which it releases the last frame only: (steps, 2, width, directions).

    Every step's frame, and beside it the noisy product with that frame, in records.
    """
    steps = POWER.transcript(_sum_of(table, event.layout).upper_triangles(), event, noise)
    return np.array([(frame / FRAME_UNIT, product / (FRAME_UNIT * UNIT)) for frame, product in steps])


# ---- how tables are told apart ---------------------------------------------------------------------


def along_the_change(attack: Attack, first: Floats, second: Floats) -> float:
    """How much lies along the difference of the tables: the likelihood ratio of Gaussian noise."""
    change = attack.tables[0] - attack.tables[1]
    return _audited(attack, *(np.tensordot(draws, change, change.ndim) for draws in (first, second)))


def nuclear_ratio(attack: Attack, first: Floats, second: Floats) -> float:
    """The likelihood ratio of nuclear K-norm noise: the larger of the positive and the negative part, or both."""
    both = attack.event.neighbours is Neighbours.ADD_REMOVE

    def norm(matrices: Floats) -> Floats:
        values = np.linalg.eigvalsh(matrices).reshape(len(matrices), -1)
        up, down = np.maximum(values, 0).sum(axis=1), np.maximum(-values, 0).sum(axis=1)
        norms: Floats = up + down if both else np.maximum(up, down)
        return norms

    one, two = attack.tables
    return _audited(attack, *(np.round(norm(draws - two) - norm(draws - one), 9) for draws in (first, second)))


def number_by_number(attack: Attack, first: Floats, second: Floats) -> float:
    """Independent Laplace noise: each number at or beyond its value on the first table, and the bounds add."""
    event = attack.event
    one, two = (numbers(event, without_noise(event, table)[None])[0] for table in attack.tables)
    return by_entries(one, two, numbers(event, first), numbers(event, second), error=ERROR)


def along_the_directions(attack: Attack, first: Floats, second: Floats) -> float:
    """How much of the difference of the points' moments the released directions capture."""
    change = _points(attack.tables[0] - attack.tables[1])
    return _audited(attack, *(np.einsum("nik,ij,njk->n", draws, change, draws) for draws in (first, second)))


def along_the_transcript(attack: Attack, first: Floats, second: Floats) -> float:
    """The likelihood ratio of all noisy products of the power method, given the frames before each."""
    one, two = (_points(table) for table in attack.tables)
    middle, change = (one + two) / 2, one - two

    def ratio(draws: Floats) -> Floats:
        frames, products = draws[:, :, 0], draws[:, :, 1]
        ratios: Floats = np.einsum("nlik,nlik->n", products - middle @ frames, change @ frames)
        return ratios

    return _audited(attack, ratio(first), ratio(second))


def _points(table: Floats) -> Floats:
    """Second moments of one block without the record's head."""
    return table[0, 1:, 1:]


def _audited(attack: Attack, first: Floats, second: Floats) -> float:
    return audit(first, second, delta=claim_of(attack.event)[1], error=ERROR)


# ---- what is known of the noise --------------------------------------------------------------------


def added_noise(attack: Attack, first: Floats, second: Floats) -> tuple[NoiseSize, Budget]:
    """Noise on numbers: what was drawn less what is exact, and the loss of the pair."""
    event, (one, two) = attack.event, attack.tables
    noise = [numbers(event, x - without_noise(event, table)) for x, table in ((first, one), (second, two))]
    return NoiseSize.of(np.concatenate(noise) / deviations(event)), planned_loss(event, one, two)


def noise_of_products(attack: Attack, first: Floats, second: Floats) -> tuple[NoiseSize, Budget]:
    """Noise on the products of the power method, and the divergence of the pair's transcripts.

    The mean of half of the squared shifts, over the squared scale, is the Kullback-Leibler
    divergence of the two transcripts, and that is at most rho.
    """
    assert isinstance(attack.event, GramEvent)  # noqa: S101  it gives directions of Gram blocks
    scale = float(attack.event.noise) / UNIT
    change, noise = _points(attack.tables[0] - attack.tables[1]), []
    for draws, table in zip((first, second), attack.tables, strict=True):
        noise.append((draws[:, :, 1] - _points(table) @ draws[:, :, 0]).reshape(len(draws), -1) / scale)
    shifts = ((change @ first[:, :, 0]) ** 2).sum(axis=(1, 2, 3)) / (2 * scale**2)
    surely = shifts.mean() - TOLERANCE * shifts.std() / np.sqrt(len(shifts))
    return NoiseSize.of(np.concatenate(noise)), Rho(Fraction(float(surely)))


# ---- the table of attacks --------------------------------------------------------------------------


def _outer(record: Floats) -> Floats:
    """The only block of a table that holds one record."""
    return np.outer(record, record)[None]


def _whole(name: str, judge: Judge, budget: Budget = PURE) -> Callable[[Neighbours, bool], Attack]:
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


def _laplace(neighbours: Neighbours, several: bool) -> Attack:
    prepared = _whole("laplace", number_by_number)(neighbours, several)
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


def _part(
    name: str, judge: Judge, law: Law | None, budget: Budget, most: int, replaced: Tables, removed: Tables
) -> Callable[[Neighbours, bool], Attack]:
    """Directions or eigenvalues of points in the plane, on given tables: one, or with `several` as many as `most`."""

    def prepare(neighbours: Neighbours, several: bool) -> Attack:
        mechanism = cast(PartMechanism, mechanism_of(name))
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
    event = vector_mechanism("noisy-rows").calibrate(RowsQuery(1, 2), neighbours, PURE)
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
    "wishart-difference-trace": _whole("wishart-difference-trace", along_the_change),
    "wishart-difference": _whole("wishart-difference", along_the_change),
    "nuclear-k-norm": _whole("nuclear-k-norm", nuclear_ratio),
    "gaussian": _whole("gaussian", along_the_change, CONCENTRATED),
    "laplace": _laplace,
    "laplace-sums": _whole("laplace-sums", number_by_number),
    "jiang-laplace": _jiang,
    "noisy-rows": _rows,
    "histogram-laplace": _histograms("histogram-laplace", number_by_number, Epsilon(Fraction(4))),
    "histogram-gaussian": _histograms("histogram-gaussian", along_the_change, CONCENTRATED),
    "score-laplace": _score("score-laplace", number_by_number, PURE),
    "score-gaussian": _score("score-gaussian", along_the_change, CONCENTRATED),
    "noisy-power-method": _part(
        "noisy-power-method", along_the_transcript, noise_of_products, CONCENTRATED, 2, (E1, E2), (MANY + E1, MANY)
    ),
    "exponential-pca": _part("exponential-pca", along_the_directions, None, PURE, 1, (E1 + E2, 2 * E2), (E1 + E2, E2)),
    "eigenvalues-only": _part(
        "eigenvalues-only", number_by_number, added_noise, PURE, 2, (2 * E1, E1 + E2), (E1, 0 * E1)
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


def targets() -> list[tuple[Entry, Neighbours]]:
    """Every mechanism that draws noise, under every neighbour relation that it claims to hold for."""
    return [(entry, relation) for entry in ENTRIES if _draws_noise(entry) for relation in entry.neighbours]


def _draws_noise(entry: Entry) -> bool:
    return entry.mechanism is not None or entry.vector is not None


def attack(
    name: str, neighbours: Neighbours, *, draws: int, noise: Noise, several: bool = False
) -> tuple[Finding, ...]:
    """Draw from the mechanism on both tables and bound its epsilon from below, in two ways.

    The first bound assumes nothing about the noise. The second, where the mechanism adds noise
    of a known shape, takes the size from the draws and is far sharper.
    Guarantee: either finding of an honest mechanism exceeds its claim with probability at most `ERROR`.
    Raises: KeyError for a name that has no attack through the door.
    """
    prepared = ATTACKS[name](neighbours, several)
    claimed, delta = claim_of(prepared.event)
    first, second = (prepared.draws(table, draws, noise) for table in prepared.tables)
    plain = Finding(
        name,
        neighbours.value,
        claimed,
        delta,
        prepared.judge(prepared, first, second),
        draws,
        BY_NAME[name].status,
        f"real, {SEVERAL[name]}" if several else "real",
    )
    if prepared.law is None:
        return (plain,)
    measured = stated(Cost.of(loss_at(*prepared.law(prepared, first, second))))[0]
    return plain, replace(plain, measured=measured, how=f"{plain.how}, known shape")


def attack_published(name: str, *, seed: str) -> tuple[Finding]:
    """Run a refuted calibration on the pair of its witness.

    Raises: KeyError for a name that is not refuted.
    """
    witness = WITNESSES[name]
    measured = witness.measured(public_generator(seed, name))
    status, relation = BY_NAME[name].status, witness.neighbours.value
    return (Finding(name, relation, witness.claimed, 0.0, measured, witness.draws, status, "published"),)


def attack_law(name: str, neighbours: Neighbours, dimension: int, *, draws: int, seed: str) -> tuple[Finding]:
    """Attack the simulated law of a mechanism's noise at some dimension."""
    generator = public_generator(seed, f"{name} {neighbours.value} {dimension}")
    claimed, delta, measured = simulate(name, neighbours, dimension, draws=draws, rng=generator)
    how = f"law, P = {dimension}"
    return (Finding(name, neighbours.value, claimed, delta, measured, draws, BY_NAME[name].status, how),)


@dataclass(frozen=True, slots=True)
class Step:
    """One attack that is still to run, and what it is called."""

    name: str
    run: Callable[[], tuple[Finding, ...]]


def steps(*, draws: int, bulk_draws: int, noise: Noise) -> Iterator[Step]:
    """Attacks on every mechanism of the registry: through the door, on the laws of the noise, on published samplers."""
    seed = fresh_seed()
    for entry, relation in targets():
        for several in (False, True) if entry.name in SEVERAL else (False,):
            name = f"{entry.name}, {SEVERAL[entry.name]}" if several else entry.name
            run = partial(attack, entry.name, relation, draws=draws, noise=noise, several=several)
            yield Step(name, run)
        for p in DIMENSIONS if entry.name in SIMULATED else ():
            simulated = partial(attack_law, entry.name, relation, p, draws=bulk_draws, seed=seed)
            yield Step(f"{entry.name} at dimension {p}", simulated)
    for entry in ENTRIES:
        if entry.status is Status.REFUTED:
            yield Step(entry.name, partial(attack_published, entry.name, seed=seed))
