"""Checks of a request; each raises a PlanError that names the broken rule and a remedy."""

from __future__ import annotations

from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import COMPONENTS_KEY, PROJECTION_KEY, Status
from dpcore.mechanisms.names import MEAN, PROJECTION
from dpcore.mechanisms.registry import offered_under
from dpcore.planning.allocation import Shares
from dpcore.planning.request import AUTO, DFM, PlanError, PlanRequest, readable_number
from dpcore.records.exact_sums import EXACT, POINT_BITS, PROJECTION_BITS
from dpcore.records.schema import IntervalColumn, RecordSchema


def require_projection(request: PlanRequest) -> None:
    """Raise a PlanError unless the projection is known."""
    known = offered_under(PROJECTION_KEY)
    if request.projection not in known:
        raise PlanError(
            f"the projection {request.projection!r} is unknown",
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
            f"the projection {request.projection!r} is not measured, so it has no mechanism",
        ),
        "mechanism-refuted": (
            entry is not None and entry.status is Status.REFUTED,
            f"mechanism {name!r} is refuted: {entry.reason if entry else ''}",
        ),
        "projection-mechanism-unknown": (name not in known, f"{name!r} does not measure principal components"),
        "allocation-missing": (
            not shares[PROJECTION],
            f"the allocation gives no budget to the projection, which {name!r} measures separately",
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
            hint="declare fewer columns or categories: sums over more coordinates would not be exact",
        )


def require_radius(request: PlanRequest) -> None:
    """Raise a PlanError for an automatic radius beside a named projection mechanism.

    A measured frame spends the kind of budget that the moments spend; a named mechanism may spend another.
    """
    if request.radius == AUTO and request.projection_mechanism != AUTO:
        raise PlanError(
            f"a measured radius cannot be combined with the projection mechanism {request.projection_mechanism!r}",
            rule="radius-not-applicable",
            where="model.radius",
            hint="use `mechanism: auto` for the projection, or give the radius as a number",
        )


def require_normalisable(request: PlanRequest, schema: RecordSchema) -> None:
    """Raise a PlanError for normalised points of a table that is not numeric, or along principal components.

    A level has no length of its own, and components of points are none of directions.
    """
    if not request.normalise:
        return
    if request.projection not in ("ron", "none"):
        raise PlanError(
            f"normalised points do not go with the projection {request.projection!r}",
            rule="normalise-not-applicable",
            where="model.normalise",
            hint="use `projection: {kind: ron}` or `{kind: none}`, or remove `normalise`",
        )
    other = [c.name for c in schema.encoded_columns if not isinstance(c, IntervalColumn) or c.missing_level]
    if other:
        raise PlanError(
            f"only numbers can be normalised, and {', '.join(other[:3])} {'are' if len(other) > 1 else 'is'} encoded "
            "by levels",
            rule="normalise-not-numeric",
            where="model.normalise",
            hint="remove `normalise`; a label is no feature with `generator: mixture` or `lda`, and missing cells "
            "without `missing: category` become the middle",
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
