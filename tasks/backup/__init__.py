"""One archive of a workspace at one moment, and the way back."""
