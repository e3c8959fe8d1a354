"""Schedules, triggers and server settings."""
