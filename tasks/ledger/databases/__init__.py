"""The databases that a ledger can be kept in: their tables, and what differs between them."""
