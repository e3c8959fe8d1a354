"""The plan for a mixed table: a histogram of every column, then the Gram matrix of their groups."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from dpcore.accounting import Epsilon, Rho
from dpcore.measurements.groups import least_group_size
from dpcore.measurements.histograms import histograms_query
from dpcore.mechanisms.expected_noise import entry_noise
from dpcore.mechanisms.names import MARGINALS, MEAN, MOMENTS, PROJECTION
from dpcore.mechanisms.registry import gram_mechanism, vector_mechanism
from dpcore.planning.allocation import budget_kind, budget_of_share, marginals_share, whole_budgets
from dpcore.planning.layouts import WEIGHT_GRID, unit_rows
from dpcore.planning.mechanism_choice import best_event, delta_needed_error, mechanism_reasons, require_releasable
from dpcore.planning.plan import Plan, signal_to_noise
from dpcore.planning.request import AUTO, COPULA, PlanError, PlanRequest
from dpcore.planning.validation import require_exact_width, require_projection_mechanism
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import NominalColumn

COORDINATES = {Rho: 10, Epsilon: 4}
"""Group coordinates per column on average, by kind of budget; pure noise grows with their number, Gaussian does not."""

GROUPS_WEIGHT = Fraction(20, WEIGHT_GRID)
"""The weight of the count beside groups; it is small because the histograms already measure the marginals."""

LEAST_GROUPS = 4
"""The copula is chosen automatically if a column can have at least this many groups above the noise."""


def is_for_copula(request: PlanRequest) -> bool:
    """Return whether to choose the copula: the generator is `auto`, and the table is mixed and large enough."""
    allocation = request.allocation or {}
    allowed = request.generator == AUTO and request.projection == "none" and request.radius == 1
    allowed = allowed and not request.normalise
    if not allowed or MEAN in allocation or (MOMENTS in allocation and MARGINALS not in allocation):
        return False
    columns = request.schema.encoded_columns
    if not any(isinstance(column, NominalColumn) or column.is_whole for column in columns):
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
    choices = []
    for way in whole_budgets(request):
        kind = type(way)
        share = marginals_share(request, kind)
        layout = GramLayout(1 + COORDINATES[kind] * len(columns), schema.class_count, GROUPS_WEIGHT, rows_per_unit)
        require_exact_width(layout.dimension)
        if request.mechanism == AUTO or budget_kind(require_releasable(request)) is kind:
            choices.append(
                (best_event(request, layout, [budget_of_share(request, 1 - share, kind, kind)]), share, kind)
            )
    if not choices:
        raise delta_needed_error(request, request.mechanism)
    event, share, kind = min(choices, key=lambda choice: entry_noise(choice[0]))
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
            "the dependence between columns; its class blocks together cost as much as one block",
            f"the histograms take {float(share):g} of the budget"
            + ("" if request.allocation is None else ", as the specification says"),
            f"the groups of {len(columns)} columns have {width} coordinates, a number that is fixed before anything is "
            "measured; the noisy histograms decide which values form a group",
            *mechanism_reasons(request, event),
        ),
        shares={MARGINALS: share, MOMENTS: 1 - share},
        marginals_event=marginals,
    )
