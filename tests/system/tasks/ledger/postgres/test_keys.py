"""The unit tests that ask for a ledger's place, in a PostgreSQL database."""

from unit.tasks.ledger.entries.test_keys import *  # noqa: F403
