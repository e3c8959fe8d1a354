"""Measurements: what is measured of a table, and what a released value tells."""
