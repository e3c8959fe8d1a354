"""Small landing tables and passes over them; importable by spawned processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from dpcore.measure import gram_sum
from dpcore.measurements.projection import ron_projection
from dpcore.records.encoding import Encoding
from dpcore.records.exact_sums import GramLayout, GramSum
from tasks.landing.datasets import Landing
from tasks.landing.passes import Threads
from tasks.landing.readings import Readings
from tasks.spec import parse_spec

SPEC_TEXT = """
name: sums
source: {path: "landing/*"}
privacy:
  population: people
  unit: row
  neighbours: replace-one
  epsilon: 1
  delta: 0
  lifetime: {epsilon: 12, delta: 0, delta_num: 1.0e-9}
expected_rows: 5000
columns:
  - {name: age, kind: numeric, bounds: [0, 120]}
  - {name: visits, kind: integer, bounds: [0, 50], missing: category}
  - {name: sex, kind: categorical, categories: [f, m], other: m}
  - {name: ill, kind: categorical, categories: ["no", "yes"], role: label}
"""
SPEC = parse_spec(SPEC_TEXT)
ENCODING = Encoding(SPEC.schema)
PROJECTION = ron_projection(ENCODING, 3, "5" * 64)
LAYOUT = GramLayout(4, 2, SPEC.privacy.epsilon / 4)
SUM: Callable[..., GramSum] = partial(gram_sum, encoding=ENCODING, layout=LAYOUT, projection=PROJECTION)


def table(rows: int = 5000) -> pa.Table:
    rng = np.random.default_rng(5)
    words = np.array(["f", "m", "?"], dtype=object)
    return pa.table(
        {
            "age": pa.array(rng.normal(50, 60, rows), mask=rng.random(rows) < 0.1),
            "visits": pa.array(rng.integers(-5, 60, rows), mask=rng.random(rows) < 0.1),
            "sex": pa.array(words[rng.integers(0, 3, rows)]),
            "ill": pa.array(np.array(["no", "yes"], dtype=object)[rng.integers(0, 2, rows)]),
        }
    )


def readings(*files: Path, threads: int = 2) -> Readings:
    found = Readings(Landing(files, SPEC, "source.path"), SPEC.unit, key=lambda: b"k" * 32, scratch=files[0].parent)
    found.read_with(Threads(threads), lambda _purpose, _share: None)
    return found


def total(found: Readings) -> list[list[int]]:
    gram = found.total("moments", SPEC.schema, SUM, GramSum.with_sum)
    return gram.upper_triangles()
