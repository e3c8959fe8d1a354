"""Series: comparisons of successive releases."""
