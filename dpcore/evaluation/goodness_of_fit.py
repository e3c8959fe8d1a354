"""How well a synthetic table fits its noisy measurements, within the accuracy of the noise: post-processing.

Every quantity is compared between measurement and table. The two may differ by the noise of the
measurement and by the sampling error of the rows; a gap is inside if it is within the 95 % margin of
both together. The sampling error is that of independent rows; rounded rows have less or about as much, so for
them the margin is too wide rather than too narrow. Pairs are covariances of quantities of two columns, in the
measured coordinates and before any repair, so that distortions by a repair or by a model are visible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.evaluation.copula_fit import CopulaSummary, group_vectors
from dpcore.evaluation.table_summary import ClassSums, TableSummary
from dpcore.evaluation.utility import MeasuredSummary, readable_map, utility_report
from dpcore.measurements.noise_law import NoiseCovariance
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.mechanisms.expected_noise import count_and_sum_noise
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Floats, NominalColumn, level_names
from dpcore.stats import Z95
from dpcore.synthesis.generators import ClassGaussians

NamedGap = tuple[str, float, float, float]
"""A quantity's name, measured value, synthetic value, and the standard deviation of their difference."""

GRID_DEVIATION = 1e-6
"""Standard deviation due to finite grids; keeps denominators positive."""

EDGES = np.arange(-6.0, 6.5, 0.5)
"""Bins of gaps in standard deviations; gaps beyond them count in the outermost bins."""

MOST_NAMED = 8
"""How many of the largest gaps, and of the missing levels, are listed by name."""


def release_report(measured: MeasuredSummary, summary: TableSummary) -> dict[str, Any]:
    """Return the utility report of a release, extended by its goodness of fit."""
    utility = utility_report(measured, summary)
    columns, pairs = column_gaps(utility["columns"], summary.rows), pair_gaps(measured, summary)
    coverage = category_coverage(utility["columns"])
    return {
        **utility,
        "fit": {"columns": columns.as_json(), "pairs": pairs.as_json()},
        "coverage": coverage,
        "metrics": {
            **utility["metrics"],
            "means_inside": columns.share,
            "pairs_inside": pairs.share,
            "category_coverage": coverage["share"],
            "spectrum_above_noise": _share_above_noise(measured, utility["spectrum"]),
            "isotropy": isotropy(measured),
        },
    }


def _share_above_noise(measured: MeasuredSummary, spectrum: dict[str, Any]) -> float:
    """Return the share of the measured directions whose eigenvalue exceeds the operator norm of the noise.

    Directions in which all possible records are 0 do not count: the indicators of a column sum to a constant.
    """
    most = _free_directions(measured)
    above = [min(most, sum(v > spectrum["noise_level"] for v in block["eigenvalues"])) for block in spectrum["blocks"]]
    return float(np.mean(above) / most)


def isotropy(measured: MeasuredSummary) -> float:
    """Return the average variance of the modelled features over that in their widest direction: 1 if all are equal.

    It is 0 without any variance. Noise that hides all variance brings it near 1.

    One of the conditions under which random projections are nearly Gaussian: no direction may hold much more variance
    than the average one (RON-Gauss, Theorem 2). Second moments see no more of that theorem: how the lengths of records
    spread is a fourth moment, and no moment of order two tells a Gaussian from another law (GUARANTEE.md, E: Lemma 1).
    """
    moments, target = measured.mixture.moments, measured.encoding.target_width
    size = len(moments.classes[0].mean) - (0 if isinstance(measured, CopulaSummary) else target)
    offsets = np.array([c.mean for c in moments.classes])
    offsets = offsets - moments.weights @ offsets
    whole = sum(
        share * (c.covariance + np.outer(offset, offset))
        for share, c, offset in zip(moments.weights, moments.classes, offsets, strict=True)
    )
    values = np.linalg.eigvalsh(np.asarray(whole)[:size, :size])
    return float(np.mean(values) / values[-1]) if values[-1] > 0 else 0.0


