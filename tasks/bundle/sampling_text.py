"""What readers of a release are told about how its rows were drawn."""

from __future__ import annotations

from typing import Any

from dpcore.planning.request import COPULA

INDEPENDENT_ROWS = (
    "Rows were drawn independently of each other, so averages over them add sampling error to the noise of the "
    "measurements. Intervals that a statistics package computes from them count this error alone, and not the noise."
)
ROUNDED_GROUPS = (
    "Rows were drawn together, so that shares, means, and tables of two columns' groups keep close to the model's; "
    "they add little error to the noise of the measurements."
)
ROUNDED_POINTS = (
    "Rows were drawn together, so that sizes of classes and means of numbers keep close to the model's. Shares of "
    "other levels, and relations between columns, vary up to about as much as in independent rows."
)
NO_SAMPLE = (
    "They are no random sample: standard errors, tests and bootstraps that are computed from them have no meaning."
)


def sampling_words(model: dict[str, Any]) -> str:
    """Return how rows were drawn, by a record's model; rows of earlier records are independent."""
    if model.get("sampling", "independent") == "independent":
        return INDEPENDENT_ROWS
    return f"{ROUNDED_GROUPS if model['generator'] == COPULA else ROUNDED_POINTS} {NO_SAMPLE}"
