"""Generators of synthetic points: they take released moments, never rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.copula import Copula, CopulaDecoder
from dpcore.encoding import Encoding
from dpcore.levels import ClassRules, fit_level_rule
from dpcore.moments import NoisyMoments
from dpcore.noise import public_generator
from dpcore.projection import Projection
from dpcore.schema import Cells, NominalColumn, RecordSchema

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

ROWS_AT_ONCE = 65_536
PILOT_CELLS, PILOT_COORDINATES, LEAST_PILOT_ROWS = 100_000, 4_000_000, 4_000
"""Size of the sample on which rules are fitted: rows times levels, rows times coordinates, and rows at the least."""
TIE_BREAK = 1e-6
"""Spread added to sampled coordinates: levels of a column without measured variance are then drawn by share."""


@dataclass(frozen=True, slots=True)
class ClassGaussians:
    """One Gaussian a class, with the class's noisy share, mean and covariance.

    Without a label this is a single Gaussian; with a target among the coordinates it is
    the supervised generator, since target and features are drawn jointly.
    """

    moments: NoisyMoments
    projection: Projection

    @property
    def point_width(self) -> int:
        """Coordinates of a sampled row."""
        return self.projection.width

    def sample_class(self, index: int, rows: int, generator: np.random.Generator) -> Floats:
        """Encoded points of one class."""
        values, vectors = np.linalg.eigh(self.moments.classes[index].covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        points = self.moments.classes[index].mean + generator.standard_normal((rows, len(values))) @ root.T
        lifted = self.projection.lift(points)
        return lifted + TIE_BREAK * generator.standard_normal(lifted.shape)

    def sample(self, rows: int, seed: str) -> Iterator[tuple[Floats, Codes]]:
        """Encoded points and their classes, in chunks."""
        generator = public_generator(seed, "sampling")
        weights = self.moments.weights
        for start in range(0, rows, ROWS_AT_ONCE):
            classes = generator.choice(len(weights), size=min(ROWS_AT_ONCE, rows - start), p=weights)
            points = np.empty((len(classes), self.projection.width))
            for index in np.unique(classes):
                mine = classes == index
                points[mine] = self.sample_class(int(index), int(mine.sum()), generator)
            yield points, classes


Generator = ClassGaussians | Copula
"""Whatever draws rows out of released measurements."""


def generator_of(schema: RecordSchema, moments: NoisyMoments, projection: Projection) -> Generator:
    """The generator that released moments are for."""
    return ClassGaussians(moments, projection) if moments.marginals is None else Copula(schema, moments)


def decoder_of(encoding: Encoding, generator: Generator, seed: str) -> Decoder | CopulaDecoder:
    """What turns a generator's points into cells."""
    if isinstance(generator, Copula):
        return generator.decoder(seed)
    return Decoder(encoding, generator, seed)


class Decoder:
    """Turns sampled points into cells whose level shares match the measured ones, class by class."""

    def __init__(self, encoding: Encoding, mixture: ClassGaussians, seed: str) -> None:
        self._encoding = encoding
        generator = public_generator(seed, "decoding")
        self._rules = [self._fit(mixture, index, generator) for index in range(len(mixture.moments.classes))]

    def _fit(self, mixture: ClassGaussians, index: int, generator: np.random.Generator) -> ClassRules:
        widest = max((c.level_count for c in self._encoding.schema.columns if isinstance(c, NominalColumn)), default=2)
        rows = max(LEAST_PILOT_ROWS, min(PILOT_CELLS // widest, PILOT_COORDINATES // self._encoding.width))
        pilot = mixture.sample_class(index, rows, generator)
        mean = mixture.projection.lift(mixture.moments.classes[index].mean[None, :])[0]
        shares = self._encoding.level_shares(mean)
        scores = self._encoding.level_scores(pilot)
        levels = {name: fit_level_rule(score, shares[name]) for name, score in scores.items()}
        shared = mixture.moments.released.event.layout.labels > 1
        shapes = self._encoding.shapes(pilot, mean, shared_spread=shared)
        return ClassRules(index, levels, self._encoding.present(mean), shapes)

    def decode(self, points: Floats, classes: Codes) -> Cells:
        """Cells of the original columns, one row a point."""
        parts: list[Cells] = []
        order: list[Codes] = []
        for index in np.unique(classes):
            mine = np.flatnonzero(classes == index)
            parts.append(self._encoding.decode(points[mine], self._rules[int(index)]))
            order.append(mine)
        back = np.argsort(np.concatenate(order))
        return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}
