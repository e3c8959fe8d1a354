"""Noise: where randomness comes from, and draws from continuous laws that are certified to be exact."""
