"""Budgeted checks: hostile neighbours change no score by more than its sensitivity."""

from __future__ import annotations

import pytest
from support.dpcore.checked import ACCURACY, LABEL, RMSE, SILHOUETTE, TARGET, WAYS, plan_request

from dpcore.auditing.replay import largest_change, replay_pairs
from dpcore.planning.budgeted_checks import make_checked_plan
from dpcore.records.schema import Neighbours


@pytest.mark.parametrize("relation", Neighbours)
@pytest.mark.parametrize("way", ["pure", "gaussian", "mixed table"])
def test_hostile_neighbours_move_no_score_beyond_its_bound(way: str, relation: Neighbours) -> None:
    for special, checks in ((LABEL, [ACCURACY, SILHOUETTE]), (TARGET, [RMSE])):
        plan = make_checked_plan(plan_request(special, neighbours=relation, **WAYS[way]), checks)
        replays = [r for r in replay_pairs(plan, pairs=12, seed="1") if r.measurement in plan.check_events]
        assert len(replays) == 12 * len(checks)
        assert all(found.ok for found in replays)
        assert 0 < largest_change(plan, pairs=12, seed="2") <= 1
