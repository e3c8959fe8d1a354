"""The folder of one steward's state, and shared access to files, clock, cores and build identity."""
