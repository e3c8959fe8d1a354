"""Expectations that Great Expectations lacks.

Importing this module imports Great Expectations: import it inside functions only.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from great_expectations.expectations.expectation import BatchExpectation


class ExpectColumnDtypeInSet(BatchExpectation):  # type: ignore[misc]
    """The pandas dtype of a column, by name, is one of a list; an absent column passes.

    The library's own type expectations pass every empty object column and do not
    know pandas' `str` dtype.
    """

    column: str
    dtypes: list[str]

    metric_dependencies: ClassVar[tuple[str, ...]] = ("table.column_types",)
    success_keys: ClassVar[tuple[str, ...]] = ("column", "dtypes")

    def _validate(self, metrics: dict[str, Any], *_: Any, **__: Any) -> dict[str, bool]:
        found = [str(entry["type"]) for entry in metrics["table.column_types"] if entry["name"] == self.column]
        return {"success": all(dtype in self.dtypes for dtype in found)}


class ExpectColumnsWithin(BatchExpectation):  # type: ignore[misc]
    """Every column has a name out of a list, and no name comes twice; names may be absent.

    The library's own expectation also demands that every name of the list is there.
    """

    allowed: list[str]

    metric_dependencies: ClassVar[tuple[str, ...]] = ("table.columns",)
    success_keys: ClassVar[tuple[str, ...]] = ("allowed",)

    def _validate(self, metrics: dict[str, Any], *_: Any, **__: Any) -> dict[str, bool]:
        found = Counter(metrics["table.columns"])
        return {"success": all(name in self.allowed and times == 1 for name, times in found.items())}
