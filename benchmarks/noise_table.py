"""The noise of every mechanism at the same epsilon, from real draws, compared with reference figures.

    python -m benchmarks.noise_table [--speed]

Mean Frobenius and operator norms of the noise on a p x p sum of x xᵀ with |x| at most 1:
replace-one neighbours, epsilon 1, delta 1e-6 if the mechanism needs one. The reference
figures are an independent simulation in plain floating point; the exit code is 1 if a
mechanism differs from them by more than 5 %. `--speed` times single draws on one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dpcore.accounting import Budget, Epsilon, Rho, rho_of_epsilon
from dpcore.measure import PrivateGram, measure_gram
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SystemNoise
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours

REFERENCE: dict[str, dict[int, tuple[float, float | None]]] = {
    "laplace": {2: (5.2, 4.7), 4: (19, 15), 8: (70, 44), 16: (271, 129), 32: (1054, 366)},
    "wishart-difference": {2: (5.1, 4.8), 4: (13, 11), 8: (35, 24), 16: (96, 50), 32: (264, 102)},
    "wishart-difference-trace": {2: (3.7, 3.2), 4: (12, 9.1), 8: (34, 22), 16: (95, 48), 32: (263, 102)},
    "nuclear-k-norm": {2: (3.4, None), 4: (11.0, None)},
    "gaussian": {2: (9.5, 8.6), 4: (18, 14), 8: (36, 22), 16: (69, 32), 32: (137, 46)},
}
"""Frobenius norm and, if known, operator norm by mechanism and dimension."""

DRAWS = {2: 6000, 4: 2500, 8: 800, 16: 250, 32: 80}
SPEED = (("wishart-difference-trace", 100), ("gaussian", 100), ("wishart-difference-trace", 784))
MOST = 0.05


def calibrated_event(name: str, p: int) -> GramEvent:
    """Return the event at epsilon 1 (delta 1e-6 for Gaussian noise)."""
    budget: Budget = Rho(rho_of_epsilon(1.0, delta=1e-6)) if name == "gaussian" else Epsilon(Fraction(1))
    return gram_mechanism(name).calibrate(GramLayout(p, 1, Fraction(1, 2)), Neighbours.REPLACE_ONE, budget)


def draw_noise(event: GramEvent, draws: int) -> NDArray[np.float64]:
    """Draw the noise that is released for an empty table, scaled to records of squared norm 1."""
    empty = PrivateGram(GramSum(event.layout))
    matrices = [measure_gram(empty, event, SystemNoise()).matrices()[0] for _ in range(draws)]
    return np.array(matrices) / float(event.layout.squared_norm)


def compare(console: Console) -> bool:
    """Print the table and return whether every figure is within 5 % of its reference."""
    table = Table("mechanism", "p", "Frobenius", "reference", "operator", "reference", "largest gap")
    good = True
    for name, by_dimension in REFERENCE.items():
        for p, reference in by_dimension.items():
            noise = draw_noise(calibrated_event(name, p), DRAWS[p])
            norms = [float(np.linalg.norm(noise, ord=order, axis=(1, 2)).mean()) for order in ("fro", 2)]
            gap = max(abs(ours / theirs - 1) for ours, theirs in zip(norms, reference, strict=True) if theirs)
            good = good and gap <= MOST
            cells = [f"{x:.3g}" if x else "" for pair in zip(norms, reference, strict=True) for x in pair]
            table.add_row(name, str(p), *cells, f"{gap:.1%}", style=None if gap <= MOST else "red")
    console.print(table)
    return good


def time_draws(console: Console) -> None:
    """Print the time of one draw."""
    table = Table("mechanism", "p", "seconds a draw")
    for name, p in SPEED:
        event = calibrated_event(name, p)
        start = time.perf_counter()
        draw_noise(event, 1)
        table.add_row(name, str(p), f"{time.perf_counter() - start:.2f}")
    console.print(table)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="time single draws instead")
    console = Console(width=100)
    if parser.parse_args().speed:
        time_draws(console)
        return 0
    return 0 if compare(console) else 1


if __name__ == "__main__":
    sys.exit(main())
