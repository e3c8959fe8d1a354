"""The choice of the generator and of the dimension, from public constants only."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral

from dpcore.accounting import Budget
from dpcore.mechanisms.expected_noise import operator_noise
from dpcore.mechanisms.names import MEAN
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.planning.class_structure import Structure, StructureInputs, choose_structure
from dpcore.planning.layouts import moments_layout, projected_size
from dpcore.planning.mechanism_choice import best_event
from dpcore.planning.plan import signal_to_noise
from dpcore.planning.request import AUTO, DIAGONAL, LDA, PlanError, PlanRequest
from dpcore.planning.validation import require_label
from dpcore.records.encoding import Encoding
from dpcore.records.schema import RecordSchema, Role

NOISE_SHARE = 0.25
"""The operator norm of the noise stays below this share of the average eigenvalue at the chosen dimension."""


def choose_generator(request: PlanRequest, budgets: list[Budget], reasons: list[str]) -> tuple[str, RecordSchema]:
    """Return the requested generator, or the one that suits the schema, and the schema that it models.

    Raises: PlanError if the generator is unknown or does not fit the schema.
    """
    schema, choice = request.schema, request.generator
    if choice == AUTO and schema.label:
        return _choose_class_generator(request, budgets, reasons), schema
    if choice == AUTO:
        choice = "supervised" if any(column.role is Role.TARGET for column in schema.columns) else "gaussian"
        why = {
            "supervised": "the target is measured jointly with the features and is never projected",
            "gaussian": "the table has neither a label nor a target",
        }
        reasons.append(f"generator {choice}: {why[choice]}")
    if choice == LDA:
        require_label(schema)
        reasons.append(
            "generator lda: one block measures the class counts, the class means and the second moments that all "
            "classes share; rows are drawn from a Gaussian around the mean of their class with the shared covariance, "
            "because the greedy sampler of Jiang et al. works on the original columns only, and row by row"
        )
    if choice not in ("mixture", "supervised", "gaussian", LDA):
        raise PlanError(
            f"generator {choice!r} cannot be released by this version",
            rule="generator-unavailable",
            where="model.generator",
            hint="use auto, gaussian, supervised, mixture, lda or copula",
        )
    if choice not in ("mixture", LDA) and schema.label is not None:
        columns = (replace(c, role=Role.FEATURE) if c.role is Role.LABEL else c for c in schema.columns)
        reasons.append(f"the label is modelled as a feature, because generator {choice} has no classes")
        schema = RecordSchema(tuple(columns))
    return choice, schema


def _choose_class_generator(request: PlanRequest, budgets: list[Budget], reasons: list[str]) -> str:
    """Return the generator of a table with a label: class blocks, one block with labels, or its diagonal variant.

    If the dimension is still open, class blocks would get the largest one at which they rise above the
    noise, and are chosen if that is at least the number of classes.
    """
    encoding, mixture = Encoding(request.schema), replace(request, generator="mixture")
    classes, dimension = encoding.schema.class_count, choose_dimension(mixture, encoding, budgets, [])
    if MEAN in (request.allocation or {}):
        reasons.append("generator mixture: class blocks, whose counts and means are measured separately")
        return "mixture"
    if request.projection != "none" and request.dimension == AUTO:
        few = dimension < classes
        why = f"the noise allows class blocks of at most {dimension} dimensions, fewer than there are classes"
        reasons.append(
            f"generator lda: {why}" if few else "generator mixture: class blocks together cost as much as one block"
        )
        return LDA if few else "mixture"
    size = projected_size(request, encoding, dimension)
    block, pooled = (
        best_event(way, moments_layout(way, size, classes), budgets)
        for way in (mixture, replace(request, generator=LDA))
    )
    scale = StructureInputs(
        rows=request.expected_rows,
        classes=classes,
        size=size,
        block_noise=operator_noise(block),
        pooled_noise=operator_noise(pooled),
    )
    structure, why = choose_structure(scale)
    generator = {Structure.BLOCKS: "mixture", Structure.POOLED: LDA, Structure.DIAGONAL: DIAGONAL}[structure]
    reasons.append(f"generator {LDA if generator == DIAGONAL else generator}: {why}")
    return generator


def choose_dimension(request: PlanRequest, encoding: Encoding, budgets: list[Budget], reasons: list[str]) -> int:
    """Return the requested dimension, or the largest at which class blocks rise above the noise.

    Raises: PlanError for a dimension that is not between 1 and the number of feature coordinates.
    """
    if request.projection == "none":
        return encoding.width
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
