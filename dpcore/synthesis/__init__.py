"""Synthesis: laws fitted to released measurements, and the rows drawn from them."""
