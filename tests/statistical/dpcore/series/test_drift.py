"""Drift: false alarms are as rare, and intervals cover as often, as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.dpcore.drift import KINDS, alarms, dice, months

from dpcore.series.drift import LEVEL, DriftVerdict


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quantities", [1, 20])
def test_without_drift_any_alarm_in_a_month_is_as_rare_as_stated(kind: str, quantities: int) -> None:
    found = alarms(*months(kind, quantities, dice()))
    rate = np.mean([any(c.verdict is not DriftVerdict.NOISE for c in changes.values()) for changes in found])
    slack = 6 * math.sqrt(LEVEL * (1 - LEVEL) / len(found))
    assert rate <= LEVEL + slack


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_interval_covers_an_unchanged_value_in_95_of_100_months(kind: str) -> None:
    found = alarms(*months(kind, 1, dice(6)))
    covered = np.mean([abs(c.change) <= c.margin for changes in found for c in changes.values()])
    assert covered >= 0.95 - 6 * math.sqrt(0.05 * 0.95 / len(found))
