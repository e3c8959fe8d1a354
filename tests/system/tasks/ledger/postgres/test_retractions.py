"""The unit tests that ask for a ledger's place, in a PostgreSQL database."""

from unit.tasks.ledger.test_retractions import *  # noqa: F403
