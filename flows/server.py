"""Settings of the embedded Prefect server: quiet, offline, and with its home in the workspace."""

from __future__ import annotations

import logging
import os
import resource
import threading

from tasks.stores.workspace import Workspace


def embedded_settings(workspace: Workspace) -> dict[str, str]:
    """Environment of a run with an embedded server; a server that is configured already takes precedence."""
    return {
        "PREFECT_HOME": str(workspace.prefect_home),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
        "DO_NOT_TRACK": "1",
        "GX_ANALYTICS_ENABLED": "false",
    }


def use_embedded_server(workspace: Workspace) -> None:
    """Set the environment before Prefect is imported; what the user has set stays."""
    for name, value in embedded_settings(workspace).items():
        os.environ.setdefault(name, value)


def forbid_core_dumps() -> None:
    """A crash must not write the process's memory, which holds raw rows, to a file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def quiet_libraries() -> None:
    """Keep library chatter off the terminal; Prefect's own log still reaches its database."""
    for name in ("prefect", "httpx", "sqlalchemy", "asyncio", "uvicorn"):
        logger = logging.getLogger(name)
        for handler in [h for h in logger.handlers if isinstance(h, logging.StreamHandler)]:
            logger.removeHandler(handler)


def preload_validation() -> None:
    """Load the validation library beside the server's start, which takes longer."""
    threading.Thread(target=_load_suites, daemon=True).start()


def _load_suites() -> None:
    from expectations.quiet import quietly

    with quietly():
        return
