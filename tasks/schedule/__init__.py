"""When releases are due, which months they cover, and how long the budget lasts."""
