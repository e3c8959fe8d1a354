"""Constants of statistics that several chapters use."""

from __future__ import annotations

Z95 = 1.959964
"""Standard deviations on either side of the mean that hold 95 % of a normal law."""
