"""The checks section: what a release must reach to be published."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Self

from pydantic import AfterValidator, Field, PlainValidator, model_validator

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


BUDGET = "The fraction of epsilon that the check spends, between 0 and 1."


class AccuracySpec(Section):
    """How often a classifier of the synthetic rows must be right about the label of the real ones."""

    budget: Part = Field(description=BUDGET)
    at_least: Share | None = Field(default=None, description="The smallest accuracy that passes.")


class RmseSpec(Section):
    """How far a prediction of the target may be off, in the target's unit."""

    budget: Part = Field(description=BUDGET)
    at_most: PositiveFloat | None = Field(
        default=None, description="The largest error that passes, in the target's unit."
    )


class SilhouetteSpec(Section):
    """How well the real rows must fall into clusters of the synthetic ones."""

    budget: Part = Field(description=BUDGET)
    at_least: Share | None = Field(default=None, description="The smallest silhouette that passes.")
    clusters: Clusters | None = Field(
        default=None,
        description="The number of clusters, from 2 to 1,000; by default one for each level of the label, or eight.",
    )


class ChecksSpec(Section):
    """Thresholds on metrics of the release; what is absent is not checked.

    The last three read the real rows once more, and take their part of epsilon for it.
    """

    min_rows: PositiveWhole | None = Field(default=None, description="The smallest noisy count of rows that passes.")
    mean_gap: PositiveFloat | None = Field(
        default=None,
        description="The largest difference between a column's measured and synthetic mean, as a share of its range.",
    )
    category_gap: PositiveFloat | None = Field(
        default=None, description="The largest difference between a level's measured and synthetic share."
    )
    correlation_gap: PositiveFloat | None = Field(
        default=None,
        description="The largest root mean square of the differences between measured and synthetic correlations.",
    )
    signal_to_noise: PositiveFloat | None = Field(
        default=None,
        description="The smallest ratio of the average measured eigenvalue to the expected operator norm of the noise.",
    )
    means_inside: Share | None = Field(
        default=None,
        description="The smallest fraction of means and shares that differ from the measurement by no more than "
        "the noise and the drawing of rows explain.",
    )
    pairs_inside: Share | None = Field(default=None, description="The same fraction for pairs of columns.")
    category_coverage: Share | None = Field(
        default=None,
        description="The smallest fraction of the levels measured clearly above 0 that appear in the synthetic table.",
    )
    spectrum_above_noise: Share | None = Field(
        default=None, description="The smallest fraction of the measured directions that rise above the noise."
    )
    isotropy: Share | None = Field(
        default=None,
        description="The smallest ratio of the features' average variance to that in their widest direction, among the "
        "modelled coordinates: one of the conditions under which random projections are nearly Gaussian. The others, "
        "on the lengths of records, cannot be seen in what is released.",
    )
    accuracy: AccuracySpec | None = Field(
        default=None,
        description="A classifier trained on the synthetic rows predicts the label of the real rows; "
        "the noisy share of correct predictions is checked.",
    )
    rmse: RmseSpec | None = Field(
        default=None,
        description="A regression trained on the synthetic rows predicts the target of the real rows; "
        "the noisy root mean square error is checked.",
    )
    silhouette: SilhouetteSpec | None = Field(
        default=None,
        description="Clusters of the synthetic rows are applied to the real rows; the noisy silhouette is checked.",
    )

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
