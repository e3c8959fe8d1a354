"""Mechanisms that add noise, one module each, the bounds they rest on, and their registry."""
