"""Runs a module of ours whose libraries take seconds to load: `python -P -m deployments.process MODULE ARGUMENT...`.

The runner, every flow run and the worker load Prefect first. Garbage collection finds nothing in what they load, and
would take a quarter of the time, when they start and again when they end.
"""

from __future__ import annotations

import importlib
import sys

from flows.server.embedded import pause_garbage_collection


def main() -> None:
    """Load the module that the first argument names, and run its `main` with the others."""
    name = sys.argv.pop(1)
    with pause_garbage_collection():
        module = importlib.import_module(name)
    module.main()


if __name__ == "__main__":
    main()
