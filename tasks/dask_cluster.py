"""Where the passes of a run are made: on threads here, or on a Dask cluster, reached through Prefect's Dask runner.

Fragments are no task runs of Prefect: their number and durations would tell of the data, and a flow run's
history is read by auditors.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tasks.boundary import log_operator, log_public
from tasks.landing.dask_runner import Dask, refused
from tasks.landing.passes import Runner, Threads
from tasks.spec import RunnerSpec
from tasks.workspace.redaction import ErrorBoundary

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
CONNECT_SECONDS = 20.0
CHATTY = ("distributed", "prefect.task_runner.dask")


@contextmanager
def runner_of(spec: RunnerSpec | None, scratch: Path) -> Iterator[Runner]:
    """Where a specification wants its passes run: on threads here, on a local cluster, or on one at an address.

    Raises: RefusedError if a cluster cannot be reached.
    """
    if spec is None:
        yield Threads()
        return
    with _client(spec.dask, scratch) as client:
        yield Dask(client)


@contextmanager
def _client(address: str, scratch: Path) -> Iterator[Client]:
    _require_dask()
    from prefect_dask import DaskTaskRunner

    settings: dict[str, Any] = {"client_kwargs": {"timeout": CONNECT_SECONDS}}
    if address == LOCAL:
        settings["cluster_kwargs"] = _local_cluster(scratch)
    else:
        settings["address"] = address
        _warn_of_open_lines(address)
    log_public("waiting for the Dask cluster")
    with quiet_dask(), DaskTaskRunner(**settings) as runner:
        hint = "check runner.dask, and that the scheduler and workers are running; nothing was read or spent"
        silent = refused("the Dask cluster does not answer", "runner-unreachable", hint)
        with ErrorBoundary(OSError, ValueError, RuntimeError, refusal=lambda _: silent):
            client: Client = runner.client
        yield client


def _require_dask() -> None:
    if importlib.util.find_spec("prefect_dask") is None:
        raise refused("Dask is not installed", "runner-missing", "install locks/extras.txt, which contains Dask")


@contextmanager
def quiet_dask() -> Iterator[None]:
    """Keep Dask's own log from the terminal, here and in its processes: it tells of every connection and fragment."""
    import dask

    loggers = [logging.getLogger(name) for name in CHATTY]
    levels = [logger.level for logger in loggers]
    with dask.config.set({"logging.distributed": "critical"}), _environment("DASK_LOGGING__DISTRIBUTED", "critical"):
        import distributed  # noqa: F401  sets its log's levels when it is taken in

        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A variable for the processes that are started meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _local_cluster(scratch: Path) -> dict[str, Any]:
    """A process a core, on loopback; whatever it writes goes where private things may be."""
    return {
        "n_workers": Threads().count,
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        "dashboard_address": None,
        "security": True,  # others on this machine can neither read nor run anything
        "local_directory": str(scratch),
    }


def _warn_of_open_lines(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "tls" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        log_operator("exact sums of raw rows are sent to and from the cluster unencrypted; use a tls:// address")
