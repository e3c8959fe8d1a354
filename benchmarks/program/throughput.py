"""Time and peak memory of a release compared with reading its file, and how they grow.

    python -m benchmarks.program.throughput                  a million rows, and the growth up to it
    python -m benchmarks.program.throughput --rows 1e7       the large table (4 GB on disk, 7 minutes)
    python -m benchmarks.program.throughput --dask           also on two Dask workers, one of them killed midway
    python -m benchmarks.program.throughput --flow           also the whole release through the flow

Invented tables of float64 in Parquet, with a two-class label and one nullable column. Every figure is the
median of `--times` runs in a process of its own, after one that warms the file cache; memory is the peak of
that process and its descendants. The bare read and the bare product are as fast as we could write them:
batches in column order, the better of two batch sizes, as many threads as the pass has.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import yaml
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.program.flowruns import FlowRun, flow_run, is_worker
from benchmarks.program.invented import Size, make_table, specification
from benchmarks.program.processes import Peak

BATCHES = (8_192, 65_536)
CONSOLE = Console(width=110)


# ---- what is measured, in a process of its own -----------------------------------------------------


def bare_read(path: Path, _size: Size) -> Callable[[], object]:
    """Return a run that decodes every column and keeps nothing."""

    def read(rows: int) -> int:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 18) as file:
            return sum(batch.num_rows for batch in file.iter_batches(rows))

    return fastest(read)


def bare_product(path: Path, size: Size) -> Callable[[], object]:
    """Return a run that decodes every column and sums X.T @ X over the batches."""

    def product(rows: int) -> object:
        total = np.zeros((size.columns, size.columns))
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 18) as file:
            for batch in file.iter_batches(rows):
                columns = np.stack([batch.column(i).to_numpy(zero_copy_only=False) for i in range(size.columns)])
                total += columns @ columns.T
        return total

    return fastest(product)


def fastest(measure: Callable[[int], object]) -> Callable[[], object]:
    """Return the measure with its fastest batch size."""
    taken = {rows: time_run(partial(measure, rows)) for rows in BATCHES}
    return partial(measure, min(BATCHES, key=lambda rows: taken[rows]))


def passes(path: Path, size: Size) -> dict[str, Callable[[], object]]:
    """Return our passes over the landing data, by name."""
    from fractions import Fraction

    from dpcore.measure import gram_sum
    from dpcore.measurements.projection import ron_projection
    from dpcore.records.encoding import Encoding
    from dpcore.records.exact_sums import GramLayout, GramSum
    from tasks.landing.datasets import Landing
    from tasks.landing.readings import Readings
    from tasks.spec import parse_spec
    from tasks.validate import cell_extremes, with_extremes

    spec = parse_spec(yaml.safe_dump(specification(size, None)))
    encoding = Encoding(spec.schema)
    projection = ron_projection(encoding, size.dimension, "0" * 64)
    layout = GramLayout(size.dimension + 1, 2, Fraction(1, 4))
    landing = Landing((path,), spec, "source.path")

    def readings() -> Readings:
        return Readings(landing, spec.unit, key=lambda: b"key", scratch=path.parent)

    moments = partial(gram_sum, encoding=encoding, layout=layout, projection=projection)
    cells = partial(cell_extremes, encoding=encoding)
    return {
        "fingerprint": lambda: readings().fingerprint(),
        "validation": lambda: readings().total("cells", spec.schema, cells, with_extremes, by_unit=False),
        "moments": lambda: readings().total("moments", spec.schema, moments, GramSum.with_sum),
    }


def measure(name: str, path: Path, size: Size, times: int) -> None:
    """Run one measure repeatedly and print the seconds of each run."""
    bare = {"read": bare_read, "product": bare_product}
    run = bare[name](path, size) if name in bare else passes(path, size)[name]
    time_run(run)
    sys.stdout.write(json.dumps([time_run(run) for _ in range(times)]))


def time_run(run: Callable[[], object]) -> float:
    """Run a function and return its seconds."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# ---- measuring processes ---------------------------------------------------------------------------


