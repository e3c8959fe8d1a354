"""What enforcing rules moved: the model's rows with the rules beside those that it would give without them.

Everything here is computed from rows drawn from the model, never from data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import CORRECT_RULES, CheckFailedError
from dpcore.records.rules.rule import broken_rows
from dpcore.records.schema import Cells, Column, IntervalColumn, NominalColumn, RecordSchema
from dpcore.synthesis.even_points import Chunk
from dpcore.synthesis.generators import SyntheticRows
from dpcore.synthesis.ruled_rows import RuledRows

DRAWS, LEAST_DRAWS = 16_384, 256
"""Rows drawn without the rules, and with them: fewer where few rows of the model obey."""

MOST_WORK = 1e10
"""The largest number of draws that a table may take: some hours."""

MOST_PROPOSALS = 1 << 21
"""About how many rows may be drawn to find those that obey."""


def rules_effect(ruled: SyntheticRows, plain: SyntheticRows, schema: RecordSchema) -> dict[str, Any]:
    """Return how many rows of the model without rules break each of them, and how far each column's marginal moved.

    `redrawn` is the share of rows that break a rule although they were drawn among what the rules leave, where the
    generator can, and that are therefore drawn again.

    The shift of a nominal column is the largest change of a level's share, that of an interval column the change of
    its mean as a share of the distance between its bounds, or of its share of missing cells if that is larger.

    Raises: CheckFailedError if the rules hold for too little of the model, or for too little to draw so many rows.
    """
    most = min(DRAWS, plain.chunk_rows)
    without, redrawn = _draw(plain, most), _share_redrawn(ruled, most, schema)
    rate = max(1 - redrawn, 1 / most)
    if ruled.rows > MOST_WORK * rate:
        raise CheckFailedError(
            f"the rules hold for {1 - redrawn:.1g} of the rows that are drawn, so that {ruled.rows:,} rows would take "
            f"more than {MOST_WORK:.0e} draws; ask for fewer rows, or use the copula, which draws within rules",
            hint=CORRECT_RULES,
        )
    with_rules = _draw(ruled, max(LEAST_DRAWS, min(most, int(MOST_PROPOSALS * (1 - redrawn)))))
    shifts = {c.name: _shift(with_rules[c.name], without[c.name], c) for c in schema.columns}
    return {
        "draws": most,
        "broken": float(broken_rows(schema.rules, without).mean()),
        "redrawn": redrawn,
        "rules": [{"rule": rule.words, "broken": float(rule.broken(without).mean())} for rule in schema.rules],
        "shifts": [{"name": name, "shift": shift} for name, shift in shifts.items()],
    }


def _share_redrawn(ruled: SyntheticRows, count: int, schema: RecordSchema) -> float:
    """The share of a first draw of rows that breaks a rule."""
    source = ruled.source.source if isinstance(ruled.source, RuledRows) else ruled.source
    return float(broken_rows(schema.rules, source.draw(Chunk(0, 0, count, ruled.seed, count)).cells).mean())


def _draw(rows: SyntheticRows, count: int) -> Cells:
    return rows.source.draw(Chunk(0, 0, count, rows.seed, count)).cells


def _shift(ruled: NDArray[np.generic], plain: NDArray[np.generic], column: Column) -> float:
    if isinstance(column, NominalColumn):
        count = column.level_count
        shares = [np.bincount(np.asarray(c, dtype=np.int64) % count, minlength=count) / len(c) for c in (ruled, plain)]
        return float(np.abs(shares[0] - shares[1]).max())
    assert isinstance(column, IntervalColumn)  # noqa: S101  the other kind
    missing = [float(np.isnan(cells.astype(np.float64)).mean()) for cells in (ruled, plain)]
    means = [_mean(cells, column) for cells in (ruled, plain)]
    return max(abs(missing[0] - missing[1]), abs(means[0] - means[1]) / (column.upper - column.lower))


def _mean(cells: NDArray[np.generic], column: IntervalColumn) -> float:
    """The mean of the present cells; the middle if there is none."""
    numbers = cells.astype(np.float64)
    present = numbers[~np.isnan(numbers)]
    return float(present.mean()) if len(present) else column.middle
