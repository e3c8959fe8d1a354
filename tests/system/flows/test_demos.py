"""What importing the demos loads, in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_demos_loads_no_heavy_library() -> None:
    code = "import sys, flows.demos; print([m for m in ('pyarrow', 'sklearn', 'pandas') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