def run_measure(name: str, folder: Path, size: Size, times: int) -> tuple[float, int]:
    """Run a measure in its own process; return its median seconds and peak megabytes."""
    path = folder / size.name
    make_table(path, size)
    command = [sys.executable, "-m", "benchmarks.program.throughput", "--measure", name, "--folder", str(folder)]
    command += ["--rows", str(size.rows), "--columns", str(size.columns), "--dimension", str(size.dimension)]
    with subprocess.Popen([*command, "--times", str(times)], stdout=subprocess.PIPE, text=True) as child:
        peak = Peak(child.pid)
        answer, _ = child.communicate()
        megabytes = peak.end()
    if child.returncode:
        raise SystemExit(f"{name} failed")
    return statistics.median(json.loads(answer)), megabytes


# ---- the tables ------------------------------------------------------------------------------------

MEASURES = {
    "read": "bare pyarrow read",
    "product": "bare read + X.T @ X",
    "fingerprint": "our fingerprint",
    "validation": "our validation pass",
    "moments": "our moments pass",
}


def show_sizes(title: str, sizes: list[Size], folder: Path, times: int) -> None:
    """Print every measure at every size."""
    shown = Table("", *(f"{s.rows:,} x {s.columns}, p = {s.dimension}" for s in sizes), title=title)
    medians: dict[tuple[str, Size], float] = {}
    for name, words in MEASURES.items():
        cells = []
        for size in sizes:
            with show_status(f"{words}, {size.rows:,} x {size.columns}"):
                medians[name, size], megabytes = run_measure(name, folder, size, times)
            cells.append(f"{medians[name, size]:.2f} s, {megabytes:,} MB")
        shown.add_row(words, *cells)
    ratios = [medians["moments", size] / medians["product", size] for size in sizes]
    shown.add_row("moments / (read + X.T @ X)", *(f"{ratio:.2f}" for ratio in ratios))
    CONSOLE.print(shown)


@contextmanager
def show_status(words: str) -> Iterator[None]:
    """Show a status line on standard error for the duration of the block."""
    with Console(stderr=True).status(words):
        yield


def show_profile(folder: Path, size: Size) -> None:
    """Print how the time of the moments pass divides into parts, on one thread."""
    from tasks.landing.passes import Threads

    profile = cProfile.Profile()
    run = passes(folder / size.name, size)["moments"]
    original, Threads.sums = Threads.sums, _on_this_thread  # type: ignore[method-assign]
    try:
        run()
        profile.runcall(run)
    finally:
        Threads.sums = original  # type: ignore[method-assign]
    stats = pstats.Stats(profile)
    shares: dict[str, float] = {}
    for (file, _, function), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        shares[_part(file, function)] = shares.get(_part(file, function), 0.0) + own
    shown = Table("part of the moments pass", "share", title=f"{size.rows:,} x {size.columns}, one thread")
    for part, own in sorted(shares.items(), key=lambda item: -item[1]):
        if own > 0.01 * sum(shares.values()):
            shown.add_row(part, f"{own / sum(shares.values()):.0%}")
    CONSOLE.print(shown)


def _on_this_thread(_self: object, work: Any, pieces: Any) -> Iterator[Any]:
    with threadpool_limits(1, user_api="blas"):
        yield from (work.of(piece) for piece in pieces)


def _part(file: str, function: str) -> str:
    """Return the part of the pass to which a function belongs."""
    known = {
        "fragments.py": "Parquet to columns (pyarrow)",
        "tables.py": "columns to cells",
        "compute.py": "columns to cells",
        "encoding.py": "cells to points",
        "exactgram.py": "points to whole numbers, projected, and their products",
        "_methods.py": "cells to points",
    }
    return known.get(Path(file).name, "other numpy calls" if "numpy" in file or "numpy" in function else "the rest")


def show_flow(folder: Path, size: Size, *, runner: str | None = None, kill: bool = False) -> FlowRun:
    """Print the times of the whole release, stage by stage."""
    with show_status("the release through the flow"):
        found = flow_run(folder, size, runner=runner, kill=kill)
    where = "two Dask workers, one killed" if found.killed else "two Dask workers" if runner else "threads"
    title = f"the release of {size.rows:,} x {size.columns} through the flow, on {where}"
    shown = Table("what the run said", "at second", "after", title=title)
    before = 0.0
    for moment, line in found.said:
        shown.add_row(line.partition(" s  ")[2] or line, f"{moment:.1f}", f"{moment - before:.1f}")
        before = moment
    shown.add_row("the whole command", f"{found.seconds:.1f}", "")
    shown.add_row(f"peak memory of all processes: {found.megabytes:,} MB", "", "")
    CONSOLE.print(shown)
    return found


