"""The checks section: what a release must reach to be published."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Self

from pydantic import AfterValidator, PlainValidator, model_validator

from dpcore.measurements.scores import ACCURACY, RMSE, SILHOUETTE
from dpcore.planning.budgeted_checks import BudgetedCheck
from tasks.spec.refusals import refuse
from tasks.spec.values import ExactFraction, PositiveFloat, PositiveWhole, Section, positive_float


def _at_most_all(share: float) -> float:
    if share > 1:
        refuse("share-range", f"a share must be at most 1, got {share:g}", "write for example 0.9")
    return share


Share = Annotated[float, PlainValidator(positive_float), AfterValidator(_at_most_all)]


def _part_of_the_budget(share: Fraction) -> Fraction:
    if not 0 < share < 1:
        refuse("budget-range", f"a part of epsilon must lie between 0 and 1, got {share}", "write for example 0.05")
    return share


MOST_CLUSTERS = 1000
"""More cannot be told apart in the rows that a model is trained on."""


def _some_clusters(clusters: int) -> int:
    if clusters < 2:
        refuse("too-few-clusters", f"there must be at least two clusters, got {clusters}", "write for example 8")
    if clusters > MOST_CLUSTERS:
        refuse("too-many-clusters", f"there may be at most {MOST_CLUSTERS} clusters", "write for example 8")
    return clusters


Part = Annotated[ExactFraction, AfterValidator(_part_of_the_budget)]
Clusters = Annotated[PositiveWhole, AfterValidator(_some_clusters)]


THRESHOLDS = ("at_least", "at_most")
"""Keys of a budgeted check that decide after it was measured."""


class AccuracySpec(Section):
    """How often a classifier of the synthetic rows must be right about the label of the real ones."""

    budget: Part
    at_least: Share | None = None


class RmseSpec(Section):
    """How far a prediction of the target may be off, in the target's unit."""

    budget: Part
    at_most: PositiveFloat | None = None


class SilhouetteSpec(Section):
    """How well the real rows must fall into clusters of the synthetic ones."""

    budget: Part
    at_least: Share | None = None
    clusters: Clusters | None = None
    """None is one for each level of the label, or eight."""


class ChecksSpec(Section):
    """Thresholds on metrics of the release; what is absent is not checked.

    The last three read the real rows once more, and take their part of epsilon for it.
    """

    min_rows: PositiveWhole | None = None
    mean_gap: PositiveFloat | None = None
    category_gap: PositiveFloat | None = None
    correlation_gap: PositiveFloat | None = None
    signal_to_noise: PositiveFloat | None = None
    means_inside: Share | None = None
    """Share of means and shares that differ by no more than noise and drawing explain."""
    pairs_inside: Share | None = None
    """The same of pairs of columns."""
    category_coverage: Share | None = None
    """Share of the levels clearly above 0 that appear in the synthetic table."""
    spectrum_above_noise: Share | None = None
    """Share of the measured directions that rise above the noise."""
    accuracy: AccuracySpec | None = None
    rmse: RmseSpec | None = None
    silhouette: SilhouetteSpec | None = None

    @property
    def budgeted(self) -> tuple[BudgetedCheck, ...]:
        """The checks that take a part of epsilon."""
        found: dict[str, AccuracySpec | RmseSpec | SilhouetteSpec | None] = {
            ACCURACY: self.accuracy,
            RMSE: self.rmse,
            SILHOUETTE: self.silhouette,
        }
        return tuple(
            BudgetedCheck(score=name, share=spec.budget, clusters=getattr(spec, "clusters", None))
            for name, spec in found.items()
            if spec is not None
        )

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        total = sum(check.share for check in self.budgeted)
        if total >= 1:
            refuse("check-budgets", f"the checks take {total} of epsilon and leave nothing", "give each 0.05, say")
        return self
