"""The structure of release.yaml: changes of it by the place of a key, and its JSON Schema."""
