"""What make installs is fixed by the hashes in locks/."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support import ROOT


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_make_installs_nothing_without_its_hash(tool: str, tmp_path: Path):
    command = ["make", "--dry-run", "test", f"UV={'uv' if tool == 'uv' else ''}", f"VENV={tmp_path}/venv"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = [line for line in planned.splitlines() if "pip install" in line]
    assert len(installs) == 3, planned
    for line in installs:
        assert "--no-deps" in line
        assert "--require-hashes" in line or "--no-index" in line, "from the index with hashes, or not from there"


STUB = '#!/bin/sh\necho "$@" >> {log}\n{body}\n'


def stub(folder: Path, name: str, body: str) -> Path:
    """A program of that name which notes its arguments; the file with its notes."""
    log = folder.parent / f"{name}.log"
    log.touch()
    (folder / name).write_text(STUB.format(log=log, body=body))
    (folder / name).chmod(0o755)
    return log


@pytest.mark.parametrize("reached", [True, False], ids=["uv installs", "uv installs nothing"])
def test_ci_installs_by_uv_with_its_hash_and_by_pip_where_uv_cannot(reached: bool, tmp_path: Path):
    """With stand-ins for make and for the interpreter whose pip installs uv."""
    tree, programs = tmp_path / "tree", tmp_path / "programs"
    (tree / ".ci").mkdir(parents=True)
    programs.mkdir()
    shutil.copy(ROOT / ".ci" / "run", tree / ".ci")
    for name in ("bash", "cat", "chmod", "dirname", "mkdir", "mktemp", "rm"):
        (programs / name).symlink_to(shutil.which(name) or name)
    stub(programs, "id", "echo 1000")
    pip = 'while [ "$1" != --target ]; do shift; done; mkdir "$2/bin"; echo > "$2/bin/uv"; chmod +x "$2/bin/uv"'
    interpreter = stub(programs, "python3", pip)
    fails = "" if reached else ' && [ "$1 $2" != ".venv/.installed-dev " ]'
    make = stub(programs, "make", f"command -v uv >/dev/null{fails}")
    environment = {"PATH": str(programs), "HOME": "", "CI": "true", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [tree / ".ci" / "run"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (installed,) = interpreter.read_text().splitlines()
    assert "--require-hashes --requirement locks/uv.txt" in installed
    by_pip = [] if reached else [".venv/.installed-dev UV="]
    assert make.read_text().splitlines() == [".venv/.installed-dev", *by_pip, "lint", "test"]
    assert sorted(path.name for path in tree.iterdir()) == [".ci"]
    assert not list(tmp_path.glob("tmp*"))
