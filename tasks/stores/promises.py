"""What the lineage says of a measurement: its guarantee, its ledger entry, and the balance around that entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from openlineage.client.facet_v2 import RunFacet

from dpcore.errors import LedgerError
from dpcore.registry import BY_NAME
from tasks.stores.balances import History, replay
from tasks.stores.ledger_state import Entry
from tasks.stores.lineage import DpGuaranteeFacet, DpSpendFacet, Stage
from tasks.stores.run import PlannedRelease, ReleaseRun

SPEND, GUARANTEE = "dp_spend", "dp_guarantee"


@contextmanager
def promised(run: ReleaseRun, release_id: str, measurements: Sequence[str], stages: Sequence[Stage]) -> Iterator[None]:
    """A stage that makes these measurements: each that was spent is on the lineage, also where what follows fails.

    Else a ledger that is put back to where it was before a failure would not be missed by anything.
    """

    def name_spends() -> None:
        entries = run.ledger().entries()
        for measurement in measurements:
            promise(run, entries, release_id, measurement, stages)

    try:
        yield
    except BaseException:
        with suppress(LedgerError):  # the failure itself is what is told
            name_spends()
        raise
    name_spends()


def promise(
    run: ReleaseRun, entries: Sequence[Entry], release_id: str, measurement: str, stages: Iterable[Stage]
) -> None:
    """Put a measurement's guarantee and spend on the lineage; nothing where nothing was measured.

    A stage that measures more than once has the later ones under their own names, such as `dp_spend_mean`.
    """
    state, history = replay(entries)
    spent = state.releases[release_id].spends.get(measurement)
    if spent is None:
        return
    for stage in stages:
        ending = f"_{measurement}" if SPEND in stage.facets else ""
        stage.facets |= promise_facets(run, history, measurement, spent, ending)


def promise_facets(
    run: PlannedRelease, history: History, measurement: str, spent: Entry, ending: str
) -> dict[str, RunFacet]:
    """What an event tells of a measurement, under names with this ending."""
    return {f"{GUARANTEE}{ending}": _guarantee(run, measurement), f"{SPEND}{ending}": _spend(history, spent)}


def _guarantee(run: PlannedRelease, measurement: str) -> DpGuaranteeFacet:
    entry = BY_NAME[run.plan.events[measurement].mechanism]
    return DpGuaranteeFacet(
        unit=run.spec.protects,
        neighbours=run.spec.neighbours.value,
        epsilon=run.stated["epsilon"],
        delta=run.stated["delta"],
        deltaNum=float(run.plan.cost.delta_num),
        mechanism=entry.name,
        proof=f"{entry.status.value}: {entry.reason}",
    )


def _spend(history: History, spent: Entry) -> DpSpendFacet:
    """The balance just before and just after the entry, whenever it is told: a resumed run tells the same."""
    before, after = (history.balance(spent.population, seq).as_json() for seq in (spent.seq - 1, spent.seq))
    return DpSpendFacet(ledgerEntry=spent.seq, ledgerHash=spent.hash, before=before, after=after)
