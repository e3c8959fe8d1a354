"""What a population's budget was at any time: the ledger replayed, with every step kept."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from operator import itemgetter
from typing import Protocol

from dpcore.accounting import Cost, Statement, population_balance
from tasks.ledger.entries.entry import Entry
from tasks.ledger.state import LedgerState, Population


class Composes(Protocol):
    """A function that turns costs into a statement."""

    def __call__(self, cost: Cost, *, delta: Fraction) -> Statement:
        """The statement of a cost at a delta."""


@dataclass(frozen=True, slots=True)
class History:
    """Every population's cap and tallies after each entry that moved them."""

    steps: dict[str, list[tuple[int, Population]]] = field(default_factory=dict)

    def at(self, population: str, seq: int) -> Population:
        """The cap and tallies after an entry.

        Raises: KeyError for a population that had no cap then.
        """
        steps = self.steps[population]
        place = bisect_right(steps, seq, key=itemgetter(0))
        if not place:
            raise KeyError(population)
        return steps[place - 1][1]

    def balance(self, population: str, seq: int, compose: Composes = population_balance) -> Statement:
        """What was spent of a population's budget after an entry, composed under the cap of that time."""
        known = self.at(population, seq)
        return compose(known.spent, delta=known.cap.delta)


def replay(entries: Iterable[Entry]) -> tuple[LedgerState, History]:
    """The state after all entries, and every population's way there.

    Raises: LedgerError at the first entry that does not follow from those before.
    """
    state, history = LedgerState(), History()
    for entry in entries:
        state.apply(entry)
        for name, population in state.populations.items():
            steps = history.steps.setdefault(name, [])
            if not steps or steps[-1][1] is not population:
                steps.append((entry.seq, population))
    return state, history
