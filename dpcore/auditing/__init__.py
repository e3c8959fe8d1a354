"""Auditing: attacks on mechanisms, and replays of their measurements on neighbouring tables."""
