"""Planning: decide what a release measures and with which budget, from public constants only."""
