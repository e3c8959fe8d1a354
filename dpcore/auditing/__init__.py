"""Auditing: attacks on mechanisms, and replays of what a build draws."""
