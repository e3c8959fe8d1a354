"""How the budget is split between measurements: by the specification, by a paper's preset, or optimally.

Every release measures its moments; some also measure the projection or the mean separately.
Shares are fractions of epsilon if a measurement is pure, and of rho if all of them are Gaussian.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, Rho, rho_of_epsilon
from dpcore.mechanisms.names import CENTRE, MARGINALS, MEAN, MOMENTS, PROJECTION, RADIUS, SPREAD
from dpcore.planning.request import AUTO, COPULA, PlanError, PlanRequest

Shares = dict[str, Fraction]

GAUSSIAN_NOISE = ("gaussian", "noisy-power-method", "histogram-gaussian")
"""Mechanisms of a release's own measurements that spend rho and need delta > 0; the others spend epsilon."""

DEFAULT_PROJECTION_SHARE = Fraction(3, 10)
"""The share of private components if it cannot be optimised: for a named mechanism, or before the dimension is set."""

MARGINALS_SHARE = Fraction(1, 5)
"""The share of the histograms; the Gram matrix of their groups takes the rest."""

SHARE_GRID = 20
"""Shares are optimised over multiples of 1/20."""

FRAME_SHARES: Shares = {RADIUS: Fraction(1, 40), CENTRE: Fraction(3, 40), SPREAD: Fraction(1, 40)}
"""The shares of a measured frame: a squared length is one number, a centre has one number per coordinate."""


PRESETS: dict[str, Shares] = {
    "ron-gauss": {MEAN: Fraction(3, 10), MOMENTS: Fraction(7, 10)},
    "pca-gauss": {MEAN: Fraction(1, 10), MOMENTS: Fraction(9, 10)},
    **{
        f"pca-gauss-{float(alpha):g}": {PROJECTION: alpha, MEAN: (1 - alpha) / 10, MOMENTS: (1 - alpha) * 9 / 10}
        for alpha in (Fraction(tenths, 10) for tenths in range(1, 10))
    },
}
"""The papers' splits: mean and covariance measured separately, and PCA-Gauss's grid of alphas for the components."""


def preset_or_fractions(allocation: str | Mapping[str, float | Fraction]) -> Shares | None:
    """Return the shares of a named preset or of given fractions, exactly; None for "auto".

    Raises: ValueError for an unknown name, or fractions that are not positive or do not sum to 1.
    """
    if isinstance(allocation, str):
        if allocation != AUTO and allocation not in PRESETS:
            raise ValueError(f"allocation must be auto, fractions, or one of {', '.join(PRESETS)}")
        return PRESETS.get(allocation)
    try:
        shares = {name: Fraction(str(share)) for name, share in allocation.items()}
    except ValueError:  # NaN, infinity or text
        shares = {}
    if sum(shares.values()) != 1 or any(share <= 0 for share in shares.values()):
        raise ValueError(f"the fractions of an allocation must be positive and sum to 1, got {dict(allocation)}")
    return shares


def frame_shares(request: PlanRequest) -> Shares:
    """Return the default shares of the frame that is measured: all, those of normalised points, or none."""
    wanted = set(FRAME_SHARES) if request.radius == AUTO else {RADIUS, CENTRE} if request.normalise else set()
    return {name: share for name, share in FRAME_SHARES.items() if name in wanted}


def shares_of(request: PlanRequest, projection: Fraction = DEFAULT_PROJECTION_SHARE) -> Shares:
    """Return the share of every measurement; `projection` is the components' share if the request has no allocation.

    Raises: PlanError if the allocation names a measurement that this release does not make, leaves out one that it
    makes, or combines a separate mean with Gaussian noise.
    """
    if request.allocation is None:
        frame = dict.fromkeys(FRAME_SHARES, Fraction(0)) | frame_shares(request)
        rest = 1 - sum(frame.values())
        apart = request.projection == "private-pca" and request.variance_share is None
        share = projection if apart else Fraction(0)
        return {**frame, PROJECTION: share * rest, MEAN: Fraction(0), MOMENTS: (1 - share) * rest}
    _require_measured(request, request.allocation)
    return {name: request.allocation.get(name, Fraction(0)) for name in (*FRAME_SHARES, PROJECTION, MEAN, MOMENTS)}