def _free_directions(measured: MeasuredSummary) -> int:
    """Return the number of directions of the measured points in which records can differ."""
    if isinstance(measured, CopulaSummary):
        return max(1, sum(groups.size - 1 for groups in measured.mixture.encoding.groups))
    layout = measured.mixture.moments.released.event.layout
    columns = measured.encoding.schema.encoded_columns
    free = sum(c.level_count - 1 if isinstance(c, NominalColumn) else 1 + c.missing_level for c in columns)
    return min(layout.dimension - layout.heads, free)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Measured and synthetic values of some quantities, and the standard deviations of their differences."""

    names: Sequence[str]
    measured: Floats
    synthetic: Floats
    deviations: Floats

    @staticmethod
    def of(rows: Sequence[NamedGap]) -> Gaps:
        """Collect gaps that are given one by one."""
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        return Gaps(columns[0], *(np.array(column, dtype=np.float64) for column in columns[1:]))

    @property
    def sizes(self) -> Floats:
        """Gaps in standard deviations."""
        return (self.synthetic - self.measured) / np.hypot(self.deviations, GRID_DEVIATION)

    @property
    def inside(self) -> int:
        """The number of gaps within the 95 % margin of noise and sampling."""
        return int((np.abs(self.sizes) <= Z95).sum())

    @property
    def share(self) -> float:
        """The share of gaps inside; 1 if there are none."""
        return self.inside / len(self.names) if self.names else 1.0

    def as_json(self) -> dict[str, Any]:
        """Return the counts, a histogram of the gaps, and the largest gaps by name."""
        sizes = self.sizes
        counts, _ = np.histogram(np.clip(sizes, EDGES[0], EDGES[-1]), bins=EDGES)
        largest = np.argsort(-np.abs(sizes), kind="stable")[:MOST_NAMED]
        return {
            "inside": self.inside,
            "of": len(self.names),
            "edges": EDGES.tolist(),
            "counts": counts.tolist(),
            "largest": [
                {
                    "name": self.names[i],
                    "measured": float(self.measured[i]),
                    "synthetic": float(self.synthetic[i]),
                    "deviations": float(sizes[i]),
                }
                for i in largest
            ],
        }


# ---- means and shares ------------------------------------------------------------------------------


def column_gaps(columns: Sequence[dict[str, Any]], rows: int) -> Gaps:
    """Return the gaps of every mean and share that is known on both sides; of two levels, only the second."""
    return Gaps.of([gap for column in columns for gap in _column_gaps(column, rows)])


def _column_gaps(column: dict[str, Any], rows: int) -> Iterator[NamedGap]:
    measured, synthetic, name = column["measured"], column["synthetic"], column["name"]
    if "levels" not in column:
        if measured["mean"] is not None:
            drawing = synthetic["sd"] / math.sqrt(max(rows * (1 - synthetic["missing_share"]), 1.0))
            width = synthetic["edges"][-1] - synthetic["edges"][0]
            allowed = math.hypot(measured["mean_margin"] / Z95, drawing, GRID_DEVIATION * width)
            yield name, measured["mean"], synthetic["mean"], allowed
        return
    levels = list(zip(column["levels"], measured["shares"], measured["margins"], synthetic["shares"], strict=True))
    for level, share, margin, drawn in levels[1:] if len(levels) == 2 else levels:
        if share is not None:
            middle = min(max((share + drawn) / 2, 0.0), 1.0)
            yield f"{name} = {level}", share, drawn, math.hypot(margin / Z95, math.sqrt(middle * (1 - middle) / rows))


def category_coverage(columns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many of the levels with a measured share clearly above 0 occur in the synthetic rows."""
    levels = [
        (f"{column['name']} = {level}", drawn > 0)
        for column in columns
        if "levels" in column
        for level, share, margin, drawn in zip(
            column["levels"],
            column["measured"]["shares"],
            column["measured"]["margins"],
            column["synthetic"]["shares"],
            strict=True,
        )
        if share is not None and share > margin
    ]
    missing = [name for name, found in levels if not found]
    found = len(levels) - len(missing)
    return {
        "found": found,
        "of": len(levels),
        "share": found / len(levels) if levels else 1.0,
        "missing": missing[:MOST_NAMED],
    }


