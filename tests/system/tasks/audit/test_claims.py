"""What the auditor's guide says that attackers can and cannot do: every row of its two tables has a test here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support import ROOT
from support.tasks.audit.evidence import Given, hand_over, republish, rewritten
from support.tasks.audit.flow_runs import run_of
from support.tasks.audit.forger import Forger
from support.tasks.audit.tampering import SECOND, broken, bundle, on_the_ledger, rechain
from support.tasks.builders import BASIS, cap, request
from support.tasks.ledger.signed_chains import Signed as SignedChain
from support.tasks.ledger.signed_chains import announce_and_raise, entries_of, overwrite, raise_cap
from support.tasks.staged import SPEC, invented_rows, land_rows, release

from tasks.audit import audit_workspace
from tasks.bundle.staging import sha256_of
from tasks.keys.signing import SigningKey, signing_key
from tasks.ledger.entries.entry import Entry
from tasks.ledger.key_changes import enrol_key
from tasks.ledger.store import Ledger
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

GUIDE = ROOT / "deployments" / "guides" / "auditor.md"
HOLDS = "holds"


def rows_of(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading of the guide, by their ids."""
    section = GUIDE.read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", section, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


class Case:
    """A workspace that is attacked, and the export that an auditor took before."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.folder, self.key = workspace, folder, signing_key(workspace.keys)
        self.handed = hand_over(workspace, folder / "before")
        self.earlier = self.handed.export.read_text()

    def outcomes(self) -> list[str]:
        """What the workspace audit, the offline audit and the comparison with the earlier export say."""
        given = hand_over(self.workspace, self.folder / "after")
        given.key = self.handed.key  # the one that the auditor got by another way
        same = given.export.read_text().startswith(self.earlier)
        return [first_fault(self.workspace), offline_fault(given), HOLDS if same else "differs"]


def first_fault(workspace: Workspace) -> str:
    """The check that the audit of the workspace names first, without the release that it is about."""
    return _first(broken(audit_workspace(workspace)))


def offline_fault(given: Given) -> str:
    return _first(broken(given.audit()))


def _first(faults: dict[str, str]) -> str:
    return f"broken: {next(iter(faults)).rpartition(': ')[2]}" if faults else HOLDS


@pytest.fixture
def case(workspace: Workspace, tmp_path: Path) -> Case:
    return Case(workspace, tmp_path)


# ---------------------------------------------------------------- seven attacks


def edit_a_body(case: Case) -> None:
    on_the_ledger(case.workspace, "UPDATE events SET body = replace(body, '6/5', '60/5') WHERE seq = 2")


def cut_the_tail(case: Case) -> None:
    on_the_ledger(case.workspace, "DELETE FROM events WHERE seq > 5")


def cut_the_tail_and_its_traces(case: Case) -> None:
    """The bundle, the lineage and the flow runs of the second release go too; the audit is given no history."""
    cut_the_tail(case)
    shutil.rmtree(bundle(case.workspace, SECOND))
    log = case.workspace.lineage_path
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if SECOND not in line))


def put_an_older_database_back(case: Case) -> None:
    """The ledger as a copy of before the second release has it; everything else is of today."""
    cut_the_tail(case)
    on_the_ledger(case.workspace, f"DELETE FROM measurements WHERE release_id = '{SECOND}'")


def fork(case: Case) -> None:
    """A copy of before goes on: its next entry has the number and the key of the one that the auditor has seen."""
    cut_the_tail_and_its_traces(case)
    with closing(Ledger.open(case.workspace.ledger_path, case.key)) as ledger:
        for period in ("2026-02", "2026-03"):
            ledger.reserve(request(period, name="other"))


def publish_raw_rows(case: Case) -> None:
    """The key holder writes raw rows over the first bundle's, and fits lineage, statement, checksums and ledger."""
    forger = Forger(case.handed.bundle())
    was = sha256_of(forger.path)
    forger.write(forger.raw(50))
    for log in (forger.folder / "lineage.ndjson", case.workspace.lineage_path):
        rewritten(log, log.read_text().replace(was, sha256_of(forger.path)).encode())
    republish(case.handed, case.key)
    shutil.rmtree(case.workspace.releases)
    shutil.copytree(case.handed.bundles, case.workspace.releases)
    overwrite(case.workspace, case.handed.entries())


def announce_a_forged_key(case: Case) -> None:
    overwrite(case.workspace, announce_and_raise(case.workspace))


