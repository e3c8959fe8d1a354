"""The intake of files: they are inspected, moved in atomically, and registered by version or put into quarantine."""

SETTLE_SECONDS = 5.0
"""Seconds without a change after which a file counts as complete; `serve --settle` sets another number."""