# ---- pairs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PairCovariances:
    """Covariances among readable quantities and with class indicators, and the standard deviations of their noise.

    `of_rows` maps encoded points to the quantities, as far as they were measured.
    """

    of_rows: Floats
    covariance: Floats
    noise: Floats
    with_classes: Floats
    classes_noise: Floats


def pair_gaps(measured: MeasuredSummary, summary: TableSummary) -> Gaps:
    """Return the gaps of every pair of quantities of two columns, including the label.

    Both sides are divided by the synthetic spreads, so that they read like correlations.
    """
    encoding, rows = measured.encoding, max(summary.rows, 1)
    pairs = _copula_pairs(measured) if isinstance(measured, CopulaSummary) else _gram_pairs(measured)
    drawn, with_classes, shares = _covariances(pairs.of_rows, summary.sums)
    owners, names = _owners(encoding), readable_map(encoding)[0]
    spread = np.diag(drawn)
    first, second = np.nonzero(np.triu(owners[:, None] != owners[None, :]))
    kept = np.array(_label_levels(encoding), dtype=np.int64)

    def both(of_columns: Floats, of_label: Floats) -> Floats:
        return np.concatenate([of_columns[first, second], of_label[kept].ravel()])

    variances = both(np.outer(spread, spread), np.outer(shares * (1 - shares), spread))
    synthetic = both(drawn, with_classes)
    chance = np.sqrt((np.maximum(variances, 0.0) + synthetic**2) / rows)
    scale = np.where(variances > GRID_DEVIATION**2, np.sqrt(np.maximum(variances, 0.0)), 1.0)
    label = encoding.schema.label
    levels = [f"{label.name} = {level_names(label)[k]}" for k in kept] if label is not None else []
    return Gaps(
        [f"{names[a]} × {names[b]}" for a, b in zip(first, second, strict=True)]
        + [f"{level} × {name}" for level in levels for name in names],
        both(pairs.covariance, pairs.with_classes) / scale,
        synthetic / scale,
        np.hypot(both(pairs.noise, pairs.classes_noise), chance) / scale,
    )


def _label_levels(encoding: Encoding) -> list[int]:
    """Return the classes whose covariances are compared; of two classes, only the second."""
    count = encoding.schema.class_count
    return [] if count == 1 else [1] if count == 2 else list(range(count))


def _owners(encoding: Encoding) -> NDArray[np.int64]:
    """Return the index of the column of each readable quantity."""
    starts = np.array([code.start for code in encoding.codes])
    first = np.argmax(readable_map(encoding)[1] != 0, axis=1)
    owners: NDArray[np.int64] = np.searchsorted(starts, first, side="right") - 1
    return owners


def _covariances(of_rows: Floats, sums: ClassSums) -> tuple[Floats, Floats, Floats]:
    """Return the quantities' covariances, their covariances with class indicators, and the classes' shares."""
    rows, mean, shares = sums.rows, sums.mean, sums.counts / sums.rows
    covariance = of_rows @ (sums.seconds.sum(axis=0) / rows - np.outer(mean, mean)) @ of_rows.T
    with_classes = (sums.sums / rows - np.outer(shares, mean)) @ of_rows.T
    return covariance, with_classes, shares


