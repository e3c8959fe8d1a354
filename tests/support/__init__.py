"""What tests share: builders, drivers, servers and golden files, in folders that mirror the tree."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""

IMPORTS = f"{ROOT}:{ROOT / 'tests'}"
"""PYTHONPATH of processes that import what tests share."""
