"""The quiet around Great Expectations: no log lines, no warnings, no progress bars, no files.

Its log messages and warnings may quote cells, so they reach neither terminal nor log.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import types
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from great_expectations.data_context import EphemeralDataContext

_LIBRARY = "great_expectations"
_UNUSED = ("altair", "boto3", "mistune", "scipy.stats")
"""What Great Expectations imports for pages, stores and expectations that no suite of ours has: a third of its time."""
_ABSENT = "botocore"
"""What it does without where it is not installed, and imports parts of where it is."""
_ONE_AT_A_TIME = threading.RLock()  # the filter of warnings belongs to the whole process


@contextmanager
def quietly() -> Iterator[None]:
    """Keeps Great Expectations from speaking while it is imported or runs."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _disable_loggers()
        _load()
        _disable_loggers()
        yield


def silent_context() -> EphemeralDataContext:
    """A new context in memory, without analytics, progress bars and documentation sites."""
    import great_expectations
    from great_expectations.data_context.types import base

    config = base.DataContextConfig(
        store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        analytics_enabled=False,
        progress_bars=base.ProgressBarsConfig(globally=False),
    )
    return great_expectations.get_context(mode="ephemeral", project_config=config)


def _disable_loggers() -> None:
    """Stops the loggers there are, which may have a level of their own, and those to come, which inherit one."""
    logging.getLogger(_LIBRARY).setLevel(logging.CRITICAL + 1)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith(f"{_LIBRARY}.") and isinstance(logger, logging.Logger):
            logger.disabled = True


def _load() -> None:
    """Imports Great Expectations and undoes its redirection of all warnings into the log."""
    show = warnings.showwarning
    with _deferred(_UNUSED):
        import great_expectations  # noqa: F401

    if warnings.showwarning is not show:
        logging.captureWarnings(False)


class _Deferred(types.ModuleType):
    """Stands for a module until somebody asks for something in it."""

    def __getattr__(self, name: str) -> Any:
        _give_way(self)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _deferred(names: Iterable[str]) -> Iterator[None]:
    """Whoever imports one of these modules in the block, and uses nothing of it there, loads it on first use."""
    stand_ins = [_Deferred(name) for name in names if name not in sys.modules]
    sys.modules.update({each.__name__: each for each in stand_ins})
    sys.modules.setdefault(_ABSENT, None)  # type: ignore[arg-type]  # as if it were not installed
    try:
        yield
    finally:
        if sys.modules[_ABSENT] is None:
            del sys.modules[_ABSENT]
        for each in stand_ins:
            _give_way(each)


def _give_way(stand_in: _Deferred) -> None:
    """The next import finds the module itself."""
    if sys.modules.get(stand_in.__name__) is stand_in:
        sys.modules.pop(stand_in.__name__, None)
