"""OpenLineage events of a release: datasets, facets, the graph, and their way to an endpoint."""
