"""The choice of the generator, from public constants only."""

from __future__ import annotations

from dataclasses import replace

from dpcore.accounting import Budget
from dpcore.mechanisms.expected_noise import operator_noise
from dpcore.mechanisms.names import MEAN
from dpcore.planning.class_structure import Structure, StructureInputs, choose_structure
from dpcore.planning.dimension_choice import choose_dimension
from dpcore.planning.layouts import moments_layout, projected_size
from dpcore.planning.mechanism_choice import best_event
from dpcore.planning.request import AUTO, DIAGONAL, LDA, PlanError, PlanRequest
from dpcore.planning.validation import require_label
from dpcore.records.encoding import Encoding
from dpcore.records.schema import RecordSchema, Role


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
        schema = replace(schema, columns=tuple(columns))
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
