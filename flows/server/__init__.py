"""The Prefect server of a workspace: started for a run, kept for the next one, or configured elsewhere."""
