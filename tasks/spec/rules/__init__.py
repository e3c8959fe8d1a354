"""The section `rules` of release.yaml: from text to conditions that every released row obeys."""
