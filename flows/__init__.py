"""Recipes: the release flow, and the command line."""
