"""The year ahead of a specification: coming periods, what the cap allows, and what another epsilon would buy.

Everything comes from the specification, the ledger's balance and a moment in time; no data
are touched. Only the specification's own releases are foreseen: others over the same
population spend from the same cap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import Any

from dpcore.accounting import Balance, Cap, CapKind, month_number
from dpcore.errors import SpecError
from dpcore.mechanisms.registry import cost_of
from dpcore.planning.forecast import (
    ColumnNoise,
    ForecastRelease,
    alternative_epsilons,
    burn_down,
    column_noise,
    largest_fitting,
)
from dpcore.planning.plan import Plan
from dpcore.records.schema import Kind
from tasks.ledger.refusals import cap_difference, kind_difference
from tasks.ledger.state import LedgerState
from tasks.schedule.coming import MOST_MONTHS, Standing, coming_months, next_month
from tasks.spec import ReleaseSpec
from tasks.spec.plan import cap_of, noise_refusal, plan_release, windows_of
from tasks.spec.privacy import MOST_EPSILON
from tasks.spec.relations import at_most

_DAYS = {Kind.DATE: 1.0, Kind.TIMESTAMP: 1 / 86_400e6}
"""Columns that count time since 1970, and how many days one of their units is."""


def left(cap: float, used: Fraction | float) -> float | None:
    """What is left under a cap, without the digits that floating point invents; None if nothing finite fits."""
    rest = max(0.0, cap - float(used))
    return float(f"{rest:.12g}") if math.isfinite(rest) and math.isfinite(float(used)) else None


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another epsilon a release: how long the cap then lasts; `lasts_until` is the last period that it allows.

    `releases_left` is None where each month that leaves the window makes room for a new one; `months` is None where
    that is so, or beyond `MOST_MONTHS`.
    """

    epsilon: Fraction
    plan: Plan
    releases_left: int | None
    lasts_until: str | None
    months: int | None

    def as_json(self) -> dict[str, Any]:
        """The alternative for people and machines."""
        return {
            "epsilon": float(self.epsilon),
            "releases_left": self.releases_left,
            "lasts_until": self.lasts_until,
            "months": self.months,
            "dimension": self.plan.dimension,
            "mechanism": self.plan.event.mechanism,
            "expected_error": self.plan.expected_error() | readable_error(self.plan),
        }


