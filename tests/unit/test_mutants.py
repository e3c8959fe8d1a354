"""The list of mutants fits the tree: `make verify` runs them, and must not stop at one that is gone."""

from __future__ import annotations

import pytest
from support import ROOT
from support.mutants import NEAREST, TESTS, Mutant, mutants


@pytest.mark.parametrize("mutant", list(mutants()), ids=lambda mutant: mutant.name)
def test_every_mutant_changes_something_that_is_there(mutant: Mutant) -> None:
    original = (ROOT / mutant.file).read_text()
    assert original.replace(mutant.old, mutant.new, 1) != original


def test_the_tests_that_look_for_mutants_are_there() -> None:
    assert not [name for name in TESTS if not list(ROOT.glob(f"tests/*/{name}"))]
    assert {name for near in NEAREST.values() for name in near} <= set(TESTS)
    assert set(NEAREST) <= {mutant.file for mutant in mutants()}
