"""What a specification leaves out: the frame and the projection that the planner takes, from public constants only.

A request may leave its projection or its radius `planned`. The planner then takes, in this order: a copula for a mixed
table that is large enough, where a label beside numbers counts as mixed if both projection and radius are `planned` (on
two numbers with 20,000 rows, classes between circles or moons were predicted right for .97 of the rows, against .87 for
moons by one covariance per class); a measured frame for every other table with a column of numbers; and as many
coordinates as the noise allows, all of them without a projection or some of them along random directions.

`LEAST_STRENGTH` and `LEAST_AVERAGE` were chosen on training rows of digits, waveform40, semeion, mnist, gfe, covertype,
california_housing, credit_default, bank_marketing and buzz_twitter (of the larger sets 1,000 to 6,000 rows), and on
scikit-learn's breast_cancer and diabetes, with a fifth or a quarter of the rows held out: LR and GNB were trained on
releases at a pure epsilon of 1, at (1, 1e-5) and at (0.5, 1e-5), in 1 to all dimensions. The mean of both areas under
the curve was largest at strengths between 2 and 9. Where a wide table has many rows, the average direction is the
narrower bound, and more so for pure noise: with all 784 pixels of mnist's 60,000 training rows, LR was right about .73
of the test rows, along 300 directions about .53, along 130 about .81 and along 64 about .80. This was one run each, on
4,000 of the test rows, which therefore are not independent of the constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.mechanisms.expected_noise import operator_noise
from dpcore.planning.allocation import FRAME_SHARES, budget_kind, moments_budgets, shares_of
from dpcore.planning.class_structure import STRONG_DIRECTION, about
from dpcore.planning.copula_plan import copula_plan, is_for_copula
from dpcore.planning.forecast import LEAST_SIGNAL, column_noise, expected_signal
from dpcore.planning.generator_choice import choose_generator
from dpcore.planning.layouts import moments_layout, projected_size
from dpcore.planning.mechanism_choice import best_event
from dpcore.planning.request import AUTO, COPULA, PLANNED, PlanError, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.schema import IntervalColumn, Role

LEAST_STRENGTH: dict[type[Budget], float] = {Rho: 4.5, Epsilon: 3.0}
"""As many coordinates are measured as leave the strongest direction of the table this many times the noise."""

LEAST_AVERAGE: dict[type[Budget], float] = {Rho: 0.25, Epsilon: 1.0}
"""And the average direction this many times. Pure noise falls faster with fewer coordinates, so it asks for more."""

MOST_COLUMN_NOISE = 0.06
"""A copula's histograms carry at most this noise, on average over the columns: on a share, or on a mean over its range.

On held-out training rows of credit_default at a pure epsilon of 0.5, where it is 0.08, one covariance in a frame was
better (LR .70 to .59, GNB .69 to .44); at (1, 1e-5) and 5,000 rows, where it is 0.04, the copula was better (HGB .71 to
.44 there, and .80 to .58 for bank_marketing).
"""


def settle(request: PlanRequest, reasons: list[str]) -> PlanRequest:
    """Return the request with nothing left `planned`; what is given stays as it is.

    Raises: PlanError where nothing goes with what is given.
    """
    if PLANNED not in (request.projection, request.radius):
        return request
    if _goes_to_copula(request):
        return _of_copula(request, reasons)
    if request.radius == PLANNED:
        request = _with_radius(request, reasons)
    return _with_projection(request, reasons) if request.projection == PLANNED else request


def _goes_to_copula(request: PlanRequest) -> bool:
    """Return whether the table is left to a copula, by the generator's name or by the planner's choice."""
    free = request.projection in (PLANNED, AUTO, "none") and request.dimension == AUTO
    if not free or request.radius not in (PLANNED, 1):
        return request.generator == COPULA
    whole = replace(request, projection="none", radius=_given_radius(request))
    everything = request.projection == request.radius == PLANNED
    if request.generator == COPULA or not is_for_copula(whole, counts_label=everything):
        return request.generator == COPULA
    return request.radius == 1 or not _has_numbers(request) or _says_enough(whole)


def _has_numbers(request: PlanRequest) -> bool:
    return any(isinstance(column, IntervalColumn) for column in request.schema.encoded_columns)


def _says_enough(whole: PlanRequest) -> bool:
    """Return whether a copula's groups and histograms say enough; one covariance says more where they are faint."""
    plan = copula_plan(replace(whole, generator=COPULA), [])
    noises = [noise.part_of_range for noise in column_noise(plan) if noise.column.role is not Role.LABEL]
    return expected_signal(plan) >= LEAST_SIGNAL and sum(noises) / len(noises) <= MOST_COLUMN_NOISE


