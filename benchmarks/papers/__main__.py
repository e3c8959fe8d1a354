"""All experiments of the five papers, part by part, and one page with their tables and figures.

    python -m benchmarks.papers [PART ...] [--runs N] [--quick] [--jobs N] [--again] [--page]

Each part is a command of this folder. Two parts run at a time, each on one core. A part that has finished with at
least as many runs is not run again, so an interrupted run continues where it stopped. `--again` runs the named parts
anew. `--page` runs nothing and writes the page, `benchmarks/results/papers.html`, from the results so far. The exit
code is 1 if a part failed, or showed a corrected mechanism to be worse than a published calibration at its true
epsilon.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from benchmarks.common import ROOT
from benchmarks.papers.contents import PARTS, Part
from benchmarks.papers.page import FIGURES, write_page

FINISHED = FIGURES / "finished.json"
"""Which parts have finished, with their number of runs, seconds and exit codes."""


def main() -> int:
    """Run the parts that are missing, and write the page."""
    asked = _arguments()
    chosen = [part for part in PARTS if not asked.parts or part.name in asked.parts]
    FIGURES.mkdir(parents=True, exist_ok=True)
    finished = _finished()
    missing = [part for part in chosen if asked.again or not _is_finished(finished.get(part.name), asked.runs)]
    if not asked.page:
        _run_parts(missing, finished, runs=asked.runs, quick=asked.quick, jobs=asked.jobs)
    path = write_page(finished)
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    bad = [part.name for part in chosen if finished.get(part.name, {}).get("exit", 0)]
    if bad:
        print(f"failed, or shown to be worse: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(part.name for part in PARTS)}")
    parser.add_argument("--runs", type=int, default=10, help="independent runs of everything random (10)")
    parser.add_argument("--quick", action="store_true", help="two runs on few rows, to see that it works")
    parser.add_argument("--jobs", type=int, default=2, help="parts at a time (2)")
    parser.add_argument("--again", action="store_true", help="run the parts also if they have finished before")
    parser.add_argument("--page", action="store_true", help="run nothing, and write the page")
    asked = parser.parse_args()
    unknown = set(asked.parts) - {part.name for part in PARTS}
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(p.name for p in PARTS)}")
    asked.runs = 2 if asked.quick else asked.runs
    return asked


def _finished() -> dict[str, Any]:
    return json.loads(FINISHED.read_text()) if FINISHED.is_file() else {}


def _is_finished(known: dict[str, Any] | None, runs: int) -> bool:
    """Return whether a part has finished with all its rows and at least as many runs."""
    return known is not None and known["exit"] == 0 and not known["quick"] and known["runs"] >= runs


def _run_parts(parts: Sequence[Part], finished: dict[str, Any], *, runs: int, quick: bool, jobs: int) -> None:
    """Run parts, the longest first, and keep how each of them ended."""
    with ThreadPoolExecutor(jobs) as pool:
        longest_first = sorted(parts, key=lambda part: -part.minutes)
        running = {pool.submit(_run_part, part, runs, quick): part for part in longest_first}
        for count, done in enumerate(as_completed(running), 1):
            part, ending = running[done], done.result()
            finished[part.name] = ending
            FINISHED.write_text(json.dumps(finished, indent=1) + "\n")
            word = "finished" if ending["exit"] == 0 else "FAILED"
            print(f"{count} of {len(parts)}: {part.name} {word}, {ending['seconds']} s", file=sys.stderr, flush=True)


def _run_part(part: Part, runs: int, quick: bool) -> dict[str, Any]:
    """Run one part as a process of its own; what it prints goes to a file beside its results."""
    command = [sys.executable, "-m", *part.command, "--runs", str(runs), *(["--quick"] if quick else [])]
    start = time.monotonic()
    with (FIGURES / f"{part.name}.log").open("w") as log:
        done = subprocess.run(
            command, cwd=ROOT, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
        )
    made_at, commit = time.strftime("%Y-%m-%d", time.gmtime()), _commit()
    seconds = round(time.monotonic() - start)
    return {
        "runs": runs,
        "quick": quick,
        "exit": done.returncode,
        "seconds": seconds,
        "date": made_at,
        "commit": commit,
    }


def _commit() -> str:
    git = shutil.which("git") or "git"
    asked = subprocess.run([git, "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
