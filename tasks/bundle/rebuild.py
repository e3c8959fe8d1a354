"""A published release once more: everything behind its rows, out of its record, model, measurements and seeds.

What a model file says of projection, frame and moments is not taken from it but computed again, except
for components of public data, which no bundle holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpcore.measure import Measurement, Released, ReleasedVector, measurement_from_json
from dpcore.measurements.frame_measurements import measure_directions, measure_frame
from dpcore.measurements.measurement_frame import Frame
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection, no_projection, private_projection, ron_projection
from dpcore.mechanisms.names import CENTRE, MARGINALS, MEAN, MOMENTS, PROJECTION, RADIUS, SPREAD
from dpcore.records.encoding import Encoding
from dpcore.records.schema import RecordSchema, Role
from dpcore.synthesis.copula.generator import Copula
from dpcore.synthesis.generators import SAMPLERS, UNNUMBERED, SyntheticRows, generator_of
from tasks.bundle.released_tables import ReleasedTable, released_tables
from tasks.bundle.synthetic_table import rows_wanted
from tasks.spec import ReleaseSpec
from tasks.workspace.parallel import one_blas_thread

PUBLIC_PCA = "public-pca"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a release's rows and figures are functions of."""

    spec: ReleaseSpec
    encoding: Encoding
    measurements: dict[str, Measurement]
    moments: NoisyMoments
    projection: Projection
    seeds: dict[str, str]
    sampler: int

    @property
    def schema(self) -> RecordSchema:
        """The released columns."""
        return self.encoding.schema

    @property
    def tables(self) -> tuple[ReleasedTable, ...]:
        """The tables that the release publishes."""
        return released_tables(self.spec, self.encoding, self.projection)

    @one_blas_thread
    def rows(self) -> SyntheticRows:
        """The rows, not drawn yet."""
        generator = generator_of(self.schema, self.moments, self.projection)
        rows = rows_wanted(self.spec, self.moments)
        return SAMPLERS[self.sampler](self.encoding, generator, rows, self.seeds["sampling"])


@one_blas_thread
def rebuild(record: dict[str, Any], model: dict[str, Any], seeds: dict[str, str]) -> Rebuilt:
    """A release as its record and model describe it, with the seeds that the ledger reserved.

    Raises: RefusedError, KeyError, TypeError, ValueError if they describe none.
    """
    spec = ReleaseSpec.from_public_json(record["specification"])
    encoding = Encoding(measured_schema(record))
    measurements = {name: measurement_from_json(body) for name, body in model["measurements"].items()}
    moments, projection = _moments(_Parts(record, model, spec, encoding, measurements, seeds))
    return Rebuilt(spec, encoding, measurements, moments, projection, seeds, int(model.get("sampler", UNNUMBERED)))


def measured_schema(record: dict[str, Any]) -> RecordSchema:
    """The columns as they were measured: a label without classes was one more feature."""
    schema = ReleaseSpec.from_public_json(record["specification"]).schema
    if record["model"]["classes"] is not None:
        return schema
    columns = tuple(replace(c, role=Role.FEATURE) if c.role is Role.LABEL else c for c in schema.columns)
    return replace(schema, columns=columns)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a projection and moments are rebuilt of."""

    record: dict[str, Any]
    model: dict[str, Any]
    spec: ReleaseSpec
    encoding: Encoding
    measurements: dict[str, Measurement]
    seeds: dict[str, str]

    @property
    def kind(self) -> str:
        return str(self.record["model"]["projection"]["kind"])

    @property
    def dimension(self) -> int:
        return int(self.record["model"]["projection"]["dimension"])

    @property
    def components(self) -> int | Fraction:
        """How many private components were kept, or the share that is counted again in the released spectrum."""
        asked = self.spec.model.projection.asked_dimension
        return asked if isinstance(asked, Fraction) else self.dimension

    def gram(self, name: str) -> Released:
        """A measurement of Gram blocks."""
        released = self.measurements[name]
        if not isinstance(released, Released):
            raise TypeError("a measurement is of another kind than its name says")
        return released


def _moments(parts: _Parts) -> tuple[NoisyMoments, Projection]:
    """The moments and the projection they live in."""
    released, marginals = parts.gram(MOMENTS), parts.measurements.get(MARGINALS)
    if isinstance(marginals, ReleasedVector):
        moments = replace(NoisyMoments.from_released(released), marginals=marginals)
        return moments, Copula(parts.encoding.schema, moments).projection
    projection = _in_its_frame(parts, _unmeasured_projection(parts))
    if parts.kind != "private-pca":
        sums = parts.gram(MEAN) if MEAN in parts.measurements else None
        return NoisyMoments.from_released(released, sums=sums), projection
    bought = PROJECTION in parts.measurements
    source = parts.gram(PROJECTION) if bought else released
    components = private_projection(source, parts.encoding, parts.components)
    projection = replace(components, frame=projection.frame)
    if not bought:
        return NoisyMoments.from_released(released, projection.basis()), projection
    sums = parts.gram(MEAN) if MEAN in parts.measurements else None
    return NoisyMoments.from_released(released, sums=sums), projection


def _unmeasured_projection(parts: _Parts) -> Projection:
    """What needs no measurement; every coordinate where components were measured."""
    if parts.kind == "ron":
        return ron_projection(parts.encoding, parts.dimension, parts.seeds["projection"])
    if parts.kind != PUBLIC_PCA:
        return no_projection(parts.encoding)
    columns = np.array(parts.model["projection"]["columns"], dtype=np.float64)
    width, dimension = columns.shape
    return Projection(PUBLIC_PCA, width, dimension, columns)


def _in_its_frame(parts: _Parts, projection: Projection) -> Projection:
    """The projection in the frame that was measured or specified, if any."""
    if parts.spec.model.normalise:
        given = None if SPREAD in parts.measurements else float(parts.spec.model.given_radius)
        return measure_directions(parts.encoding, projection, lambda name, _: parts.gram(name), radius=given)
    if RADIUS in parts.measurements:
        whole_mean = parts.gram(CENTRE).event.layout.dimension == parts.encoding.width + 1
        projection = measure_frame(projection, lambda name, _: parts.gram(name), whole_mean=whole_mean)
    elif parts.spec.model.given_radius != 1:
        radius = float(parts.spec.model.given_radius)
        projection = projection.with_frame(Frame.around_middle(projection.width, radius))
    if parts.kind != PUBLIC_PCA:
        return projection
    return replace(projection, centre=np.array(parts.model["projection"]["centre"]))
