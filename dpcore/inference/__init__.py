"""Inference: estimates and intervals from released measurements."""
