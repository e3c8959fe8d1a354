"""The plan of a mixed table: histograms of every column, then the Gram of their groups."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from dpcore.accounting import Epsilon, Rho
from dpcore.measurements.groups import least_group_size
from dpcore.measurements.histograms import histograms_query
from dpcore.mechanisms.expected_noise import entry_noise
from dpcore.mechanisms.names import MARGINALS, MEAN, MOMENTS, PROJECTION
from dpcore.mechanisms.registry import gram_mechanism, vector_mechanism
from dpcore.planning.allocation import marginals_share, part, spends, whole_budgets
from dpcore.planning.layouts import WEIGHT_GRID, unit_rows
from dpcore.planning.mechanism_choice import best_event, needs_delta, require_releasable
from dpcore.planning.plan import Plan, signal_to_noise
from dpcore.planning.request import AUTO, COPULA, PlanError, Wishes
from dpcore.planning.validation import require_projection_mechanism, too_wide
from dpcore.records.exact_sums import EXACT, POINT_BITS, PROJECTION_BITS, GramLayout
from dpcore.records.schema import NominalColumn

COORDINATES = {Rho: 6, Epsilon: 4}
"""Coordinates of groups that a column of a mixed table takes on average; pure noise grows with them."""

GROUPS_WEIGHT = Fraction(20, WEIGHT_GRID)
"""The count's weight beside groups: histograms know the marginals already."""

LEAST_GROUPS = 4
"""A mixed table is left to the copula where a column can have so many groups that rise above the noise."""


def is_for_copula(wishes: Wishes) -> bool:
    """Whether a table whose generator is left open, and which is not projected, is mixed and large enough."""
    allowed = wishes.generator == AUTO and wishes.projection == "none" and MEAN not in (wishes.allocation or {})
    allowed = allowed and wishes.radius == 1
    if not allowed or (MOMENTS in (wishes.allocation or {}) and MARGINALS not in (wishes.allocation or {})):
        return False
    columns = wishes.schema.encoded_columns
    if not any(isinstance(column, NominalColumn) or column.is_whole for column in columns):
        return False
    try:
        event = copula_plan(replace(wishes, generator=COPULA), []).event
    except PlanError:
        return False
    return LEAST_GROUPS * least_group_size(event, len(columns)) <= wishes.expected_rows


def copula_plan(wishes: Wishes, reasons: list[str]) -> Plan:
    """Histograms of every column, then the Gram of their groups."""
    if wishes.radius != 1:
        raise PlanError(
            "generator 'copula' has no radius: its groups are measured around their own means",
            rule="radius-unused",
            where="model.radius",
            hint="remove the radius",
        )
    if wishes.projection != "none":
        raise PlanError(
            f"generator 'copula' keeps every column, so it does not go with the projection {wishes.projection!r}",
            rule="projection-unused",
            where="model.projection",
            hint="remove the projection, or use `kind: none`",
        )
    require_projection_mechanism(wishes, {PROJECTION: Fraction(0)})
    schema, rows_per_unit = wishes.schema, unit_rows(wishes)
    columns = schema.encoded_columns
    choices = []
    for way in whole_budgets(wishes):
        kind = type(way)
        share = marginals_share(wishes, kind)
        layout = GramLayout(1 + COORDINATES[kind] * len(columns), schema.class_count, GROUPS_WEIGHT, rows_per_unit)
        if layout.dimension > (most := EXACT >> (POINT_BITS + PROJECTION_BITS)):
            raise too_wide(layout.dimension, most)
        if wishes.mechanism == AUTO or spends(require_releasable(wishes)) is kind:
            choices.append((best_event(wishes, layout, [part(wishes, 1 - share, kind, kind)]), share, kind))
    if not choices:
        raise needs_delta(wishes.mechanism)
    event, share, kind = min(choices, key=lambda choice: entry_noise(choice[0]))
    query = histograms_query(columns, rows_per_unit)
    histograms = vector_mechanism("histogram-gaussian" if kind is Rho else "histogram-laplace")
    marginals = histograms.calibrate(query, wishes.neighbours, part(wishes, share, kind, kind))
    expected = gram_mechanism(event.mechanism).expected_error(event)
    width = event.layout.dimension - 1
    return Plan(
        schema=schema,
        projection=wishes.projection,
        dimension=width,
        encoded_width=width,
        generator=COPULA,
        event=event,
        expected=expected,
        signal_to_noise=signal_to_noise(wishes.expected_rows, event, expected),
        expected_rows=wishes.expected_rows,
        reasons=(
            *reasons,
            "generator copula: every column is measured by a histogram, and how columns hang together by "
            "one Gram of their groups, in class blocks, which together cost as much as one",
            f"the histograms take {float(share):g} of the budget"
            + ("" if wishes.allocation is None else ", as the specification says"),
            f"{width} coordinates for the groups of {len(columns)} columns, a public number: the histograms decide "
            "which values share a group",
            f"mechanism {event.mechanism}: "
            + ("pure epsilon" if not wishes.delta else "less expected noise than the alternative"),
        ),
        shares={MARGINALS: share, MOMENTS: 1 - share},
        marginals_event=marginals,
    )
