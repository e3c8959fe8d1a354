"""The planner: every choice of a release, made from public constants before any data are read.

It decides what the specification leaves open (dimension, mechanism, generator, weight of
the count) from the expected number of rows, the privacy budget and the shape of the record,
and gives a reason for each choice.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.mechanisms.base import ExpectedError, GramEvent, Output
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.expected_noise import entry_noise, operator_noise
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.names import CENTRE, MEAN, PROJECTION
from dpcore.mechanisms.registry import basis_mechanism, gram_mechanism, mechanism_of
from dpcore.planning.allocation import (
    Shares,
    best_share,
    budget_kind,
    budget_of_share,
    frame_shares,
    moments_budgets,
    separate_error,
    shares_of,
    whole_budgets,
)
from dpcore.planning.copula_plan import copula_plan, is_for_copula
from dpcore.planning.defaults import settle
from dpcore.planning.dimension_choice import choose_dimension, dimension_rule
from dpcore.planning.generator_choice import choose_generator
from dpcore.planning.layouts import SUMS_WEIGHT, components_layout, moments_layout, projected_size, unit_rows
from dpcore.planning.mechanism_choice import best_event, delta_needed_error, mechanism_reasons
from dpcore.planning.plan import Plan, signal_to_noise
from dpcore.planning.request import AUTO, COPULA, DIAGONAL, LDA, PlanError, PlanRequest
from dpcore.planning.validation import (
    require_dimension_rule,
    require_exact_width,
    require_normalisable,
    require_projection,
    require_projection_mechanism,
    require_radius,
)
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout


def make_plan(request: PlanRequest) -> Plan:
    """Return the plan of a release; it decides everything that the request leaves open.

    Raises: PlanError if the request cannot be met.
    """
    reasons: list[str] = []
    asked, request = request, settle(request, reasons)
    if request.projection == AUTO:
        request = _with_projection(request, reasons)
    require_projection(request)
    require_dimension_rule(request)
    if request.generator == COPULA or is_for_copula(request):
        return copula_plan(replace(request, generator=COPULA), reasons)
    shares = shares_of(request)
    require_projection_mechanism(request, shares)
    require_radius(request)
    generator, schema = choose_generator(request, moments_budgets(request, shares), reasons)
    request, encoding = replace(request, generator=generator), Encoding(schema)
    require_exact_width(encoding.width)
    require_normalisable(request, schema)
    dimension = choose_dimension(request, encoding, moments_budgets(request, shares), reasons)
    shares = _best_shares(request, encoding, dimension, shares)
    first, event = _choose_events(request, encoding, shares, dimension, reasons)
    mean = _mean_event(request, event.layout, shares, reasons)
    expected = gram_mechanism(event.mechanism).expected_error(event)
    frame = _frame_events(request, encoding, event, shares, reasons)
    return Plan(
        schema=schema,
        projection=request.projection,
        dimension=dimension,
        encoded_width=encoding.width,
        generator=LDA if generator == DIAGONAL else generator,
        event=event,
        expected=expected,
        signal_to_noise=signal_to_noise(request.expected_rows, event, expected),
        expected_rows=request.expected_rows,
        reasons=tuple(reasons),
        shares=shares,
        projection_event=first,
        mean_event=mean,
        sensitivity_to_information=_gain_to_loss(request, encoding, event, expected),
        radius=Fraction(1) if isinstance(request.radius, str) else request.radius,
        frame_events=frame,
        normalise=request.normalise,
        dimension_rule=dimension_rule(replace(request, dimension=asked.dimension)),
        variance_share=request.variance_share,
    )


def plan_set_aside(request: PlanRequest) -> Plan:
    """Return the plan of a release that measures its components on rows set aside, with the whole budget.

    The other rows are planned as with public components, with the whole budget too. No row belongs to both parts, so
    the larger cost counts (GUARANTEE.md, P2); the `cost` of the plan adds both up.
    Raises: PlanError if the request cannot be met.
    """
    require_projection_mechanism(request, {PROJECTION: Fraction(1)})
    plan = make_plan(replace(request, projection="public-pca", projection_mechanism=AUTO))
    encoding, whole, name = Encoding(plan.schema), whole_budgets(request), request.projection_mechanism
    if name == AUTO:
        first = best_event(request, components_layout(request, encoding.width), whole)
    else:
        budgets = [budget for budget in whole if isinstance(budget, budget_kind(name))]
        if not budgets:
            raise delta_needed_error(request, name)
        first = _components_event(request, encoding, plan.dimension, budgets[0])
    why = "private principal components are measured on rows set aside, with the whole budget"
    shares = plan.shares | {PROJECTION: Fraction(1)}  # each part has the whole budget
    return replace(
        plan, projection=request.projection, projection_event=first, shares=shares, reasons=(*plan.reasons, why)
    )


def _with_projection(request: PlanRequest, reasons: list[str]) -> PlanRequest:
    """Return the request with a free projection: none if every coordinate can be kept, else a random one."""
    whole = replace(request, projection="none")
    if request.dimension == AUTO:
        if request.generator == COPULA:
            reasons.append("projection none: generator copula keeps every column")
            return whole
        if is_for_copula(whole):
            reasons.append("projection none: the table is mixed, and large enough for a histogram of every column")
            return whole
        random = make_plan(replace(request, projection="ron"))
        if random.dimension == Encoding(random.schema).feature_width:
            reasons.append("projection none: a random projection would keep every coordinate")
            return whole
    reasons.append("projection ron: a random projection costs no budget, and fewer dimensions need less noise")
    return replace(request, projection="ron")


def _gain_to_loss(request: PlanRequest, encoding: Encoding, event: GramEvent, expected: ExpectedError) -> float | None:
    """Return the papers' ratio of sensitivity gain to information loss, from public constants.

    The gain is the noise on the moments of all coordinates over that on the projected moments at
    the same budget. The loss follows from the variance that a random projection keeps on average;
    principal components keep more, so for them the ratio is a lower bound.
    """
    mechanism = gram_mechanism(event.mechanism)
    layout = moments_layout(request, encoding.width, encoding.schema.class_count)
    try:
        whole = mechanism.calibrate(layout, request.neighbours, mechanism.cost(event))
    except ValueError:  # the mechanism cannot measure so many coordinates
        return None
    gain = mechanism.expected_error(whole).operator / expected.operator
    return gain * (event.layout.dimension - event.layout.heads) / encoding.width


def _best_shares(request: PlanRequest, encoding: Encoding, dimension: int, shares: Shares) -> Shares:
    """Return the shares with the least expected error; the components get 0 if one measurement serves both better.

    Errors are operator norms of the noise over the average eigenvalue of the kept coordinates. A
    single wide measurement spends the whole budget: the components are post-processing of it, and
    the noise on the projected moments is that of its entries.
    """
    asked = request.allocation is not None or request.projection_mechanism != AUTO or request.variance_share is not None
    if request.projection != "private-pca" or asked:
        return shares
    size, blocks = projected_size(request, encoding, dimension), encoding.schema.class_count
    eigenvalue, whole = request.expected_rows / size, whole_budgets(request)
    moments = best_event(request, moments_layout(request, size, blocks), whole)
    kind = budget_kind(moments.mechanism)
    same_kind = [budget for budget in whole if isinstance(budget, kind)]
    components = best_event(request, components_layout(request, encoding.width), same_kind)
    wide = best_event(request, moments_layout(request, encoding.width, blocks), whole)
    errors = operator_noise(components) / eigenvalue, operator_noise(moments) * moments.layout.blocks / eigenvalue
    share = best_share(*errors, kind)
    noise = entry_noise(wide) * 2 * math.sqrt(size) * wide.layout.blocks / eigenvalue
    together = (operator_noise(wide) * math.sqrt(wide.layout.blocks) / eigenvalue) ** 2 + noise
    return shares_of(request, share if separate_error(*errors, share, kind) < together else Fraction(0))


def _mean_event(request: PlanRequest, moments: GramLayout, shares: Shares, reasons: list[str]) -> GramEvent | None:
    """Return the event for counts and sums if the allocation measures them separately, as the papers do."""
    if not shares[MEAN]:
        return None
    if moments.labels:
        raise PlanError(
            "generator 'lda' measures the means together with the moments, so the mean takes no budget of its own",
            rule="allocation-unused",
            where="model.allocation",
            hint="remove the mean from the allocation",
        )
    reasons.append("counts and means are measured separately from the second moments, as the specification says")
    layout = replace(moments, count_weight=SUMS_WEIGHT)
    return LAPLACE_SUMS.calibrate(layout, request.neighbours, Epsilon(shares[MEAN] * request.epsilon))


def _frame_events(
    request: PlanRequest, encoding: Encoding, moments: GramEvent, shares: Shares, reasons: list[str]
) -> dict[str, GramEvent]:
    """Return the frame's events: mean squared length of the points, their mean, and the same length around it."""
    names = frame_shares(request)
    if not names:
        return {}
    kind, rows_per_unit = budget_kind(moments.mechanism), unit_rows(request)
    budgets = {name: budget_of_share(request, shares[name], kind, kind) for name in names}
    _explain_frame(request, float(sum(shares[name] for name in names)), reasons)
    one = GramLayout(2, 1, Fraction(1), rows_per_unit)
    if kind is Epsilon:  # pure noise on a mean grows with its number of coordinates
        every = request.normalise or request.projection == "private-pca"
        size = encoding.width if every else moments.layout.dimension - moments.layout.heads
        sums = GramLayout(size + 1, 1, SUMS_WEIGHT, rows_per_unit)
        centre = LAPLACE_SUMS.calibrate(sums, request.neighbours, budgets[CENTRE])
    else:
        centre = best_event(request, GramLayout(encoding.width + 1, 1, Fraction(1), rows_per_unit), [budgets[CENTRE]])
    return {name: centre if name == CENTRE else best_event(request, one, [budgets[name]]) for name in names}


