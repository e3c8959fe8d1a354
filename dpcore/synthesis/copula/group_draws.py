"""Draws of the groups of a column for all rows of a chunk together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpcore.records.schema import Codes, Floats
from dpcore.synthesis.copula.pair_balance import PairBalance, even_blocks
from dpcore.synthesis.copula.rows_so_far import RowsSoFar, Singles
from dpcore.synthesis.copula.whole_chances import chance_edges
from dpcore.synthesis.even_points import new_words

LEADING = 4
"""How many earlier columns order the rows of a chunk: those on which the column depends most."""

BALANCED = 24
"""With how many earlier columns a column is balanced: in wide tables those on which it depends most."""

MOST_KEYS = 1 << 38
"""The largest number of different keys that an order can tell apart."""


def draw_groups(
    rows: RowsSoFar,
    scores: Singles,
    nearest: Sequence[int],
    generator: np.random.Generator,
    allowed: NDArray[np.bool_] | None = None,
) -> Codes:
    """Draw the next column's groups, add them to the rows, and return the order along which they were spread.

    Every row's probabilities are the softmax of its scores, of shape (rows, groups), among the groups that are
    allowed to it. `nearest` are the earlier columns, those first on which this one depends most. The order puts rows
    together that are alike in class and in the first of them; its even blocks are drawn one after the other
    (`pair_balance`).
    """
    order = order_of_rows(rows, nearest[:LEADING], generator)
    blocks = even_blocks(len(order))
    sequence = order[np.concatenate(blocks)]
    mass = masses_of(scores[sequence])
    if allowed is not None:
        mass *= allowed[sequence].T
    balanced = nearest[:BALANCED]
    balance = PairBalance(rows.known(balanced)[sequence], chance_edges(mass), rows.class_count, len(balanced))
    groups, start = np.empty_like(sequence), 0
    for block in blocks:
        mine = slice(start, start + len(block))
        groups[sequence[mine]] = balance.draw(mine, new_words(len(block), generator))
        start += len(block)
    rows.add(groups)
    return order


def by_dependence(slopes: Floats, shares: Sequence[Floats]) -> list[int]:
    """Return the earlier columns by the spread of their slopes over their groups' shares, the largest first.

    `slopes` has a row for each group of the earlier columns.
    """
    spreads, start = [], 0
    for share in shares:
        part = slopes[start : start + len(share)]
        spreads.append(float((share @ (part - share @ part) ** 2).sum()))
        start += len(share)
    return sorted(range(len(spreads)), key=lambda column: (-spreads[column], column))


def order_of_rows(rows: RowsSoFar, leading: Sequence[int], generator: np.random.Generator) -> Codes:
    """Return the rows in an order in which neighbours are alike; rows that are equal in it come in random order."""
    keys, size = rows.classes.copy(), int(rows.classes[-1]) + 1
    for column in leading:
        if size * rows.sizes[column] > MOST_KEYS:
            break
        keys = keys * rows.sizes[column] + rows.groups[:, column]
        size *= rows.sizes[column]
    lots, bits = generator.permutation(len(keys)), len(keys).bit_length()
    back = np.empty_like(lots)
    back[lots] = np.arange(len(lots))
    keys = (keys << bits) | lots  # all different, so that every way of sorting gives the same order
    keys.sort()
    found: Codes = back[keys & ((1 << bits) - 1)]
    return found


def masses_of(scores: Singles) -> Floats:
    """Return masses of shape (groups, rows) in proportion to the softmax of scores of shape (rows, groups)."""
    mass = np.ascontiguousarray(scores.T, dtype=np.float64)  # few long rows are faster than many short ones
    mass -= mass.max(axis=0)
    found: Floats = np.exp(mass, out=mass)
    return found
