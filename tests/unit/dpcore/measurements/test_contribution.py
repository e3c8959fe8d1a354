"""The number of components follows from a released spectrum: the fewest that carry the share asked for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.measurements.contribution import components_for_share

SPECTRA = st.lists(st.integers(-50, 200), min_size=1, max_size=12)
"""Whole eigenvalues, whose sums are exact."""


@given(spectrum=SPECTRA, percent=st.integers(1, 100))
def test_no_fewer_components_carry_the_share_and_these_do(spectrum: list[int], percent: int) -> None:
    kept = components_for_share(spectrum, Fraction(percent, 128))
    leading = sorted((max(value, 0) for value in spectrum), reverse=True)
    wanted = Fraction(percent, 128) * sum(leading)
    assert sum(leading[:kept]) >= wanted
    assert kept == 1 or sum(leading[: kept - 1]) < wanted


@given(spectrum=SPECTRA, percent=st.integers(1, 100))
def test_the_order_of_the_spectrum_and_its_negative_part_do_not_matter(spectrum: list[int], percent: int) -> None:
    kept = components_for_share(spectrum, percent / 100)
    assert components_for_share(spectrum[::-1], percent / 100) == kept
    assert components_for_share([*spectrum, -1000], percent / 100) == kept


def test_the_whole_share_needs_every_positive_eigenvalue_and_no_other() -> None:
    assert components_for_share(np.array([3.0, 0.0, 0.1, -1.0]), 1) == 2


def test_a_spectrum_of_noise_alone_still_gives_one_component() -> None:
    assert components_for_share([-1.0, -2.0], 0.9) == 1
    assert components_for_share([0.0], 1) == 1


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan")])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share must lie"):
        components_for_share([1.0], share)


@pytest.mark.parametrize("spectrum", [[], [[1.0]], [1.0, float("nan")], [float("inf")]])
def test_what_is_no_spectrum_is_refused(spectrum: list[float]) -> None:
    with pytest.raises(ValueError, match="finite eigenvalues"):
        components_for_share(spectrum, 0.9)
