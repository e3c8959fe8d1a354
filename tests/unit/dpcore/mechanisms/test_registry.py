"""The registry is right: refuted mechanisms are refused, and proved ones hold for the neighbours they name."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from support import ROOT

from dpcore.accounting import Budget, Cost, Epsilon, Rho
from dpcore.mechanisms.base import Output
from dpcore.mechanisms.catalogue import BY_NAME, ENTRIES
from dpcore.mechanisms.entry import Status
from dpcore.mechanisms.registry import cost_of, gram_mechanism
from dpcore.records.exact_sums import GramLayout
from dpcore.records.schema import Neighbours

REFUTED = [
    "published-lap-pca",
    "published-pca-gauss-gmm",
    "published-ron-gauss",
    "published-ron-gauss-supervised",
    "published-jiang-categorical",
    "published-jiang-lda",
    "published-sn",
    "published-lip-rows",
    "published-lop",
]
"""Published calibrations that do not hold."""

GRAM = [entry for entry in ENTRIES if entry.mechanism is not None]


@pytest.mark.parametrize("name", REFUTED)
def test_a_refuted_calibration_is_listed_with_its_reason_and_cannot_be_run(name: str) -> None:
    entry = BY_NAME[name]
    assert entry.status is Status.REFUTED
    assert entry.mechanism is None
    assert len(entry.reason) > 5
    with pytest.raises(KeyError, match=name):
        gram_mechanism(name)


@pytest.mark.parametrize("name", ["ron", "none", "no-such-mechanism", ""])
def test_what_is_no_gram_mechanism_cannot_be_run_as_one(name: str) -> None:
    with pytest.raises(KeyError):
        gram_mechanism(name)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(ENTRIES)


@pytest.mark.parametrize("entry", GRAM, ids=lambda e: e.name)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_an_entry_names_exactly_the_neighbours_for_which_its_mechanism_can_be_calibrated(entry, neighbours) -> None:
    budget: Budget = Rho(Fraction(1)) if "rho" in entry.guarantee else Epsilon(Fraction(1))
    part = {"components": 1} if entry.mechanism.output in (Output.BASIS, Output.SPECTRUM) else {}
    layout = GramLayout(3, 1 if part else 2, Fraction(1, 2))
    assert entry.mechanism.name == entry.name
    assert entry.status is not Status.REFUTED
    if neighbours in entry.neighbours:
        event = entry.mechanism.calibrate(layout, neighbours, budget, **part)
        cost = cost_of(event)
        assert (cost.epsilon, cost.rho) != (0, 0)
        assert cost == Cost.of(entry.mechanism.cost(event), entry.mechanism.delta_num(event))
    else:
        with pytest.raises(ValueError, match=neighbours and "only"):
            entry.mechanism.calibrate(layout, neighbours, budget, **part)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_an_entry_is_shown_as_plain_text(entry) -> None:
    shown = entry.as_json()
    assert all(isinstance(value, str) and value for value in shown.values())
    assert shown["kind"] in {"projection", "moments", "marginals", "rows", "check"}
    assert shown["status"] in {"proved", "approximate", "refuted"}


PROOFS = (ROOT / "dpcore" / "GUARANTEE.md").read_text()


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.status is not Status.REFUTED], ids=lambda e: e.name)
def test_what_is_not_refuted_names_the_section_that_proves_it(entry) -> None:
    cited = re.findall(r"\b[A-Z]\d+\b", entry.reason)
    assert cited
    for section in cited:
        assert re.search(rf"^(## |\*\*|- \*\*){section}\b", PROOFS, re.MULTILINE), section


@pytest.mark.parametrize("name", REFUTED)
def test_what_is_refuted_is_refuted_in_writing(name: str) -> None:
    assert f"`{name}`" in PROOFS


def test_what_is_not_proved_for_its_sampler_is_not_called_pure():
    for entry in ENTRIES:
        if entry.status is Status.APPROXIMATE:
            assert "pure" not in entry.guarantee
            assert "neither" in entry.guarantee
            assert "delta" in entry.guarantee
