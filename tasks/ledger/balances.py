"""What a population's budget was at any time: the ledger replayed, with every step kept."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.populations import Population
from tasks.ledger.state import LedgerState


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
