"""The plan for a mixed table: a histogram of every column, then the Gram matrix of their groups."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.measurements.groups import groups_of_units, least_group_size
from dpcore.measurements.histograms import histograms_query
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.names import MARGINALS, MEAN, MOMENTS, PROJECTION
from dpcore.mechanisms.registry import gram_mechanism, vector_mechanism
from dpcore.planning.allocation import budget_kind, budget_of_share, marginals_share, whole_budgets
from dpcore.planning.layouts import WEIGHT_GRID, unit_rows
from dpcore.planning.mechanism_choice import best_event, delta_needed_error, mechanism_reasons, require_releasable
from dpcore.planning.plan import Plan, signal_to_noise
from dpcore.planning.request import AUTO, COPULA, PlanError, PlanRequest
from dpcore.planning.validation import require_exact_width, require_projection_mechanism
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import NominalColumn, RecordSchema

COORDINATES: dict[type[Budget], tuple[int, ...]] = {Rho: (10, 16, 24), Epsilon: (4, 6, 10, 16, 24)}
"""Group coordinates per column on average, by kind of budget: pure noise grows with their number, Gaussian does not."""

MOST_COORDINATES = 256
"""In all; a wide table has the fewest per column, however many that are."""

CLEAR_GAIN: dict[type[Budget], float] = {Rho: 1.2, Epsilon: 1.5}
"""More coordinates are taken only if they lower the expected error by this factor: most columns have few categories.

With pure noise and 6 coordinates instead of 4, which gain up to 1.2 by that formula, pairs of columns of
bank_marketing's and acs_nist's training rows came out a little worse.
"""

GROUPS_WEIGHT = Fraction(20, WEIGHT_GRID)
"""The weight of the count beside groups; it is small because the histograms already measure the marginals."""

LEAST_GROUPS = 4
"""The copula is chosen automatically if a column can have at least this many groups above the noise."""


def is_for_copula(request: PlanRequest, *, counts_label: bool = False) -> bool:
    """Return whether to choose the copula: the generator is `auto`, and the table is mixed and large enough.

    A label makes a table of numbers mixed where the planner is free to say so: relations between numbers and categories
    are rarely ellipses.
    """
    allocation = request.allocation or {}
    allowed = request.generator == AUTO and request.projection == "none" and request.radius == 1
    allowed = allowed and not request.normalise
    if not allowed or MEAN in allocation or (MOMENTS in allocation and MARGINALS not in allocation):
        return False
    columns = request.schema.encoded_columns
    looked_at = request.schema.columns if counts_label else columns
    if not any(isinstance(column, NominalColumn) or column.is_whole for column in looked_at):
        return False
    try:
        event = copula_plan(replace(request, generator=COPULA), []).event
    except PlanError:
        return False
    return LEAST_GROUPS * least_group_size(event, len(columns)) <= request.expected_rows


def copula_plan(request: PlanRequest, reasons: list[str]) -> Plan:
    """Return the plan of a copula: a histogram of every column, then the Gram matrix of their groups.

    Raises: PlanError if the request has a radius or a projection, or cannot be met.
    """
    if request.radius != 1:
        raise PlanError(
            "generator 'copula' has no radius: its groups are measured around their own means",
            rule="radius-unused",
            where="model.radius",
            hint="remove the radius",
        )
    if request.normalise:
        raise PlanError(
            "generator 'copula' measures groups of values, which have no length",
            rule="normalise-not-applicable",
            where="model.normalise",
            hint="remove `normalise`, or use gaussian, supervised, mixture or lda",
        )
    if request.projection != "none":
        raise PlanError(
            f"generator 'copula' keeps every column and cannot be combined with the projection {request.projection!r}",
            rule="projection-unused",
            where="model.projection",
            hint="remove the projection, or use `kind: none`",
        )
    require_projection_mechanism(request, {PROJECTION: Fraction(0)})
    schema, rows_per_unit = request.schema, unit_rows(request)
    columns = schema.encoded_columns
    event, share, kind = _best_choice(request, schema)
    query = histograms_query(columns, rows_per_unit)
    histograms = vector_mechanism("histogram-gaussian" if kind is Rho else "histogram-laplace")
    marginals = histograms.calibrate(query, request.neighbours, budget_of_share(request, share, kind, kind))
    expected = gram_mechanism(event.mechanism).expected_error(event)
    width = event.layout.dimension - 1
    return Plan(
        schema=schema,
        projection=request.projection,
        dimension=width,
        encoded_width=width,
        generator=COPULA,
        event=event,
        expected=expected,
        signal_to_noise=signal_to_noise(request.expected_rows, event, expected),
        expected_rows=request.expected_rows,
        reasons=(
            *reasons,
            "generator copula: a histogram measures every column, and one Gram matrix of the columns' groups measures "
            "the dependence between columns"
            + ("; its class blocks together cost as much as one block" if schema.class_count > 1 else ""),
            f"the histograms take {float(share):g} of the budget"
            + ("" if request.allocation is None else ", as the specification says"),
            f"the groups of {len(columns)} columns have {width} coordinates, a number that is fixed before anything is "
            "measured; the noisy histograms decide which values form a group",
            *mechanism_reasons(request, event),
        ),
        shares={MARGINALS: share, MOMENTS: 1 - share},
        marginals_event=marginals,
    )


Choice = tuple[GramEvent, Fraction, type[Budget]]
"""The event of the Gram matrix, the histograms' share, and the kind of budget that both spend."""


def _best_choice(request: PlanRequest, schema: RecordSchema) -> Choice:
    """Return the choice of the kind of noise with the least expected error.

    Raises: PlanError if nothing can be drawn.
    """
    choices = [_choice_of_kind(request, schema, way) for way in whole_budgets(request) if _may_spend(request, way)]
    if not choices:
        raise delta_needed_error(request, request.mechanism)
    return min(choices, key=lambda choice: _expected_error(request, choice[0]))


def _may_spend(request: PlanRequest, way: Budget) -> bool:
    """Return whether the requested mechanism spends this kind of budget."""
    return request.mechanism == AUTO or budget_kind(require_releasable(request)) is type(way)


def _choice_of_kind(request: PlanRequest, schema: RecordSchema, way: Budget) -> Choice:
    """Return the choice with the fewest coordinates that others do not clearly improve on."""
    kind, columns = type(way), len(schema.encoded_columns)
    share, (fewest, *more) = marginals_share(request, kind), COORDINATES[kind]
    budget = budget_of_share(request, 1 - share, kind, kind)
    require_exact_width(1 + fewest * columns)
    widths = [fewest * columns, *(each * columns for each in more if each * columns <= MOST_COORDINATES)]
    layouts = [GramLayout(1 + width, schema.class_count, GROUPS_WEIGHT, unit_rows(request)) for width in widths]
    events = [best_event(request, layout, [budget]) for layout in layouts]
    errors = [_expected_error(request, event) for event in events]
    chosen = next(event for event, error in zip(events, errors, strict=True) if error <= CLEAR_GAIN[kind] * min(errors))
    return chosen, share, kind


def _expected_error(request: PlanRequest, event: GramEvent) -> float:
    """Return the error of a column's groups, in units of that of one group: of coarse groups, and of noise on pairs.

    With as many groups as the noise allows, both have the ratio at which their sum is least. Fewer coordinates leave
    coarser groups.
    """
    columns = len(request.schema.encoded_columns)
    best = groups_of_units(request.expected_rows / least_group_size(event, columns))
    groups = min(best, 1 + (event.layout.dimension - event.layout.heads) / columns)
    return 1 / groups + groups**2 / (2 * best**3)
