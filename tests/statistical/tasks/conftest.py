"""A published workspace."""

from support.fixtures import published, workspace  # noqa: F401
