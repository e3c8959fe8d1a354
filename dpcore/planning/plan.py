"""The plan of a release: what will be measured, with how much noise, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpcore.accounting import Cost, total
from dpcore.mechanisms.base import ExpectedError, GramEvent, Output
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.expected_noise import count_and_sum_noise
from dpcore.mechanisms.names import CENTRE, MARGINALS, MEAN, MOMENTS, PROJECTION, SPREAD
from dpcore.mechanisms.registry import Event, cost_of, mechanism_of
from dpcore.mechanisms.vectors import VectorEvent
from dpcore.planning.allocation import Shares
from dpcore.records.schema import RecordSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one release: what will be measured, with how much noise, and why."""

    schema: RecordSchema
    projection: str
    dimension: int
    encoded_width: int
    generator: str
    event: GramEvent
    expected: ExpectedError
    signal_to_noise: float
    expected_rows: int
    reasons: tuple[str, ...]
    shares: Shares
    projection_event: GramEvent | None = None
    mean_event: GramEvent | None = None
    marginals_event: VectorEvent | None = None
    check_events: dict[str, VectorEvent] = field(default_factory=dict)
    """Budgeted checks, measured after sampling: the scores on the real rows of models trained on synthetic rows."""
    sensitivity_to_information: float | None = None
    radius: Fraction = Fraction(1)
    frame_events: dict[str, GramEvent] = field(default_factory=dict)
    normalise: bool = False
    dimension_rule: str = "all"
    """What gave the dimension: all (no projection), given, auto, dfm or share."""
    variance_share: Fraction | None = None
    """With the rule share: the part of the noisy variance that the kept components hold; `dimension` is then the most
    that may be kept, and the released spectrum decides how many are."""

    @property
    def events(self) -> dict[str, Event]:
        """All events in the order of measurement, by the names that ledger and record use."""
        measured: dict[str, Event | None] = {
            **self.frame_events,
            PROJECTION: self.projection_event,
            MARGINALS: self.marginals_event,
            MEAN: self.mean_event,
            MOMENTS: self.event,
            **self.check_events,
        }
        return {name: event for name, event in measured.items() if event is not None}

    @property
    def reuses_gram(self) -> bool:
        """Whether the principal components are computed from the measured moments, at no further cost."""
        return self.projection == "private-pca" and self.projection_event is None

    @property
    def given_radius(self) -> float | None:
        """The radius of the frame; None if it is measured."""
        return None if SPREAD in self.frame_events else float(self.radius)

    @property
    def components(self) -> int | Fraction:
        """How many private components are kept, or the share of the noisy variance that they hold."""
        return self.dimension if self.variance_share is None else self.variance_share

    @property
    def knows_centre(self) -> bool:
        """Whether the projection comes with a mean point; random projections and measured bases do not."""
        first = self.projection_event
        return self.projection != "ron" and (first is None or mechanism_of(first.mechanism).output is not Output.BASIS)

    @property
    def frame_knows_mean(self) -> bool:
        """Whether the frame's centre is measured in every coordinate and not only along the projection."""
        centre = self.frame_events.get(CENTRE)
        return centre is not None and centre.layout.dimension == self.encoded_width + 1

    @property
    def approximate(self) -> tuple[str, ...]:
        """The mechanisms of this release whose guarantee is only approximate."""
        names = dict.fromkeys(event.mechanism for event in self.events.values())
        return tuple(name for name in names if BY_NAME[name].status is Status.APPROXIMATE)

    @property
    def cost(self) -> Cost:
        """The privacy cost of the whole release."""
        return total(cost_of(event) for event in self.events.values())

    @property
    def allocation(self) -> dict[str, float]:
        """The budget share of every measurement."""
        return {name: float(share) for name, share in self.shares.items() if name in self.events}

    def expected_error(self) -> dict[str, float]:
        """Return the expected error of the release, in records and relative to the expected rows.

        `sir` is PCA-Gauss's ratio of sensitivity gain to information loss, compared with keeping every
        coordinate; above 1 the projection lowers the error.
        """
        rows, classes = self.expected_rows, self.event.layout.classes
        count_sd, sum_sd = count_and_sum_noise(self.event, self.mean_event)
        figures = {
            "frobenius": self.expected.frobenius,
            "operator": self.expected.operator,
            "count_sd": count_sd * math.sqrt(classes),
            "mean_sd": sum_sd * math.sqrt(classes) / rows,
            "relative_operator": self.expected.operator * self.event.layout.blocks / rows,
            "signal_to_noise": self.signal_to_noise,
        }
        gain = self.sensitivity_to_information
        return figures if gain is None else figures | {"sir": gain}

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON for the command line and the record."""
        return {
            "allocation": self.allocation,
            "dimension": self.dimension,
            "dimension_rule": self.dimension_rule,
            "encoded_width": self.encoded_width,
            "mechanism": self.event.mechanism,
            "projection": self.projection,
            "generator": self.generator,
            "reasons": list(self.reasons),
            "expected_error": self.expected_error(),
        }


def signal_to_noise(rows: float, event: GramEvent, expected: ExpectedError) -> float:
    """Return the average eigenvalue of a class block over the operator norm of its noise."""
    return rows / event.layout.blocks / (event.layout.dimension - event.layout.heads) / expected.operator
