"""The unit tests that ask for a ledger's place, in a PostgreSQL database."""

from unit.tasks.spec.test_bases import *  # noqa: F403
