"""The registry entry of one mechanism.

A `proved` mechanism may be used in releases, an `approximate` one is labelled in the record. A
`refuted` one is a published calibration that does not give the guarantee it claims: it is listed
so that it can be refused by name, and so that an auditor can see why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpcore.mechanisms.base import Mechanism
from dpcore.mechanisms.vectors import VectorMechanism
from dpcore.records.schema import Neighbours


class Status(StrEnum):
    """Whether a mechanism's guarantee is proved."""

    PROVED = "proved"
    APPROXIMATE = "approximate"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismEntry:
    """One mechanism of the registry.

    `offered` lists the keys of the specification that take its name or imply it, and the estimators of
    `dpcore` that use it. Plans accept a name under a key only if the key is listed.
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
        """The entry as displayed by the command line."""
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

MEAN_KEY, RADIUS_KEY, LENGTH_KEY = "model.allocation.mean", "model.radius: auto", "model.normalise: length"
MARGINALS_KEY, CHECKS_KEY = "model.generator: copula", "checks.*.budget"
"""Keys of the specification that imply a mechanism without naming it."""
