"""Processes that load the program once: a server that holds its slow libraries forks each of them.

The server holds no library that starts threads, as pyarrow does: a fork of a process with threads may wait for ever.
"""

from __future__ import annotations

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["psycopg", "tasks.ledger.store", "tasks.spec"])
