"""Lineage that two processes write."""

from __future__ import annotations

from pathlib import Path

from support.processes import FORKS
from support.tasks.builders import append_many

from tasks.lineage.events import events_of


def test_lines_of_two_processes_do_not_mix(tmp_path: Path):
    log = tmp_path / "lineage.ndjson"
    barrier = FORKS.Barrier(2)
    writers = [FORKS.Process(target=append_many, args=(log, word, barrier)) for word in ("abc", "xyz")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    events = events_of(log)
    assert all(event["filler"] == event["word"] * 3000 for event in events)
    for word in ("abc", "xyz"):
        assert [event["number"] for event in events if event["word"] == word] == list(range(200))
