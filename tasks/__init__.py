"""Verbs: thin Prefect tasks, one module a stage of the release."""
