"""What a record says of its projection: which rule gave the dimension, and what the kept components hold."""

from __future__ import annotations

from typing import Any

from dpcore.measurements.contribution import held_shares
from dpcore.measurements.noisy_moments import NoisyMoments, pooled_moments
from dpcore.measurements.projection import Projection, feature_spectrum
from tasks.spec.plan import PlannedRelease

RULES = {
    "given": "as the specification says",
    "auto": "the largest dimension at which the noise stays small against what is measured",
    "dfm": "RON-Gauss's rule, the largest below 2 log m / log log m with natural logarithms; it speaks of how Gaussian "
    "projections are, not of noise",
}


def published_output(record: dict[str, Any]) -> str | None:
    """Which tables a release has: projected or both; None for the original columns alone."""
    output: str | None = record.get("specification", {}).get("model", {}).get("output")
    return output


def kept_dimension(run: PlannedRelease, projection: Projection) -> int:
    """The features' dimension in the release; where a share decides it, the released spectrum does."""
    return run.plan.dimension if run.plan.variance_share is None else projection.dimension - run.encoding.target_width


def projection_facts(run: PlannedRelease, seed: str, moments: NoisyMoments, projection: Projection) -> dict[str, Any]:
    """The projection of a release for its record; with a share also what the kept components hold, and of how many."""
    dimension, share = kept_dimension(run, projection), run.plan.variance_share
    facts: dict[str, Any] = {
        "kind": projection.kind,
        "dimension": dimension,
        "encoded_width": run.encoding.width,
        "seed": seed,
        "dimension_rule": run.plan.dimension_rule,
    }
    if share is None:
        return facts
    spectrum = feature_spectrum(pooled_moments(moments.released).covariance, run.encoding)
    held = float(held_shares(spectrum)[dimension - 1]) if spectrum[-1] > 0 else 0.0
    return facts | {"kept": {"share": float(share), "held": held, "of": len(spectrum)}}


def rule_words(projection: dict[str, Any]) -> str | None:
    """How the dimension was chosen, in words; None where every coordinate is kept or an earlier version did not say."""
    if "kept" in projection:
        kept = projection["kept"]
        return (
            f"kept {projection['dimension']} of {kept['of']} components, which hold {kept['held']:.1%} of the noisy "
            f"variance (at least {kept['share']:.4g} was asked for); counted in the released spectrum"
        )
    return RULES.get(str(projection.get("dimension_rule")))
