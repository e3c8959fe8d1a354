"""Generators of synthetic rows: they take released measurements, never rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.noise.sources import public_generator
from dpcore.records.decoding import ClassRules
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Cells, Codes, Floats, NominalColumn, RecordSchema
from dpcore.synthesis.class_rows import draw_classes, rows_by_class
from dpcore.synthesis.copula.fit_rule import FIRST_FIT
from dpcore.synthesis.copula.generator import Copula, CopulaDecoder
from dpcore.synthesis.copula.rounded_rows import RoundedTable
from dpcore.synthesis.copula.ruled_law import RuledLaw
from dpcore.synthesis.even_points import Chunk, even_classes, even_normals
from dpcore.synthesis.level_choice import fit_level_rule
from dpcore.synthesis.ruled_rows import DrawnRows, Propose, ProposedRows, RowSource, RuledRows, allowed_class_weights

ROWS_AT_ONCE, COORDINATES_AT_ONCE, LEAST_ROWS = 32_768, 1 << 23, 256
"""Size limits of a chunk: large enough for array operations, small enough for a processor's cache."""
PILOT_CELLS, PILOT_COORDINATES, LEAST_PILOT_ROWS = 100_000, 4_000_000, 4_000
"""Size limits of the sample for fitting rules: rows times levels, rows times coordinates, and least rows."""
TIE_BREAK = 4e-6
"""Range of the jitter on coordinates, so that levels of a column without measured variance are drawn by share."""


def eigenvector_root(covariance: Floats) -> Floats:
    """Return a square root of a covariance; the signs of its columns differ between machines."""
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def symmetric_root(covariance: Floats) -> Floats:
    """Return the symmetric square root of a covariance; it is unique, so other machines can reproduce the rows."""
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    return root


@dataclass(frozen=True, slots=True)
class ClassGaussians:
    """One Gaussian per class, with the class's noisy share, mean and covariance.

    Without a label this is a single Gaussian. With a target among the coordinates it is
    the supervised generator, since target and features are drawn jointly.
    """

    moments: NoisyMoments
    projection: Projection
    root: Callable[[Floats], Floats] = symmetric_root

    def law(self, seed: str) -> GaussianLaw:
        """Return the law of encoded points, which does not depend on the seed."""
        roots = tuple(self.projection.lifting @ self.root(moments.covariance) for moments in self.moments.classes)
        means = tuple(self.projection.lift(moments.mean[None, :])[0] for moments in self.moments.classes)
        return GaussianLaw(self.moments.weights, roots, means)


def independent_normals(rows: int, coordinates: int, generator: np.random.Generator) -> Floats:
    """Draw independent standard normal numbers of shape (coordinates, rows)."""
    return generator.standard_normal((coordinates, rows))


@dataclass(frozen=True, slots=True)
class GaussianLaw:
    """The law of encoded points: the classes' shares, roots of their covariances, and means."""

    weights: Floats
    roots: tuple[Floats, ...]
    means: tuple[Floats, ...]
    normals: Callable[[int, int, np.random.Generator], Floats] = independent_normals

    def draw(self, rows: int, generator: np.random.Generator) -> tuple[Floats, Codes]:
        """Draw encoded points and their classes, sorted by class."""
        classes = draw_classes(rows, self.weights, generator)
        return self.draw_points(classes, generator), classes

    def draw_points(self, classes: Codes, generator: np.random.Generator) -> Floats:
        """Draw encoded points of these classes, which are sorted."""
        parts = [self.draw_class(index, len(classes[mine]), generator).T for index, mine in rows_by_class(classes)]
        return np.hstack(parts).T

    def draw_class(self, index: int, rows: int, generator: np.random.Generator) -> Floats:
        """Draw encoded points of one class, stored coordinate by coordinate."""
        root = self.roots[index]
        coordinates = root @ self.normals(rows, root.shape[1], generator)
        coordinates += self.means[index][:, None]
        nudges = generator.random(coordinates.shape, dtype=np.float32)  # any continuous law breaks ties
        nudges -= np.float32(0.5)
        nudges *= np.float32(TIE_BREAK)
        coordinates += nudges
        return coordinates.T


Generator = ClassGaussians | Copula
"""A model of rows, built from released measurements."""


def generator_of(schema: RecordSchema, moments: NoisyMoments, projection: Projection) -> Generator:
    """Return the generator for released moments: the copula if they come with histograms, else Gaussians."""
    return ClassGaussians(moments, projection) if moments.marginals is None else Copula(schema, moments)


def without_rules(encoding: Encoding, generator: Generator) -> tuple[Encoding, Generator]:
    """Return the same generator for rows that need not obey any rules."""
    plain = replace(encoding.schema, rules=())
    return Encoding(plain), replace(generator, schema=plain) if isinstance(generator, Copula) else generator


