"""The ways in which releases happen by themselves: schedule, landing trigger, nightly audit, and what serves them."""
