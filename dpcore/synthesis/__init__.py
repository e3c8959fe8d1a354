"""Synthesis: distributions fitted to released measurements, and rows drawn from them."""
