"""The redaction boundary: what Prefect may see of a stage that touches private data.

Prefect writes exception texts, log messages and flow parameters to its database, and
results and cache keys to its storage. So such a stage runs without result, cache or
captured prints, and an unexpected error leaves it as its type and place only; a verdict
on landing data stays in the error's attributes, which Prefect does not store.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger
from prefect.utilities.annotations import opaque

from tasks.workspace.redaction import own_error

P = ParamSpec("P")
R = TypeVar("R")

PROGRESS = logging.getLogger("dprelease.progress")
"""The logger of messages for people; the command line adds a handler, and without one messages are dropped."""
PROGRESS.propagate = False
PROGRESS.addHandler(logging.NullHandler())


class _StageTask(Task[P, R]):
    """A task whose arguments Prefect does not search for results of other tasks.

    The arguments themselves still link to the stages that made them in the run's graph. Searching their contents
    as well would take longer than a small stage.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call: Any = super().__call__
        return call(*map(opaque, args), **{name: opaque(value) for name, value in kwargs.items()})


def private_task(stage: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a Prefect task of which only the name, the times and the redacted state are stored."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return _StageTask(
            redacted(stage)(function),
            name=stage,
            task_run_name=stage,
            persist_result=False,
            cache_policy=NO_CACHE,
            log_prints=False,
            retries=0,
        )

    return decorate


def redacted(stage: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let only our own errors, which never hold data, leave a stage.

    The error is raised outside the handler, so that it has no context that could hold a value.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  the boundary: nothing foreign passes
                own = own_error(error, stage)
            raise own

        return guarded

    return decorate


def log_public(message: str) -> None:
    """Log a public message to the terminal and to Prefect's log of this run."""
    PROGRESS.info(message)
    try:
        get_run_logger().info(message)
    except MissingContextError:
        return


def log_operator(message: str) -> None:
    """Log a message to the operator's terminal only; it is stored nowhere."""
    PROGRESS.warning(message)
