"""The landing data: which files or query, their fragments, cells and persons, read in passes."""
