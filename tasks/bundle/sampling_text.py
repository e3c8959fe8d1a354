"""What readers of a release are told about how its rows were drawn."""

from __future__ import annotations

from typing import Any

INDEPENDENT_ROWS = (
    "Rows were drawn independently of each other, so averages over them add sampling error to the noise of the "
    "measurements. Intervals that a statistics package computes from them count this error alone, and not the noise."
)
SAMPLINGS: dict[str, str] = {
    "rounded": "Rows were drawn together, so that their shares and means keep close to the model's; they add little "
    "error to the noise of the measurements. They are no random sample: standard errors, tests and bootstraps that are "
    "computed from them have no meaning.",
    "independent": INDEPENDENT_ROWS,
}


def sampling_words(model: dict[str, Any]) -> str:
    """Return how rows were drawn, by a record's model; rows of earlier records are independent."""
    return SAMPLINGS[model.get("sampling", "independent")]
