"""The files of a release: record, codebook, registry entry, statement, and the texts of the guarantee."""