def _given_radius(request: PlanRequest) -> Fraction | str:
    return Fraction(1) if request.radius == PLANNED else request.radius


def _of_copula(request: PlanRequest, reasons: list[str]) -> PlanRequest:
    """Return the request of a copula, which has neither a projection nor a radius where they are left out."""
    if request.projection == PLANNED and request.dimension == AUTO:
        suits = "suits this table: it has categories or whole numbers, and enough rows"
        why = "keeps every column" if request.generator == COPULA else suits
        reasons.append(f"projection none: generator copula {why}")
        request = replace(request, projection="none")
    elif request.projection == PLANNED:
        request = replace(request, projection="ron")
    return replace(request, radius=_given_radius(request), generator=COPULA)


def _with_radius(request: PlanRequest, reasons: list[str]) -> PlanRequest:
    """Return the request with a measured frame, or with the whole ball where a frame would not help or be paid for."""
    whole = {
        "the specification splits the budget, and gives a frame nothing": request.allocation is not None
        and not set(FRAME_SHARES) & set(request.allocation),
        "normalised points are all of one length": request.normalise,
        "the components are measured by a mechanism of their own": request.projection_mechanism != AUTO,
        "levels fill their bounds, and no other column is declared": not _has_numbers(request),
    }
    for why, holds in whole.items():
        if holds:
            reasons.append(f"radius 1: {why}")
            return replace(request, radius=Fraction(1))
    return replace(request, radius=AUTO)


def _with_projection(request: PlanRequest, reasons: list[str]) -> PlanRequest:
    """Return the request with all coordinates, or with as many random directions as the noise allows."""
    if request.dimension != AUTO:
        reasons.append("projection ron: the specification gives a dimension, and a random projection costs no budget")
        return replace(request, projection="ron")
    table = _MeasuredTable.of(replace(request, projection="none"))
    low, high = 1, table.encoding.feature_width
    fills = request.radius == AUTO or request.normalise
    filled = "" if fills else ", if its points fill the ball in which they are measured"
    whole = f"all {high} coordinates, measured together, leave" if high > 1 else "the one coordinate leaves"
    whole += f" the strongest direction of a usual table about {about(table.strength(high)[0])} times the noise{filled}"
    if high == 1 or table.is_clear(high):
        reasons.append(f"projection none: {whole}")
        return replace(request, projection="none")
    while low < high:  # strength and average fall with the number of coordinates
        middle = (low + high + 1) // 2
        low, high = (middle, high) if table.is_clear(middle) else (low, middle - 1)
    fewer = f"{low} random directions leave" if low > 1 else "one random direction leaves"
    reasons.append(
        f"projection ron: {whole}, too little for so many; {fewer} it about {about(table.strength(low)[0])} times"
    )
    return replace(request, projection="ron", dimension=low)


@dataclass(frozen=True, slots=True)
class _MeasuredTable:
    """A table whose features are measured in one block, without classes, in as many coordinates as are asked for."""

    request: PlanRequest
    encoding: Encoding
    budgets: list[Budget]

    @staticmethod
    def of(request: PlanRequest) -> _MeasuredTable:
        """Raises: PlanError where the allocation or the generator does not go with the table."""
        budgets = moments_budgets(request, shares_of(request))
        pooled = request.generator == AUTO and request.schema.label
        _, schema = choose_generator(replace(request, generator="mixture") if pooled else request, budgets, [])
        return _MeasuredTable(replace(request, generator="gaussian", projection="ron"), Encoding(schema), budgets)

    def is_clear(self, dimension: int) -> bool:
        """Return whether so many directions rise above the noise, the strongest and the average one."""
        strength, kind = self.strength(dimension)
        size = projected_size(self.request, self.encoding, dimension)
        return strength >= LEAST_STRENGTH[kind] and strength / STRONG_DIRECTION / size >= LEAST_AVERAGE[kind]

    def strength(self, dimension: int) -> tuple[float, type[Budget]]:
        """Return the largest eigenvalue to expect over the noise, 0 if none can be drawn, and the kind of noise."""
        layout = moments_layout(self.request, projected_size(self.request, self.encoding, dimension), 1)
        try:
            event = best_event(self.request, layout, self.budgets)
        except PlanError:
            return 0.0, Epsilon
        return STRONG_DIRECTION * self.request.expected_rows / operator_noise(event), budget_kind(event.mechanism)
