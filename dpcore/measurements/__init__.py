"""Measurements: the statistics that a release measures, and estimates from the noisy results."""
