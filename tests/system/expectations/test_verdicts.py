"""The runner gives verdicts and lets nothing else out."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["expectations.landing", "expectations.released", "expectations.verdicts"])
def test_importing_the_room_does_not_import_great_expectations(module):
    run_python(f"import sys, {module}; assert 'great_expectations' not in sys.modules")


def test_the_first_use_prints_nothing_and_leaves_the_warnings_alone():
    script = """
import logging, warnings
logging.basicConfig(level=logging.DEBUG)
from dpcore.records.schema import IntervalColumn, Kind, RecordSchema
from expectations.landing import structure_suite
show, filters = warnings.showwarning, list(warnings.filters)
structure_suite(RecordSchema((IntervalColumn(name="a", kind=Kind.NUMERIC, lower=0, upper=1),)), typed=True)
assert warnings.showwarning is show and list(warnings.filters) == filters
logging.captureWarnings(True)
assert warnings.showwarning is not show
"""
    assert run_python(script) == ("", "")


def run_python(script: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr
