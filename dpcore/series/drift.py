"""Drift between two releases: changes that noise explains, that chance explains, and that neither explains.

Released values differ for two reasons besides real change. The law of the **noise** of a release is
known exactly. **Chance** is sampling variation: rows drawn independently from an unchanged
population. A change beyond the noise is a change of the tables; a change beyond noise and chance
together is a change of the population. Post-processing: no budget is spent.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

LEVEL = 0.05
"""The family-wise error rate: the probability of any false alarm among all comparisons of two releases."""

LARGEST_COUNT_NOISE = 0.1
"""A mean is a noisy sum over a noisy count; no margin is stated if the count's relative noise exceeds this."""

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A released value, with its standard deviations due to noise and to chance."""

    value: float
    noise: float
    chance: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and 0 <= self.noise < math.inf and 0 <= self.chance < math.inf):
            raise ValueError("a quantity needs a finite value and finite standard deviations of at least 0")


class DriftVerdict(Enum):
    """The smallest explanation of a change."""

    NOISE = "within noise"
    CHANCE = "beyond noise"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of two released values, the 95 % margin of its noise, and the verdict."""

    change: float
    margin: float
    verdict: DriftVerdict


def critical_value(level: float) -> float:
    """Return the number of standard deviations that noise exceeds with probability at most `level` (at most 5 %).

    This is the two-sided quantile of the Laplace law, ln(1/level)/√2. At levels of 5 % and below it has the heaviest
    tail of the noise laws used here (Laplace, Gaussian, Wishart differences with two or more degrees of freedom) and
    their sums.
    """
    if not 0 < level <= LEVEL:
        raise ValueError(f"level must be in (0, {LEVEL}], got {level}")
    return math.log(1 / level) / math.sqrt(2)


def ratio_noise(margin_sd: float, *, offset: float, count_sd: float, count: float) -> float:
    """Return the standard deviation of a noisy sum over a noisy count.

    `margin_sd` is the standard deviation of the sum divided by the count. `offset` is the mean's distance from the
    origin of the sums: a relative error of the count moves the mean by the same share of the offset.
    """
    return math.hypot(margin_sd, offset * count_sd / max(count, 1.0))


def compare_quantities(before: Mapping[Name, Quantity], after: Mapping[Name, Quantity]) -> dict[Name, Change]:
    """Return the changes of all quantities that both releases have.

    If the tables are equal, any verdict other than `NOISE` has a probability of at most `LEVEL`; if they are
    independent samples of one population, any verdict `DRIFT` has a probability of at most `LEVEL` (Bonferroni over
    the quantities; chance is taken as Gaussian).
    """
    common = [name for name in after if name in before]
    far = critical_value(LEVEL / len(common)) if common else 0.0
    return {name: _change(before[name], after[name], far) for name in common}


def _change(before: Quantity, after: Quantity, far: float) -> Change:
    change = after.value - before.value
    noise, chance = math.hypot(before.noise, after.noise), math.hypot(before.chance, after.chance)
    if abs(change) <= far * noise:
        verdict = DriftVerdict.NOISE
    else:
        verdict = DriftVerdict.CHANCE if abs(change) <= far * math.hypot(noise, chance) else DriftVerdict.DRIFT
    return Change(change, critical_value(LEVEL) * noise, verdict)