def _explain_frame(request: PlanRequest, taken: float, reasons: list[str]) -> None:
    """Add the reason for a measured frame, which takes that part of the budget."""
    if request.normalise:
        reasons.append(
            f"normalise length: the features are scaled to one length around their mean direction; this direction and "
            f"the typical length take {taken:g} of the budget, and the length of each row is lost"
        )
    if request.radius == AUTO:
        part = "" if request.normalise else f" with {taken:g} of the budget"
        reasons.append(
            f"radius: the mean and the spread of the points are measured{part}; the moments are then measured around "
            "this mean and in units of this spread, so that the noise adapts to the spread"
        )


def _choose_events(
    request: PlanRequest, encoding: Encoding, shares: Shares, dimension: int, reasons: list[str]
) -> tuple[GramEvent | None, GramEvent]:
    """Return the event of the projection, if it is measured, and that of the moments."""
    layout = moments_layout(request, projected_size(request, encoding, dimension), encoding.schema.class_count)
    first, event = None, best_event(request, layout, moments_budgets(request, shares))
    if request.projection_mechanism != AUTO:
        first = _plan_named_components(request, encoding, dimension, event, shares[PROJECTION], reasons)
    elif request.projection == "private-pca":
        first, event = _principal_events(request, encoding, shares, event, reasons)
    reasons += mechanism_reasons(request, event)
    if not shares[MEAN]:
        why = "balances the errors of means and second moments"
        if request.generator == DIAGONAL:
            why = "is the largest, because counts and means matter most if the noise hides the covariance"
        reasons.append(f"count weight {float(event.layout.count_weight):.3g}: it {why}")
    return first, event


