"""Small real things for the stores' tests: events, measurements, requests, ledger entries.

It is a module of its own so that other processes can import what they run.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpcore.accounting import Cap, Epsilon
from dpcore.errors import BudgetExceededError, RefusedError
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.registry import cost_of
from dpcore.mechanisms.wishart import WISHART_DIFFERENCE
from dpcore.noise.sources import SeededNoise, SystemNoise
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours
from tasks.keys.signing import PublicKey, signing_key
from tasks.ledger.entries.bodies import Spend, body_to_json
from tasks.ledger.entries.costs import cost_to_json
from tasks.ledger.entries.entry import Entry
from tasks.ledger.releases import ReserveRequest
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.workspace.folders import Workspace

POPULATION = "people"
BASIS = {"neighbours": "replace-one", "unit": "row"}
LAYOUT = GramLayout(2, 1, Fraction(1, 2))


def cap(epsilon: str = "1.2", *, delta: str = "0", delta_num: str = "1/1000000000") -> Cap:
    return Cap(Fraction(epsilon), Fraction(delta), Fraction(delta_num))


def event(epsilon: str = "0.1", *, blocks: int = 1) -> GramEvent:
    """An event whose cost is exactly that epsilon."""
    layout = replace(LAYOUT, blocks=blocks)
    return WISHART_DIFFERENCE.calibrate(layout, Neighbours.REPLACE_ONE, Epsilon(Fraction(epsilon)))


def released(epsilon: str = "0.1", *, seed: int | None = None) -> Released:
    """A measurement of no rows at all: nothing but noise."""
    noise = SystemNoise() if seed is None else SeededNoise(seed)
    return measure_gram(PrivateGram(GramSum(LAYOUT)), event(epsilon), noise)


def request(period: str = "2026-01", epsilon: str = "0.1", **changes: Any) -> ReserveRequest:
    facts: dict[str, Any] = {
        "name": "visits",
        "period": period,
        "population": POPULATION,
        "events": {"moments": event(epsilon)},
        "stated": {"epsilon": float(epsilon), "delta": 0.0},
        "spec_digest": "d" * 64,
        "seeds": {"projection": "1", "sampling": "2"},
        "flow_run_id": "run",
    }
    return ReserveRequest(**(facts | changes))


def facts_of(entry: Entry) -> dict[str, Any]:
    """The body of an entry as the JSON object that it is."""
    facts: dict[str, Any] = json.loads(entry.body)
    return facts


def unreserved(name: str, period: str) -> dict[str, Any]:
    """What a refusal says of the release that was not reserved."""
    return {"name": name, "period": period, "stated": {"epsilon": 0.1, "delta": 0.0}}


@dataclass(frozen=True)
class Place:
    """Where a ledger is, and the folder of the key that signs it."""

    address: Path | str
    keys: Path
    anchors: tuple[PublicKey, ...] = ()

    def open(self, **options: Any) -> Ledger:
        """The ledger for writing."""
        return Ledger.open(self.address, signing_key(self.keys), anchors=self.anchors, **options)

    def read(self) -> Ledger:
        """The ledger for reading."""
        return Ledger.open_to_read(self.address)


@contextmanager
def opened(place: Path | Place) -> Iterator[Ledger]:
    """A ledger that is closed in the end; a file's key lies beside it."""
    ledger = (place if isinstance(place, Place) else Place(place, place.parent)).open()
    try:
        yield ledger
    finally:
        ledger.close()


