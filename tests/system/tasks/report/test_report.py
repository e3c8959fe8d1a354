"""The release report is a pure, self-contained, escaped page of the record."""

from __future__ import annotations

import subprocess
import sys

from support import ROOT


def test_drawing_leaves_matplotlib_as_it_was_and_without_pyplot() -> None:
    code = (
        "import sys, tasks.report.report\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from tasks.report.plots import correlation_svg\n"
        "import matplotlib\n"
        "settings = lambda: {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != 'backend'}\n"
        "before = settings()\n"
        "correlation_svg(['a'], [[1.0]], key='k', alt='a')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'prefect' not in sys.modules\n"
        "assert settings() == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
