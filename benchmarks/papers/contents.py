"""What the page of the papers' experiments shows: every table and figure, and the part that remakes it."""

from __future__ import annotations

from dataclasses import dataclass

FOLDER = "benchmarks.papers"


@dataclass(frozen=True, slots=True)
class Part:
    """One command of this folder, which writes results and plots; `minutes` is about what it takes on one core."""

    name: str
    module: str
    minutes: float
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """The module and its arguments, as `python -m` takes them."""
        return (f"{FOLDER}.{self.module}", *self.arguments)


@dataclass(frozen=True, slots=True)
class Item:
    """A table, a figure or a claim of a paper: what it is about, and the results and plots of the part that remakes it.

    Without a part the item is not remade, and the text says why.
    """

    title: str
    text: str
    part: str = ""
    results: tuple[str, ...] = ()
    plots: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The item's address on the page."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper with its items in the paper's order."""

    key: str
    title: str
    items: tuple[Item, ...]


PARTS = (
    Part("clustering", "clustering", 6),
    *(
        Part(f"classification-{name}", "classification", 8, (name,))
        for name in ("adult", "covertype", "mnist", "semeion")
    ),
    *(Part(f"regression-{name}", "regression", 3, (name,)) for name in ("california_housing", "acs_nist_income")),
    *(Part(f"dimension-{task}", "dimension", 2, (task,)) for task in ("clustering", "classification", "regression")),
    Part("sir", "sir", 1),
    Part("normalisation", "ron_gauss.normalisation", 4),
    Part("clusters", "ron_gauss.clusters", 2),
    Part("membership", "ron_gauss.membership", 6),
    Part("pictures", "ron_gauss.pictures", 3),
    Part("heights", "noisy_rows.heights", 1),
    Part("row-errors", "noisy_rows.row_errors", 3),
    Part("jiang", "noisy_rows.jiang", 8),
    *(
        Part(f"pca-{name}", "components.pca", minutes, (name,))
        for name, minutes in (("synthetic", 2), ("covertype", 2), ("mnist", 5), ("waveform40", 1), ("semeion", 1))
    ),
    Part("two-classes", "components.two_classes", 3),
    Part("ratios", "components.ratios", 3),
    Part("linear-machine", "components.linear_machine", 1),
)

_CLASSES = ("adult", "covertype", "mnist", "semeion")
_TARGETS = ("california_housing", "acs_nist_income")


def _per_set(title: str, text: str, module: str, names: tuple[str, ...]) -> tuple[Item, ...]:
    """Return an item for each data set of a module that runs several."""
    return tuple(
        Item(
            f"{title}, on {name}",
            text,
            f"{module}-{name}",
            (f"{module}_{name}", f"{module}_{name}_3"),
            (f"{module}_{name}",),
        )
        for name in names
    )


PCA_GAUSS = Paper(
    "pca-gauss",
    "PCA-Gauss (Chanyaswad, Liu, Mittal 2017)",
    (
        Item(
            "Table II: clustering on gfe",
            "K-means on private rows, judged by the silhouette of real rows; Algorithm 1 by its released spectrum. "
            "At epsilon 1, and the papers' own methods at 3.",
            "clustering",
            ("clustering", "clustering_3"),
            ("clustering",),
        ),
        *_per_set(
            "Table III: classification",
            "Models are trained on private rows and tested on real ones. Other sets stand in for Realdisp. At "
            "epsilon 1, and the papers' own methods at 3; components from all rows, public rows, or rows set aside.",
            "classification",
            _CLASSES,
        ),
        *_per_set(
            "Table IV: regression",
            "Kernel ridge on private rows, tested on real ones. Other sets stand in for Twitter. At epsilon 1, and the "
            "papers' own methods at 3; components from all rows, public rows, or rows set aside.",
            "regression",
            _TARGETS,
        ),
        *(
            Item(
                f"Figure 1: effect of the dimension, {task}",
                "RON-Gauss and PCA-Gauss (components of public rows) at 2 to 32 dimensions: corrected, as published, "
                "and corrected at the epsilon that is true of the published calibration.",
                f"dimension-{task}",
                (f"dimension_{task}",),
                (f"dimension_{task}",),
            )
            for task in ("clustering", "classification", "regression")
        ),
        Item(
            "Figure 2: sensitivity gain to information loss (SIR)",
            "SIR against the dimension on gfe, beside the utility that it is to predict; notes say whether it does.",
            "sir",
            ("sir",),
            ("sir",),
        ),
    ),
)
RON_GAUSS = Paper(
    "ron-gauss",
    "RON-Gauss (Chanyaswad, Liu, Mittal 2019)",
    (
        Item(
            "Algorithm 1: normalisation",
            "What scaling every record to length 1, before and after subtracting a private mean, gains or loses.",
            "normalisation",
            ("normalisation",),
        ),
        Item(
            "Tables 3 to 5",
            "These tables repeat the experiments of PCA-Gauss; the tables above have the rows of both papers.",
        ),
        Item(
            "Number of clusters",
            "K by the silhouette of synthetic rows, which costs nothing, beside the choice on real rows.",
            "clusters",
            ("clusters",),
            ("clusters",),
        ),
        Item(
            "Figure 1: effect of the dimension on regression",
            "See Figure 1 of PCA-Gauss above, which has the curves of both papers.",
        ),
        Item(
            "Figure 2: membership inference",
            "Accuracy of a neural attacker against epsilon, and utility against that accuracy.",
            "membership",
            ("membership",),
            ("membership", "membership_tradeoff"),
        ),
        Item(
            "Figure 3: pictures",
            "Handwritten digits from the model in 392 dimensions as epsilon grows to infinity.",
            "pictures",
            ("pictures",),
            ("pictures",),
        ),
    ),
)
JIANG = Paper(
    "jiang",
    "Differential PCA and LDA (Jiang et al. 2013)",
    (
        Item(
            "Figure 1: noise along a component and on raw cells",
            "A table of invented heights and weights; the module documents the recipe.",
            "heights",
            ("heights",),
            ("heights",),
        ),
        Item(
            "Figure 2: mean squared error over k and ε",
            "Rows released along k components, beside Laplace noise on raw cells and the exponential mechanism.",
            "row-errors",
            ("row_errors",),
            ("row_errors",),
        ),
        Item(
            "Figures 3 and 4: accuracy, area under the curve, entropy and divergence on adult",
            "Differential LDA with linear discriminant analysis and decision trees on its rows.",
            "jiang",
            ("jiang_pca", "jiang_lda_1"),
            ("jiang", "jiang_lda_1"),
        ),
    ),
)
IMTIAZ = Paper(
    "imtiaz",
    "Symmetric matrix perturbation (Imtiaz and Sarwate 2016)",
    (
        *(
            Item(
                f"Figures 1 and 2: captured variance, on {name}",
                "Variance along released directions over that of the best ones, against epsilon and rows; and the "
                "number of directions at 90 % of the variance, from exact and noisy spectra."
                + (
                    " The paper does not give the covariance; the module documents ours." if name == "synthetic" else ""
                ),
                f"pca-{name}",
                (f"pca_{name}", f"pca_{name}_dimension"),
                (f"pca_{name}_epsilon", f"pca_{name}_rows"),
            )
            for name in ("synthetic", "covertype", "mnist", "waveform40", "semeion")
        ),
        Item(
            "Table 1: classification error of two classes",
            "A linear support vector machine on real rows along released directions, in per cent: two Gaussians, "
            "covertype 6 and 7, mnist 3 and 7. The paper gives neither its Gaussians nor its epsilon.",
            "two-classes",
            ("two_classes",),
            ("two_classes",),
        ),
    ),
)
XU = Paper(
    "xu",
    "Laplace input and output perturbation (Xu, Yang, Bai 2019)",
    (
        Item(
            "Figures 1 and 2: noise ratio θ",
            "Noise of LIP over noise of LOP against the target dimension k and the number of rows n, for the published "
            "algorithms, which are refuted, and for the corrected ones. Other sets stand in for Musk and Secom.",
            "ratios",
            ("ratios",),
            ("ratios_theta", "ratios_theta_rows"),
        ),
        Item(
            "Figures 3 and 4: error ratio η",
            "Approximation error of LIP over that of LOP against k and epsilon. The proof of Theorem 4 bounds the "
            "ratio from below and concludes that it is below 1; the last line of the table above contradicts it.",
            "ratios",
            (),
            ("ratios_eta", "ratios_eta_epsilon"),
        ),
        Item(
            "Figure 5: accuracy of a linear support vector machine",
            "Accuracy on real rows along released directions against epsilon, on the paper's two sets: Handwritten "
            "(semeion) and Waveform.",
            "linear-machine",
            ("linear_machine",),
            ("linear_machine_epsilon", "linear_machine"),
        ),
    ),
)
PAPERS = (PCA_GAUSS, RON_GAUSS, JIANG, IMTIAZ, XU)
