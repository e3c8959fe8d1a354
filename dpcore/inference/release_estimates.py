"""Confidence intervals from a release alone, for means, proportions and regression coefficients.

A released figure differs from the truth for two reasons. The **noise** has a known law. The
**sampling error** of the table, if the table is a sample, follows from its second moments,
which were measured too. The `Estimand` of an interval is the value in the table (noise only), or
in the population from which its units were drawn (both).

The intervals refer to cells as they were measured: clipped to the bounds, missing values imputed by
the column's rule, an unknown nominal cell as an equal share of every level, and numbers truncated to
the grid 2^-16 of the encoding. Means and shares allow for the grid; coefficients are those of the
table on the grid. If a person's rows are weighted, they are weighted here. Post-processing: no budget
is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from dpcore.inference.functionals import ColumnFunctionals, Functional, NotIdentifiedError, Regressor
from dpcore.inference.gram_estimates import NoisyProducts
from dpcore.inference.histogram_estimates import NoisyHistograms
from dpcore.inference.intervals import Estimand, Interval, Quotient, coefficients
from dpcore.measure import Measurement, Released, ReleasedVector
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.base import Output
from dpcore.mechanisms.names import MARGINALS, MEAN, MOMENTS, PROJECTION
from dpcore.mechanisms.registry import mechanism_of
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Floats, LevelValue

Given = dict[str, LevelValue]

DRAWS = 1 << 15
"""Draws of the noise behind an interval; their Monte Carlo error changes its coverage by about 0.1 %."""

INTERCEPT = "intercept"

OF_GROUPS = (
    "the moments of this release are those of groups of values, for rows that hang together; means and shares of all "
    "rows, and the classes' shares, are known from its histograms and counts"
)
CLIPPED = "points beyond the radius were drawn back before they were measured, how many and how far is not known"
ONE_LENGTH = (
    "points were brought to one length before they were measured, what lengths of their own they had is not known"
)


class ReleaseInference:
    """Confidence intervals for a release, by column names.

    `given` restricts a quantity to one class: `{label: level}`. A quantity that the release does not
    identify raises a NotIdentifiedError that says why.

        >>> from fractions import Fraction
        >>> from dpcore.accounting import Epsilon
        >>> from dpcore.measure import exact_gram, measure_gram
        >>> from dpcore.measurements.projection import no_projection
        >>> from dpcore.mechanisms.registry import gram_mechanism
        >>> from dpcore.noise.sources import SystemNoise
        >>> from dpcore.records.exact_sums import GramLayout
        >>> from dpcore.records.schema import IntervalColumn, Kind, Neighbours, RecordSchema
        >>> age = IntervalColumn(name="age", kind=Kind.INTEGER, lower=0.0, upper=100.0)
        >>> encoding = Encoding(RecordSchema((age,)))
        >>> layout = GramLayout(encoding.width + 1, 1, Fraction(1, 2))
        >>> event = gram_mechanism("laplace").calibrate(layout, Neighbours.REPLACE_ONE, Epsilon(Fraction(1)))
        >>> chunks = [({"age": np.arange(20.0, 80.0)}, None)]
        >>> gram = exact_gram(chunks, encoding, layout, no_projection(encoding))
        >>> released = measure_gram(gram, event, SystemNoise())  # the only step that sees rows
        >>> interval = ReleaseInference.from_released(encoding, released).mean("age", confidence=0.9)
        >>> 0.0 <= interval.low <= interval.high <= 100.0, interval.confidence
        (True, 0.9)
    """

    def __init__(
        self, encoding: Encoding, measurements: Sequence[NoisyProducts], histograms: NoisyHistograms | None = None
    ) -> None:
        self._columns = ColumnFunctionals(encoding)
        self._measurements = tuple(measurements)
        self._histograms = histograms

    @staticmethod
    def from_released(
        encoding: Encoding,
        released: Released,
        *,
        projection: Projection | None = None,
        sums: Released | None = None,
        components: Released | None = None,
        draws: int = DRAWS,
    ) -> ReleaseInference:
        """Return the inference from measured moments; `projection` was applied to the points before the measurement.

        `sums` are separately measured counts and sums. `components` is the measurement for the projection: a Gram of
        all coordinates identifies what the projection drops. In a frame only the classes' sizes are identified.
        """
        measured = partial(NoisyProducts, classes=encoding.schema.class_count, draws=draws)
        if projection is not None and projection.frame is not None:
            nothing = _empty_basis(encoding, released)
            refusal = CLIPPED if projection.frame.directions is None else ONE_LENGTH
            return ReleaseInference(encoding, [measured(released, basis=nothing, refusal=refusal)])
        basis = None if projection is None or projection.columns is None else projection.basis()
        measurements = [measured(released, basis=basis, sums=sums)]
        if components is not None and mechanism_of(components.event.mechanism).output is Output.GRAM:
            measurements.append(measured(components))
        return ReleaseInference(encoding, measurements)

    @staticmethod
    def from_histograms(
        encoding: Encoding, histograms: ReleasedVector, moments: Released, *, draws: int = DRAWS
    ) -> ReleaseInference:
        """Return the inference from histograms; the moments of grouped records provide the classes' sizes only."""
        classes, nothing = encoding.schema.class_count, _empty_basis(encoding, moments)
        sizes = NoisyProducts(moments, classes=classes, draws=draws, basis=nothing, refusal=OF_GROUPS)
        return ReleaseInference(encoding, [sizes], NoisyHistograms(encoding.schema, histograms, draws))

    @staticmethod
    def from_measurements(
        encoding: Encoding, measurements: Mapping[str, Measurement], projection: Projection
    ) -> ReleaseInference:
        """Return the inference from all measurements of a release, by their names.

        Private components without a measurement of their own come from the moments, which then hold all coordinates.
        """
        blocks = {name: measured for name, measured in measurements.items() if isinstance(measured, Released)}
        histograms = measurements.get(MARGINALS)
        if isinstance(histograms, ReleasedVector):
            return ReleaseInference.from_histograms(encoding, histograms, blocks[MOMENTS])
        components = blocks.get(PROJECTION)
        moments_hold_all = projection.kind == "private-pca" and components is None and projection.frame is None
        return ReleaseInference.from_released(
            encoding,
            blocks[MOMENTS],
            projection=None if moments_hold_all else projection,
            sums=blocks.get(MEAN),
            components=components,
        )

    def mean(
        self,
        column: str,
        *,
        given: Given | None = None,
        estimand: Estimand | str = Estimand.POPULATION,
        confidence: float = 0.95,
    ) -> Interval:
        """Return the mean of an interval column in its units; of present cells, if missing ones have a level."""
        of = self._columns.interval(column)
        if self._histograms is not None and not given:
            positions = self._histograms.mean(column).interval(estimand, confidence)
        else:
            top, bottom = self._columns.position(column), self._columns.present(column)
            positions = self._quotient(top, bottom, given, estimand, confidence)
        return positions.scaled(of.half_width, of.middle).within(of.lower, of.upper)

    def proportion(
        self,
        column: str,
        level: LevelValue,
        *,
        given: Given | None = None,
        estimand: Estimand | str = Estimand.POPULATION,
        confidence: float = 0.95,
    ) -> Interval:
        """Return the share of a level, also of the label; `(missing)` is the level of missing cells, if any."""
        indicator = self._columns.level(column, level)
        self._columns.given_class(given, [column])
        if self._histograms is not None and not given and indicator.weights.any():
            return self._histograms.share(column, level).interval(estimand, confidence).within(0.0, 1.0)
        return self._quotient(indicator, self._columns.one(), given, estimand, confidence).within(0.0, 1.0)

    def regression(
        self,
        target: str | tuple[str, LevelValue],
        features: Sequence[str],
        *,
        given: Given | None = None,
        estimand: Estimand | str = Estimand.POPULATION,
        confidence: float = 0.95,
    ) -> dict[str, Interval]:
        """Return the least-squares coefficients of a column, or of a level's indicator, on other columns.

        A nominal feature enters as indicators of all levels but the first, named `column = level`; missing cells with
        a level of their own as the middle of the bounds, with an indicator `column missing`. For the population,
        residuals are assumed homoscedastic, since second moments cannot show otherwise.
        """
        if not features:
            raise ValueError("features must name at least one column")
        names = [target[0] if isinstance(target, tuple) else target, *features]
        if len(set(names)) < len(names):
            raise ValueError("target and features must be different columns")
        index = self._columns.given_class(given, names)
        regressors = [Regressor(INTERCEPT, self._columns.one())]
        regressors += [regressor for name in features for regressor in self._columns.regressors(name)]
        response, unit, offset = self._response(target)
        measured, terms = self._measurement_for([*(r.functional for r in regressors), response])
        terms = terms if index is None else measured.in_class(terms, index)
        found = coefficients(
            measured.noisy(terms),
            measured.noise(terms),
            rows_per_unit=measured.layout.rows_per_unit,
            estimand=estimand,
            confidence=confidence,
        )
        return {
            regressor.name: interval.scaled(unit / regressor.unit, offset if regressor.name == INTERCEPT else 0.0)
            for regressor, interval in zip(regressors, found, strict=True)
        }

    def _response(self, target: str | tuple[str, LevelValue]) -> tuple[Functional, float, float]:
        """Return the response's functional, its unit in the column's units, and its origin."""
        if isinstance(target, tuple):
            return self._columns.level(*target), 1.0, 0.0
        column = self._columns.interval(target)
        if column.missing_level:
            raise NotIdentifiedError(f"{target!r} has missing cells apart: products among present cells are not known")
        return self._columns.position(target), column.half_width, column.middle

    def _measurement_for(self, functionals: Sequence[Functional]) -> tuple[NoisyProducts, Floats]:
        """Return the first measurement that identifies all functionals, and the functionals as its terms."""
        *first, last = self._measurements
        for measured in first:
            try:
                return measured, np.array([measured.term(functional) for functional in functionals])
            except NotIdentifiedError:
                continue
        return last, np.array([last.term(functional) for functional in functionals])

    def _quotient(
        self, top: Functional, bottom: Functional, given: Given | None, estimand: Estimand | str, confidence: float
    ) -> Interval:
        """Return the interval of the sum of top over the sum of bottom, over all records or those of a class."""
        index = self._columns.given_class(given)
        counted = self._columns.one() if index is None else self._columns.in_class(index)
        measured, terms = self._measurement_for([counted, top, bottom])
        noisy, noise = measured.noisy(terms), measured.noise(terms)
        records = max(0.0, float(noisy[0, 0]))
        return Quotient(
            top=noisy[0, 1],
            bottom=noisy[0, 2],
            noise_top=noise[:, 0, 1],
            noise_bottom=noise[:, 0, 2],
            spread=measured.layout.rows_per_unit * self._spread(measured, terms, index),
            shift=(records * measured.rounding_bound(terms[1]), records * measured.rounding_bound(terms[2])),
        ).interval(estimand, confidence)

    def _spread(self, measured: NoisyProducts, terms: Floats, index: int | None) -> Floats:
        """Return the sums of squares and products of top and bottom, over all records or those of a class."""
        if index is None:
            return measured.noisy(terms[1:])
        if measured.separates_classes:
            return measured.noisy(measured.in_class(terms[1:], index))
        classes = [measured.term(self._columns.in_class(k)) for k in range(measured.layout.classes)]
        return _shared_spread(measured.noisy(np.array([*terms, *classes])))


def _empty_basis(encoding: Encoding, released: Released) -> Floats:
    """Return a basis of zeros, which identifies no functional of the points."""
    layout = released.event.layout
    return np.zeros((encoding.width, layout.dimension - layout.heads))


def _shared_spread(noisy: Floats) -> Floats:
    """Return a class's squares and products of top and bottom, if all classes share one covariance.

    The terms are the class's indicator, top, bottom, and the indicators of all classes.
    """
    filled = np.diag(noisy)[3:] >= 1
    counts, sums, own = np.diag(noisy)[3:][filled], noisy[3:, 1:3][filled], noisy[0, 1:3]
    between = sums.T @ (sums / counts[:, None])
    share = noisy[0, 0] / max(float(counts.sum()), 1.0)
    around: Floats = share * (noisy[1:3, 1:3] - between) + np.outer(own, own) / max(noisy[0, 0], 1.0)
    return around