def marginals_share(request: PlanRequest, kind: type[Budget]) -> Fraction:
    """Return the histograms' share in a mixed table: the requested one, or the default.

    Raises: PlanError if the allocation names other measurements than this release makes.
    """
    if request.allocation is None:
        return MARGINALS_SHARE
    _require_measured(request, request.allocation)
    return request.allocation[MARGINALS]


def _require_measured(request: PlanRequest, allocation: Shares) -> None:
    copula, components = request.generator == COPULA, request.projection == "private-pca"
    frame = set(frame_shares(request))
    measured = {MOMENTS, MARGINALS if copula else MEAN} | frame | ({PROJECTION} if components else set())
    unused = sorted(set(allocation) - measured)
    if unused:
        raise PlanError(
            f"the allocation gives budget to {', '.join(unused)}, which this release does not measure",
            rule="allocation-unused",
            where="model.allocation",
            hint=f"use `allocation: auto`, a preset, or fractions of {', '.join(sorted(measured))} only",
        )
    components_first = components and MEAN in allocation  # then the components are measured separately
    missing = {MOMENTS} | frame | ({PROJECTION} if components_first else set()) | ({MARGINALS} if copula else set())
    if missing - set(allocation):
        raise PlanError(
            f"the allocation gives no budget to the {min(missing - set(allocation))}, which this release measures",
            rule="allocation-missing",
            where="model.allocation",
            hint="give it a fraction of the budget",
        )
    if MEAN in allocation and any(name in GAUSSIAN_NOISE for name in (request.mechanism, request.projection_mechanism)):
        raise PlanError(
            "a separately measured mean uses pure noise, so every other mechanism must be pure too",
            rule="allocation-not-pure",
            where="model.allocation",
            hint="remove the mean from the allocation: the moments contain it, with less noise",
        )


def whole_budgets(request: PlanRequest) -> list[Budget]:
    """Return the whole budget as a pure epsilon and, if delta, cap and allocation allow Gaussian noise, as a rho."""
    ways: list[Budget] = [Epsilon(request.epsilon)]
    if request.delta > 0 and not request.pure_only and MEAN not in (request.allocation or {}):
        ways.append(Rho(rho_of_epsilon(float(request.epsilon), delta=float(request.delta))))
    return ways


def moments_budgets(request: PlanRequest, shares: Shares) -> list[Budget]:
    """Return the moments' part of each of the `whole_budgets`."""
    beside = None if request.projection_mechanism == AUTO else budget_kind(request.projection_mechanism)
    return [budget_of_share(request, shares[MOMENTS], type(way), beside or type(way)) for way in whole_budgets(request)]


def budget_kind(mechanism: str) -> type[Budget]:
    """Return the kind of budget that a mechanism spends."""
    return Rho if mechanism in GAUSSIAN_NOISE else Epsilon


def budget_of_share(request: PlanRequest, share: Fraction, kind: type[Budget], beside: type[Budget]) -> Budget:
    """Return the budget of a measurement that spends `kind`, if the measurement that takes the rest spends `beside`.

    Two measurements of one kind divide epsilon or rho, which add. Measurements of different kinds
    divide epsilon: the Gaussian one gets the rho that costs at most its part of epsilon at the whole
    delta, so the parts add up to at most the requested epsilon.
    """
    if kind is Epsilon:
        return Epsilon(share * request.epsilon)
    delta = float(request.delta)
    if beside is Rho:
        return Rho(share * rho_of_epsilon(float(request.epsilon), delta=delta))
    return Rho(rho_of_epsilon(float(share * request.epsilon), delta=delta))


def separate_error(components: float, moments: float, share: Fraction, kind: type[Budget]) -> float:
    """Return the expected error if the components take a share of the budget and the moments the rest.

    `components` and `moments` are operator norms of the noise at the whole budget, relative to the
    average eigenvalue. The captured variance falls only with the square of a subspace's perturbation,
    while the error of the moments is linear in theirs. Pure noise grows as 1/share, Gaussian noise as
    1/sqrt(share).
    """
    power = 1.0 if kind is Epsilon else 0.5
    return float((components / float(share) ** power) ** 2 + moments / float(1 - share) ** power)


def best_share(components: float, moments: float, kind: type[Budget]) -> Fraction:
    """Return the share of the components, in twentieths, that minimises `separate_error`."""
    shares = [Fraction(twentieths, SHARE_GRID) for twentieths in range(1, SHARE_GRID)]
    return min(shares, key=lambda share: separate_error(components, moments, share, kind))