def _gram_pairs(measured: MeasuredSummary) -> PairCovariances:
    """Estimate pairs from the noisy Gram itself: unbiased, since no repair was applied."""
    mixture = measured.mixture
    assert isinstance(mixture, ClassGaussians)  # noqa: S101  copulas have `_copula_pairs`
    moments, basis, lifting = mixture.moments, mixture.projection.basis(), mixture.projection.lifting
    readable = readable_map(measured.encoding)[1]
    seconds, counts, sums = _raw_moments(moments)
    in_all = moments.basis is not None  # coordinates; the projection came afterwards
    of_points = readable @ lifting @ basis.T if in_all else readable @ lifting
    rows = max(float(counts.sum()), 1.0)
    mean, shares = sums.sum(axis=0) / rows, counts / rows
    count_sd, sum_sd = count_and_sum_noise(moments.released.event, moments.sums.event if moments.sums else None)
    classes, lengths, centre = len(counts), np.linalg.norm(of_points, axis=1), of_points @ mean
    second = of_points @ (seconds / rows) @ of_points.T
    product = np.outer(centre, centre)
    of_means = classes * (sum_sd * lengths / rows) ** 2
    of_count = (2 * product - second) * math.sqrt(classes) * count_sd / rows
    squares = _second_moment_variance(moments, of_points) / rows**2
    squares += np.outer(centre**2, of_means) + np.outer(of_means, centre**2) + of_count**2
    with_classes = (sums / rows - np.outer(shares, mean)) @ of_points.T
    classes_noise = np.hypot(sum_sd * lengths, count_sd * centre) / rows
    of_rows = readable @ basis @ basis.T
    return PairCovariances(
        of_rows, second - product, np.sqrt(squares), with_classes, np.tile(classes_noise, (classes, 1))
    )


def _raw_moments(moments: NoisyMoments) -> tuple[Floats, Floats, Floats]:
    """Return the second moments over all classes, and the counts and sums per class, as measured."""
    released = moments.released
    blocks, heads, weight = released.matrices(), released.event.layout.heads, float(released.event.layout.count_weight)
    seconds = blocks[:, heads:, heads:].sum(axis=0)
    if moments.sums is not None:
        return seconds, *moments.sums.counts_and_sums()
    if released.event.layout.labels:
        return seconds, np.diag(blocks[0])[:heads] / weight**2, blocks[0, :heads, heads:] / weight
    return seconds, blocks[:, 0, 0] / weight**2, blocks[:, 0, 1:] / weight


def _second_moment_variance(moments: NoisyMoments, of_points: Floats) -> Floats:
    """Return the variance of uᵀZv for every pair of rows u, v, where Z is the sum of all blocks' noise."""
    event = moments.released.event
    law, blocks = NoiseCovariance.of(event), event.layout.blocks
    inner = (of_points @ of_points.T) ** 2
    lengths = np.diag(of_points @ of_points.T)
    same = (of_points**2) @ (of_points**2).T
    variance = law.diagonal * same + law.off_diagonal * (np.outer(lengths, lengths) + inner - 2 * same)
    variance += law.diagonals_of_a_block * (inner - same)
    between = blocks * (blocks - 1) * (law.diagonals_of_two_blocks or 0.0) * inner
    return np.maximum(blocks * variance + between, 0.0)


def relation_noise(measured: CopulaSummary) -> Floats:
    """Return the standard deviation of the noise on the covariance of every two quantities, as a copula measures it."""
    return _copula_pairs(measured).noise


def _copula_pairs(measured: CopulaSummary) -> PairCovariances:
    """Estimate pairs from the pair tables of groups, whose contrasts have known noise."""
    readable, sums, tables = readable_map(measured.encoding)[1], measured.sums, measured.mixture.tables
    covariance, with_classes, _ = _covariances(readable, sums)
    owners, lengths = _owners(measured.encoding), np.empty(len(readable))
    for index, (code, groups) in enumerate(zip(measured.encoding.codes, measured.mixture.encoding.groups, strict=True)):
        means = group_vectors(code, groups)[0] / measured.encoding.scale
        values = means @ readable[owners == index, code.start : code.stop].T
        lengths[owners == index] = np.linalg.norm(values - values.mean(axis=0), axis=0)
    noise = math.sqrt(len(tables.counts) * tables.excess_variance) * np.outer(lengths, lengths)
    of_counts = np.sqrt(tables.variances[owners]) * lengths / tables.total
    return PairCovariances(readable, covariance, noise, with_classes, np.tile(of_counts, (len(tables.counts), 1)))
