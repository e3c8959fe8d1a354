"""Evaluation: how well synthetic rows fit the released measurements."""
