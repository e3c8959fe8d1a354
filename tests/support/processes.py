"""Processes that load the program once: a server that holds its slow libraries forks each of them.

The server holds no library that starts threads, as pyarrow does: a fork of a process with threads may wait for ever.
"""

from __future__ import annotations

import multiprocessing
import os

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["psycopg", "tasks.ledger.store", "tasks.spec"])


def blas_settings() -> dict[str, str]:
    """The variables that choose OpenBLAS's kernels: without them a child counts as another platform to an audit."""
    return {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
