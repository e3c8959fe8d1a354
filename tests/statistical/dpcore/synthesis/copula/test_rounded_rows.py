"""Rounded rows over many seeds: every row of groups is drawn with the probability that the law gives it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from support.dpcore.samplers import generator
from support.dpcore.table_laws import drawn_rows, exact_shares, table_law

LAW = table_law([[0.5, 0.3, 0.19, 0.01], [0.6, 0.399, 0.001], [0.7, 0.2, 0.1, 0.0]], [0.8, 0.2])
SIGMAS = float(norm.isf(1e-9 / 2))


@pytest.mark.parametrize(("rows", "draws"), [(5, 3000), (120, 1500)])
def test_rows_have_the_laws_probabilities_over_many_draws(rows: int, draws: int) -> None:
    """Every cell of the whole table is compared, down to those that few draws contain.

    A cell varies no more than a count of independent rows, whose tail Bernstein's inequality bounds.
    """
    classes = np.repeat([0, 1], [rows - rows // 5, rows // 5])
    found = np.zeros((2, *LAW.sizes))
    for seed in range(draws):
        groups = drawn_rows(LAW, classes, generator(seed)).groups
        np.add.at(found, (classes, *groups.T), 1)
    due = np.array([draws * count * exact_shares(LAW, k) for k, count in enumerate(np.bincount(classes))])
    assert not found[due == 0].any()
    assert np.all(np.abs(found - due) <= SIGMAS * np.sqrt(due) + SIGMAS**2 / 3)
    for axes in ((0, 3), (1, 2), (0, 1)):
        table, expected = found.sum(axis=axes), due.sum(axis=axes)
        assert np.all(np.abs(table - expected) <= SIGMAS * np.sqrt(expected) + SIGMAS**2 / 3)
