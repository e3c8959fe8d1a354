"""Every mechanism with its origin, its guarantee, and whether that is proved."""

from __future__ import annotations

from dpcore.mechanisms.components.exponential_pca import EXPONENTIAL_PCA
from dpcore.mechanisms.components.power_method import POWER
from dpcore.mechanisms.eigenvalues import EIGENVALUES
from dpcore.mechanisms.entry import (
    CHECKS_KEY,
    COMPONENTS_KEY,
    LENGTH_KEY,
    MARGINALS_KEY,
    MEAN_KEY,
    MOMENTS_KEY,
    PROJECTION_KEY,
    RADIUS_KEY,
    MechanismEntry,
    Status,
)
from dpcore.mechanisms.gaussian import GAUSSIAN
from dpcore.mechanisms.laplace import LAPLACE
from dpcore.mechanisms.laplace_sums import LAPLACE_SUMS
from dpcore.mechanisms.nuclear_knorm import NUCLEAR
from dpcore.mechanisms.vectors import (
    HISTOGRAM_GAUSSIAN,
    HISTOGRAM_LAPLACE,
    JIANG_LAPLACE,
    NOISY_ROWS,
    SCORE_GAUSSIAN,
    SCORE_LAPLACE,
)
from dpcore.mechanisms.wishart import WISHART_DIFFERENCE, WISHART_DIFFERENCE_TRACE
from dpcore.records.schema import Neighbours

GRAMS = (MOMENTS_KEY, COMPONENTS_KEY)
BOTH = (Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE)
PCA_GAUSS = "PCA-Gauss (Chanyaswad, Liu and Mittal)"
RON_GAUSS = "RON-Gauss (Chanyaswad, Liu and Mittal)"
JIANG = "Jiang et al., differential PCA and LDA"
LI = "Li et al., projected rows"
IMTIAZ = "Imtiaz and Sarwate, symmetric noise"
XU = "Xu et al., LIP and LOP"
HERE = "this project"


