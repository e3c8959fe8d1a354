"""The ledger: append-only, hash-chained, signed events, and the pure state machine that replays them."""