ATTACKS: dict[str, Callable[[Case], None]] = {
    "edited-body": edit_a_body,
    "cut-tail": cut_the_tail,
    "cut-tail-and-traces": cut_the_tail_and_its_traces,
    "older-database": put_an_older_database_back,
    "fork": fork,
    "raw-rows-signed": publish_raw_rows,
    "forged-key": announce_a_forged_key,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_each_audit_says_of_an_attack_what_the_guide_says(case: Case, name: str):
    ATTACKS[name](case)
    assert case.outcomes() == rows_of("Seven attacks")[name][1:]


@pytest.mark.parametrize("trace", ["bundle", "lineage", "flow runs"])
def test_every_trace_that_is_left_of_a_cut_tail_is_enough(case: Case, trace: str):
    """The row `cut-tail-and-traces` needs all three to be removed."""
    log, kept = case.workspace.lineage_path.read_bytes(), case.folder / "kept"
    shutil.copytree(bundle(case.workspace, SECOND), kept)
    cut_the_tail_and_its_traces(case)
    if trace == "bundle":
        kept.rename(bundle(case.workspace, SECOND))
    if trace == "lineage":
        case.workspace.lineage_path.write_bytes(log)
    runs = {"run": run_of(SECOND, 6, 7, 8)} if trace == "flow runs" else None
    names = {"bundle": "bundles", "lineage": "lineage log", "flow runs": "flow runs"}
    assert names[trace] in broken(audit_workspace(case.workspace, runs=runs))


def test_whoever_holds_both_ends_of_a_fork_sees_it(case: Case):
    """A bundle of the other branch is enough: it names an entry that is another one here."""
    kept = shutil.copytree(bundle(case.workspace, SECOND), case.folder / "kept")
    fork(case)
    shutil.copytree(kept, bundle(case.workspace, SECOND))
    assert "a fork: entry" in broken(audit_workspace(case.workspace))["ledger completeness"]


# ---------------------------------------------------------------- who can do what


def outsider(case: Case) -> list[str]:
    """Makes up a ledger with a key of their own, complete and consistent: it is another key's."""
    made = hand_over(made_up(case.folder / "made-up"), case.folder / "theirs")
    assert offline_fault(made) == HOLDS, "by their own key it holds"
    made.key = case.handed.key
    return ["does not apply", offline_fault(made), "differs"]


def made_up(root: Path, keys: Path | None = None) -> Workspace:
    """A workspace with one honest release of invented people, perhaps with the keys of another."""
    workspace = Workspace(root)
    workspace.create()
    if keys is not None:
        shutil.rmtree(workspace.keys)
        shutil.copytree(keys, workspace.keys)
    workspace.spec_path.write_text(SPEC)
    land_rows(root, "2026-01")
    release(workspace, "2026-01")
    return workspace


def writer_cuts(case: Case) -> list[str]:
    cut_the_tail_and_its_traces(case)
    return case.outcomes()


def writer_replaces_all(case: Case) -> list[str]:
    """Puts a whole workspace of their own in the place, with its public key."""
    shutil.rmtree(case.workspace.root)
    made_up(case.workspace.root)
    return case.outcomes()


def release_key_raises_cap(case: Case) -> list[str]:
    clerk = SigningKey.fresh()
    spec = load_spec(case.workspace.spec_path)
    enrol_key(case.workspace, spec, clerk.public, roles=["release"], name="clerk")
    known = entries_of(case.workspace)
    overwrite(case.workspace, SignedChain(known).by(clerk).enrol(SigningKey.fresh(), "release").entries)
    assert first_fault(case.workspace) == "broken: ledger chain", "nor does it enrol a key"
    overwrite(case.workspace, raise_cap(SignedChain(known).by(clerk)).entries)
    return case.outcomes()


def release_key_measures_other_data(case: Case) -> list[str]:
    """A run over other rows than the steward means: no audit knows the data."""
    (case.workspace.landing / "small-2026-03.csv").write_text(invented_rows(seed=8))
    release(case.workspace, "2026-03")
    return case.outcomes()


def cap_key_raises_cap(case: Case) -> list[str]:
    with closing(Ledger.open(case.workspace.ledger_path, case.key)) as ledger:
        ledger.raise_cap("people", cap("100"), BASIS, "because", who="somebody")
    (words,) = (check.detail for check in audit_workspace(case.workspace) if check.name == "caps")
    assert "changed with a reason by entry 9" in words, "everybody can read it"
    return case.outcomes()


def operator_rewrites_ledger(case: Case) -> list[str]:
    """All entries again with other times and right signatures; the bundles name the ledger that they were made with."""
    rechain(case.workspace, end_of_its_second)
    return case.outcomes()


def end_of_its_second(entry: Entry) -> Entry:
    return replace(entry, at=re.sub(r"\.\d{6}Z", ".999999Z", entry.at))


def holder_of_every_copy(case: Case) -> list[str]:
    """Releases everything anew with the same key, and destroys ledger and bundles of before."""
    keys = shutil.copytree(case.workspace.keys, case.folder / "keys")
    shutil.rmtree(case.workspace.root)
    made_up(case.workspace.root, keys)
    return case.outcomes()


PEOPLE: dict[str, Callable[[Case], list[str]]] = {
    "outsider": outsider,
    "writer-cuts": writer_cuts,
    "writer-replaces-all": writer_replaces_all,
    "release-key-raises-cap": release_key_raises_cap,
    "release-key-other-data": release_key_measures_other_data,
    "cap-key-raises-cap": cap_key_raises_cap,
    "operator-rewrites-ledger": operator_rewrites_ledger,
    "every-copy": holder_of_every_copy,
}


@pytest.mark.parametrize("name", PEOPLE)
def test_each_audit_says_of_each_person_what_the_guide_says(case: Case, name: str):
    found = PEOPLE[name](case)
    assert found == rows_of("Who can do what")[name][2:]


def test_every_row_of_the_guide_has_its_test():
    assert rows_of("Seven attacks").keys() == ATTACKS.keys()
    assert rows_of("Who can do what").keys() == PEOPLE.keys()