def _refuted(name: str, kind: str, paper: str, reason: str) -> MechanismEntry:
    return MechanismEntry(
        name=name,
        kind=kind,
        paper=paper,
        guarantee="none at the claimed epsilon",
        neighbours=BOTH,
        numerics="not implemented for release",
        status=Status.REFUTED,
        reason=reason,
    )


ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        name="wishart-difference-trace",
        kind="moments",
        paper=f"{HERE}; repairs {IMTIAZ}",
        guarantee="pure epsilon",
        neighbours=(Neighbours.REPLACE_ONE,),
        numerics="certified balls, exact rounding, delta_num = 0",
        status=Status.PROVED,
        reason="GUARANTEE.md, M2",
        offered=GRAMS,
        mechanism=WISHART_DIFFERENCE_TRACE,
    ),
    MechanismEntry(
        name="wishart-difference",
        kind="moments",
        paper=f"{HERE}; repairs {IMTIAZ}",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="certified balls, exact rounding, delta_num = 0",
        status=Status.PROVED,
        reason="GUARANTEE.md, M1",
        offered=GRAMS,
        mechanism=WISHART_DIFFERENCE,
    ),
    MechanismEntry(
        name="gaussian",
        kind="moments",
        paper=f"Analyze Gauss; {IMTIAZ}, AG; at the true sensitivity and its exact curve",
        guarantee="Gaussian: (epsilon, delta) by the exact curve of its rho; also rho-zCDP",
        neighbours=BOTH,
        numerics="certified balls, exact rounding, delta_num = 0",
        status=Status.PROVED,
        reason="GUARANTEE.md, M3",
        offered=GRAMS,
        mechanism=GAUSSIAN,
    ),
    MechanismEntry(
        name="laplace",
        kind="moments",
        paper=f"{PCA_GAUSS}; {RON_GAUSS}; at the true sensitivity",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="discrete Laplace on 64-bit integers, delta_num below 1e-100",
        status=Status.PROVED,
        reason="GUARANTEE.md, M4",
        offered=GRAMS,
        mechanism=LAPLACE,
    ),
    MechanismEntry(
        name="nuclear-k-norm",
        kind="moments",
        paper=f"{HERE}; the K-norm mechanism of Hardt and Talwar for Gram matrices, up to 8 dimensions",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="certified balls, exact rejection and rounding, delta_num = 0",
        status=Status.PROVED,
        reason="GUARANTEE.md, M5",
        offered=GRAMS,
        mechanism=NUCLEAR,
    ),
    MechanismEntry(
        name="eigenvalues-only",
        kind="moments",
        paper=f"{PCA_GAUSS}, Algorithm 1, eigenvalues only, with a fixed public centre",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="certified eigenvalues, discrete Laplace on 64-bit integers, delta_num below 1e-100",
        status=Status.PROVED,
        reason="GUARANTEE.md, M6",
        offered=("dpcore.EigenvalueGauss",),
        mechanism=EIGENVALUES,
    ),
    MechanismEntry(
        name="jiang-laplace",
        kind="moments",
        paper=f"{JIANG}, sections 3.1 and 3.2; at the true sensitivity, with noisy class counts",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="discrete Laplace on 64-bit integers, delta_num below 1e-100",
        status=Status.PROVED,
        reason="GUARANTEE.md, M9",
        offered=("dpcore.DifferentialLda", "dpcore.JiangPca"),
        vector=JIANG_LAPLACE,
    ),
    MechanismEntry(
        name="histogram-gaussian",
        kind="marginals",
        paper=f"{HERE}: histograms of all columns as one vector",
        guarantee="Gaussian: (epsilon, delta) by the exact curve of its rho; also rho-zCDP",
        neighbours=BOTH,
        numerics="certified balls, exact rounding, delta_num = 0",
        status=Status.PROVED,
        reason="GUARANTEE.md, S7 and M11",
        offered=(MARGINALS_KEY,),
        vector=HISTOGRAM_GAUSSIAN,
    ),
    MechanismEntry(
        name="histogram-laplace",
        kind="marginals",
        paper=f"{HERE}: histograms of all columns as one vector",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="discrete Laplace on 64-bit integers, delta_num below 1e-100",
        status=Status.PROVED,
        reason="GUARANTEE.md, S7 and M11",
        offered=(MARGINALS_KEY,),
        vector=HISTOGRAM_LAPLACE,
    ),
    MechanismEntry(
        name="noisy-rows",
        kind="rows",
        paper=f"{JIANG}, section 3.1; {LI}; {XU}, LOP; along a public or released basis",
        guarantee="local: pure epsilon for each row's values under replace-one; reveals the number of rows",
        neighbours=(Neighbours.REPLACE_ONE,),
        numerics="discrete Laplace on 64-bit integers, delta_num below 1e-100",
        status=Status.PROVED,
        reason="GUARANTEE.md, M10",
        offered=("dpcore.JiangPca", "dpcore.BernoulliRows", "dpcore.LopRows"),
        vector=NOISY_ROWS,
    ),
    MechanismEntry(
        name="laplace-sums",
        kind="moments",
        paper=f"{RON_GAUSS}, Lemma 2; {PCA_GAUSS}, Algorithm 3: counts and sums measured apart",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="discrete Laplace on 64-bit integers, delta_num below 1e-100",
        status=Status.PROVED,
        reason="GUARANTEE.md, S6 and M4",
        offered=(MEAN_KEY, RADIUS_KEY, LENGTH_KEY),
        mechanism=LAPLACE_SUMS,
    ),
    MechanismEntry(
        name="score-laplace",
        kind="check",
        paper=f"{HERE}: a model of synthetic rows, tested on real ones",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="discrete Laplace on 64-bit integers, delta_num below 1e-100",
        status=Status.PROVED,
        reason="GUARANTEE.md, S8 and M12",
        offered=(CHECKS_KEY,),
        vector=SCORE_LAPLACE,
    ),
    MechanismEntry(
        name="score-gaussian",
        kind="check",
        paper=f"{HERE}: a model of synthetic rows, tested on real ones",
        guarantee="Gaussian: (epsilon, delta) by the exact curve of its rho; also rho-zCDP",
        neighbours=BOTH,
        numerics="certified balls, exact rounding, delta_num = 0",
        status=Status.PROVED,
        reason="GUARANTEE.md, S8 and M12",
        offered=(CHECKS_KEY,),
        vector=SCORE_GAUSSIAN,
    ),
    MechanismEntry(
        name="ron",
        kind="projection",
        paper=f"{RON_GAUSS}, Algorithm 2, with a Haar basis",
        guarantee="public: independent of the data, costs nothing",
        neighbours=BOTH,
        numerics="entries on the grid 2^-20, exact integer product",
        status=Status.PROVED,
        reason="GUARANTEE.md, P1",
        offered=(PROJECTION_KEY,),
    ),
    MechanismEntry(
        name="none",
        kind="projection",
        paper=HERE,
        guarantee="public: no projection",
        neighbours=BOTH,
        numerics="exact",
        status=Status.PROVED,
        reason="GUARANTEE.md, P1",
        offered=(PROJECTION_KEY,),
    ),
    MechanismEntry(
        name="private-pca",
        kind="projection",
        paper=f"{PCA_GAUSS}; {IMTIAZ}; {XU}: principal components of a noisy Gram matrix",
        guarantee="that of the Gram mechanism it uses; free where the moments are measured in all coordinates",
        neighbours=BOTH,
        numerics="post-processing of a measurement; entries on the grid 2^-20",
        status=Status.PROVED,
        reason="GUARANTEE.md, P2",
        offered=(PROJECTION_KEY,),
    ),
    MechanismEntry(
        name="public-pca",
        kind="projection",
        paper=HERE,
        guarantee="public: principal components of a declared public table, costs nothing",
        neighbours=BOTH,
        numerics="entries on the grid 2^-20, exact integer product",
        status=Status.PROVED,
        reason="GUARANTEE.md, P1",
        offered=(PROJECTION_KEY,),
    ),
    MechanismEntry(
        name="noisy-power-method",
        kind="projection",
        paper="Hardt and Price; Imtiaz and Sarwate's PPM; calibrated for a whole row",
        guarantee="Gaussian: (epsilon, delta) by the exact curve of its rho; also rho-zCDP",
        neighbours=BOTH,
        numerics="exact integer products, certified balls, exact rounding, delta_num = 0",
        status=Status.PROVED,
        reason="GUARANTEE.md, M7; dominated by noising the Gram matrix once, kept for comparison",
        offered=(COMPONENTS_KEY,),
        mechanism=POWER,
    ),
    MechanismEntry(
        name="exponential-pca",
        kind="projection",
        paper="Chaudhuri, Sarwate and Sinha's PPCA: the exponential mechanism, a matrix Bingham distribution",
        guarantee="approximate: epsilon for the exact law only; for the sampler that runs neither that epsilon nor a "
        "delta is proved",
        neighbours=BOTH,
        numerics="double precision without a certified bound; delta_num = 0 is no promise",
        status=Status.APPROXIMATE,
        reason="GUARANTEE.md, M8; the sampler is exact in real arithmetic for one direction, all but one, or all, "
        "and a Gibbs sampler not proved to have mixed between them; either in double precision",
        offered=(COMPONENTS_KEY,),
        mechanism=EXPONENTIAL_PCA,
    ),
    _refuted("published-lap-pca", "projection", f"{PCA_GAUSS}, Lap-PCA", "the loss of the noisy matrix is M epsilon"),
    _refuted(
        "published-pca-gauss-gmm",
        "moments",
        f"{PCA_GAUSS}, Algorithm 3",
        "own-class means and public class counts under changing labels",
    ),
    _refuted(
        "published-ron-gauss",
        "moments",
        f"{RON_GAUSS}, Lemma 4",
        "the L1 sensitivity of a p x p matrix needs p, not the root of p: loss epsilon sqrt(p/2)",
    ),
    _refuted("published-ron-gauss-supervised", "moments", f"{RON_GAUSS}, Lemma 5", "as Lemma 4"),
    _refuted(
        "published-jiang-categorical",
        "moments",
        JIANG,
        "products of numeric and dummy columns move by 2, which the bound leaves out",
    ),
    _refuted("published-jiang-lda", "moments", JIANG, "divides by exact class sizes"),
    _refuted(
        "published-sn",
        "moments",
        IMTIAZ,
        "one-sided Wishart noise: the supports differ, delta is at least 1 - exp(-epsilon)",
    ),
    _refuted("published-lip-rows", "rows", f"{XU}, LIP", "releasing projected rows is not differentially private"),
    _refuted("published-lop", "rows", f"{XU}, LOP", "the row space of the output is the exact basis: delta = 1"),
)

BY_NAME: dict[str, MechanismEntry] = {entry.name: entry for entry in ENTRIES}
