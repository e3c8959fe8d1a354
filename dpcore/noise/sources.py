"""The only source of randomness.

* `SystemNoise` draws the noise of every release from operating-system entropy, without a seed.
* `SeededNoise` is for tests and replays; its measurements are marked as seeded, and
  publishing refuses them.
* `public_generator` is the reproducible stream of a public seed, for projections, simulations
  and fits, which need no secrecy; `bulk_generator` is a faster one, for synthetic rows; `draw_seed`
  draws such a seed.
"""

from __future__ import annotations

import functools
import random
import secrets
import string
from collections.abc import Callable
from numbers import Integral
from typing import Protocol

import numpy as np


def draw_seed() -> str:
    """Draw a public seed: 128 bits of operating-system entropy in hexadecimal."""
    return secrets.token_hex(16)


def seed_of(random_state: str | int | None) -> str:
    """The public seed given as hexadecimal text or as a number; a new one for None.

    Raises: ValueError for anything else.
    """
    if random_state is None:
        return draw_seed()
    if isinstance(random_state, Integral) and random_state >= 0:
        return f"{int(random_state):x}"
    if isinstance(random_state, str) and random_state and set(random_state) <= set(string.hexdigits):
        return random_state
    raise ValueError(f"random_state must be None, hexadecimal digits or a number from 0 on, got {random_state!r}")


def public_generator(seed: str, purpose: str) -> np.random.Generator:
    """The reproducible stream of a public seed; different purposes get independent streams."""
    from randomgen import ChaCha

    words = [int(seed, 16), int.from_bytes(purpose.encode(), "big")]
    return np.random.Generator(ChaCha(seed=np.random.SeedSequence(words)))


def bulk_generator(seed: str, purpose: str) -> np.random.Generator:
    """A reproducible stream three times as fast as that of `public_generator`, for synthetic rows.

    Its state can be inferred from its draws, which reveals no more than the public seed does.
    """
    words = [int(seed, 16), int.from_bytes(purpose.encode(), "big")]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words)))


class Noise(Protocol):
    """The draws that are available to a mechanism."""

    @property
    def seeded(self) -> bool:
        """Whether the draws are reproducible, as in tests only."""

    def bits(self, count: int) -> int:
        """Draw a uniform integer of `count` bits."""

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Draw independent integers with mass proportional to exp(-|x| / scale)."""

    def generator(self) -> np.random.Generator:
        """A stream of floating-point draws.

        It serves purposes that need no secrecy, such as a random start, and mechanisms whose
        registry entry says `approximate`: nothing bounds the error of these draws, so no
        proved guarantee may rest on them.
        """


class SystemNoise:
    """Operating-system entropy: OpenDP's exact samplers, and `secrets` for raw bits."""

    seeded = False

    def bits(self, count: int) -> int:
        """Draw a uniform integer of `count` bits."""
        return secrets.randbits(count)

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Draw independent integers with mass proportional to exp(-|x| / scale)."""
        return list(_laplace_sampler(scale)([0] * size))

    def generator(self) -> np.random.Generator:
        """A new ChaCha stream under a key of operating-system entropy."""
        from randomgen import ChaCha

        return np.random.Generator(ChaCha(key=secrets.randbits(256)))


@functools.lru_cache(maxsize=64)  # building a sampler takes longer than a few draws
def _laplace_sampler(scale: float) -> Callable[[list[int]], list[int]]:
    """OpenDP's exact discrete Laplace mechanism, which keeps no state between draws."""
    from opendp import domains, measurements, metrics, mod  # the prelude would load scikit-learn and pandas

    mod.enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")
    sampler: Callable[[list[int]], list[int]] = measurements.make_laplace(*space, scale=scale)
    return sampler


class SeededNoise:
    """Reproducible noise for tests: the same distributions to double precision, without secrecy."""

    seeded = True

    def __init__(self, seed: int) -> None:
        self._bits = random.Random(seed)  # noqa: S311  not for releases
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def bits(self, count: int) -> int:
        """Draw a reproducible integer of `count` bits."""
        return self._bits.getrandbits(count)

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        """Draw rounded continuous numbers, which are close enough at large scales."""
        return [round(x) for x in self._generator.laplace(scale=scale, size=size).tolist()]

    def generator(self) -> np.random.Generator:
        """The reproducible stream itself."""
        return self._generator
