"""Export, backup, restore, reconciliation, keys: nothing is lost unnoticed, and nobody forgets a spend for free."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support.tasks.builders import BASIS, POPULATION, Chain, Place, cap, opened, released, request
from support.tasks.ledger.postgres import Server
from support.tasks.staged import SPEC, land_rows, release

from dpcore.accounting import Cap, Cost, release_statement
from dpcore.errors import BudgetExceededError, LedgerError, RefusedError, WorkspaceError
from tasks.audit import audit_workspace
from tasks.backup.archive import MANIFEST, back_up, restore
from tasks.keys import signing
from tasks.keys.signing import KEY_FILE, NEXT_FILE, PUBLIC_FILE, PublicKey, SigningKey, signing_key
from tasks.ledger import key_changes
from tasks.ledger import reconcile as reconciliation
from tasks.ledger.entries.bodies import KeyEnrolment, Reconciliation, body_to_json
from tasks.ledger.entries.costs import cost_to_json
from tasks.ledger.export import export_lines, import_entries, write_new
from tasks.ledger.key_changes import rotate_key
from tasks.ledger.opening import writable_ledger
from tasks.ledger.reconcile import reconcile
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.folders import Workspace

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
FIRST, SECOND, THIRD = "small-2026-01-1", "small-2026-02-1", "small-2026-03-1"
SPENT_TWICE = Fraction(1, 5)


def spec_of(workspace: Workspace) -> ReleaseSpec:
    return load_spec(workspace.spec_path)


def faults(workspace: Workspace) -> dict[str, str]:
    return {check.name: check.detail for check in audit_workspace(workspace) if not check.ok}


def ledger_of(workspace: Workspace) -> Any:
    return closing(writable_ledger(workspace, spec_of(workspace)))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def archive(workspace: Workspace, tmp_path: Path) -> Path:
    """A backup of the workspace with two releases."""
    back_up(workspace, tmp_path / "backup.tar", now=NOW)
    return tmp_path / "backup.tar"


@pytest.fixture
def restored(archive: Path, tmp_path: Path) -> Workspace:
    """A workspace that came back from the backup."""
    restore(archive, tmp_path / "restored", who="somebody")
    return Workspace(tmp_path / "restored")


# ---------------------------------------------------------------- export


def test_an_export_can_be_verified_by_whoever_has_it(place: Place):
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        ledger.reserve(request())
        lines = list(export_lines(ledger.entries()))
        assert all(set(json.loads(line)) >= {"seq", "hash", "signature"} for line in lines)
        assert import_entries(iter(lines)) == ledger.entries()
        assert LedgerState.replay(import_entries(iter(lines))).head == ledger.state().head
        with pytest.raises(LedgerError, match="was changed"):
            LedgerState.replay(import_entries(line.replace("6/5", "60/5") for line in lines))


@pytest.mark.parametrize("line", ["", "[1]", '{"seq": 1}', "null", "{"])
def test_what_is_no_entry_is_not_imported(line: str):
    with pytest.raises(LedgerError, match="not a ledger entry"):
        import_entries(iter([line]))


def test_an_output_never_takes_the_place_of_another_file(tmp_path: Path):
    path = tmp_path / "out"
    write_new(path, lambda draft: _fill(draft, "first"))
    with pytest.raises(WorkspaceError) as caught:
        write_new(path, lambda draft: _fill(draft, "second"))
    assert (caught.value.rule, caught.value.where) == ("output-unwritable", "--out")
    assert (path.read_text(), mode(path)) == ("first", 0o600)
    assert [p.name for p in tmp_path.iterdir()] == ["out"], "no draft stays behind"


def _fill(path: Path, text: str) -> None:
    path.write_text(text)


# ---------------------------------------------------------------- backup


def test_a_backup_holds_what_the_workspace_needs_and_no_private_data(archive: Path, workspace: Workspace):
    with tarfile.open(archive) as source:
        names = set(source.getnames())
        told = b"".join(source.extractfile(name).read() for name in names)  # type: ignore[union-attr]
    assert {"release.yaml", "ledger.db", "lineage.ndjson", "keys/signing.key", "keys/fingerprint.key"} <= names
    assert f"releases/small/{FIRST}/data.parquet" in names
    assert not [name for name in names if name.split("/")[0] in ("landing", "vault", "prefect")]
    landed = (workspace.landing / "small-2026-01.csv").read_bytes()
    assert landed.splitlines()[1] not in told
    assert mode(archive) == 0o600, "it holds the keys"


def test_a_backup_does_not_overwrite(archive: Path, workspace: Workspace):
    before = archive.read_bytes()
    with pytest.raises(WorkspaceError, match="exists already"):
        back_up(workspace, archive, now=NOW)
    assert archive.read_bytes() == before


def test_a_restored_workspace_audits_green_and_is_private_where_it_was(restored: Workspace, workspace: Workspace):
    assert faults(restored) == {}
    for name in ("signing.key", "fingerprint.key"):
        assert (restored.keys / name).read_bytes() == (workspace.keys / name).read_bytes()
        assert mode(restored.keys / name) == 0o600
    assert {mode(restored.ledger_path), mode(restored.keys)} == {0o600, 0o700}
    with ledger_of(restored) as ledger, ledger_of(workspace) as original:
        assert ledger.entries()[:-1] == original.entries()
        assert ledger.entries()[-1].kind == "restore"
        assert ledger.measurement(FIRST, "moments") == original.measurement(FIRST, "moments")
        assert ledger.fingerprint(FIRST) == original.fingerprint(FIRST)


def test_a_workspace_that_is_there_is_not_restored_over(archive: Path, workspace: Workspace, tmp_path: Path):
    before = sorted(workspace.root.rglob("*"))
    with pytest.raises(WorkspaceError) as caught:
        restore(archive, workspace.root, who="somebody")
    assert caught.value.rule == "workspace-exists"
    assert sorted(workspace.root.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    restore(archive, tmp_path / "empty", who="somebody")
    assert faults(Workspace(tmp_path / "empty")) == {}


def changed(archive: Path, change: Callable[[str, bytes], tuple[str, bytes] | None], extra: Any = None) -> None:
    """Write the archive anew with other content."""
    with tarfile.open(archive) as source:
        files = [(member.name, source.extractfile(member).read()) for member in source]  # type: ignore[union-attr]
    with tarfile.open(archive, "w") as target:
        for pair in (change(name, content) for name, content in files):
            if pair is not None:
                member = tarfile.TarInfo(pair[0])
                member.size = len(pair[1])
                target.addfile(member, io.BytesIO(pair[1]))
        if extra:
            target.addfile(extra)


def _rewritten(archive: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write the archive anew with another manifest."""
    changed(archive, lambda n, c: (n, json.dumps(change(json.loads(c))).encode() if n == MANIFEST else c))


