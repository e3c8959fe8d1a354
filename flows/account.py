"""The account that a command or a flow runs under."""

from __future__ import annotations

import getpass
import os


def operator() -> str:
    """The operator's account, for the ledger."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid {os.getuid()}"
