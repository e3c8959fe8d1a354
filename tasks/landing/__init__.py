"""The landing data: their files or query, and their fragments, cells and persons, which are read in passes."""