@dataclass(frozen=True)  # no slots: the coming periods are looked up once
class Outlook:
    """A specification and its plan against the population's cap, at a moment."""

    spec: ReleaseSpec
    plan: Plan
    state: LedgerState
    now: datetime
    months: int = 12

    @cached_property
    def cap(self) -> Cap:
        """The population's cap: the ledger's, or before the first release the specification's."""
        return self.balance.cap

    @cached_property
    def first(self) -> int:
        """The month of the next release."""
        return next_month(self.spec, self.state, self.now)

    @cached_property
    def standing(self) -> Standing:
        """What is spent or reserved against the cap, under the relation that leaves the least room."""
        return Standing.of(self.spec, self.state, self.plan, self.first)

    @property
    def balance(self) -> Balance:
        """The same without the relation."""
        return self.standing.balance

    @cached_property
    def year(self) -> list[ForecastRelease]:
        """Every coming release of the months asked for."""
        months = coming_months(self.spec, self.state, self.now, self.months)
        periods = [(month.period, month.is_charged) for month in months]
        return burn_down(self.balance, self.standing.cost(self.plan), periods)

    @property
    def cap_reached(self) -> str | None:
        """The first period that the cap refuses."""
        return next((step.period for step in self.year if not step.allowed), None)

    @cached_property
    def alternatives(self) -> list[Alternative]:
        """The present epsilon among smaller and larger ones; what cannot be planned is left out."""
        epsilons = alternative_epsilons(self.spec.privacy.epsilon, at_most=self._largest)
        plans = {epsilon: self._plan_with(epsilon) for epsilon in epsilons}
        return [self._alternative(epsilon, plan) for epsilon, plan in plans.items() if plan]

    @cached_property
    def present(self) -> Alternative:
        """The specification's own epsilon, as one of the alternatives."""
        return self._alternative(self.spec.privacy.epsilon, self.plan)

    @cached_property
    def fits_the_year(self) -> Fraction | None:
        """The largest epsilon a release with which the cap allows all coming ones; None if there is none."""
        months = [month_number(step.period) for step in self.year if not step.counted]

        def fits(epsilon: Fraction) -> bool:
            plan = self._plan_with(epsilon)
            return plan is not None and self.balance.adding_each(months, self.standing.cost(plan)).is_admitted

        return largest_fitting(fits, at_most=self._largest) if months else None

    @property
    def warnings(self) -> list[str]:
        """What a steward must do before a release, what is not proved, and what makes the cap shorter."""
        doubtful = [
            f"{name} is approximate: for what it draws neither the stated epsilon nor a delta is proved."
            for name in self.plan.approximate
        ]
        return [*self._refused_noise, *self._refused_cap, *doubtful, *self._mixed_kinds]

    @cached_property
    def _refused_noise(self) -> list[str]:
        fault = noise_refusal(self.spec, self.plan)
        return [] if fault is None else [f"A run is refused: {fault.message} ({fault.hint})."]

    @property
    def _refused_cap(self) -> list[str]:
        known = self.state.populations.get(self.spec.privacy.population)
        if known is None:
            return []
        windows = windows_of(self.spec)
        faults = (cap_difference(known, cap_of(self.spec), windows), kind_difference(known, self.plan.cost))
        return [
            f"A run is refused: {fault}, which these figures are counted against ({fault.hint})."
            for fault in faults
            if fault is not None
        ]

    @property
    def _mixed_kinds(self) -> list[str]:
        """Pure costs and Gaussian noise in one release take more than either kind."""
        if not self.plan.cost.is_mixed or self.cap.kind is CapKind.SPLIT:
            return []
        counted = at_most(self.balance.adding(self.first, self.standing.cost(self.plan)).statement.epsilon, 4)
        kinds = {name: "Gaussian" if cost_of(event).rho else "pure" for name, event in self.plan.events.items()}
        return [
            f"This specification mixes noise ({', '.join(f'{name} {kind}' for name, kind in kinds.items())}), and its "
            f"population's cap counts the two kinds together: epsilon {counted} of {at_most(self.cap.epsilon)} is "
            "taken after this release. Mechanisms of one kind take less: choose `model.mechanism` and "
            "`model.projection.mechanism` alike."
        ]

    def as_json(self) -> dict[str, Any]:
        """What `plan` says about the future."""
        fits = self.fits_the_year
        return {
            "warnings": self.warnings,
            "year": [self._step_json(step) for step in self.year],
            "cap_reached": self.cap_reached,
            "lasts_until": self.present.lasts_until,
            "months": self.present.months,
            "alternatives": [alternative.as_json() for alternative in self.alternatives],
            "fits_the_year": None if fits is None else float(fits),
            "columns": column_errors(self.spec, self.plan),
        }

    def _step_json(self, step: ForecastRelease) -> dict[str, Any]:
        spent = step.spent.as_json()
        return {
            "period": step.period,
            "epsilon": 0.0 if step.counted else float(self.spec.privacy.epsilon),
            "epsilon_spent": spent["epsilon"] if math.isfinite(spent["epsilon"]) else None,
            "delta_spent": spent["delta"],
            "delta_num_spent": spent["delta_num"],
            "epsilon_remaining": left(float(self.cap.epsilon), step.spent.epsilon),
            "allowed": step.allowed,
            "counted": step.counted,
        }

    @property
    def _largest(self) -> Fraction:
        return min(Fraction(MOST_EPSILON), self.cap.epsilon)

    @cached_property
    def _uncharged(self) -> list[str]:
        months = coming_months(self.spec, self.state, self.now, MOST_MONTHS)
        return [month.period for month in months if not month.is_charged]

    def _plan_with(self, epsilon: Fraction) -> Plan | None:
        if epsilon == self.spec.privacy.epsilon:
            return self.plan
        privacy = self.spec.privacy.model_copy(update={"epsilon": epsilon})
        try:
            return plan_release(self.spec.model_copy(update={"privacy": privacy}))
        except SpecError:  # a calibration that this epsilon cannot have
            return None

    def _alternative(self, epsilon: Fraction, plan: Plan) -> Alternative:
        left, coming = self.standing.left(plan, self.first), self._uncharged
        count = left if left is None or self.balance.span is None else self._months_allowed(plan)
        if count is None or count >= len(coming):
            return Alternative(epsilon, plan, left, None, None)
        until = coming[count - 1] if count else None
        return Alternative(epsilon, plan, left, until, _months_between(coming[0], coming[count]))

    def _months_allowed(self, plan: Plan) -> int | None:
        """How many of the coming months the cap allows before it refuses one; None if it refuses none."""
        balance, each = self.balance, self.standing.cost(plan)
        for count, period in enumerate(self._uncharged):
            balance = balance.adding(month_number(period), each)
            if not balance.is_admitted:
                return count
        return None


def readable_error(plan: Plan) -> dict[str, float]:
    """The largest noise of any column's mean, in percent of its range, and of any share, in percentage points."""
    errors = column_noise(plan)
    parts = {
        "mean_percent_of_range": [100 * error.part_of_range for error in errors if not error.is_share],
        "share_points": [100 * error.part_of_range for error in errors if error.is_share],
    }
    return {name: max(values) for name, values in parts.items() if values}


def column_errors(spec: ReleaseSpec, plan: Plan) -> list[dict[str, Any]]:
    """Each column's expected noise: of its mean in its own unit (times in days), of a share in percentage points."""
    units = {column.name: column.unit for column in spec.columns}
    return [_column_error(error, units[error.column.name]) for error in column_noise(plan)]


def _column_error(error: ColumnNoise, unit: str | None) -> dict[str, Any]:
    kind = error.column.kind
    size = 100.0 if error.is_share else _DAYS.get(kind, 1.0)
    return {
        "name": error.column.name,
        "kind": kind.value,
        "of": "share" if error.is_share else "mean",
        "unit": "points" if error.is_share else "days" if kind in _DAYS else unit,
        "noise_sd": {"least": size * error.least, "most": size * error.most},
        "percent_of_range": 100 * error.part_of_range,
        "known": error.known,
    }


def _months_between(first: str, last: str) -> int:
    years, months = (int(b) - int(a) for a, b in zip(first.split("-"), last.split("-"), strict=True))
    return 12 * years + months
