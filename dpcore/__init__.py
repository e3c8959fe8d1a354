"""The mathematics of differentially private releases: pure functions, no files, no clock, no orchestration.

The estimators are at hand as `dpcore.RonGauss`, `dpcore.PcaGauss` and `dpcore.MomentMixture`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcore.estimators import MomentMixture, PcaGauss, RonGauss

__all__ = ["MomentMixture", "PcaGauss", "RonGauss"]


def __getattr__(name: str) -> Any:
    """Load the estimators when they are asked for: scikit-learn takes a second to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpcore import estimators

    return getattr(estimators, name)
