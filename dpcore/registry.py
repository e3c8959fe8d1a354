"""Every mechanism: where it comes from, what it promises, and whether that is proved.

`proved` may be released, `approximate` is labelled in the record, `refuted` is a
published calibration that does not give what it claims: it is kept by name so that
it can be refused, and so that an auditor can see why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, cast

from dpcore.accounting import Cost, Statement, release_statement, total
from dpcore.mechanisms.base import Gives, GramEvent, GramMechanism, Mechanism, PartMechanism
from dpcore.mechanisms.bingham import EXPONENTIAL_PCA
from dpcore.mechanisms.eigenvalues import EIGENVALUES
from dpcore.mechanisms.gaussian import GAUSSIAN
from dpcore.mechanisms.knorm import NUCLEAR
from dpcore.mechanisms.laplace import LAPLACE
from dpcore.mechanisms.power import POWER
from dpcore.mechanisms.sums import LAPLACE_SUMS
from dpcore.mechanisms.wishart import WISHART_DIFFERENCE, WISHART_DIFFERENCE_TRACE
from dpcore.queries import RowsQuery
from dpcore.schema import Neighbours
from dpcore.vectors import (
    HISTOGRAM_GAUSSIAN,
    HISTOGRAM_LAPLACE,
    JIANG_LAPLACE,
    NOISY_ROWS,
    SCORE_GAUSSIAN,
    SCORE_LAPLACE,
    VectorEvent,
    VectorMechanism,
)


class Status(StrEnum):
    """Whether a mechanism's guarantee is proved."""

    PROVED = "proved"
    APPROXIMATE = "approximate"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One mechanism of the registry.

    `offered` lists where it can be had: keys of the specification that take its name or call for it, and
    estimators of `dpcore`. Plans accept a name under a key exactly where it is listed.
    """

    name: str
    kind: str
    paper: str
    guarantee: str
    neighbours: tuple[Neighbours, ...]
    numerics: str
    status: Status
    reason: str
    offered: tuple[str, ...] = ()
    mechanism: Mechanism | None = None
    vector: VectorMechanism | None = None

    def as_json(self) -> dict[str, str]:
        """The entry as the command line shows it."""
        return {
            "name": self.name,
            "paper": self.paper,
            "kind": self.kind,
            "guarantee": self.guarantee,
            "neighbours": ", ".join(self.neighbours),
            "numerics": self.numerics,
            "status": self.status.value,
            "offered": ", ".join(self.offered) or "nowhere: it is refused",
            "reason": self.reason,
        }


MOMENTS_KEY, COMPONENTS_KEY, PROJECTION_KEY = "model.mechanism", "model.projection.mechanism", "model.projection.kind"
"""Keys of the specification that take a mechanism by its name."""

MEAN_KEY, RADIUS_KEY = "model.allocation.mean", "model.radius: auto"
MARGINALS_KEY, CHECKS_KEY = "model.generator: copula", "checks.*.budget"
"""Keys of the specification that call for a mechanism without its name."""

GRAMS = (MOMENTS_KEY, COMPONENTS_KEY)
BOTH = (Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE)
PCA_GAUSS = "PCA-Gauss (Chanyaswad, Liu and Mittal)"
RON_GAUSS = "RON-Gauss (Chanyaswad, Liu and Mittal)"
JIANG = "Jiang et al., differential PCA and LDA"
LI = "Li et al., projected rows"
IMTIAZ = "Imtiaz and Sarwate, symmetric noise"
XU = "Xu et al., LIP and LOP"
HERE = "this project"


def _refuted(name: str, kind: str, paper: str, reason: str) -> Entry:
    return Entry(
        name=name,
        kind=kind,
        paper=paper,
        guarantee="none at the claimed epsilon",
        neighbours=BOTH,
        numerics="not implemented for release",
        status=Status.REFUTED,
        reason=reason,
    )


ENTRIES: tuple[Entry, ...] = (
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
        name="laplace-sums",
        kind="moments",
        paper=f"{RON_GAUSS}, Lemma 2; {PCA_GAUSS}, Algorithm 3: counts and sums measured apart",
        guarantee="pure epsilon",
        neighbours=BOTH,
        numerics="discrete Laplace on 64-bit integers, delta_num below 1e-100",
        status=Status.PROVED,
        reason="GUARANTEE.md, S6 and M4",
        offered=(MEAN_KEY, RADIUS_KEY),
        mechanism=LAPLACE_SUMS,
    ),
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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
    Entry(
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

BY_NAME: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def offered_under(key: str) -> list[str]:
    """The names that a key of the specification takes."""
    return [entry.name for entry in ENTRIES if key in entry.offered]


def mechanism_of(name: str) -> Mechanism:
    """The releasable mechanism of that name.

    Raises: KeyError for a name that is unknown, refuted, or measures nothing.
    """
    entry = BY_NAME[name]
    if entry.mechanism is None or entry.status is Status.REFUTED:
        raise KeyError(name)
    return entry.mechanism


def gram_mechanism(name: str) -> GramMechanism:
    """The releasable mechanism of that name, which must give whole Gram blocks.

    Raises: KeyError for any other name.
    """
    mechanism = mechanism_of(name)
    if mechanism.gives is not Gives.GRAM:
        raise KeyError(name)
    return cast(GramMechanism, mechanism)


def basis_mechanism(name: str) -> PartMechanism:
    """The releasable mechanism of that name, which must give directions.

    Raises: KeyError for any other name.
    """
    mechanism = mechanism_of(name)
    if mechanism.gives is not Gives.BASIS:
        raise KeyError(name)
    return cast(PartMechanism, mechanism)


def vector_mechanism(name: str) -> VectorMechanism:
    """The proved mechanism of that name, which must answer queries of vectors.

    Raises: KeyError for any other name.
    """
    entry = BY_NAME[name]
    if entry.vector is None or entry.status is Status.REFUTED:
        raise KeyError(name)
    return entry.vector


Event = GramEvent | VectorEvent
"""What one draw of noise leaves behind."""


def event_from_json(body: dict[str, Any]) -> Event:
    """The event that `as_json` wrote."""
    return VectorEvent.from_json(body) if "ask" in body else GramEvent.from_json(body)


def cost_of(event: Event) -> Cost:
    """What an event costs, recomputed from its public parameters."""
    if isinstance(event, VectorEvent):
        vector = vector_mechanism(event.mechanism)
        return Cost.of(vector.cost(event), vector.delta_num(event))
    mechanism = mechanism_of(event.mechanism)
    return Cost.of(mechanism.cost(event), mechanism.delta_num(event))


SATURATED_AGAIN = 1 << 150
"""What N3 has for 1 + e^epsilon, once more: under the other relation epsilon is at most twice as large."""


def cost_under(event: Event, neighbours: Neighbours) -> Cost | None:
    """What an event costs under a relation, its own or the other one; None where nothing is promised under that.

    Computed from the parameters with which the noise was drawn, whatever relation they were chosen for.
    Guarantee: GUARANTEE.md, R. Raises: as `cost_of`, for an event that no mechanism leaves behind.
    """
    own = cost_of(event)
    if neighbours is event.neighbours:
        return own
    delta_num = SATURATED_AGAIN * own.delta_num
    if not isinstance(event, VectorEvent):
        return Cost.of(mechanism_of(event.mechanism).cost(event, neighbours), delta_num)
    if isinstance(event.query, RowsQuery):  # it shows how many rows there are
        return None
    return Cost.of(vector_mechanism(event.mechanism).cost(event, neighbours), delta_num)


def statement_under(events: Iterable[Event], neighbours: Neighbours, *, delta: Fraction) -> Statement | None:
    """What the measurements of a release promise together under a relation; None if one of them promises nothing."""
    costs = [cost_under(event, neighbours) for event in events]
    known = [cost for cost in costs if cost is not None]
    return release_statement(total(known), delta=delta) if len(known) == len(costs) else None
