"""What earlier versions of the program released stays verifiable, and its ledger goes on.

`golden/version-1.tar.gz` is a workspace as version 1 left it, with invented people: one release by
Wishart noise and one by Gaussian noise, which that version counted as zCDP. It holds no landing data.
`golden/version-3.tar.gz` was left by the last program that did not number its sampler.
`golden/forms-1.tar.gz` has releases with projected points, a share of the variance, and points of one length.
`golden/sampler-N.tar.gz` has a release of each kind of law as sampler N drew it (`goldens.py` made it).
"""

from __future__ import annotations

import tarfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tasks.goldens import FAMILIES, FORMS, GOLDEN, RULED, archive
from support.tasks.staged import land_rows, plain_model, release

from dpcore.errors import BudgetExceededError
from dpcore.synthesis.generators import SAMPLERS, UNNUMBERED
from tasks.audit import Redraw, audit_workspace, broken, not_shown
from tasks.audit.checks import NotShownError
from tasks.audit.recomputed import RecomputedBundle
from tasks.audit.redrawn_rows import row_faults
from tasks.ledger.key_changes import rotate_key
from tasks.ledger.opening import writable_ledger
from tasks.ledger.store import Ledger
from tasks.spec import load_spec
from tasks.spec.plan import basis_of, cap_of
from tasks.workspace.folders import Workspace
from tasks.workspace.reading import parse_json


def unpacked(golden: Path, target: Path) -> Workspace:
    with tarfile.open(golden) as packed:
        packed.extractall(target, filter="data")
    return Workspace(target)


@pytest.fixture
def old(tmp_path: Path) -> Workspace:
    return unpacked(GOLDEN / "version-1.tar.gz", tmp_path)


def test_releases_of_version_1_pass_the_audit_untouched(old: Workspace) -> None:
    before = old.ledger_path.read_bytes()
    checks = audit_workspace(old)
    assert broken(checks) == []
    assert {check.name.partition(": ")[2] for check in not_shown(checks)} >= {"rows"}, "its sampler is not kept"
    assert "entry" in next(check.detail for check in not_shown(checks) if check.name == "caps"), "it mixed kinds"
    assert "drawn from unseeded noise before builds were audited" in " ".join(check.detail for check in checks)
    assert old.ledger_path.read_bytes() == before


def raise_the_cap(old: Workspace) -> None:
    """Write what an early specification meant by leaving projection and radius out, too."""
    text = old.spec_path.read_text().replace("lifetime: {epsilon: 1.5", "lifetime: {epsilon: 4")
    assert "model: {mechanism: gaussian}" in text
    old.spec_path.write_text(text.replace("model: {mechanism: gaussian}\n", plain_model(", mechanism: gaussian")))
    spec = load_spec(old.spec_path)
    with closing(writable_ledger(old, spec)) as ledger:
        ledger.raise_cap(spec.privacy.population, cap_of(spec), basis_of(spec), "mixed costs count for more", who="ada")


def test_a_ledger_of_version_1_goes_on_signed_and_keeps_what_was_spent(old: Workspace) -> None:
    old.create()
    land_rows(old.root, "2026-03")
    with closing(Ledger.open_to_read(old.ledger_path)) as ledger:
        known = ledger.entries()
    with pytest.raises(BudgetExceededError):  # its mixed costs count for more today
        release(old, "2026-03")
    raise_the_cap(old)
    release(old, "2026-03")
    with closing(Ledger.open_to_read(old.ledger_path)) as ledger:
        entries = ledger.entries()
    assert entries[: len(known)] == known
    assert [entry.kind for entry in entries[len(known) :]] == ["key", "refuse", "cap", "reserve", "spend", "publish"]
    checks = audit_workspace(old)
    assert broken(checks) == []
    assert [check.outcome for check in checks if check.name == "small-2026-03-1: rows"] == ["holds"]


def test_a_changed_cost_of_version_1_is_still_found(old: Workspace) -> None:
    record = next(old.releases.glob("*/*/record.json"))
    record.chmod(0o644)
    record.write_text(record.read_text().replace('"epsilon": 0.5', '"epsilon": 0.4', 1))
    assert broken(audit_workspace(old)) != []


