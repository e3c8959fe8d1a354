"""Checks of a request; each raises a PlanError that names the broken rule and a remedy."""

from __future__ import annotations

from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import COMPONENTS_KEY, PROJECTION_KEY, Status
from dpcore.mechanisms.names import MEAN, PROJECTION
from dpcore.mechanisms.registry import offered_under
from dpcore.planning.allocation import Shares
from dpcore.planning.request import AUTO, DFM, PlanError, PlanRequest, readable_number
from dpcore.records.exact_sums import EXACT, POINT_BITS, PROJECTION_BITS
from dpcore.records.schema import RecordSchema


def require_projection(request: PlanRequest) -> None:
    """Raise a PlanError unless the projection is known."""
    known = offered_under(PROJECTION_KEY)
    if request.projection not in known:
        raise PlanError(
            f"{request.projection!r} is no projection that can be released",
            rule="projection-unknown",
            where="model.projection.kind",
            hint=f"use {', '.join(known)}",
        )


def require_dimension_rule(request: PlanRequest) -> None:
    """Raise a PlanError for a rule of the dimension that does not go with the rest of the request."""
    share, where = request.variance_share, "model.projection.dimension"
    if request.dimension == DFM and request.projection not in ("ron", "none"):
        raise PlanError(
            f"the rule dfm is a theorem on random projections, not on {request.projection!r}",
            rule="dimension-rule-not-applicable",
            where=where,
            hint="use `kind: ron` with it, or `dimension: auto`",
        )
    if share is None:
        return
    if not 0 < share < 1:
        raise PlanError(
            f"a share of the variance must lie between 0 and 1, got {readable_number(share)}",
            rule="share-out-of-range",
            where=f"{where}.share",
            hint="write a share such as 0.9, or a whole number of dimensions",
        )
    if request.projection != "private-pca":
        raise PlanError(
            f"the projection {request.projection!r} releases no spectrum in which a share could be counted",
            rule="dimension-rule-not-applicable",
            where=where,
            hint="use `kind: private-pca` with it, or `dimension: auto`",
        )
    if request.projection_mechanism != AUTO or {PROJECTION, MEAN} & set(request.allocation or {}):
        raise PlanError(
            "components by a share come out of the moments' own measurement; nothing is measured apart for them",
            rule="dimension-rule-not-applicable",
            where=where,
            hint="remove `projection.mechanism` and the fractions of projection and mean, or give the dimension",
        )


def require_projection_mechanism(request: PlanRequest, shares: Shares) -> None:
    """Raise a PlanError unless a named projection mechanism yields components, is needed, and has a share."""
    name = request.projection_mechanism
    if name == AUTO:
        return
    entry, known = BY_NAME.get(name), offered_under(COMPONENTS_KEY)
    faults = {
        "projection-mechanism-unused": (
            request.projection != "private-pca",
            f"the projection {request.projection!r} measures nothing, so it has no mechanism",
        ),
        "mechanism-refuted": (
            entry is not None and entry.status is Status.REFUTED,
            f"mechanism {name!r} is refuted: {entry.reason if entry else ''}",
        ),
        "projection-mechanism-unknown": (name not in known, f"{name!r} gives no private components"),
        "allocation-missing": (
            not shares[PROJECTION],
            f"the allocation leaves nothing for {name!r}, which measures the projection apart",
        ),
    }
    hint = f"use `kind: private-pca` with auto, {', '.join(known)}, and give the projection a fraction of the budget"
    for rule, (broken, message) in faults.items():
        if broken:
            where = "model.allocation" if rule == "allocation-missing" else "model.projection.mechanism"
            raise PlanError(message, rule=rule, where=where, hint=hint)


def require_exact_width(width: int) -> None:
    """Raise a PlanError for records with too many coordinates for exact sums."""
    most = EXACT >> (POINT_BITS + PROJECTION_BITS)
    if width > most:
        raise PlanError(
            f"the record has {width} encoded coordinates, more than {most}",
            rule="record-too-wide",
            where="columns",
            hint="declare fewer columns or categories; beyond that sums are not exact",
        )


def require_radius(request: PlanRequest) -> None:
    """Raise a PlanError for an automatic radius beside a named projection mechanism.

    A measured frame spends the kind of budget that the moments spend; a named mechanism may spend another.
    """
    if request.radius == AUTO and request.projection_mechanism != AUTO:
        raise PlanError(
            f"a radius that is bought does not go with components by {request.projection_mechanism!r}",
            rule="radius-not-applicable",
            where="model.radius",
            hint="use `mechanism: auto` for the projection, or give the radius as a number",
        )


def require_label(schema: RecordSchema) -> None:
    """Raise a PlanError for the LDA generator on a table without a label."""
    if schema.label is None:
        raise PlanError(
            "generator 'lda' needs a label",
            rule="generator-needs-label",
            where="model.generator",
            hint="give a categorical column `role: label`",
        )
