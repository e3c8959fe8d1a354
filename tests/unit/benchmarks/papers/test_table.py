"""Who is better at the same price: the verdict follows the paired interval."""

from __future__ import annotations

import pytest

from benchmarks.common import Summary, summary
from benchmarks.papers.table import Pair, compared, verdict


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([2.0, 2.1, 2.2], [1.0, 1.1, 1.1], "better"),
        ([1.0, 1.1, 1.1], [2.0, 2.1, 2.2], "worse"),
        ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0], "no difference shown"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], "equal"),
    ],
)
def test_the_verdict_follows_the_interval(ours: list[float], theirs: list[float], said: str) -> None:
    found = {"a": {"score": ours}, "b": {"score": theirs}}
    assert compared(found, [Pair("a", "b")])[0][3] == said
    turned = {"better": "worse", "worse": "better"}.get(said, said)
    assert compared(found, [Pair("a", "b")], less_is_better=True)[0][3] == turned


def test_one_run_has_no_verdict() -> None:
    assert verdict(summary([1.0])) == "one run says nothing"
    assert verdict(Summary(0.1, 0.0, 0.2, 10)) == "better"
