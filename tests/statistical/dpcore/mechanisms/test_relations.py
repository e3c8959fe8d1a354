"""Attacks under the other neighbouring relation do not exceed its cost."""

from __future__ import annotations

import pytest
from support.dpcore.relations import crossed

from dpcore.auditing.attack_table import ATTACKS
from dpcore.mechanisms.catalogue import BY_NAME

# ---- attacks: pairs of the other relation, through `measure_gram` ---------------------------------------

FAST = [
    name for name in ATTACKS if name not in ("noisy-rows", "noisy-power-method", "exponential-pca", "nuclear-k-norm")
]


@pytest.mark.parametrize("name", FAST)
def test_attacks_on_the_other_relation_do_not_exceed_its_figure(name: str) -> None:
    for own in BY_NAME[name].neighbours:
        claimed, measured = crossed(name, own, draws=1_000)
        assert 0 < measured <= claimed
