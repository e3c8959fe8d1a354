"""Plots of a projection and of the noisy moments for the orchestrator's history; released values only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpcore.measure import Released
from dpcore.measurements.noisy_moments import pooled_moments
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.base import Output
from dpcore.mechanisms.registry import gram_mechanism, mechanism_of
from dpcore.records.encoding import Encoding
from tasks.report.canvas import COLOURS, figure_of, png_of
from tasks.report.plots import draw_spectrum, spectrum_limits
from tasks.report.wording import plain_label

MOST_BARS, MOST_BLOCKS = 40, 6
"""The most bars and class blocks in a plot; the title says how many there are, and the report shows more."""

ACROSS = 3


# -- the noisy moments -------------------------------------------------------------


def moments_plot(title: str, spectrum: Mapping[str, Any]) -> bytes:
    """Draw the eigenvalues of every class block and the operator norm of the noise as one PNG."""
    blocks, noise = spectrum["blocks"][:MOST_BLOCKS], spectrum["noise_level"]
    limits = spectrum_limits(blocks, noise)
    across = min(ACROSS, len(blocks))
    down = math.ceil(len(blocks) / across)
    with figure_of(max(300 * across, 460), 96 + 190 * down, key="moments") as figure:
        for place, block in enumerate(blocks, start=1):
            axes = figure.add_subplot(down, across, place)
            axes.set_title(_block_title(block, noise), loc="left", color=COLOURS["ink"], weight="bold")
            draw_spectrum(axes, block["eigenvalues"], noise, limits)
        part = "" if len(blocks) == len(spectrum["blocks"]) else f" · {len(blocks)} of {len(spectrum['blocks'])} blocks"
        _add_title_and_legend(
            figure, f"{title} · eigenvalues of the noisy moments{part}", ["above the noise", "below the noise", "noise"]
        )
        return png_of(figure)


def _block_title(block: Mapping[str, Any], noise: float) -> str:
    values = block["eigenvalues"]
    return f"{plain_label(block['label'], 18)}: {sum(v > noise for v in values)} of {len(values)} above the noise"


# -- the projection ----------------------------------------------------------------


def components_spectrum(released: Released, encoding: Encoding) -> tuple[list[float], float] | None:
    """Return the features' noisy variances, largest first, and the size of the noise on that scale.

    None if only directions were released: those have no variances.
    """
    if mechanism_of(released.event.mechanism).output is not Output.GRAM:
        return None
    pooled = pooled_moments(released)
    width = encoding.feature_width
    values = _eigenvalues(pooled.covariance[:width, :width])
    error = gram_mechanism(released.event.mechanism).expected_error(released.event)
    blocks = math.sqrt(released.event.layout.blocks)  # the noises of the blocks add up in the pooled one
    return values, error.operator * blocks / max(pooled.count, 1.0)


def _eigenvalues(covariance: np.ndarray) -> list[float]:
    return [float(value) for value in np.linalg.eigvalsh((covariance + covariance.T) / 2)[::-1]]


def components_plot(title: str, values: Sequence[float], noise: float, *, kept: int) -> bytes:
    """Draw the noisy variance of every principal component as one PNG, with the kept ones in colour."""
    shown = values[:MOST_BARS]
    share = sum(max(v, 0.0) for v in values[:kept]) / (sum(max(v, 0.0) for v in values) or 1.0)
    with figure_of(620, 290, key="components") as figure:
        axes = figure.add_subplot()
        axes.set_title(
            f"the {kept} kept components hold {share:.0%} of the noisy variance", loc="left", color=COLOURS["ink"]
        )
        draw_spectrum(axes, shown, noise, spectrum_limits([{"eigenvalues": shown}], noise), kept=kept)
        _add_title_and_legend(figure, f"{title} · principal components", ["kept", "left out", "noise"])
        return png_of(figure)


def kept_shares(projection: Projection, encoding: Encoding) -> list[tuple[str, float]]:
    """Return how much of each column's coordinates the projection keeps, between 0 and 1."""
    squares = (projection.basis() ** 2).sum(axis=1)
    return [(code.column.name, float(squares[code.start : code.stop].mean())) for code in encoding.codes]


def kept_plot(title: str, shares: Sequence[tuple[str, float]]) -> bytes:
    """Draw a bar for each column, as long as the part of it that the projection keeps, as one PNG."""
    shown = list(shares[:MOST_BARS])
    part = "" if len(shown) == len(shares) else f" · {len(shown)} of {len(shares)} columns"
    with figure_of(620, 96 + 24 * len(shown), key="kept") as figure:
        axes = figure.add_subplot()
        places = range(len(shown))
        axes.barh(places, [1.0] * len(shown), height=0.56, color=COLOURS["rule"])
        axes.barh(places, [share for _, share in shown], height=0.56, color=COLOURS["synthetic"])
        for place, (_, share) in enumerate(shown):
            axes.text(1.015, place, f"{share:.0%}", va="center", color=COLOURS["ink"])
        axes.set_yticks(places, [plain_label(name, 24) for name, _ in shown], color=COLOURS["ink"])
        axes.set(xlim=(0, 1.09), ylim=(len(shown) - 0.4, -0.6), xticks=[])
        axes.spines["bottom"].set_visible(False)
        _add_title_and_legend(figure, f"{title} · what the projection keeps of each column{part}", [])
        return png_of(figure)


# -- title and legend -----------------------------------------------------------------

_MARKS = {
    "above the noise": "synthetic",
    "kept": "synthetic",
    "below the noise": "faint",
    "left out": "faint",
}


def _add_title_and_legend(figure: Any, title: str, legend: Sequence[str]) -> None:
    """Add the title and a legend of the colours."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure.suptitle(plain_label(title, 90), color=COLOURS["ink"], weight="bold", fontsize=13)
    line = Line2D([], [], color=COLOURS["measured"], linestyle=(0, (4, 3)), label="operator norm of the noise")
    handles = [Patch(color=COLOURS[_MARKS[name]], label=name) if name in _MARKS else line for name in legend]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
