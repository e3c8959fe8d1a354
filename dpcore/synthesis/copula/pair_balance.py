"""Exchange of groups between rows until the tables of a column with all earlier columns are about as expected."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcore.records.schema import Codes
from dpcore.synthesis.copula.rows_so_far import RowsSoFar


def balance_pairs(
    groups: Codes, chances: NDArray[np.int64], order: Codes, rows: RowsSoFar, generator: np.random.Generator
) -> None:
    """Exchange groups between rows of a class, in place."""
