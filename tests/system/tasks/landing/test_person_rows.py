"""Units: what a row counts depends on its person's rows alone, wherever they lie and however they are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import ROOT

LARGE = """
import resource, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from dpcore.records.schema import PrivacyUnit
from tasks.landing.person_rows import person_rows

def ids(rows, people):
    source = np.random.default_rng(0)
    for _ in range(0, rows, 65_536):
        yield source.integers(0, people, 65_536)

def keys(rows, people):
    return (pa.array(part).cast(pa.string()) for part in ids(rows, people))

scratch, rows, people, limit = Path(sys.argv[1]), *map(int, sys.argv[2:5])
person_rows([keys(65_536, people)], PrivacyUnit(person="id"), scratch)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
persons = person_rows([keys(rows, people)], PrivacyUnit(person="id"), scratch, memory=int(sys.argv[5]) << 20)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
people_of_rows = np.concatenate(list(ids(rows, people)))
assert (persons.of(0) == np.bincount(people_of_rows)[people_of_rows]).all()
print(grown // 1024)
"""


def run_large(tmp_path: Path, rows: int, *, limit: int = 0, memory: int = 48) -> subprocess.CompletedProcess[str]:
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    home.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-c", LARGE, str(scratch), str(rows), str(rows // 3), str(limit), str(memory)]
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=120)
    assert list(home.iterdir()) == [], "nothing goes to the home folder"
    assert not [path for path in scratch.iterdir() if path.is_dir()], "what was spilled is gone"
    return done


def test_memory_stays_bounded_where_the_rows_do_not_fit(tmp_path: Path):
    done = run_large(tmp_path, 3_000_000)  # without a limit they would take 200 MB
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < 120, "MB more than with few rows"


def test_a_full_disk_is_refused_in_our_own_words(tmp_path: Path):
    done = run_large(tmp_path, 2_000_000, limit=8 << 20)  # MB that a file may have
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "dpcore.errors.WorkspaceError: the vault cannot be written: its disk is full or not writable"
    )
    assert "handling of" not in done.stderr
    assert "duckdb" not in done.stderr.lower().replace("import duckdb", "")


def test_the_number_of_cores_changes_nothing(tmp_path: Path):
    ids = np.random.default_rng(2).integers(0, 5000, 70_000)
    pq.write_table(pa.table({"id": ids}), tmp_path / "ids.parquet")
    script = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}) if sys.argv[2] == 'one' else None\n"
        "import pyarrow.parquet as pq, pathlib, hashlib\n"
        "from dpcore.records.schema import PrivacyUnit\nfrom tasks.landing.person_rows import person_rows\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "column = pq.read_table(folder / 'ids.parquet')['id']\n"
        "print(hashlib.sha256(person_rows([column.chunks], PrivacyUnit(person='id'), folder).of(0)).hexdigest())\n"
    )
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot bind a process to a core")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    digests = {
        subprocess.check_output([sys.executable, "-c", script, str(tmp_path), cores], env=environment, text=True)
        for cores in ("one", "all")
    }
    assert len(digests) == 1
