"""Pages people look at, as pure functions of a release record."""
