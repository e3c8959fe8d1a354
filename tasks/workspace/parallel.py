"""Independent pieces of work on all cores, their results in order and never many at once."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController, threadpool_limits

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

AHEAD = 2
"""Finished pieces that may wait for a slow taker, beside those being worked on."""


def one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate what an audit computes again: sums of products depend on how many threads share them."""

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        with _blas().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return alone


@functools.cache
def _blas() -> ThreadpoolController:
    """NumPy's and SciPy's BLAS, found once: the search goes through every library that the process has loaded."""
    import scipy.linalg  # noqa: F401  loads its BLAS beside NumPy's

    return ThreadpoolController()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[S], T], pieces: Iterable[S], *, threads: int | None = None) -> Iterator[T]:
    """`work` of every piece, in the order of the pieces, as `threads` threads (all cores, if not said) get them done.

    Memory is bounded by a few pieces, whatever their number. Each thread multiplies matrices by itself,
    so that results do not depend on how many threads there are.
    """
    threads = threads or cores()
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for piece in pieces:
                waiting.append(pool.submit(work, piece))
                if len(waiting) >= threads + AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
