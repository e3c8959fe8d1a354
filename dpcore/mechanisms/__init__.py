"""Mechanisms that add noise to Gram blocks: one module each, listed in `dpcore.registry`."""
