"""A second process for the slowest libraries to load: `python -P -m tasks.workspace.helper_process DESCRIPTOR`.

Great Expectations and matplotlib take longer to load than everything else that a release needs, and no two threads of
a process load at the same time. So `dprelease run` beside a server starts a helper, which loads them on another core,
and calls there the functions that need them. Where a run starts a server, which loads on the other core, and under
`dprelease serve` the same functions are called in place.

Arguments and results go through a pipe between the two processes and are not stored. The helper keeps no data after
a call, prints nothing, and ends when the process that started it ends for any reason.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from tasks.workspace.redaction import own_error

P = ParamSpec("P")
R = TypeVar("R")

MODULES = (
    "expectations.custom",
    "expectations.released",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "tasks.report.report",
    "tasks.report.spectra",
)
"""The modules that the helper loads in advance, in the order in which a release needs them."""


class Helper:
    """The process and the pipe to it; calls are answered one after another."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        self._one_at_a_time = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter
                [sys.executable, "-P", "-m", "tasks.workspace.helper_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt must reach only the flow, which may still need the helper
            )

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in the helper and return its result or raise its error; foreign errors are replaced by ours.

        Raises: EOFError, OSError if the helper has ended.
        """
        with self._one_at_a_time:
            try:
                self._pipe.send((function, args, kwargs))
                result, error = self._pipe.recv()
            except BaseException:
                self._pipe.close()  # the answer to this call must not be mistaken for that to the next one
                raise
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the helper; it has no work to finish."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


_running: list[Helper] = []
"""The helper of this process, if it has one."""


def is_loaded() -> bool:
    """Whether this process has already loaded the modules that a helper would load."""
    return all(module in sys.modules for module in MODULES)


@contextmanager
def start_helper() -> Iterator[None]:
    """Run a helper during the block for the functions that are called through `in_helper`."""
    helper = Helper()
    _running.append(helper)
    try:
        yield
    finally:
        _running.remove(helper)
        helper.close()


def load_slow_libraries() -> None:
    """Load in this process the modules that a helper would load."""
    for module in MODULES:
        _load(module)


def in_helper(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function of a module in the helper if there is one, or else in this process."""
    return _running[-1].call(function, *args, **kwargs) if _running else function(*args, **kwargs)


# -- in the helper -----------------------------------------------------------------


def main() -> None:
    """Answer calls until the pipe is closed, and load libraries between calls."""
    pipe, waiting = Connection(int(sys.argv[1])), list(MODULES)
    try:
        while True:
            while waiting and not pipe.poll():
                _load(waiting.pop(0))
            pipe.send(_answer(*pipe.recv()))
    except (EOFError, OSError):
        os._exit(0)  # nothing is left to do, and unloading the libraries takes time


def _load(module: str) -> None:
    """Import a module without garbage collection; a call that needs the module raises the import's error again."""
    from expectations.quiet import quietly

    gc.disable()
    with suppress(Exception), quietly():
        importlib.import_module(module)
    gc.freeze()
    gc.enable()


def _answer(function: Callable[..., R], args: Any, kwargs: Any) -> tuple[R | None, Exception | None]:
    """A result, or an error of our own, which contains no data; never both."""
    try:
        return function(*args, **kwargs), None
    except Exception as error:  # noqa: BLE001  no foreign error passes
        return None, own_error(error, function.__name__)


if __name__ == "__main__":
    main()
