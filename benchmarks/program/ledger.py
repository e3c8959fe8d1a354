"""Time to open and verify a ledger of many entries, to reserve, and to spend.

    python -m benchmarks.program.ledger [--events 10000] [--url postgresql://...]

Without a URL the ledger is a file in a temporary folder. Entries are written by the ledger's own
durable transactions, so the time to write them is measured as well.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from dpcore.accounting import Cap, Epsilon
from dpcore.measure import PrivateGram, measure_gram
from dpcore.mechanisms.wishart import WISHART_DIFFERENCE
from dpcore.noise.sources import SystemNoise
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours
from tasks.keys.signing import SigningKey
from tasks.ledger.releases import ReserveRequest
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger

LAYOUT = GramLayout(2, 1, Fraction(1, 2))
EVENT = WISHART_DIFFERENCE.calibrate(LAYOUT, Neighbours.REPLACE_ONE, Epsilon(Fraction(1, 10)))
SAMPLES = 50


def main() -> None:
    """Fill a ledger and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--url", help="an empty PostgreSQL database")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address: Path | str = options.url or Path(folder) / "ledger.db"
        key = SigningKey.fresh()
        with closing(Ledger.open(address, key)) as ledger:
            print(f"fill          {_fill(ledger, options.events):8.2f} s for {options.events} entries")
        with closing(Ledger.open(address, key)) as ledger:
            seconds, state = _timed(ledger.state)
            print(f"open, verify  {seconds:8.2f} s for {state.head.seq} entries and signatures")
            entries = ledger.entries()
            seconds, _ = _timed(lambda: LedgerState.replay(entries))
            print(f"  of it replay{seconds:8.2f} s")
            for name, figures in _transactions(ledger).items():
                median, worst = 1000 * statistics.median(figures), 1000 * max(figures)
                print(f"{name:<14}{median:8.2f} ms median, {worst:.2f} ms worst of {len(figures)}")


def _fill(ledger: Ledger, events: int) -> float:
    """Fill the ledger with published releases of three entries each, and one more reservation if needed."""
    cap = Cap(Fraction(10**6), Fraction(0), Fraction(1))
    start = time.perf_counter()
    ledger.ensure_cap("people", cap, {"neighbours": "replace-one", "unit": "row"})  # two entries with the key's
    released = measure_gram(PrivateGram(GramSum(LAYOUT)), EVENT, SystemNoise())
    for number in range((events - 2) // 3):
        release_id = ledger.reserve(_request(number)).release_id
        ledger.spend(release_id, "moments", released)
        ledger.publish(release_id, bundle_digest="b" * 64, flow_run_id="run")
    for number in range((events - 2) % 3):
        ledger.reserve(_request(10**6 + number))
    return time.perf_counter() - start


def _transactions(ledger: Ledger) -> dict[str, list[float]]:
    released = measure_gram(PrivateGram(GramSum(LAYOUT)), EVENT, SystemNoise())
    figures: dict[str, list[float]] = {"reserve": [], "spend": [], "publish": [], "state": []}
    for number in range(2 * 10**6, 2 * 10**6 + SAMPLES):
        seconds, release = _timed(partial(ledger.reserve, _request(number)))
        figures["reserve"].append(seconds)
        figures["spend"].append(_timed(partial(ledger.spend, release.release_id, "moments", released))[0])
        publish = partial(ledger.publish, release.release_id, bundle_digest="b" * 64, flow_run_id="run")
        figures["publish"].append(_timed(publish)[0])
        figures["state"].append(_timed(ledger.state)[0])
    return figures


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _request(number: int) -> ReserveRequest:
    return ReserveRequest(
        name="visits",
        period=f"{number:07d}",
        population="people",
        events={"moments": EVENT},
        stated={"epsilon": 0.1, "delta": 0.0},
        spec_digest="d" * 64,
        seeds={"projection": "1", "sampling": "2"},
        flow_run_id="run",
    )


if __name__ == "__main__":
    main()
