"""The checks section: what a release must reach to be published."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, PlainValidator

from tasks.stores.spec.refusals import refuse
from tasks.stores.spec.values import PositiveFloat, PositiveWhole, Section, positive_float


def _at_most_all(share: float) -> float:
    if share > 1:
        refuse("share-range", f"a share must be at most 1, got {share:g}", "write for example 0.9")
    return share


Share = Annotated[float, PlainValidator(positive_float), AfterValidator(_at_most_all)]


class ChecksSpec(Section):
    """Thresholds on metrics of the release; what is absent is not checked."""

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
