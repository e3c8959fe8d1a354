"""The intake of files: they are inspected, moved in atomically, and registered by version or put into quarantine."""
