"""The mathematics of differentially private releases: pure functions, no files, no clock, no orchestration.

The estimators are available as `dpcore.RonGauss`, `dpcore.PcaGauss`, `dpcore.MomentMixture`,
`dpcore.EigenvalueGauss`, `dpcore.DifferentialLda`, `dpcore.GaussianCopula` and `dpcore.Modips`; those that
publish noisy rows under local privacy are `dpcore.JiangPca`, `dpcore.BernoulliRows` and `dpcore.LopRows`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcore.estimators.eigenvalue_gauss import EigenvalueGauss
    from dpcore.estimators.gaussian_copula import GaussianCopula
    from dpcore.estimators.jiang_lda import DifferentialLda
    from dpcore.estimators.local_rows import BernoulliRows, JiangPca, LopRows
    from dpcore.estimators.moment_mixture import Modips, MomentMixture
    from dpcore.estimators.pca_gauss import PcaGauss
    from dpcore.estimators.ron_gauss import RonGauss

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
    "BernoulliRows": "dpcore.estimators.local_rows",
    "DifferentialLda": "dpcore.estimators.jiang_lda",
    "EigenvalueGauss": "dpcore.estimators.eigenvalue_gauss",
    "GaussianCopula": "dpcore.estimators.gaussian_copula",
    "JiangPca": "dpcore.estimators.local_rows",
    "LopRows": "dpcore.estimators.local_rows",
    "Modips": "dpcore.estimators.moment_mixture",
    "MomentMixture": "dpcore.estimators.moment_mixture",
    "PcaGauss": "dpcore.estimators.pca_gauss",
    "RonGauss": "dpcore.estimators.ron_gauss",
}
"""The module that defines each estimator."""


def __getattr__(name: str) -> Any:
    """Import an estimator on first use: importing scikit-learn takes a second."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
