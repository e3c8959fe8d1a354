"""One entry of the ledger: its fields, its place in the hash chain, and the keys that may sign it."""
