"""Automatic releases: schedule, landing trigger and nightly audit, and the processes that serve them."""
