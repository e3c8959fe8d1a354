"""One pass over landing data: the same bits whatever the files, fragments and threads, and never of two versions."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support import IMPORTS
from support.tasks.landing.readings import table

from tasks.landing import fragments


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "ROWS_AT_ONCE", 700)


BOUNDED = """
import resource, sys
from pathlib import Path
from support.tasks.landing.readings import SPEC, readings, total
total(readings(Path(sys.argv[1])))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 if sys.platform == "linux" else 1024))
"""


def peak_of(path: Path) -> int:
    """Kilobytes that a process takes which sums up a file."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOUNDED), str(path)],
        env=os.environ | {"PYTHONPATH": IMPORTS},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return int(ended.stdout)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    rows = table(200_000)
    pq.write_table(rows, small)
    with pq.ParquetWriter(large, rows.schema) as writer:
        for _ in range(10):
            writer.write_table(rows)
    grown = peak_of(large) - peak_of(small)
    assert grown < 40_000, "2 million rows take some 60 MB as a table"
