"""The best known attack on every mechanism of the registry: a worst-case pair of tables, an event, a bound.

Releasable mechanisms are attacked through `measure_gram` or `measure_vector`, as releases call them, except the
noisy power method, whose whole transcript is attacked, of which a release shows only the end;
`dpcore.auditing.simulated_attacks` attacks simulated noise at more dimensions and with more draws.
Refuted calibrations are attacked on their counterexamples. An attack gives a lower bound on epsilon:
it must not exceed the claim of a proved mechanism, and must exceed that of a refuted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpcore.accounting import Cost
from dpcore.auditing.attack_table import ATTACKS, SEVERAL
from dpcore.auditing.distinguishers import ERROR
from dpcore.auditing.known_noise import loss_at
from dpcore.auditing.refuted import COUNTEREXAMPLES
from dpcore.auditing.simulated_attacks import DIMENSIONS, SIMULATED, claim_of, epsilon_and_delta, simulate
from dpcore.mechanisms.catalogue import BY_NAME, ENTRIES
from dpcore.mechanisms.entry import MechanismEntry, Status
from dpcore.noise.sources import Noise, draw_seed, public_generator
from dpcore.records.schema import Neighbours


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of an attack: `measured` is a lower bound on the epsilon of a mechanism that claims `claimed`.

    `how` names the attack: real draws, with or without knowledge of the shape of the noise; the simulated law of
    the noise; or a published sampler.
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
        """Whether the claim survived the attack."""
        return self.measured <= self.claimed

    @property
    def expected(self) -> str:
        """The expected outcome: a refuted claim is caught, every other claim holds."""
        return "caught" if self.status is Status.REFUTED else "holds"

    @property
    def ok(self) -> bool:
        """Whether the outcome agrees with the registry."""
        return self.holds is (self.expected == "holds")

    @property
    def verdict(self) -> str:
        """The outcome in one word, in capitals if it contradicts the registry."""
        return self.expected if self.ok else "BROKEN" if self.expected == "holds" else "ESCAPED"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON for record, ledger and command line."""
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
        """Return the finding of a stored JSON body."""
        names = ("mechanism", "neighbours", "claimed", "delta", "measured", "draws", "how")
        return Finding(**{name: body[name] for name in names}, status=Status(body["status"]))


def targets() -> list[tuple[MechanismEntry, Neighbours]]:
    """Return every mechanism that draws noise with every neighbour relation that it supports."""
    drawing = [entry for entry in ENTRIES if entry.mechanism is not None or entry.vector is not None]
    return [(entry, relation) for entry in drawing for relation in entry.neighbours]


def attack(
    name: str, neighbours: Neighbours, *, draws: int, noise: Noise, several: bool = False
) -> tuple[Finding, ...]:
    """Draw from the mechanism on both tables and bound its epsilon from below, in two ways.

    The first bound assumes no shape of the noise; for Laplace noise it assumes that the entries are independent.
    The second, for mechanisms that add noise of a known shape, estimates the scale from the draws and is far sharper.
    Guarantee: either finding of an honest mechanism exceeds its claim with probability at most `ERROR`.
    Raises: KeyError for a mechanism without an attack in the table.
    """
    prepared = ATTACKS[name](neighbours, several)
    claimed, delta = claim_of(prepared.event)
    first, second = (prepared.draw(table, draws, noise) for table in prepared.tables)
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
    measured = epsilon_and_delta(Cost.of(loss_at(*prepared.law(prepared, first, second))))[0]
    return plain, replace(plain, measured=measured, how=f"{plain.how}, known shape")


def attack_refuted(name: str, *, seed: str) -> tuple[Finding]:
    """Run a refuted calibration on the tables of its counterexample.

    Raises: KeyError for a name that is not refuted.
    """
    counterexample = COUNTEREXAMPLES[name]
    measured = counterexample.measure(public_generator(seed, name))
    status, relation = BY_NAME[name].status, counterexample.neighbours.value
    return (Finding(name, relation, counterexample.claimed, 0.0, measured, counterexample.draws, status, "published"),)


def attack_law(name: str, neighbours: Neighbours, dimension: int, *, draws: int, seed: str) -> tuple[Finding]:
    """Attack the simulated law of a mechanism's noise at a given dimension."""
    generator = public_generator(seed, f"{name} {neighbours.value} {dimension}")
    claimed, delta, measured = simulate(name, neighbours, dimension, draws=draws, rng=generator)
    how = f"law, P = {dimension}"
    return (Finding(name, neighbours.value, claimed, delta, measured, draws, BY_NAME[name].status, how),)


@dataclass(frozen=True, slots=True)
class PendingAttack:
    """An attack that has not run yet, and its name."""

    name: str
    run: Callable[[], tuple[Finding, ...]]


def pending_attacks(*, draws: int, bulk_draws: int, noise: Noise) -> Iterator[PendingAttack]:
    """Yield the attacks on every mechanism of the registry: on real draws, simulated noise and refuted samplers."""
    seed = draw_seed()
    for entry, relation in targets():
        for several in (False, True) if entry.name in SEVERAL else (False,):
            name = f"{entry.name}, {SEVERAL[entry.name]}" if several else entry.name
            run = partial(attack, entry.name, relation, draws=draws, noise=noise, several=several)
            yield PendingAttack(name, run)
        for p in DIMENSIONS if entry.name in SIMULATED else ():
            simulated = partial(attack_law, entry.name, relation, p, draws=bulk_draws, seed=seed)
            yield PendingAttack(f"{entry.name} at dimension {p}", simulated)
    for entry in ENTRIES:
        if entry.status is Status.REFUTED:
            yield PendingAttack(entry.name, partial(attack_refuted, entry.name, seed=seed))