class Chain:
    """A chain of entries, legal or not: nothing but the hashes is looked after."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, kind: str, release_id: str = "", body: dict[str, Any] | None = None, **changes: str) -> Chain:
        head = self.entries[-1] if self.entries else None
        facts = {"at": "2026-01-01T00:00:00.000000Z", "population": POPULATION} | changes
        self.entries.append(Entry.after(head, kind=kind, release_id=release_id, body=body or {}, **facts))
        return self

    def cap(self, epsilon: str = "1.2", *, reason: str | None = None, basis: dict[str, str] | None = None) -> Chain:
        figures = {"epsilon": str(Fraction(epsilon)), "delta": "0", "delta_num": "0"}
        return self.add("cap", body={**figures, "basis": basis or BASIS, "reason": reason})

    def reserve(self, release_id: str = "a", epsilons: dict[str, str] | None = None, **changes: Any) -> Chain:
        facts = body_to_json(request().reservation(len(self.entries)))
        measurements = {name: measurement(epsilon) for name, epsilon in (epsilons or {"moments": "0.5"}).items()}
        return self.add("reserve", release_id, facts | {"measurements": measurements} | changes)

    def spend(self, release_id: str = "a", name: str = "moments", epsilon: str = "0.5") -> Chain:
        return self.add("spend", release_id, spend_body(name, epsilon))

    def fail(self, release_id: str = "a", status: str = "failed") -> Chain:
        return self.add("fail", release_id, {"status": status, "stage": "sample"})

    def publish(self, release_id: str = "a") -> Chain:
        return self.add("publish", release_id, {"bundle_digest": "b" * 64, "flow_run_id": "run"})

    def wait(self, release_id: str = "a", digest: str = "b" * 64) -> Chain:
        return self.add("await", release_id, {"bundle_digest": digest, "flow_run_id": "run"})

    def approve(
        self, release_id: str = "a", digest: str = "b" * 64, who: str = "steward", reason: str = "looked"
    ) -> Chain:
        return self.add("approve", release_id, {"bundle_digest": digest, "who": who, "reason": reason})

    def refuse(self, release_id: str = "a", who: str | None = "steward", reason: str = "odd", rule: str = "x") -> Chain:
        return self.add("refuse", release_id, {"rule": rule, "reason": reason, "who": who, "flow_run_id": None})

    def retract(self, release_id: str = "a", who: str = "steward", reason: str = "erasure") -> Chain:
        return self.add("retract", release_id, {"who": who, "reason": reason})

    def void(self, release_id: str = "a") -> Chain:
        return self.add("void", release_id, {"reason": "gone"})


def spend_body(name: str = "moments", epsilon: str = "0.5", **changes: int) -> dict[str, Any]:
    """A spend of a measurement that nobody stored."""
    return {"measurement": name, **measurement(epsilon, **changes), "seeded": False, "digest": "e" * 64}


def measurement(epsilon: str, *, blocks: int = 1) -> dict[str, Any]:
    """A measurement as a reservation or a spend states it."""
    measured = event(epsilon, blocks=blocks)
    return {"event": measured.as_json(), "cost": cost_to_json(cost_of(measured))}


def with_a_reservation(path: Path) -> Path:
    """Create a ledger file that holds a large cap and a reservation."""
    with opened(path) as ledger:
        ledger.ensure_cap(POPULATION, cap("1000"), BASIS)
        ledger.reserve(request())
    return path


def entries_of(path: Path) -> list[Entry]:
    """All entries of a ledger file, which can be replayed."""
    with closing(Ledger.open_to_read(path)) as ledger:
        LedgerState.replay(ledger.entries())
        return list(ledger.entries())


# ---------------------------------------------------------------- what other processes run


def race_to_reserve(place: Place, period: str, barrier: Any, answers: Any) -> None:
    """Wait for the others, reserve, and say how it went."""
    with opened(place) as ledger:
        barrier.wait(60)
        try:
            answers.put(ledger.reserve(request(period)).release_id)
        except BudgetExceededError:
            answers.put("refused")


def race_to_spend(place: Place, period: str, barrier: Any, answers: Any) -> None:
    """Draw, wait for the others, reserve and spend; say what is the measurement."""
    drawn = released()
    with opened(place) as ledger:
        barrier.wait(60)
        release_id = ledger.reserve(request(period)).release_id
        answers.put((release_id, drawn.digest(), ledger.spend(release_id, "moments", drawn).digest()))


def die_inside_the_spend(place: Place, release_id: str) -> None:
    """End like a crash after both rows are written and before they are committed."""
    ledger, drawn = place.open(), released()
    with ledger._writing() as transaction:
        cost, digest = cost_of(drawn.event), drawn.digest()
        body = Spend(measurement="moments", event=drawn.event.as_json(), cost=cost, seeded=False, digest=digest)
        transaction.append(body, POPULATION, release_id)
        transaction.store(release_id, "moments", drawn)
        os._exit(9)


def leave_rows_in_scratch(root: Path, inside: Any) -> None:
    """Write to scratch, say so, and stay until the process is ended."""
    with Workspace(root).scratch() as folder:
        (folder / "points.npy").write_bytes(b"rows")
        inside.set()
        threading.Event().wait()


def hold_the_lock(root: Path, name: str, inside: Any, leave: Any) -> None:
    """Take a workspace's lock, say so, and keep it until asked to leave or ended."""
    with Workspace(root).exclusive(name):
        inside.set()
        leave.wait()


def hold_a_name(place: Place, name: str, inside: Any, leave: Any) -> None:
    """Take a name's lock on the ledger, say so, and keep it until asked to leave or ended."""
    with opened(place) as ledger, ledger.exclusive(name):
        inside.set()
        leave.wait()


def fill_the_disk(path: Path, answers: Any) -> None:
    """Reserve until the file may not grow any more; say how that was told, and how many succeeded before."""
    import resource

    written = 0
    with opened(path) as ledger:
        room = path.stat().st_size + 3 * 4096
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        try:
            for month in range(500):
                ledger.reserve(request(f"{2000 + month}-01"))
                written += 1
        except RefusedError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            answers.put((error.rule, json.dumps(error.as_json()), written))


def reserve_as_nobody(path: Path, answers: Any) -> None:
    """Try to reserve where this process may read but not write; root becomes somebody else for it."""
    key, wanted = signing_key(path.parent), request("2026-02")
    with closing(Ledger.open_to_read(path)) as ledger:
        ledger.state()  # loads what Python's own folder may hide from others
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    try:
        with closing(Ledger.open(path, key)) as ledger:
            answers.put(ledger.reserve(wanted).release_id)
    except RefusedError as error:
        answers.put(error.rule)


def append_many(path: Path, word: str, barrier: Any) -> None:
    """Append long lines to a log, at the same time as others do."""
    from tasks.lineage.events import append_line  # slow to load, and the racers above do without

    barrier.wait()
    for number in range(200):
        append_line(path, json.dumps({"word": word, "number": number, "filler": word * 3000}))