def _principal_events(
    request: PlanRequest, encoding: Encoding, shares: Shares, second: GramEvent, reasons: list[str]
) -> tuple[GramEvent | None, GramEvent]:
    """Return the events of private principal components: one wide measurement, or one for each of two steps.

    The components are post-processing of a wide measurement, which spends the whole budget. In two
    steps, the moments are measured in few dimensions with what the components leave of the budget.
    """
    share = shares[PROJECTION]
    if share == 0:
        reasons.append("private principal components are computed from the measured moments and cost no further budget")
        layout = moments_layout(request, encoding.width, encoding.schema.class_count)
        return None, best_event(request, layout, moments_budgets(request, shares))
    why = "which has the least expected error" if request.allocation is None else "as the specification says"
    reasons.append(f"private principal components are measured separately with {float(share):g} of the budget, {why}")
    kind = budget_kind(second.mechanism)
    return best_event(
        request, components_layout(request, encoding.width), [budget_of_share(request, share, kind, kind)]
    ), second


def _plan_named_components(
    request: PlanRequest, encoding: Encoding, dimension: int, second: GramEvent, share: Fraction, reasons: list[str]
) -> GramEvent:
    """Return the event of components that are measured separately, by the mechanism that the request names."""
    name = request.projection_mechanism
    kind, other = budget_kind(name), budget_kind(second.mechanism)
    if kind is Rho and not request.delta:
        raise delta_needed_error(request, name)
    entry = BY_NAME[name]
    doubt = f"; its guarantee is approximate: {entry.reason}" if entry.status is Status.APPROXIMATE else ""
    reasons.append(
        f"private principal components are measured separately with {float(share):g} of the budget by {name}, "
        f"the mechanism that the specification names{doubt}"
    )
    return _components_event(request, encoding, dimension, budget_of_share(request, share, kind, other))


def _components_event(request: PlanRequest, encoding: Encoding, dimension: int, budget: Budget) -> GramEvent:
    """Return the event of a noisy Gram matrix of all coordinates, or of a basis for the features."""
    name = request.projection_mechanism
    try:
        if mechanism_of(name).output is Output.GRAM:
            layout = components_layout(request, encoding.width)
            return gram_mechanism(name).calibrate(layout, request.neighbours, budget)
        layout = components_layout(request, encoding.feature_width)
        return basis_mechanism(name).calibrate(layout, request.neighbours, budget, components=dimension)
    except ValueError as error:
        fault = str(error)
    raise PlanError(
        fault,
        rule="mechanism-not-applicable",
        where="model.projection.mechanism",
        hint="use `mechanism: auto` for the projection",
    )
