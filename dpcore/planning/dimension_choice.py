"""The choice of the dimension, from public constants only."""

from __future__ import annotations

import math
from numbers import Integral

from dpcore.accounting import Budget
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.planning.layouts import moments_layout, projected_size
from dpcore.planning.mechanism_choice import best_event
from dpcore.planning.plan import signal_to_noise
from dpcore.planning.request import AUTO, DFM, PlanError, PlanRequest
from dpcore.records.encoding import Encoding

NOISE_SHARE = 0.25
"""The operator norm of the noise is at most this share of the average eigenvalue at the chosen dimension."""

FEWEST_COORDINATES = math.exp(math.e)
"""Where 2 log m / log log m is least; below it the bound grows as coordinates get fewer, and says nothing."""


def choose_dimension(request: PlanRequest, encoding: Encoding, budgets: list[Budget], reasons: list[str]) -> int:
    """Return the dimension that is measured: the requested one, that of a rule, or the largest above the noise.

    With a share of the variance, all coordinates are measured, and the components are chosen from what was released.

    Raises: PlanError for a dimension that is not between 1 and the number of feature coordinates.
    """
    if request.projection == "none":
        return encoding.width
    if request.variance_share is not None:
        reasons.append(
            f"dimension by share: as many leading components are kept as hold {float(request.variance_share):g} of the "
            f"noisy variance of {encoding.feature_width}; they are counted in the released spectrum, at no cost"
        )
        return encoding.feature_width
    if request.dimension == DFM:
        return _choose_by_dfm(encoding.feature_width, reasons)
    if request.dimension != AUTO:
        if not isinstance(request.dimension, Integral) or not 1 <= request.dimension <= encoding.feature_width:
            raise PlanError(
                f"dimension must be a whole number between 1 and {encoding.feature_width}, got {request.dimension!r}",
                rule="dimension-out-of-range",
                where="model.projection.dimension",
                hint="use fewer dimensions than the features have coordinates, or `auto`",
            )
        return int(request.dimension)

    def quiet(dimension: int) -> bool:
        layout = moments_layout(request, projected_size(request, encoding, dimension), encoding.schema.class_count)
        event = best_event(request, layout, budgets)
        expected = gram_mechanism(event.mechanism).expected_error(event)
        return signal_to_noise(request.expected_rows, event, expected) >= 1 / NOISE_SHARE

    low, high = 1, encoding.feature_width
    while low < high:  # the signal-to-noise ratio falls with the dimension
        middle = (low + high + 1) // 2
        low, high = (middle, high) if quiet(middle) else (low, middle - 1)
    kept = "every feature coordinate is kept" if low == encoding.feature_width else f"of {encoding.feature_width}"
    rule = f"the operator norm of the noise is at most {NOISE_SHARE:g} of the average eigenvalue of a class block"
    why = f"the largest at which {rule}" if quiet(low) else f"the smallest, because at no dimension {rule}"
    reasons.append(f"dimension {low} ({kept}): {why}")
    return low


def _choose_by_dfm(width: int, reasons: list[str]) -> int:
    dimension = dfm_dimension(width)
    reasons.append(
        f"dimension {dimension} (of {width}): RON-Gauss's rule, the largest below 2 log m / log log m with natural "
        "logarithms. It speaks of how Gaussian random projections are, not of noise: with noise at its true scale, "
        "more dimensions were better in the benchmarks; `auto` goes by the noise"
    )
    return dimension


def dfm_dimension(width: int) -> int:
    """Return the largest p < 2 log m / log log m for m = `width` coordinates, at least 1 and at most m.

    Logarithms are natural (GUARANTEE.md, E: Theorem 2). The bound is least, 2e, at m = e^e, about 15.2, and has no
    meaning below: there 2e stands in, so that up to 15 coordinates keep at most 5.

        >>> [dfm_dimension(m) for m in (1, 4, 15, 100, 784, 10_000)]
        [1, 4, 5, 6, 7, 8]
    """
    log = math.log(max(width, FEWEST_COORDINATES))
    return min(width, math.ceil(2 * log / math.log(log)) - 1)


def dimension_rule(request: PlanRequest) -> str:
    """Return the name of the rule that gives the dimension: all, given, auto, dfm or share."""
    if request.projection == "none":
        return "all"
    if request.variance_share is not None:
        return "share"
    return request.dimension if isinstance(request.dimension, str) else "given"
