"""Independent work on all cores, with results in order and in bounded memory."""

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
"""The number of finished pieces that may wait for a slow consumer, besides those in progress."""


def one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function with one BLAS thread, because an audit must reproduce sums, which depend on the threads."""

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        with _blas().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return alone


@functools.cache
def _blas() -> ThreadpoolController:
    """NumPy's and SciPy's BLAS; cached, because the search inspects every library that the process has loaded."""
    import scipy.linalg  # noqa: F401  loads its BLAS beside NumPy's

    return ThreadpoolController()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[S], T], pieces: Iterable[S], *, threads: int | None = None) -> Iterator[T]:
    """Yield `work(piece)` for every piece, in order, computed by `threads` threads (by default, all cores).

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
