"""Public rules that every released row obeys, as syntax trees."""
