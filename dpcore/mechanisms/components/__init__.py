"""Mechanisms that release principal directions instead of moments."""
