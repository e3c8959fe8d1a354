"""RON-Gauss: its pre-processing, the number of clusters, membership inference, and its pictures."""
