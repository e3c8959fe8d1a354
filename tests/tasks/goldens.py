"""Make the golden workspace of the present sampler: `python tests/tasks/goldens.py`, once for each new number.

Earlier archives stay as they are: they show that what an earlier program published can still be drawn.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dpcore.generators import SAMPLER
from tasks.stores.workspace import Workspace

FOLDER = Path(__file__).parent / "golden"
FEATURES = [
    {"name": "age", "kind": "numeric", "bounds": [0, 100]},
    {"name": "visits", "kind": "integer", "bounds": [0, 20], "missing": "category"},
    {"name": "seen", "kind": "date", "bounds": ["2026-01-01", "2026-12-31"]},
]
LABEL = {"name": "ward", "kind": "categorical", "categories": ["a", "b"]}
NO_PROJECTION = {"projection": {"kind": "none"}}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian": ("feature", {"generator": "gaussian", "projection": {"kind": "ron", "dimension": 3}}),
    "components": ("feature", {"generator": "gaussian", "projection": {"kind": "private-pca", "dimension": 2}}),
    "supervised": ("target", {"generator": "supervised", **NO_PROJECTION}),
    "mixture": ("label", {"generator": "mixture", **NO_PROJECTION}),
    "lda": ("label", {"generator": "lda", **NO_PROJECTION}),
    "copula": ("feature", {"generator": "copula"}),
}
"""One release of each kind of law: the role of its last column, and its model."""


def archive(number: int) -> Path:
    """Where the golden workspace of a sampler is."""
    return FOLDER / f"sampler-{number}.tar.gz"


def specification(family: str) -> dict[str, Any]:
    role, model = FAMILIES[family]
    last = {"name": "cost", "kind": "numeric", "bounds": [0, 100]} if role == "target" else LABEL
    return {
        "name": family,
        "source": {"path": "landing/*.csv"},
        "privacy": {"population": "people", "epsilon": 1.0, "lifetime": {"epsilon": 6.0}},
        "expected_rows": 3000,
        "columns": [*FEATURES, last | {"role": role}],
        "model": model,
        "rows": 200,
    }


def invented(family: str) -> str:
    dice = np.random.Generator(np.random.PCG64(3))
    days = np.datetime64("2026-01-01") + dice.integers(0, 365, 3000)
    last = [f"{x:.1f}" for x in dice.uniform(0, 100, 3000)] if family == "supervised" else dice.choice(["a", "b"], 3000)
    rows = zip(dice.normal(50, 15, 3000), dice.poisson(5, 3000), days, last, strict=True)
    head = "age,visits,seen," + ("cost" if family == "supervised" else "ward")
    return "\n".join([head, *(f"{age:.2f},{visits},{day},{end}" for age, visits, day, end in rows)]) + "\n"


def make() -> None:
    """Release once with each kind of law, and keep ledger, bundles, lineage and specification."""
    from staged import release

    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        workspace.create()
        for family in FAMILIES:
            workspace.spec_path.write_text(yaml.safe_dump(specification(family)))
            (workspace.landing / "rows.csv").write_text(invented(family))
            release(workspace, "2026-01")
        shutil.rmtree(workspace.landing)
        workspace.landing.mkdir()
        with tarfile.open(archive(SAMPLER), "w:gz") as target:
            for name in ("release.yaml", "ledger.db", "lineage.ndjson", "releases", "landing"):
                target.add(workspace.root / name, name)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    make()
