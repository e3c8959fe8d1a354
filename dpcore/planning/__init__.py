"""Planning: what is measured with which budget, decided from public constants."""
