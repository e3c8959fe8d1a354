"""Runs of long benchmarks, stored one by one, so that a benchmark resumes where it stopped."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.common import RESULTS, Summary, summary

Scores = dict[str, float]


class Runs:
    """The scores of every run of some methods, in one file of results."""

    def __init__(self, name: str, *, fresh: bool) -> None:
        self.name, self._path = name, RESULTS / f"{name}_runs.json"
        kept = self._path.is_file() and not fresh
        self.scores: dict[str, list[Scores]] = json.loads(self._path.read_text()) if kept else {}

    def add(self, method: str, runs: int, once: Callable[[int], Scores]) -> None:
        """Make the runs that are still missing, and store each as soon as it is done."""
        done = self.scores.setdefault(method, [])
        while len(done) < runs:
            start = time.perf_counter()
            done.append(once(len(done)) | {"seconds": round(time.perf_counter() - start, 1)})
            RESULTS.mkdir(exist_ok=True)
            self._path.write_text(json.dumps(self.scores, indent=1) + "\n")
            print(f"{method}: run {len(done)} of {runs}, {done[-1]}", file=sys.stderr, flush=True)

    def summaries(self, method: str, names: Sequence[str]) -> dict[str, Summary]:
        """Return mean and interval of each score of a method."""
        runs = self.scores[method]
        return {name: summary([run[name] for run in runs]) for name in names if name in runs[0]}

    def seconds(self, method: str) -> float:
        """Return the mean seconds of one run."""
        return float(np.mean([run["seconds"] for run in self.scores[method]]))
