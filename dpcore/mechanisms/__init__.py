"""Noise mechanisms, one module each, their sensitivity bounds, and their registry."""
