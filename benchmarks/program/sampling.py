"""Time to draw synthetic rows, rounded and independent, by one thread: a million rows of each model.

    python -m benchmarks.program.sampling [--rows N] [--dimensions P] [--columns C]

The models are ten Gaussians of 64 dimensions, fitted to noise alone, and a copula of 13 invented columns that depend on
each other. Chunks are drawn, decoded and dropped, as the release flow does after writing them, so memory does not grow
with rows. CPU seconds are those of drawing, without the fit.
"""

from __future__ import annotations

import argparse
import resource
import time
from fractions import Fraction

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.common import show
from dpcore.accounting import Rho
from dpcore.estimators.gaussian_copula import measure_copula
from dpcore.measure import PrivateGram, measure_gram
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import no_projection
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SystemNoise, draw_seed
from dpcore.planning.planner import make_plan
from dpcore.planning.request import COPULA, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import (
    Cells,
    Column,
    IntervalColumn,
    Kind,
    Neighbours,
    NominalColumn,
    PrivacyUnit,
    RecordSchema,
    Role,
)
from dpcore.synthesis.copula.generator import Copula
from dpcore.synthesis.generators import SAMPLINGS, ClassGaussians, Generator, synthetic_rows

CLASSES = 10
MEASURED_ROWS = 40_000
LEVELS = tuple("abcdefgh")


def gaussians(dimensions: int) -> tuple[Encoding, Generator]:
    """Return Gaussians that are fitted to noise alone, which take as long to draw from as any other."""
    columns = tuple(IntervalColumn(name=f"x{i}", kind=Kind.NUMERIC, lower=-1.0, upper=1.0) for i in range(dimensions))
    label = NominalColumn(
        name="label", kind=Kind.CATEGORICAL, levels=tuple(str(k) for k in range(CLASSES)), role=Role.LABEL
    )
    encoding = Encoding(RecordSchema((*columns, label)))
    layout = GramLayout(dimensions + 1, CLASSES, Fraction(1, 2))
    event = gram_mechanism("gaussian").calibrate(layout, Neighbours.REPLACE_ONE, Rho(Fraction(1, 10)))
    released = measure_gram(PrivateGram(GramSum(layout)), event, SystemNoise())
    return encoding, ClassGaussians(NoisyMoments.from_released(released), no_projection(encoding))


def copula(columns: int) -> tuple[Encoding, Copula]:
    """Return the copula of an invented table: numbers and categories that share a cause, and a label."""
    schema = RecordSchema(
        (
            *(_invented_column(i) for i in range(columns - 1)),
            NominalColumn(name="label", kind=Kind.BOOLEAN, levels=(False, True), role=Role.LABEL),
        )
    )
    request = PlanRequest(
        schema=schema,
        neighbours=Neighbours.ADD_REMOVE,
        unit=PrivacyUnit(),
        epsilon=Fraction(1),
        delta=Fraction(1, 10**5),
        expected_rows=MEASURED_ROWS,
        projection="none",
        generator=COPULA,
    )
    return Encoding(schema), measure_copula(_invented_cells(columns), make_plan(request))


def _invented_column(index: int) -> Column:
    if index % 2:
        return NominalColumn(name=f"x{index}", kind=Kind.CATEGORICAL, levels=LEVELS)
    return IntervalColumn(name=f"x{index}", kind=Kind.NUMERIC, lower=-4.0, upper=4.0)


def _invented_cells(columns: int) -> Cells:
    dice = np.random.default_rng(columns)
    cause = dice.standard_normal(MEASURED_ROWS)
    cells: Cells = {"label": (cause > 1).astype(np.int64)}
    for index in range(columns - 1):
        number = (cause + dice.standard_normal(MEASURED_ROWS)) / 1.5
        cells[f"x{index}"] = np.clip(np.floor(number * 2) + 4, 0, 7).astype(np.int64) if index % 2 else number
    return cells


def seconds_of(encoding: Encoding, generator: Generator, rows: int, sampling: str) -> float:
    """Return the CPU seconds of drawing and decoding this many rows."""
    drawn = synthetic_rows(encoding, generator, rows, draw_seed(), sampling)
    start = time.process_time()
    for index in range(drawn.chunks):
        drawn.chunk(index)
    return time.process_time() - start


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--columns", type=int, default=13)
    asked = parser.parse_args()
    models: dict[str, tuple[Encoding, Generator]] = {
        f"{CLASSES} Gaussians of {asked.dimensions} dimensions": gaussians(asked.dimensions),
        f"copula of {asked.columns} columns": copula(asked.columns),
    }
    lines = []
    with threadpool_limits(1):
        for name, model in models.items():
            for sampling in SAMPLINGS:
                seconds = seconds_of(*model, asked.rows, sampling)
                lines.append((name, sampling, f"{seconds:.1f}", f"{asked.rows / seconds:,.0f}"))
    show(f"{asked.rows:,} rows, one thread", ("model", "sampling", "CPU seconds", "rows per second"), lines)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Console(width=100).print(f"peak memory {peak:.0f} MB")


if __name__ == "__main__":
    main()
