"""The list of mutants fits the tree: `make verify` runs them, and must not stop at one that is gone."""

from __future__ import annotations

import pytest
from support import ROOT
from support.mutants import Mutant, mutants


@pytest.mark.parametrize("mutant", list(mutants()), ids=lambda mutant: mutant.name)
def test_every_mutant_changes_something_that_is_there(mutant: Mutant) -> None:
    original = (ROOT / mutant.file).read_text()
    assert original.replace(mutant.old, mutant.new, 1) != original
