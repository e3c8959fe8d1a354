"""Time to draw synthetic points: a million of 64 dimensions in ten classes.

    python -m benchmarks.program.sampling [--rows N] [--dimensions P]

Chunks are drawn and dropped, as the release flow does after writing them, so memory does not grow with rows.
"""

from __future__ import annotations

import argparse
import resource
import time
from fractions import Fraction

from rich.console import Console

from dpcore.accounting import Rho
from dpcore.measure import PrivateGram, measure_gram
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import no_projection
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SystemNoise, bulk_generator, draw_seed
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, RecordSchema
from dpcore.synthesis.generators import ROWS_AT_ONCE, ClassGaussians

CLASSES = 10


def noisy_model(dimensions: int) -> ClassGaussians:
    """Return a generator fitted to noise alone, which takes as long to sample as any other."""
    columns = (IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(dimensions))
    encoding = Encoding(RecordSchema(tuple(columns)))
    layout = GramLayout(dimensions + 1, CLASSES, Fraction(1, 2))
    event = gram_mechanism("gaussian").calibrate(layout, Neighbours.REPLACE_ONE, Rho(Fraction(1, 10)))
    released = measure_gram(PrivateGram(GramSum(layout)), event, SystemNoise())
    return ClassGaussians(NoisyMoments.from_released(released), no_projection(encoding))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=64)
    asked = parser.parse_args()
    model = noisy_model(asked.dimensions)
    start = time.perf_counter()
    seed = draw_seed()
    law, drawn = model.law(seed), 0
    while drawn < asked.rows:
        rows = min(ROWS_AT_ONCE, asked.rows - drawn)
        drawn += len(law.draw(rows, bulk_generator(seed, f"rows {drawn}"))[0])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Console(width=100).print(
        f"{drawn:,} points of {asked.dimensions} dimensions: {seconds:.1f} s, peak memory {peak:.0f} MB"
    )


if __name__ == "__main__":
    main()
