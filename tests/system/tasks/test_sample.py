"""Synthetic tables of any length in bounded memory, the same bytes on any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import IMPORTS

from dpcore.synthesis.generators import ROWS_AT_ONCE

GROWTH_MIB = 60
"""What 20 times the rows may add to the peak: a few row groups' worth of jitter, where all rows would take 120."""
MEASURE = """
import resource, sys
from pathlib import Path
from support.tasks.bundle.drawn_rows import SCHEMA, invented_rows, written
from tasks import check

check.released_verdicts = lambda cells, schema, rows: cells.frame()  # without the weight of the library
rows = int(sys.argv[1])
written(invented_rows(rows), Path(sys.argv[2]))
check.table_verdicts(Path(sys.argv[2]), SCHEMA, rows)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_does_not_grow_with_the_rows(tmp_path):
    few = 6 * ROWS_AT_ONCE
    peaks = [_peak_mib(rows, tmp_path / "table") for rows in (few, 20 * few)]
    assert peaks[1] - peaks[0] < GROWTH_MIB, peaks


def _peak_mib(rows: int, target: Path) -> int:
    command = [sys.executable, "-c", MEASURE, str(rows), str(target)]
    environment = os.environ | {"PYTHONPATH": IMPORTS}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=120)
    return int(done.stdout.split()[-1])
