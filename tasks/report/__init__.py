"""The report of a release and the pictures in the orchestrator's history: pure functions of released values."""
