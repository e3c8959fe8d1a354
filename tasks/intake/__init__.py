"""What arrives: files inspected, brought in whole, registered by version, or put into quarantine."""

SETTLE_SECONDS = 5.0
"""A file that did not change for so long is complete, unless `serve` is started with another --settle."""
