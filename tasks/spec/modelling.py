"""The model section: projection, mechanism, generator and the split of epsilon."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictBool,
    Tag,
    field_validator,
    model_validator,
)

from dpcore.planning.allocation import PRESETS
from dpcore.planning.request import AUTO, DFM, PLANNED
from dpcore.records.exact_sums import SMALLEST_RADIUS
from tasks.spec.refusals import UNION_TAG, refuse
from tasks.spec.values import ExactFraction, FilledText, Section, Slug, auto_or_whole, exact_fraction

ProjectionKind = Literal["planned", "auto", "ron", "private-pca", "public-pca", "none"]
GeneratorName = Literal["auto", "gaussian", "supervised", "mixture", "lda", "copula"]
Output = Literal["original", "projected", "both"]
AutoOrWhole = Annotated[int | Literal["auto"], PlainValidator(auto_or_whole)]


def _auto_whole_or_dfm(value: object) -> Any:
    return value if value == DFM else auto_or_whole(value)


WholeOrRule = Annotated[int | Literal["auto", "dfm"], PlainValidator(_auto_whole_or_dfm)]


class DimensionShareSpec(Section):
    """As many principal components as hold a share of the noisy variance together."""

    share: ExactFraction = Field(
        description="For `private-pca`: the smallest number of leading components is kept whose noisy variances reach "
        "this share of all. All coordinates are measured, once, with the whole budget; components, their number and "
        "the moments along them are computed from what was released, so the choice costs nothing."
    )

    @field_validator("share")
    @classmethod
    def _between_nothing_and_all(cls, share: Fraction) -> Fraction:
        if not 0 < share < 1:
            hint = "write a share such as 0.9; `dimension: auto` leaves the number to the planner"
            refuse("share-out-of-range", f"a share must lie between 0 and 1, got {share}", hint)
        return share


def _number_or_share(value: object) -> str:
    return f"{UNION_TAG}share" if isinstance(value, dict | DimensionShareSpec) else f"{UNION_TAG}number"


Dimension = Annotated[
    Annotated[WholeOrRule, Tag(f"{UNION_TAG}number")] | Annotated[DimensionShareSpec, Tag(f"{UNION_TAG}share")],
    Discriminator(_number_or_share),
]


class ProjectionSpec(Section):
    """How the features are projected, and to how many dimensions."""

    kind: ProjectionKind = Field(
        default="planned",
        description="`ron` is a random orthonormal projection; `private-pca` measures principal components with noise; "
        "`public-pca` takes them from public rows; `none` keeps every coordinate. Left out, or `planned`: `none` for a "
        "mixed table that is left to `copula`, and wherever the noise leaves the strongest direction of all "
        "coordinates together; else `ron` with as many dimensions as the noise leaves. `auto` asks for more: `none` "
        "only for a copula or where the average coordinate rises above the noise, and else `ron`.",
    )
    dimension: Dimension = Field(
        default="auto",
        description="The number of dimensions after the projection; `auto` lets the planner choose, by the noise. "
        "`dfm`, for `ron`, is RON-Gauss's rule: the largest number below 2 log m / log log m for m encoded feature "
        "coordinates, with natural logarithms (at most 5 up to 15 coordinates). It speaks of how Gaussian random "
        "projections are, not of noise. `{share: 0.9}`, for `private-pca`, keeps the components that hold this share "
        "of the noisy variance.",
        json_schema_extra={"values": "`auto`, `dfm`, whole number, or mapping"},
    )
    # The default is left out of the description, so that specifications without the key keep their digest.
    mechanism: Slug | None = Field(
        default=None,
        description="For `private-pca`: the mechanism that measures the components, apart from the moments: one that "
        "`model.mechanism` offers, `noisy-power-method` (needs a delta) or `exponential-pca` (labelled approximate). "
        "`auto` is the same as leaving it out.",
        json_schema_extra={"values": "name of a mechanism"},
    )
    public: FilledText | None = Field(
        default=None,
        description="For `public-pca`: a file of public rows with the same columns, relative to the workspace.",
    )

    @field_validator("dimension")
    @classmethod
    def _no_projection_has_no_dimension(cls, dimension: Any, info: Any) -> Any:
        if dimension != "auto" and info.data.get("kind") == "none":
            refuse("dimension-without-projection", "without a projection there is no dimension", "remove the key")
        return dimension

    @property
    def asked_dimension(self) -> int | str | Fraction:
        """The dimension as the planner is asked for it: a number, the name of a rule, or a share of the variance."""
        return self.dimension.share if isinstance(self.dimension, DimensionShareSpec) else self.dimension

    @model_validator(mode="after")
    def _public_rows_belong_to_public_pca(self) -> Self:
        if (self.kind == "public-pca") != (self.public is not None):
            hint = "give `public: FILE` with `kind: public-pca`, and only with it"
            refuse("public-file", f"the projection {self.kind} and a public file do not go together", hint, "public")
        return self

    @field_validator("mechanism")
    @classmethod
    def _automatic_is_not_set(cls, mechanism: str | None) -> str | None:
        """Left out of the description then, so that specifications without the key keep their digest."""
        return None if mechanism == "auto" else mechanism

    @model_validator(mode="after")
    def _mechanism_belongs_to_private_pca(self) -> Self:
        if self.mechanism is not None and self.kind != "private-pca":
            hint = "remove the key, or use `kind: private-pca`"
            message = f"the projection {self.kind} is not measured, so it has no mechanism"
            refuse("projection-mechanism-unused", message, hint, "mechanism")
        return self


class AllocationSpec(Section):
    """Which fraction of epsilon each measurement takes; together exactly 1."""

    radius: ExactFraction | None = Field(
        default=None, description="For `model.radius: auto` and `model.normalise`: typical length of a point."
    )
    centre: ExactFraction | None = Field(
        default=None, description="For `model.radius: auto` and `model.normalise`: the centre."
    )
    spread: ExactFraction | None = Field(default=None, description="For `model.radius: auto`: the spread.")
    projection: ExactFraction | None = Field(default=None, description="For `private-pca`: the components.")
    mean: ExactFraction | None = Field(default=None, description="The mean, if it is measured apart from the moments.")
    moments: ExactFraction | None = Field(default=None, description="Counts, sums and second moments.")
    marginals: ExactFraction | None = Field(default=None, description="For `copula`: the histograms of the columns.")

    @property
    def shares(self) -> dict[str, Fraction]:
        """The fractions that are given, by name."""
        return {name: share for name, share in self if share is not None}

    @model_validator(mode="after")
    def _fractions_of_one(self) -> Self:
        for name, share in self.shares.items():
            if share <= 0:
                refuse("not-positive", f"a fraction must be above 0, got {share}", "leave the name out instead", name)
        total = sum(self.shares.values())
        if total != 1:
            hint = "change one of them; thirds can be written as 1/3"
            refuse("allocation-sum", f"the fractions sum to {total}, not to 1", hint)
        return self


def _auto_or_mapping(value: object) -> str:
    return f"{UNION_TAG}auto" if isinstance(value, str) else f"{UNION_TAG}fractions"


AllocationName = Literal["auto", *PRESETS]  # type: ignore[valid-type]  # the papers' splits by name
AutoOrAllocation = Annotated[
    Annotated[AllocationName, Tag(f"{UNION_TAG}auto")] | Annotated[AllocationSpec, Tag(f"{UNION_TAG}fractions")],
    Discriminator(_auto_or_mapping),
]


def _auto_or_radius(value: object) -> Any:
    if value is None:
        return PLANNED
    if value in (AUTO, PLANNED):
        return value
    radius = exact_fraction(value)
    if not SMALLEST_RADIUS <= radius <= 1:
        hint = "the ball around the middle of all bounds has the radius 1; `auto` measures a smaller one"
        refuse("radius-out-of-range", f"a radius must lie between 1/256 and 1, got {radius}", hint)
    return None if radius == 1 else radius


AutoOrRadius = Annotated[
    Fraction | Literal["auto", "planned"] | None,
    PlainValidator(_auto_or_radius),
    PlainSerializer(str, when_used="unless-none"),
]


class ModelSpec(Section):
    """What is measured and what is drawn from it; whatever is `auto` the planner chooses."""

    projection: ProjectionSpec = Field(
        default_factory=ProjectionSpec, description="How the encoded columns are projected before they are measured."
    )
    mechanism: Slug = Field(
        default="auto",
        description="The noise on the moments: `wishart-difference-trace`, `wishart-difference`, `nuclear-k-norm` (up "
        "to 8 dimensions) or `laplace`; with a delta also `gaussian`. `auto` takes the least expected noise.",
        json_schema_extra={"values": "`auto` or name of a mechanism"},
    )
    generator: GeneratorName = Field(
        default="auto",
        description="What synthetic rows are drawn from: `gaussian`; `supervised` (with a target); `mixture` (one "
        "covariance for each class); `lda` (one covariance for all classes: for few rows or many classes); `copula` "
        "(mixed tables: a histogram of every column, and tables of all pairs; it keeps every column, so it has no "
        "projection). `auto` takes `copula` for a mixed table with enough rows, unless a projection or a radius is "
        "given; numbers with a label count as mixed if both are left out.",
    )
    allocation: AutoOrAllocation = Field(
        default="auto",
        description="How the budget is split between measurements: fractions, or a paper's split: `ron-gauss` (0.3 for "
        "the mean), `pca-gauss` (0.1), `pca-gauss-0.1` to `pca-gauss-0.9` (that fraction for the components).",
        json_schema_extra={"values": "`auto`, a paper's split, or mapping of fractions"},
    )
    # The radius 1 is left out of the description: an earlier record without a radius says 1.
    radius: AutoOrRadius = Field(
        default=PLANNED,
        description="The radius of the ball in which points are measured, from 1/256 to 1. Numbers seldom fill their "
        "bounds, so `auto` spends an eighth of the budget on centre and spread, measures points around that centre and "
        "in units of that spread, and clips points beyond. Left out, or `planned`: `auto` for every table with a "
        "column of numbers that is not left to `copula`, and 1, the whole ball, for others and beside `normalise` or "
        "an `allocation` without parts for a frame.",
        json_schema_extra={"values": "`auto`, `planned` or number"},
    )

    @property
    def given_radius(self) -> Fraction:
        """The radius where it is a number, and else 1; a frame that is measured has its own."""
        return self.radius if isinstance(self.radius, Fraction) else Fraction(1)

    # `false` is left out of the description, so that specifications without the key keep their digest.
    accept_noise: StrictBool | None = Field(
        default=None,
        description="Whether to release what is foreseen to be mostly noise. Without `true`, `dprelease run` refuses "
        "it before anything is reserved, with what would help, and `dprelease plan` says so. The check "
        "`signal_to_noise` judges what was measured, with this key or without it.",
    )

    @field_validator("accept_noise")
    @classmethod
    def _refused_is_not_set(cls, accept: bool | None) -> bool | None:
        return accept or None

    # `none` is left out of the description, so that specifications without the key keep their digest.
    normalise: Literal["none", "length"] | None = Field(
        default=None,
        description="`length` is RON-Gauss's pre-processing: the features of every record are scaled to the same "
        "length, moved by a mean that a part of the budget buys, and scaled again. Rows are decoded at a typical "
        "length that is bought as well; how long each row was is lost, and the means of columns are guesses. For "
        "tables of numbers, without a projection or with a random one. By default `none`.",
    )

    @field_validator("generator", mode="before")
    @classmethod
    def _no_release_of_noisy_rows(cls, generator: object) -> object:
        """Refuse with the reason what GUARANTEE.md, M10, leaves to comparisons in Python."""
        if generator == "noisy-rows":
            refuse(
                "generator-local",
                "noisy rows show the exact number of rows, protect each row by itself alone (local differential "
                "privacy) and may tell by their order what the noise hides: no release publishes them",
                "use `auto`; to compare with the papers, dpcore.JiangPca, dpcore.BernoulliRows and dpcore.LopRows "
                "publish such rows in Python",
            )
        return generator

    @field_validator("normalise")
    @classmethod
    def _nothing_is_not_set(cls, normalise: str | None) -> str | None:
        return None if normalise == "none" else normalise

    # `rounded` is left out of the description, so that specifications without the key keep their digest.
    sampling: Literal["rounded", "independent"] | None = Field(
        default=None,
        description="How rows are drawn from the model. `rounded` draws them together, so that the table adds little "
        "error to the noise: a copula's groups, and their pairs, usually come within a few rows of what the model "
        "expects, and the means of other generators within a small part of a standard error. `independent` draws "
        "every row independently of all others, as a survey would. Both cost nothing. By default `rounded`.",
    )

    @field_validator("sampling")
    @classmethod
    def _rounded_is_not_set(cls, sampling: str | None) -> str | None:
        return None if sampling == "rounded" else sampling

    @property
    def row_sampling(self) -> str:
        """How rows are drawn from the model."""
        return self.sampling or "rounded"

    # `original` is left out of the description, so that specifications without the key keep their digest.
    output: Output | None = Field(
        default=None,
        description="Which tables are published: `original` is `data.parquet`, rows in the columns of the "
        "specification; `projected` is `projected.parquet` instead, the same rows as points along the projection, in "
        "columns c1, c2 and so on, with label and target in their own units; `both` is both, row by row the same. "
        "`model.json` has the projection, with which analysts project rows of their own. By default `original`.",
    )

    @field_validator("output")
    @classmethod
    def _original_is_not_set(cls, output: Output | None) -> Output | None:
        return None if output == "original" else output

    @property
    def publishes_original(self) -> bool:
        """Whether the release has a table in the original columns."""
        return self.output != "projected"

    @property
    def publishes_projected(self) -> bool:
        """Whether the release has a table of projected points."""
        return self.output is not None

    @property
    def shares(self) -> dict[str, Fraction] | None:
        """The fractions asked for, given or by a preset's name; None leaves them to the planner."""
        if isinstance(self.allocation, AllocationSpec):
            return self.allocation.shares
        return PRESETS.get(self.allocation)
