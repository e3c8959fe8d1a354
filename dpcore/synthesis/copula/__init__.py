"""The copula generator: groups of values and their tables of pairs."""
