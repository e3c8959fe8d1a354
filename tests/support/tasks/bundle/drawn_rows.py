"""Released rows and their table; importable by spawned processes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from dpcore.accounting import Rho
from dpcore.evaluation.table_summary import TableSummary
from dpcore.measure import exact_gram, measure_gram
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import no_projection
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Cells, IntervalColumn, Kind, Neighbours, NominalColumn, RecordSchema, Role
from dpcore.synthesis.generators import ClassGaussians, SyntheticRows, synthetic_rows
from tasks.bundle.released_tables import ReleasedTable
from tasks.bundle.staging import DATA
from tasks.bundle.synthetic_table import write_rows

SCHEMA = RecordSchema(
    (
        IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0, upper=120),
        IntervalColumn(name="visits", kind=Kind.INTEGER, lower=0, upper=50, missing_level=True),
        NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m", "x")),
        NominalColumn(name="ill", kind=Kind.BOOLEAN, levels=(False, True), role=Role.LABEL),
    )
)


def invented_rows(rows: int) -> SyntheticRows:
    """Synthetic rows after invented people, measured with next to no noise."""
    dice, encoding = np.random.Generator(np.random.PCG64(7)), Encoding(SCHEMA)
    people: Cells = {
        "age": dice.normal(50, 15, 3000),
        "visits": np.where(dice.random(3000) < 0.2, np.nan, dice.poisson(9, 3000)),
        "sex": dice.choice(3, 3000, p=[0.5, 0.4, 0.1]),
        "ill": dice.choice(2, 3000, p=[0.7, 0.3]),
    }
    layout = GramLayout(encoding.width + 1, SCHEMA.class_count, Fraction(1, 2))
    event = gram_mechanism("gaussian").calibrate(layout, Neighbours.REPLACE_ONE, Rho(Fraction(10**6)))
    everything = no_projection(encoding)
    released = measure_gram(exact_gram([(people, None)], encoding, layout, everything), event, SeededNoise(3))
    return synthetic_rows(encoding, ClassGaussians(NoisyMoments.from_released(released), everything), rows, "5eed")


def written(rows: SyntheticRows, target: Path, threads: int | None = None) -> TableSummary:
    summary = TableSummary(Encoding(SCHEMA))
    write_rows(rows, summary, ReleasedTable(DATA, SCHEMA), target, threads=threads)
    return summary
