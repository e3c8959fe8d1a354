"""Figures that a release states and its audit counts again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tasks.bundle import figures


def test_the_effect_of_rules_is_counted_with_one_thread_of_linear_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def effect(*_: Any) -> dict[str, Any]:
        threads.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return {}

    monkeypatch.setattr(figures, "rules_effect", effect)
    monkeypatch.setattr(figures, "generator_of", lambda *_: None)
    monkeypatch.setattr(figures, "without_rules", lambda *_: ())
    monkeypatch.setattr(figures, "SAMPLERS", {0: lambda *_: None})
    encoding: Any = SimpleNamespace(schema=SimpleNamespace(rules=("a rule",)))
    unused: Any = SimpleNamespace(rows=1, seed="0")
    with threadpool_limits(2, user_api="blas"):
        figures.rules_effect_of(unused, 0, encoding, unused, unused)
    assert set(threads) == {1}, "the rounding of sums depends on the number of threads, and with it a few rows"
