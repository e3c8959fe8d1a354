"""The passphrase of an encrypted key, from a file that the environment names or from the terminal."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from dpcore.errors import WorkspaceError
from tasks.workspace.redaction import ErrorBoundary

PASSPHRASE_VARIABLE = "DPRELEASE_KEY_PASSPHRASE_FILE"  # noqa: S105  a name
"""The variable that names the passphrase file; unlike an argument or a variable, others cannot list its content."""


def ask_passphrase(prompt: str, *, again: str = "") -> bytes:
    """The passphrase without its line end; with the prompt `again`, a new one must be entered twice on the terminal.

    Raises: WorkspaceError if there is neither a file nor a terminal, or if it is empty or the two entries differ.
    """
    file, phrase = os.environ.get(PASSPHRASE_VARIABLE), b""
    missing = WorkspaceError(
        "the passphrase of the signing key is not available",
        rule="passphrase-missing",
        where=PASSPHRASE_VARIABLE,
        hint=f"run the command in a terminal, or set {PASSPHRASE_VARIABLE} to a file that contains the passphrase",
    )
    with ErrorBoundary(OSError, EOFError, refusal=lambda _: missing):
        if file:
            phrase = Path(file).read_bytes().rstrip(b"\r\n")
        elif os.isatty(0):
            phrase = getpass.getpass(prompt).encode()
            phrase = phrase if not again or getpass.getpass(again).encode() == phrase else b""
    if not phrase:
        raise missing
    return phrase
