"""How the budget is split over what is measured: the specification's fractions, the papers' presets, or the best.

A release measures its moments, and sometimes the projection, or the mean, apart from
them. Fractions are of epsilon where the parts are pure, of rho where all are Gaussian.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dpcore.accounting import Budget, Epsilon, Rho, rho_of_epsilon
from dpcore.mechanisms.names import CENTRE, MARGINALS, MEAN, MOMENTS, PROJECTION, RADIUS, SPREAD
from dpcore.planning.request import AUTO, COPULA, PlanError, PlanRequest

Shares = dict[str, Fraction]

GAUSSIAN_NOISE = ("gaussian", "noisy-power-method", "histogram-gaussian")
"""Mechanisms that spend rho and need delta > 0; all others spend epsilon."""

DEFAULT_PROJECTION_SHARE = Fraction(3, 10)
"""What private components take where nothing better is known: a named mechanism, or a dimension yet to be chosen."""

MARGINALS_SHARE = {Rho: Fraction(1, 10), Epsilon: Fraction(1, 5)}
"""What histograms take beside the Gram of their groups: noise that adds up in squares is cheaper to share."""

SHARE_GRID = 20
"""Shares are chosen in twentieths."""


FRAME_SHARES: Shares = {RADIUS: Fraction(1, 40), CENTRE: Fraction(3, 40), SPREAD: Fraction(1, 40)}
"""What a frame takes: a squared length is one number, a centre one a coordinate."""


def _pca_gauss(alpha: Fraction) -> Shares:
    rest = 1 - alpha
    return {PROJECTION: alpha, MEAN: rest / 10, MOMENTS: rest * 9 / 10}


PRESETS: dict[str, Shares] = {
    "ron-gauss": {MEAN: Fraction(3, 10), MOMENTS: Fraction(7, 10)},
    "pca-gauss": {MEAN: Fraction(1, 10), MOMENTS: Fraction(9, 10)},
    **{f"pca-gauss-0.{tenths}": _pca_gauss(Fraction(tenths, 10)) for tenths in range(1, 10)},
}
"""The papers' splits: mean and covariance measured apart, and PCA-Gauss's grid of alphas for the components."""


def preset_or_fractions(allocation: str | Mapping[str, float | Fraction]) -> Shares | None:
    """A named split or given fractions, exact; None for "auto".

    Raises: ValueError for an unknown name, or fractions that do not sum to 1.
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


def shares_of(request: PlanRequest, projection: Fraction = DEFAULT_PROJECTION_SHARE) -> Shares:
    """Every measurement's share; `projection` is what components take where the specification leaves it open.

    Raises: PlanError for fractions of something that is not measured, or a separate mean beside Gaussian noise.
    """
    if request.allocation is None:
        frame = FRAME_SHARES if request.radius == AUTO else dict.fromkeys(FRAME_SHARES, Fraction(0))
        rest = 1 - sum(frame.values())
        share = projection if request.projection == "private-pca" else Fraction(0)
        return {**frame, PROJECTION: share * rest, MEAN: Fraction(0), MOMENTS: (1 - share) * rest}
    _require_measured(request, request.allocation)
    return {name: request.allocation.get(name, Fraction(0)) for name in (*FRAME_SHARES, PROJECTION, MEAN, MOMENTS)}


def marginals_share(request: PlanRequest, kind: type[Budget]) -> Fraction:
    """What the histograms of a mixed table take: as the specification says, or the usual.

    Raises: PlanError for fractions of something else.
    """
    if request.allocation is None:
        return MARGINALS_SHARE[kind]
    _require_measured(request, request.allocation)
    return request.allocation[MARGINALS]


def _require_measured(request: PlanRequest, allocation: Shares) -> None:
    copula = request.generator == COPULA
    measured = {MOMENTS, MARGINALS if copula else MEAN}
    measured |= {PROJECTION} if request.projection == "private-pca" else set()
    frame = set(FRAME_SHARES) if request.radius == AUTO else set()
    measured |= frame
    unused = sorted(set(allocation) - measured)
    if unused:
        raise PlanError(
            f"the allocation gives budget to {', '.join(unused)}, which this release does not measure",
            rule="allocation-unused",
            where="model.allocation",
            hint=f"use `allocation: auto`, a preset, or fractions of {', '.join(sorted(measured))} only",
        )
    components_first = request.projection == "private-pca" and MEAN in allocation  # they need a mean of their own
    missing = {MOMENTS} | frame | ({PROJECTION} if components_first else set()) | ({MARGINALS} if copula else set())
    if missing - set(allocation):
        raise PlanError(
            f"the allocation leaves nothing for the {min(missing - set(allocation))}",
            rule="allocation-missing",
            where="model.allocation",
            hint="give it a fraction of the budget",
        )
    if MEAN in allocation and any(name in GAUSSIAN_NOISE for name in (request.mechanism, request.projection_mechanism)):
        raise PlanError(
            "a mean that is measured apart is pure, and so must be everything beside it",
            rule="allocation-not-pure",
            where="model.allocation",
            hint="leave the mean out: it comes out of the moments' own measurement, with less noise",
        )


def whole_budgets(request: PlanRequest) -> list[Budget]:
    """The ways in which the promised (epsilon, delta) can be spent: pure, and as Gaussian noise if delta allows."""
    ways: list[Budget] = [Epsilon(request.epsilon)]
    if request.delta > 0 and MEAN not in (request.allocation or {}):
        ways.append(Rho(rho_of_epsilon(float(request.epsilon), delta=float(request.delta))))
    return ways


def moments_budgets(request: PlanRequest, shares: Shares) -> list[Budget]:
    """What is left to the moments, for each way to spend it."""
    beside = None if request.projection_mechanism == AUTO else budget_kind(request.projection_mechanism)
    return [budget_of_share(request, shares[MOMENTS], type(way), beside or type(way)) for way in whole_budgets(request)]


def budget_kind(mechanism: str) -> type[Budget]:
    """The kind of budget that a mechanism spends."""
    return Rho if mechanism in GAUSSIAN_NOISE else Epsilon


def budget_of_share(request: PlanRequest, share: Fraction, kind: type[Budget], beside: type[Budget]) -> Budget:
    """A share of the budget for a measurement of one kind, beside one of another kind that takes the rest.

    Two of a kind share epsilon or rho, which add. Unlike kinds share epsilon: the Gaussian
    one gets the rho that stays within its part at the whole delta, so that the parts,
    stated one beside the other, stay within the epsilon asked for.
    """
    if kind is Epsilon:
        return Epsilon(share * request.epsilon)
    delta = float(request.delta)
    if beside is Rho:
        return Rho(share * rho_of_epsilon(float(request.epsilon), delta=delta))
    return Rho(rho_of_epsilon(float(share * request.epsilon), delta=delta))


def separate_error(components: float, moments: float, share: Fraction, kind: type[Budget]) -> float:
    """What the noise costs where components take a share of the budget and the moments the rest.

    `components` and `moments` are the noise's operator norms with the whole budget, over an
    average eigenvalue. A perturbed subspace loses captured variance in the second order
    only, noisy moments are off in the first. Pure noise grows as 1/share, Gaussian as its root.
    """
    power = 1.0 if kind is Epsilon else 0.5
    return float((components / float(share) ** power) ** 2 + moments / float(1 - share) ** power)


def best_share(components: float, moments: float, kind: type[Budget]) -> Fraction:
    """The share of the components, in twentieths, at which `apart_error` is least."""
    shares = [Fraction(twentieths, SHARE_GRID) for twentieths in range(1, SHARE_GRID)]
    return min(shares, key=lambda share: separate_error(components, moments, share, kind))
