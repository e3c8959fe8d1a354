"""The attacks that the command line runs: honest mechanisms survive them, weakened ones do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpcore import attacks
from dpcore.attacks import attack, targets
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.mechanisms.base import GramEvent
from dpcore.noise import Noise, SeededNoise
from dpcore.registry import ENTRIES, Entry
from dpcore.schema import Neighbours

DRAWS = 1500
TARGETS = [pytest.param(entry, relation, id=f"{entry.name}, {relation}") for entry, relation in targets()]


@pytest.mark.parametrize(("entry", "relation"), TARGETS)
def test_an_honest_mechanism_survives_its_attack(entry: Entry, relation: Neighbours) -> None:
    finding = attack(entry.name, relation, draws=DRAWS, noise=SeededNoise(3))
    assert finding.holds
    assert 0 < finding.measured <= finding.claimed
    assert finding.as_json()["holds"] is True


@pytest.mark.parametrize(("entry", "relation"), TARGETS)
def test_a_quarter_of_the_noise_does_not_survive(
    entry: Entry, relation: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weakened(gram: PrivateGram, event: GramEvent, noise: Noise) -> Released:
        louder = event.noise * 4 if "wishart" in event.mechanism else event.noise / 4
        return measure_gram(gram, replace(event, noise=louder), noise)

    monkeypatch.setattr(attacks, "measure_gram", weakened)
    assert not attack(entry.name, relation, draws=DRAWS, noise=SeededNoise(4)).holds


def test_every_releasable_mechanism_is_attacked_under_all_its_relations() -> None:
    expected = {(e.name, n) for e in ENTRIES if e.mechanism is not None for n in e.neighbours}
    assert {(entry.name, relation) for entry, relation in targets()} == expected
