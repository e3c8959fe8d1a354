"""Statistical lower bounds on epsilon from an attacker's samples.

A bound above the claimed epsilon refutes the claim. A bound below it proves nothing, but
shows how much of the claim the attack could reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpcore.records.schema import Floats

Counts = NDArray[np.int64]

THRESHOLD_COUNT = 400
"""Number of thresholds tried in each tail of each sample, at geometrically spaced ranks."""


def lower_bound(*, hits: int, hits_neighbour: int, trials: int, delta: float = 0.0, error: float = 1e-6) -> float:
    """Return a lower bound on epsilon from how often an event happened on a table and on its neighbour.

    Guarantee: for an (epsilon, delta)-private mechanism the bound exceeds epsilon with
    probability at most `error` (Clopper-Pearson, half of it for either table).
    Raises: ValueError for counts that do not fit the trials, or an impossible delta or error.
    """
    if not (0 <= hits <= trials and 0 <= hits_neighbour <= trials and trials > 0):
        raise ValueError("hits must lie between 0 and the number of trials, which must be positive")
    if not (0 <= delta < 1 and 0 < error < 1):
        raise ValueError(f"delta must lie in [0, 1) and error in (0, 1), got {delta} and {error}")
    return float(_bounds(np.array([hits]), np.array([hits_neighbour]), trials, delta, error)[0])


def lower_bound_of_parts(counts: Sequence[tuple[int, int]], *, trials: int, error: float = 1e-6) -> float:
    """Return a lower bound on a pure epsilon from one event in each of several independent parts of a release.

    The conjunction of the events has the product of their probabilities on either table, so the
    bounds of the parts add; the conjunction itself is too rare to be sampled. A part whose event
    is rarer on the first table counts as 0, the bound of the certain event.
    Guarantee: that of `lower_bound`; each part gets an equal share of `error`.
    """
    each = error / len(counts)
    return sum(lower_bound(hits=a, hits_neighbour=b, trials=trials, error=each) for a, b in counts)


def entrywise_lower_bound(
    one: Floats, two: Floats, draws_one: Floats, draws_two: Floats, *, error: float = 1e-6
) -> float:
    """Return a lower bound for independent symmetric noise on every entry.

    The event of an entry is that it lies at or beyond its value on the first table.
    """
    sign = np.where(one >= two, 1.0, -1.0)
    hits = [np.count_nonzero(sign * (draws - one) >= 0, axis=0) for draws in (draws_one, draws_two)]
    moved = np.abs(one - two) > 1e-12
    counts = [(int(a), int(b)) for a, b in zip(hits[0][moved], hits[1][moved], strict=True)]
    return lower_bound_of_parts(counts, trials=len(draws_one), error=error)


def weighted_lower_bound(
    *, hits: int, hits_neighbour: int, trials: int, log_weights: float, error: float = 1e-6
) -> float:
    """Return a lower bound on a pure epsilon from hits whose true odds are exp(`log_weights`) times those counted.

    Used for rejection sampling from a tilted law: draws are kept with a probability that undoes the
    tilt, so counts stay binomial, and the known constant factor is restored.
    Guarantee: that of `lower_bound`.
    """
    low, high = _interval(np.array([hits]), np.array([hits_neighbour]), trials, error)
    return max(0.0, math.log(low[0] / high[0]) + log_weights) if low[0] > 0 else 0.0


def sample_lower_bound(
    statistic: Floats, statistic_neighbour: Floats, *, delta: float = 0.0, error: float = 1e-6
) -> float:
    """Return a lower bound on epsilon from samples of one statistic on a table and on its neighbour.

    The event (which tail, which threshold, which of the two tables is likelier) is
    chosen on one half of the samples and counted on the other.
    Guarantee: that of `lower_bound`, because the choice is independent of the counted half.
    Raises: ValueError unless both samples have the same even size of at least 4.
    """
    size = len(statistic)
    if len(statistic_neighbour) != size or size < 4 or size % 2:
        raise ValueError("both samples must have the same even size, at least 4")
    choosing, judging = [(statistic[i::2], statistic_neighbour[i::2]) for i in (0, 1)]
    sign, threshold, swapped = _best_event(*choosing, delta, error)
    hits, hits_neighbour = (int(np.count_nonzero(sign * x >= threshold)) for x in judging)
    if swapped:
        hits, hits_neighbour = hits_neighbour, hits
    return lower_bound(hits=hits, hits_neighbour=hits_neighbour, trials=size // 2, delta=delta, error=error)


def _best_event(first: Floats, second: Floats, delta: float, error: float) -> tuple[float, float, bool]:
    """Return the tail event with the largest bound: its sign, its threshold, and whether the samples are swapped."""
    best, event = -math.inf, (1.0, 0.0, False)
    ranks = np.unique(np.geomspace(1, len(first), THRESHOLD_COUNT).astype(np.int64))
    for sign in (1.0, -1.0):
        one, two = np.sort(sign * first), np.sort(sign * second)
        thresholds = np.concatenate([one[-ranks], two[-ranks]])
        counts = [len(x) - np.searchsorted(x, thresholds, side="left") for x in (one, two)]
        for swapped in (False, True):
            bounds = _bounds(counts[swapped], counts[not swapped], len(first), delta, error)
            at = int(np.argmax(bounds))
            if bounds[at] > best:
                best, event = float(bounds[at]), (sign, float(thresholds[at]), swapped)
    return event


def _bounds(hits: Counts, others: Counts, trials: int, delta: float, error: float) -> Floats:
    """Return log((p_low - delta) / q_high), at least 0."""
    low, high = _interval(hits, others, trials, error)
    return np.log(np.maximum((low - delta) / high, 1.0))


def _interval(hits: Counts, others: Counts, trials: int, error: float) -> tuple[Floats, Floats]:
    """Return Clopper-Pearson bounds, below the first probability and above the second, each with half of the error."""
    low = np.where(hits > 0, stats.beta.ppf(error / 2, np.maximum(hits, 1), trials - hits + 1), 0.0)
    high = np.where(others < trials, stats.beta.isf(error / 2, others + 1, np.maximum(trials - others, 1)), 1.0)
    return low, high