@pytest.mark.parametrize("number", SAMPLERS)
def test_rows_of_every_sampler_that_ever_published_are_drawn_again(number: int, tmp_path: Path) -> None:
    """Where this fails, a change moved rows: give it a new number, and keep the sampler of the earlier one callable."""
    workspace = unpacked(archive(number), tmp_path)
    checks = audit_workspace(workspace)
    assert broken(checks) == []
    rows = {check.name.partition("-")[0]: check for check in checks if check.name.endswith(": rows")}
    assert {name: check.outcome for name, check in rows.items()} == dict.fromkeys(FAMILIES, "holds")
    assert all("all 200 were drawn again" in check.detail for check in rows.values())


def test_changed_rows_of_a_copula_are_found_where_they_were_drawn_and_left_open_elsewhere(tmp_path: Path) -> None:
    """Rounding changes a law that is fitted step by step: rows of another platform accuse nobody and show nothing."""
    workspace = unpacked(archive(max(SAMPLERS)), tmp_path)
    (folder,) = (path.parent for path in tmp_path.glob("releases/copula/*/data.parquet"))
    table = pq.read_table(folder / "data.parquet")
    pq.write_table(table.take(pa.array(range(len(table))[::-1])), folder / "data.parquet")
    record = parse_json((folder / "record.json").read_text())
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        state = ledger.state().releases[folder.name]
    assert row_faults(RecomputedBundle(folder, record, state, Redraw()))
    record["software"]["scipy"] = "0.1"
    with pytest.raises(NotShownError, match="fitted step by step"):
        row_faults(RecomputedBundle(folder, record, state, Redraw()))


def test_rows_in_later_forms_are_drawn_again(tmp_path: Path) -> None:
    checks = audit_workspace(unpacked(GOLDEN / "forms-1.tar.gz", tmp_path))
    assert broken(checks) == []
    rows = {check.name.partition("-")[0]: check for check in checks if check.name.endswith(": rows")}
    assert {name: check.outcome for name, check in rows.items()} == dict.fromkeys(FORMS, "holds")
    assert "and as projected points" in rows["both"].detail
    tables = {path.parent.parent.name: path for path in tmp_path.glob("releases/*/*/projected.parquet")}
    assert sorted(tables) == ["both", "projected"]


def test_rows_under_rules_are_drawn_again(tmp_path: Path) -> None:
    """Where this fails, a change moved rows: before version 0.1.0 is published, make them anew; later, see above."""
    checks = audit_workspace(unpacked(GOLDEN / "rules-2.tar.gz", tmp_path))
    assert broken(checks) == []
    outcomes = {check.name: check.outcome for check in checks}
    for family in RULED:
        assert outcomes[f"{family}-2026-01-1: rows"] == "holds"
        assert outcomes[f"{family}-2026-01-1: rules"] == "holds"


def test_rows_of_the_last_program_without_a_number_are_drawn_again(tmp_path: Path) -> None:
    checks = audit_workspace(unpacked(GOLDEN / "version-3.tar.gz", tmp_path))
    assert broken(checks) == []
    rows = [check for check in checks if check.name.endswith(": rows")]
    assert [check.outcome for check in rows] == ["holds", "holds"]
    assert all("all 50 were drawn again" in check.detail for check in rows)


def test_the_golden_models_of_the_first_sampler_name_none(tmp_path: Path) -> None:
    unpacked(archive(UNNUMBERED), tmp_path)
    models = [parse_json(path.read_text()) for path in tmp_path.glob("releases/*/*/model.json")]
    assert [model.get("sampler") for model in models] == [None] * len(FAMILIES)


@pytest.fixture
def golden(tmp_path: Path) -> Workspace:
    """A workspace as version 3 left it: two releases, and a rotated key between them."""
    with tarfile.open(GOLDEN / "version-3.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    workspace = Workspace(tmp_path)
    workspace.create()
    return workspace


def test_a_workspace_of_version_3_needs_no_step(golden: Workspace):
    assert faults(golden) == {}
    land_rows(golden.root, "2026-03")
    release(golden, "2026-03")
    assert faults(golden) == {}
    rotate_key(golden, load_spec(golden.spec_path), who="operator")
    assert faults(golden) == {}


# ---------------------------------------------------------------- an attacker who can write ledger.db


def faults(workspace: Workspace) -> dict[str, str]:
    return {check.name: check.detail for check in audit_workspace(workspace) if check.outcome == "broken"}
