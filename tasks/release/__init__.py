"""One run of a release: its context, the gate that a build must pass, the costs that lineage states."""
