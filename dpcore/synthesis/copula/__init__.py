"""The copula generator: groups of values and their pair tables."""
