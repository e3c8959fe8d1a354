"""The mathematics of differentially private releases: pure functions, no files, no clock, no orchestration."""
