"""The mathematics of differentially private releases: pure functions, no files, no clock, no orchestration.

The estimators are at hand as `dpcore.RonGauss`, `dpcore.PcaGauss`, `dpcore.MomentMixture`,
`dpcore.EigenvalueGauss`, `dpcore.DifferentialLda`, `dpcore.GaussianCopula` and `dpcore.Modips`; those that
publish noisy rows, which is local privacy, as `dpcore.JiangPca`, `dpcore.BernoulliRows` and `dpcore.LopRows`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcore.eigengauss import EigenvalueGauss
    from dpcore.estimators import Modips, MomentMixture, PcaGauss, RonGauss
    from dpcore.lda import DifferentialLda
    from dpcore.mixed import GaussianCopula
    from dpcore.rowwise import BernoulliRows, JiangPca, LopRows

__all__ = [
    "BernoulliRows",
    "DifferentialLda",
    "EigenvalueGauss",
    "GaussianCopula",
    "JiangPca",
    "LopRows",
    "Modips",
    "MomentMixture",
    "PcaGauss",
    "RonGauss",
]

_ELSEWHERE = {
    "BernoulliRows": "rowwise",
    "DifferentialLda": "lda",
    "EigenvalueGauss": "eigengauss",
    "GaussianCopula": "mixed",
    "JiangPca": "rowwise",
    "LopRows": "rowwise",
}
"""Modules of the estimators that are not in `dpcore.estimators`."""


def __getattr__(name: str) -> Any:
    """Load the estimators when they are asked for: scikit-learn takes a second to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"dpcore.{_ELSEWHERE.get(name, 'estimators')}"), name)
