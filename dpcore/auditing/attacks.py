"""The best known attack on every mechanism of the registry: a worst pair of tables, an event, a bound.

Releasable mechanisms are attacked through the real door, `measure_gram` or
`measure_vector`; `dpcore.auditing.simulated_attacks` attacks the laws of their noise at more dimensions and with
more draws. Published calibrations are attacked by their witnesses. What an attack finds
is a lower bound on epsilon: it must not lie above what a proved mechanism claims, and must
lie above what a refuted one does.
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


def targets() -> list[tuple[MechanismEntry, Neighbours]]:
    """Every mechanism that draws noise, under every neighbour relation that it claims to hold for."""
    return [(entry, relation) for entry in ENTRIES if _draws_noise(entry) for relation in entry.neighbours]


def _draws_noise(entry: MechanismEntry) -> bool:
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
    """Run a refuted calibration on the pair of its counterexample.

    Raises: KeyError for a name that is not refuted.
    """
    counterexample = COUNTEREXAMPLES[name]
    measured = counterexample.measure(public_generator(seed, name))
    status, relation = BY_NAME[name].status, counterexample.neighbours.value
    return (Finding(name, relation, counterexample.claimed, 0.0, measured, counterexample.draws, status, "published"),)


def attack_law(name: str, neighbours: Neighbours, dimension: int, *, draws: int, seed: str) -> tuple[Finding]:
    """Attack the simulated law of a mechanism's noise at some dimension."""
    generator = public_generator(seed, f"{name} {neighbours.value} {dimension}")
    claimed, delta, measured = simulate(name, neighbours, dimension, draws=draws, rng=generator)
    how = f"law, P = {dimension}"
    return (Finding(name, neighbours.value, claimed, delta, measured, draws, BY_NAME[name].status, how),)


@dataclass(frozen=True, slots=True)
class PendingAttack:
    """One attack that is still to run, and what it is called."""

    name: str
    run: Callable[[], tuple[Finding, ...]]


def pending_attacks(*, draws: int, bulk_draws: int, noise: Noise) -> Iterator[PendingAttack]:
    """Attacks on every mechanism of the registry: through the door, on the laws of the noise, on published samplers."""
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
