"""Change between released values of two times: what noise explains, what chance explains, and what neither does.

Two causes besides real change make released values differ. The **noise** of a release is known
exactly. **Chance** is who happens to be in a table: rows drawn independently from a population
that stays as it is. A change beyond what noise explains is a change of the tables; one beyond
noise and chance together is a change of what the tables are drawn from. Post-processing: free of
charge.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

LEVEL = 0.05
"""The chance of at least one false alarm among all comparisons of two times."""

LARGEST_COUNT_NOISE = 0.1
"""A mean is a noisy sum over a noisy count; where the count is less sure than this, no margin is stated."""

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A released value, with the standard deviations that noise and chance give it."""

    value: float
    noise: float
    chance: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and 0 <= self.noise < math.inf and 0 <= self.chance < math.inf):
            raise ValueError("a quantity needs a finite value and finite standard deviations of at least 0")


class DriftVerdict(Enum):
    """What explains a change."""

    NOISE = "within noise"
    CHANCE = "beyond noise"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of two released values, the reach of its noise at 95 %, and what explains it."""

    change: float
    margin: float
    verdict: DriftVerdict


def critical_value(level: float) -> float:
    """How many standard deviations noise exceeds with a probability of at most `level`, which is at most 5 %.

    It is the Laplace law's reach, ln(1/level)/√2: of the noises used here (Laplace, Gaussian,
    Wishart differences with two degrees of freedom and more) and of their sums, it has the heaviest tail
    from 5 % on.
    """
    if not 0 < level <= LEVEL:
        raise ValueError(f"level must be in (0, {LEVEL}], got {level}")
    return math.log(1 / level) / math.sqrt(2)


def ratio_noise(margin_sd: float, *, offset: float, count_sd: float, count: float) -> float:
    """Standard deviation of a noisy mean whose noisy count is divided by.

    `margin_sd` is that of the sum over the count, `offset` the mean's distance from where sums count as 0:
    a count that is off by a share moves the mean by that share of its offset.
    """
    return math.hypot(margin_sd, offset * count_sd / max(count, 1.0))


def compare_quantities(before: Mapping[Name, Quantity], after: Mapping[Name, Quantity]) -> dict[Name, Change]:
    """Every quantity that both times have, compared.

    If the tables are the same, noise alone gives any verdict besides `NOISE` with a probability of at
    most `LEVEL`; if they are independent draws of one population, any `DRIFT` comes with at most
    that (Bonferroni over the quantities; chance is taken as Gaussian).
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
