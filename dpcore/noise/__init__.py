"""Noise: the sources of randomness, and certified exact draws from continuous laws."""
