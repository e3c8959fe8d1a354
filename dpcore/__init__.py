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
    from dpcore.lda import DifferentialLda
    from dpcore.mixed import GaussianCopula
    from dpcore.moment_mixture import Modips, MomentMixture
    from dpcore.pca_gauss import PcaGauss
    from dpcore.ron_gauss import RonGauss
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

_MODULES = {
    "BernoulliRows": "dpcore.rowwise",
    "DifferentialLda": "dpcore.lda",
    "EigenvalueGauss": "dpcore.eigengauss",
    "GaussianCopula": "dpcore.mixed",
    "JiangPca": "dpcore.rowwise",
    "LopRows": "dpcore.rowwise",
    "Modips": "dpcore.moment_mixture",
    "MomentMixture": "dpcore.moment_mixture",
    "PcaGauss": "dpcore.pca_gauss",
    "RonGauss": "dpcore.ron_gauss",
}
"""Where the estimators are."""


def __getattr__(name: str) -> Any:
    """Load the estimators when they are asked for: scikit-learn takes a second to import."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