def show_dask(folder: Path, size: Size) -> None:
    """Compare the sums and a release of a cluster that loses a worker with those of threads on this machine."""
    here, there = run_digests(folder, size)
    CONSOLE.print(f"sums on two Dask workers, one killed midway: {'the same bits' if here == there else 'OTHER BITS'}")
    plain = show_flow(folder, size)
    lossy = show_flow(folder, size, runner="local", kill=True)
    same = plain.ledger == lossy.ledger
    CONSOLE.print(f"the ledger after it: {'the same entries and costs' if same else 'ANOTHER LEDGER'}")
    if here != there or not same or not lossy.killed:
        raise SystemExit("the cluster does not do what the threads do")


def run_digests(folder: Path, size: Size) -> tuple[str, str]:
    """Return digests of the exact sums: on threads, and on a cluster with a worker killed midway."""
    command = [sys.executable, "-m", "benchmarks.program.throughput", "--folder", str(folder), "--rows", str(size.rows)]
    command += ["--columns", str(size.columns), "--dimension", str(size.dimension), "--measure"]
    make_table(folder / size.name, size)
    with show_status("the same sums on threads and on Dask"):
        return tuple(  # type: ignore[return-value]
            subprocess.run([*command, name], check=True, stdout=subprocess.PIPE, text=True).stdout
            for name in ("digest", "dask-digest")
        )


def print_digest(path: Path, size: Size, *, dask: bool) -> None:
    """Print a digest of the moments pass's exact sums."""
    import hashlib

    from dpcore.records.exact_sums import GramSum

    if not dask:
        total = passes(path, size)["moments"]()
    else:
        from tasks.dask_cluster import runner_of
        from tasks.landing.readings import Readings
        from tasks.spec import RunnerSpec

        with (
            tempfile.TemporaryDirectory() as scratch,
            runner_of(RunnerSpec(dask="local"), Path(scratch)) as runner,
        ):
            before = Readings.__init__

            def on_cluster(self: Readings, *args: Any, **kwargs: Any) -> None:
                before(self, *args, **kwargs)
                self.runner = runner

            Readings.__init__ = on_cluster  # type: ignore[method-assign]
            victim = next(p for p in psutil.Process().children(recursive=True) if is_worker(p))
            threading.Timer(1.5, os.kill, (victim.pid, signal.SIGKILL)).start()
            total = passes(path, size)["moments"]()
            if psutil.pid_exists(victim.pid) and victim.status() != psutil.STATUS_ZOMBIE:
                raise SystemExit("the worker outlived the pass: take more rows")
    assert isinstance(total, GramSum)  # noqa: S101
    sys.stdout.write(hashlib.sha256(json.dumps(total.upper_triangles()).encode()).hexdigest())


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--dimension", type=int, default=16)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the tables are made and kept; a temporary one by default")
    parser.add_argument("--flow", action="store_true")
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    size = Size(asked.rows, asked.columns, asked.dimension)
    if asked.measure:
        path = asked.folder / size.name
        if asked.measure.endswith("digest"):
            print_digest(path, size, dask=asked.measure.startswith("dask"))
        else:
            measure(asked.measure, path, size, asked.times)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        fewer = [rows for rows in (100_000, 1_000_000, 10_000_000) if rows <= size.rows]
        show_sizes(
            "growth with rows", [Size(rows, size.columns, size.dimension) for rows in fewer], folder, asked.times
        )
        show_sizes(
            "growth with columns", [Size(100_000, m, min(m, 16)) for m in (10, 50, 200, 500)], folder, asked.times
        )
        show_sizes("growth with the dimension", [Size(100_000, 100, p) for p in (4, 16, 64)], folder, asked.times)
        show_profile(folder, Size(min(size.rows, 1_000_000), size.columns, size.dimension))
        if asked.flow and not asked.dask:
            show_flow(folder, size)
        if asked.dask:
            show_dask(folder, size)


if __name__ == "__main__":
    main()
