"""The digits demo: scikit-learn's 1,797 handwritten digits of 8 by 8 pixels.

`px34` is the pixel of row 3 and column 4, from 0 (paper) to 16 (ink); `digit` is the
label. The images are those of the UCI "Optical Recognition of Handwritten Digits"
test set, as `sklearn.datasets.load_digits` has them, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

FILE_NAMES = ("digits.parquet",)
PIXELS = tuple(f"px{row}{column}" for row in range(8) for column in range(8))
COLUMNS_LINE = "columns: []\n"
"""The line of digits.yaml in whose place the columns are written."""


def specification() -> str:
    """The text of the demo's release.yaml: digits.yaml with one line a column."""
    template = resources.files(__package__).joinpath("digits.yaml").read_text(encoding="utf-8")
    lines = [f"  - {{name: {pixel}, kind: integer, bounds: [0, 16]}}\n" for pixel in PIXELS]
    label = f"  - {{name: digit, kind: categorical, categories: {list(range(10))}, role: label}}\n"
    return template.replace(COLUMNS_LINE, "".join(["columns:\n", *lines, label]))


def tables(_: np.random.Generator) -> Iterator[pa.Table]:
    """The one table; nothing in it is drawn."""
    import pyarrow as pa
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = digits.data.astype(np.int64)
    yield pa.table(dict(zip(PIXELS, pixels.T, strict=True)) | {"digit": digits.target.astype(np.int64)})
