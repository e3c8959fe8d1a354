"""Names of the measurements in allocation, ledger and record."""

from __future__ import annotations

MOMENTS, PROJECTION, MEAN, MARGINALS = "moments", "projection", "mean", "marginals"
RADIUS, CENTRE, SPREAD = "radius", "centre", "spread"
"""Measurements of the frame: a first radius, the centre, and the radius around it."""