class Decoder:
    """Turns sampled points into cells whose level shares match the measured ones in each class."""

    def __init__(self, encoding: Encoding, mixture: ClassGaussians, law: GaussianLaw, seed: str) -> None:
        self._encoding = encoding
        generator = public_generator(seed, "decoding")
        shared = mixture.moments.released.event.layout.labels > 1
        self._rules = [self._fit(law, index, generator, shared=shared) for index in range(len(law.means))]

    def _fit(self, law: GaussianLaw, index: int, generator: np.random.Generator, *, shared: bool) -> ClassRules:
        widest = max((c.level_count for c in self._encoding.schema.columns if isinstance(c, NominalColumn)), default=2)
        rows = max(LEAST_PILOT_ROWS, min(PILOT_CELLS // widest, PILOT_COORDINATES // self._encoding.width))
        pilot, mean = law.draw_class(index, rows, generator), law.means[index]
        shares = self._encoding.level_shares(mean)
        scores = self._encoding.level_scores(pilot)
        levels = {name: fit_level_rule(score, shares[name]) for name, score in scores.items()}
        shapes = self._encoding.shapes(pilot, mean, shared_spread=shared)
        return ClassRules(index, levels, self._encoding.present_values(mean), shapes)

    def decode(self, points: Floats, classes: Codes, _: np.random.Generator | None = None) -> Cells:
        """Return cells of the original columns, one row per point; decoding is deterministic."""
        found: dict[str, NDArray[np.generic]] = {}
        for index, mine in rows_by_class(classes):
            for name, values in self._encoding.decode(points[mine], self._rules[index]).items():
                found.setdefault(name, np.empty(len(points), dtype=values.dtype))[mine] = values
        return found


class PointLaw(Protocol):
    """A distribution of points and classes."""

    def draw(self, rows: int, generator: np.random.Generator) -> tuple[NDArray[Any], Codes]:
        """Draw points and their classes."""


@dataclass(frozen=True, slots=True)
class IndependentRows:
    """Draws every row independently of all others."""

    law: PointLaw
    decoder: Decoder | CopulaDecoder

    def draw(self, chunk: Chunk) -> DrawnRows:
        """Return the points and cells of one chunk, its rows in random order."""
        generator = chunk.generator()
        points, classes = self.law.draw(chunk.rows, generator)
        cells, order = self.decoder.decode(points, classes, generator), generator.permutation(len(points))
        return DrawnRows(points[order], {name: values[order] for name, values in cells.items()})


@dataclass(frozen=True, slots=True)
class RoundedGaussianRows:
    """Draws the rows of Gaussians such that class sizes, and each coordinate within a class, are spread evenly."""

    law: GaussianLaw
    decoder: Decoder

    def draw(self, chunk: Chunk) -> DrawnRows:
        """Return the points and cells of one chunk, its rows in random order."""
        generator = chunk.generator()
        classes = even_classes(chunk, self.law.weights, chunk.starts(1)[0])
        points = self.law.draw_points(classes, generator)
        cells, order = self.decoder.decode(points, classes), generator.permutation(len(points))
        return DrawnRows(points[order], {name: values[order] for name, values in cells.items()})


@dataclass(frozen=True, slots=True)
class RoundedTableRows:
    """Draws the rows of a copula such that counts of groups, and of their pairs, are close to the law's."""

    table: RoundedTable

    def draw(self, chunk: Chunk) -> DrawnRows:
        """Return the groups and cells of one chunk, its rows in random order."""
        return DrawnRows(*self.table.draw(chunk))


@dataclass(frozen=True, slots=True)
class ClassProposals:
    """Draws points of given classes and decodes them."""

    law: GaussianLaw
    decoder: Decoder

    def propose(self, classes: Codes, generator: np.random.Generator) -> DrawnRows:
        """Draw a row of each class."""
        points = np.empty((len(classes), len(self.law.means[0])))
        for index, mine in rows_by_class(classes):
            points[mine] = self.law.draw_class(index, len(classes[mine]), generator)
        return DrawnRows(points, self.decoder.decode(points, classes))


@dataclass(frozen=True, slots=True)
class SyntheticRows:
    """The rows of a synthetic table, in chunks.

    A chunk is a function of the released measurements, the public seed and its index alone: chunks
    can be drawn in any order, by any number of threads, and repeatedly.
    """

    rows: int
    seed: str
    source: RowSource
    width: int = 1
    """Number of coordinates of a point."""

    @property
    def chunk_rows(self) -> int:
        """The number of rows in a chunk: fewer for points with many coordinates."""
        return max(LEAST_ROWS, min(ROWS_AT_ONCE, COORDINATES_AT_ONCE // self.width))

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return -(-self.rows // self.chunk_rows)

    def chunk(self, index: int) -> Cells:
        """Return the cells of one chunk, its rows in random order."""
        return self.draw_chunk(index).cells

    def draw_chunk(self, index: int) -> DrawnRows:
        """Return the points and cells of one chunk, its rows in random order."""
        start = index * self.chunk_rows
        return self.source.draw(Chunk(index, start, min(self.chunk_rows, self.rows - start), self.seed, self.rows))

    def cells(self) -> Cells:
        """Return the cells of all rows."""
        with threadpool_limits(1):
            parts = [self.chunk(index) for index in range(self.chunks)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def independent_rows(encoding: Encoding, generator: Generator, rows: int, seed: str) -> SyntheticRows:
    """Return the synthetic rows of a generator, every row drawn independently."""
    source: RowSource
    if isinstance(generator, ClassGaussians):
        law = _of_allowed_classes(generator.law(seed), encoding.schema)
        decoder = Decoder(encoding, generator, law, seed)
        source = _under_rules(IndependentRows(law, decoder), encoding.schema, ClassProposals(law, decoder).propose)
    elif generator.rules is not None:
        ruled = RuledLaw(generator.law(seed), generator.rules)
        source = RuledRows(ProposedRows(ruled.law.weights, ruled.propose), generator.schema, ruled.propose)
    else:
        source = IndependentRows(generator.law(seed), CopulaDecoder(generator.encoding))
    return SyntheticRows(rows, seed, source, encoding.width)


def _of_allowed_classes(law: GaussianLaw, schema: RecordSchema) -> GaussianLaw:
    """Return the law without classes of which no row obeys the rules."""
    return replace(law, weights=allowed_class_weights(schema, law.weights)) if schema.rules else law


def _under_rules(source: RowSource, schema: RecordSchema, propose: Propose) -> RowSource:
    return RuledRows(source, schema, propose) if schema.rules else source


def rounded_rows(encoding: Encoding, generator: Generator, rows: int, seed: str) -> SyntheticRows:
    """Return the synthetic rows of a generator, drawn together such that shares and means are close to the law's."""
    source: RowSource
    if isinstance(generator, Copula):
        table = generator.law(seed)
        source = RoundedTableRows(RoundedTable.of(table, generator.schema, generator.encoding.groups, generator.rules))
        if generator.rules is not None:
            source = RuledRows(source, generator.schema, RuledLaw(table, generator.rules).propose)
        return SyntheticRows(rows, seed, source, encoding.width)
    law = _of_allowed_classes(replace(generator.law(seed), normals=even_normals), encoding.schema)
    decoder = Decoder(encoding, generator, law, seed)
    again = ClassProposals(replace(law, normals=independent_normals), decoder)
    source = _under_rules(RoundedGaussianRows(law, decoder), encoding.schema, again.propose)
    return SyntheticRows(rows, seed, source, encoding.width)


def _rows_by_the_first_fit(encoding: Encoding, generator: Generator, rows: int, seed: str) -> SyntheticRows:
    """Return the synthetic rows as the first sampler with a number drew them."""
    if isinstance(generator, Copula):
        generator = replace(generator, fitting=FIRST_FIT)
    return independent_rows(encoding, generator, rows, seed)


def _rows_by_eigenvectors(encoding: Encoding, generator: Generator, rows: int, seed: str) -> SyntheticRows:
    """Return the synthetic rows as the last version without sampler numbers drew them."""
    if isinstance(generator, ClassGaussians):
        generator = replace(generator, root=eigenvector_root)
    return _rows_by_the_first_fit(encoding, generator, rows, seed)


UNNUMBERED, FIRST, ROUNDED, INDEPENDENT = 0, 1, 2, 3
"""The sampler of models without a sampler number, the first with one, and the samplers of new releases."""
SAMPLERS: dict[int, Callable[[Encoding, Generator, int, str], SyntheticRows]] = {
    UNNUMBERED: _rows_by_eigenvectors,
    FIRST: _rows_by_the_first_fit,
    ROUNDED: rounded_rows,
    INDEPENDENT: independent_rows,
}
"""Every sampler with published releases, by its number in `model.json`; 0 is the last version without numbers.

Measurements, seed and number determine the rows, so an audit can reproduce them. A change of any
constant or step that changes a cell, here or in a law or decoder, needs a new number. Earlier samplers
remain callable, and `tests/support/tasks/golden` holds a bundle of each.
"""
SAMPLINGS: dict[str, int] = {"rounded": ROUNDED, "independent": INDEPENDENT}
"""The samplers that new releases use, by the value of `model.sampling`."""


def synthetic_rows(
    encoding: Encoding, generator: Generator, rows: int, seed: str, sampling: str = "rounded"
) -> SyntheticRows:
    """Return the synthetic rows of a generator, `rounded` or `independent`."""
    return SAMPLERS[SAMPLINGS[sampling]](encoding, generator, rows, seed)