def _member(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    return member


def _without(manifest: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in manifest.items() if name != key}


def _link() -> tarfile.TarInfo:
    link = tarfile.TarInfo("keys/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return link


BROKEN_ARCHIVES: dict[str, Callable[[Path], object]] = {
    "a-byte-changed": lambda a: changed(a, lambda n, c: (n, c.replace(b"people", b"purple"))),
    "a-file-missing": lambda a: changed(a, lambda n, c: None if n.endswith("codebook.json") else (n, c)),
    "no-manifest": lambda a: changed(a, lambda n, c: None if n == MANIFEST else (n, c)),
    "a-newer-version": lambda a: changed(
        a, lambda n, c: (n, c.replace(b'"version": 1', b'"version": 9') if n == MANIFEST else c)
    ),
    "a-way-out": lambda a: changed(a, lambda n, c: ("../outside" if n == "release.yaml" else n, c)),
    "an-absolute-name": lambda a: changed(a, lambda n, c: ("/outside" if n == "release.yaml" else n, c)),
    "a-link": lambda a: changed(a, lambda n, c: (n, c), _link()),
    "a-device": lambda a: changed(a, lambda n, c: (n, c), _member("keys/zero", tarfile.CHRTYPE)),
    "a-pipe": lambda a: changed(a, lambda n, c: (n, c), _member("keys/pipe", tarfile.FIFOTYPE)),
    "a-sparse-file": lambda a: changed(a, lambda n, c: (n, c), _member("keys/sparse", tarfile.GNUTYPE_SPARSE)),
    "a-file-twice": lambda a: changed(a, lambda n, c: (n, c), _member("release.yaml", tarfile.REGTYPE)),
    "a-name-spelt-otherwise": lambda a: changed(a, lambda n, c: (f"./{n}" if n == "release.yaml" else n, c)),
    "a-file-of-no-workspace": lambda a: changed(a, lambda n, c: (n, c), _member("prefect/profiles.toml", b"0")),
    "a-manifest-that-is-a-list": lambda a: _rewritten(a, lambda m: [m]),
    "a-manifest-that-is-a-number": lambda a: _rewritten(a, lambda m: 7),
    "a-manifest-nested-too-deeply": lambda a: changed(a, lambda n, c: (n, b"[" * 200_000 if n == MANIFEST else c)),
    "a-manifest-without-files": lambda a: _rewritten(a, lambda m: _without(m, "files")),
    "a-manifest-without-head": lambda a: _rewritten(a, lambda m: _without(m, "head")),
    "a-manifest-without-moment": lambda a: _rewritten(a, lambda m: _without(m, "made_at")),
    "a-manifest-of-another-moment": lambda a: _rewritten(a, lambda m: m | {"made_at": 5}),
    "a-manifest-of-other-sizes": lambda a: _rewritten(a, lambda m: m | {"sizes": dict.fromkeys(m["sizes"], 1)}),
    "cut-short": lambda a: os.truncate(a, a.stat().st_size // 2),
    "no-archive": lambda a: a.write_bytes(b"nothing" * 999),
    "empty": lambda a: a.write_bytes(b""),
}


@pytest.mark.parametrize("case", BROKEN_ARCHIVES)
def test_a_broken_archive_restores_nothing(archive: Path, tmp_path: Path, case: str):
    BROKEN_ARCHIVES[case](archive)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(WorkspaceError) as caught:
        restore(archive, tmp_path / "restored", who="somebody")
    assert (caught.value.rule, caught.value.where) == ("backup-broken", "ARCHIVE")
    assert sorted(tmp_path.iterdir()) == before


def test_an_archive_without_sizes_is_restored_as_before(archive: Path, tmp_path: Path):
    _rewritten(archive, lambda manifest: _without(manifest, "sizes"))
    restore(archive, tmp_path / "restored", who="somebody")
    assert faults(Workspace(tmp_path / "restored")) == {}


@pytest.mark.parametrize("url", ["sqlite:///{}/stolen.db", "sqlite:///../stolen.db", "sqlite+pysqlite:///{}/stolen.db"])
def test_an_archived_specification_cannot_place_the_ledger_outside(workspace: Workspace, tmp_path: Path, url: str):
    archive, outside = tmp_path / "evil.tar", tmp_path / "outside"
    outside.mkdir()
    back_up(workspace, archive, now=datetime(2026, 3, 15, tzinfo=UTC))
    line = f"ledger: {url.format(outside)}\n".encode()
    with tarfile.open(archive) as source:
        text = source.extractfile("release.yaml").read() + line  # type: ignore[union-attr]
    changed(archive, lambda n, c: (n, text if n == "release.yaml" else c))
    digest = hashlib.sha256(text).hexdigest()
    _rewritten(archive, lambda m: _without(m, "sizes") | {"files": m["files"] | {"release.yaml": digest}})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(WorkspaceError) as caught:
        restore(archive, tmp_path / "restored", who="somebody")
    assert caught.value.rule == "ledger-outside"
    assert sorted(tmp_path.rglob("*")) == before
    restore(archive, tmp_path / "restored", who="somebody", ledger_url="sqlite:///ledger.db")


def test_an_archive_for_which_there_is_no_room_is_refused_before_it_is_written(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(WorkspaceError) as caught:
        restore(archive, tmp_path / "restored", who="somebody")
    assert (caught.value.rule, (tmp_path / "restored").exists()) == ("workspace-unwritable", False)


def test_a_backup_of_a_shared_ledger_fills_an_empty_database(server: Server, tmp_path: Path):
    names = [server.fresh(), server.fresh()]
    workspace = Workspace(tmp_path / "w")
    workspace.create()
    workspace.spec_path.write_text(f"{SPEC}ledger: '{server.url(names[0])}'\n")
    with ledger_of(workspace) as ledger:
        ledger.ensure_cap("people", Cap(Fraction("1.2"), Fraction(0), Fraction("1e-9")), BASIS)
        release_id = ledger.reserve(request(name="small", epsilon="0.1")).release_id
        ledger.spend(release_id, "moments", released(), fingerprint="keyed")
        before = ledger.contents()
    back_up(workspace, tmp_path / "b.tar", now=NOW)
    restore(tmp_path / "b.tar", tmp_path / "same", who="somebody")
    with ledger_of(workspace) as ledger:
        assert ledger.contents() == before, "a shared ledger that is still there is left alone"
    server.drop(names[0])
    server.execute(f"ALTER DATABASE {names[1]} RENAME TO {names[0]}")
    restore(tmp_path / "b.tar", tmp_path / "lost", who="somebody")
    with ledger_of(Workspace(tmp_path / "lost")) as ledger:
        entries, *rows = ledger.contents()
        assert ([e for e in entries if e.kind != "restore"], *rows) == before
        assert ledger.state().restored is not None
    server.execute("DROP TRIGGER events_append_only ON events", "DELETE FROM events WHERE seq > 2", database=names[0])
    with pytest.raises(LedgerError) as caught:
        restore(tmp_path / "b.tar", tmp_path / "older", who="somebody")
    assert caught.value.rule == "ledger-differs"
    assert not (tmp_path / "older").exists()
    server.drop(names[0])


def test_a_ledger_moves_from_a_file_to_a_database_and_back(
    server: Server, database: str, archive: Path, workspace: Workspace, tmp_path: Path
):
    restore(archive, tmp_path / "team", who="somebody", ledger_url=server.url(database))
    team = Workspace(tmp_path / "team")
    assert not team.ledger_path.exists()
    assert faults(team) == {}
    assert spec_of(team).digest() == spec_of(workspace).digest()
    reconcile(team, spec_of(team), reason="a team now", who="somebody", charges=None)
    back_up(team, tmp_path / "team.tar", now=NOW)
    restore(tmp_path / "team.tar", tmp_path / "alone", who="somebody", ledger_url="sqlite:///ledger.db")
    alone = Workspace(tmp_path / "alone")
    assert faults(alone) == {}
    with ledger_of(alone) as ledger, ledger_of(workspace) as original:
        kinds = [entry.kind for entry in ledger.entries()[8:]]
        assert ledger.entries()[:8] == original.entries()
        assert ledger.contents()[1:] == original.contents()[1:]
    assert kinds == ["restore", "reconcile", "restore"]


# ---------------------------------------------------------------- nothing is released on a restored ledger

FORBIDDEN: dict[str, Callable[[Ledger], object]] = {
    "reserve": lambda ledger: ledger.reserve(request("2026-03", name="small")),
    "take-up": lambda ledger: ledger.reserve(request("2026-04", name="small")),
    "spend": lambda ledger: ledger.spend("small-2026-04-1", "moments", released()),
    "void": lambda ledger: ledger.void("small-2026-04-1", reason="gone"),
    "give-back": lambda ledger: ledger.give_back_abandoned(request("2026-05", name="small")),
}


def test_nothing_is_reserved_spent_or_given_back_before_the_reconciliation(workspace: Workspace, tmp_path: Path):
    with ledger_of(workspace) as ledger:
        ledger.reserve(request("2026-04", name="small"))
    back_up(workspace, tmp_path / "b.tar", now=NOW)
    restore(tmp_path / "b.tar", tmp_path / "restored", who="somebody")
    with ledger_of(Workspace(tmp_path / "restored")) as ledger:
        before = ledger.entries()
        for attempt in FORBIDDEN.values():
            with pytest.raises(LedgerError) as caught:
                attempt(ledger)
            assert caught.value.rule == "ledger-unreconciled"
            assert "reconcile" in caught.value.hint
        assert ledger.entries() == before


def test_a_whole_release_is_refused_until_somebody_answers(restored: Workspace):
    land_rows(restored.root, "2026-03")
    with pytest.raises(LedgerError) as caught:
        release(restored, "2026-03")
    assert caught.value.rule == "ledger-unreconciled"
    reconcile(restored, spec_of(restored), reason="a new disk", who="somebody", charges=None)
    release(restored, "2026-03")
    assert faults(restored) == {}


def test_the_state_machine_itself_refuses_what_follows_an_unreconciled_restore():
    chain = Chain().cap().reserve().add("restore", body={"who": "x", "backup_made_at": "t"}, population="")
    with pytest.raises(LedgerError, match="nobody has reconciled"):
        LedgerState.replay(chain.spend().entries)


# ---------------------------------------------------------------- reconciliation


def test_a_reconciliation_by_word_keeps_the_balance_and_says_who_and_why(restored: Workspace):
    entry = reconcile(restored, spec_of(restored), reason="a new disk", who="somebody", charges=None)
    said = entry.parse(Reconciliation)
    assert (said.who, said.reason, said.nothing_was_spent) == ("somebody", "a new disk", True)
    with ledger_of(restored) as ledger:
        assert ledger.state().spent("people").epsilon == SPENT_TWICE
        assert ledger.state().restored is None
    assert faults(restored) == {}


def test_a_charge_is_spent_for_good(restored: Workspace):
    reconcile(restored, spec_of(restored), reason="a fire", who="somebody", charges={"": Fraction("0.95")})
    with ledger_of(restored) as ledger:
        assert ledger.state().spent("people").epsilon == SPENT_TWICE + Fraction("0.95")
        with pytest.raises(BudgetExceededError):
            ledger.reserve(request("2026-03", name="small"))
    assert faults(restored) == {}


def test_more_may_be_charged_than_the_cap_allows(restored: Workspace):
    """The ledger tells what happened; the cap forbids what comes."""
    reconcile(restored, spec_of(restored), reason="a fire", who="somebody", charges={"people": Fraction(9)})
    with ledger_of(restored) as ledger, pytest.raises(BudgetExceededError):
        ledger.reserve(request("2026-03", name="small"))


def test_with_a_charge_releases_in_flight_are_over_and_count_as_spent(workspace: Workspace, tmp_path: Path):
    with ledger_of(workspace) as ledger:
        ledger.reserve(request("2026-04", name="small"))
    back_up(workspace, tmp_path / "b.tar", now=NOW)
    restore(tmp_path / "b.tar", tmp_path / "r", who="somebody")
    place = Workspace(tmp_path / "r")
    reconcile(place, spec_of(place), reason="a fire", who="somebody", charges={"": Fraction("0.1")})
    with ledger_of(place) as ledger:
        state = ledger.state()
        assert state.releases["small-2026-04-1"].status == "lost"
        assert state.spent("people").epsilon == SPENT_TWICE + Fraction("0.1") + Fraction("0.1")
        assert state.reserved("people") == Cost()
        assert ledger.reserve(request("2026-04", name="small")).release_id == "small-2026-04-2"


REFUSED_ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "no-reason": ({"reason": " "}, "reason-missing"),
    "unknown-population": ({"charges": {"others": Fraction(1)}}, "charge-incomplete"),
    "a-population-left-out": ({"charges": {"nobody": Fraction(1), "people": Fraction(1)}}, "charge-incomplete"),
}


@pytest.mark.parametrize("case", REFUSED_ANSWERS)
def test_an_answer_that_says_too_little_is_refused(restored: Workspace, case: str):
    changes, rule = REFUSED_ANSWERS[case]
    with pytest.raises(RefusedError) as caught:
        reconcile(restored, spec_of(restored), **({"reason": "x", "who": "y", "charges": None} | changes))
    assert caught.value.rule == rule


def test_every_population_of_the_ledger_must_be_answered_for(restored: Workspace):
    with ledger_of(restored) as ledger:
        ledger.ensure_cap("others", cap(), BASIS)
    with pytest.raises(LedgerError, match="'others' as well"):
        reconcile(restored, spec_of(restored), reason="x", who="y", charges={"people": Fraction(1)})
    answer = {"people": Fraction(1), "others": Fraction(0)}
    reconcile(restored, spec_of(restored), reason="x", who="y", charges=answer)
    with ledger_of(restored) as ledger:
        assert (ledger.state().spent("others"), ledger.state().restored) == (Cost(), None)


def test_a_ledger_that_lacks_nothing_is_not_reconciled(workspace: Workspace):
    with pytest.raises(LedgerError) as caught:
        reconcile(workspace, spec_of(workspace), reason="x", who="y", charges={"": Fraction(1)})
    assert caught.value.rule == "nothing-to-reconcile"


@pytest.fixture
def rolled_back(workspace: Workspace, tmp_path: Path) -> Workspace:
    """The ledger is as it was before a third release, of which bundle and lineage are there."""
    shutil.copy(workspace.ledger_path, tmp_path / "older.db")
    land_rows(workspace.root, "2026-03")
    release(workspace, "2026-03")
    shutil.copy(tmp_path / "older.db", workspace.ledger_path)
    return workspace


def test_nobody_declares_away_what_a_witness_tells(rolled_back: Workspace):
    for charges in (None, {"": Fraction(0)}, {"": Fraction("0.09")}):
        with pytest.raises(LedgerError) as caught:
            reconcile(rolled_back, spec_of(rolled_back), reason="x", who="y", charges=charges)
        assert caught.value.rule == "charge-too-small"
        assert "0.1" in caught.value.hint


def test_a_rolled_back_ledger_is_reconciled_at_the_price_of_what_it_lost(rolled_back: Workspace):
    with pytest.raises(LedgerError) as caught:
        release(rolled_back, "2026-03")
    assert caught.value.rule == "ledger-incomplete"
    entry = reconcile(rolled_back, spec_of(rolled_back), reason="x", who="y", charges={"": Fraction("0.1")})
    assert entry.parse(Reconciliation).retired == (THIRD,)
    with ledger_of(rolled_back) as ledger:
        assert ledger.state().spent("people").epsilon == Fraction("0.3")
    assert faults(rolled_back) == {}
    bundle = release(rolled_back, "2026-03")
    assert bundle.name == "small-2026-03-2", "the lost release's id is not given again"
    assert faults(rolled_back) == {}


def test_a_lost_ledger_is_reconciled_under_the_cap_of_the_specification(workspace: Workspace):
    workspace.ledger_path.unlink()
    reconcile(workspace, spec_of(workspace), reason="x", who="y", charges={"": Fraction("0.2")})
    with ledger_of(workspace) as ledger:
        assert ledger.state().spent("people").epsilon == SPENT_TWICE


@pytest.mark.parametrize("epsilon", ["0.1", "1", "5"])
def test_a_charge_under_a_delta_covers_noise_of_either_kind(epsilon: str):
    """What is charged costs at least the epsilon beside any pure cost and beside any Gaussian one."""
    delta = Fraction(1, 10**6)
    cap = Cap(Fraction(99), delta, Fraction(0))
    charged = reconciliation._charge(cap, Fraction(epsilon), for_presence=False)
    assert charged.epsilon == Fraction(epsilon)
    gaussian = release_statement(Cost(rho=charged.rho), delta=delta)
    assert float(gaussian.epsilon) >= float(Fraction(epsilon)) * (1 - 1e-12)
    pure = Cap(Fraction(9), Fraction(0), Fraction(0))
    assert reconciliation._charge(pure, Fraction(epsilon), for_presence=False).rho == 0
    doubled = reconciliation._charge(cap, Fraction(epsilon), for_presence=True)
    assert doubled.epsilon == 2 * charged.epsilon, "a cost for being in the data may be twice as large for values"
    assert doubled.rho >= 2 * charged.rho


ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({"who": ""}, "who reconciled"),
    "no-reason": ({"reason": ""}, "who reconciled"),
    "unknown-population": ({"charges": {"others": cost_to_json(Cost(epsilon=Fraction(1)))}}, "unknown population"),
    "a-gift": ({"charges": {POPULATION: cost_to_json(Cost(epsilon=Fraction(-1)))}}, "impossible value"),
    "a-gift-of-rho": (
        {"charges": {POPULATION: cost_to_json(Cost(epsilon=Fraction(1), rho=Fraction(-1)))}},
        "impossible value",
    ),
    "a-charge-of-nothing": ({"charges": {POPULATION: cost_to_json(Cost())}}, "charges a population nothing"),
    "lost-for-free": ({"lost": [[9, "9" * 64]]}, "known to be lost"),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_a_reconciliation_that_hides_something_is_no_entry(case: str):
    changes, message = ILLEGAL[case]
    body = body_to_json(Reconciliation.of(reason="a fire", who="somebody", charges={})) | changes
    with pytest.raises(LedgerError, match=message):
        LedgerState.replay(Chain().cap().add("reconcile", body=body, population="").entries)


# ---------------------------------------------------------------- keys


def test_a_rotated_key_signs_what_follows_and_the_old_one_stays_good(workspace: Workspace):
    old = signing_key(workspace.keys).public
    public, entry = rotate_key(workspace, spec_of(workspace), who="operator")
    enrolment = entry.parse(KeyEnrolment)
    assert (entry.key_id, enrolment.replaces, enrolment.key_id) == (old.key_id, old.key_id, public.key_id)
    assert signing_key(workspace.keys).public == public != old
    assert PublicKey.from_text((workspace.keys / PUBLIC_FILE).read_text()) == public
    assert mode(workspace.keys / KEY_FILE) == 0o600
    assert not (workspace.keys / NEXT_FILE).exists()
    land_rows(workspace.root, "2026-03")
    release(workspace, "2026-03")
    assert faults(workspace) == {}
    with ledger_of(workspace) as ledger:
        assert {e.key_id for e in ledger.entries()} == {old.key_id, public.key_id}
        assert ledger.entries()[-1].key_id == public.key_id


def test_the_old_key_signs_nothing_more(workspace: Workspace):
    old = signing_key(workspace.keys)
    rotate_key(workspace, spec_of(workspace), who="operator")
    with closing(Ledger.open(workspace.ledger_path, old)) as ledger, pytest.raises(LedgerError) as caught:
        ledger.reserve(request("2026-03", name="small"))
    assert caught.value.rule == "signing-key-replaced"


def test_the_first_key_of_a_ledger_can_be_rotated_before_its_first_use(place: Place):
    with opened(place) as ledger:
        ledger.rotate_key(SigningKey.fresh(), who="operator")
        assert [entry.kind for entry in ledger.entries()] == ["key", "key", "revoke"]


class CrashError(Exception):
    """Stands for the end of the process."""


STEPS: dict[str, tuple[Any, str, bool]] = {
    # where, and what of the rotation; whether the new key is the one in the end
    "before-the-new-key-is-written": (key_changes, "write_successor", False),
    "before-it-is-announced": (Ledger, "rotate_key", False),
    "before-it-takes-its-place": (key_changes, "install_successor", True),
    "before-the-rename": (Path, "rename", True),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_rotation_that_crashes_is_finished_or_undone_at_the_next_opening(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, case: str
):
    owner, step, finished = STEPS[case]
    old = signing_key(workspace.keys).public

    def crash(first: Any, *rest: Any, **_: Any) -> Any:
        if step == "rename" and first.name != NEXT_FILE:
            return os.rename(first, *rest)
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, crash)
        with pytest.raises(CrashError):
            rotate_key(workspace, spec_of(workspace), who="operator")
    with ledger_of(workspace) as ledger:
        ledger.reserve(request("2026-03", name="small"))
        assert (ledger.entries()[-1].key_id != old.key_id) == finished
    now = signing_key(workspace.keys).public
    assert (now != old) == finished
    assert not (workspace.keys / NEXT_FILE).exists()
    assert PublicKey.from_text((workspace.keys / PUBLIC_FILE).read_text()) == now
    assert faults(workspace) == {}


def test_both_keys_are_kept_while_the_ledger_cannot_be_asked(workspace: Workspace):
    signing.write_successor(workspace.keys, SigningKey.fresh())
    workspace.ledger_path.rename(workspace.root / "away.db")
    with pytest.raises(LedgerError), ledger_of(workspace):
        pass
    assert (workspace.keys / NEXT_FILE).exists()
    assert (workspace.keys / KEY_FILE).exists()
