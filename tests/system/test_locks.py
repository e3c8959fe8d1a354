"""What make installs is fixed by the hashes in locks/."""

from __future__ import annotations

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
