"""Statistical constants that several chapters use."""

from __future__ import annotations

Z95 = 1.959964
"""The 97.5 % quantile of the standard normal law: 95 % lies within so many standard deviations of the mean."""
