"""Who may write a ledger, and what: keys are enrolled for roles by keys, and lead to a trust anchor."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.tasks.builders import BASIS, POPULATION, Chain, Place, cap, opened, request
from support.tasks.goldens import GOLDEN
from support.tasks.ledger.signed_chains import Signed, announce_and_raise, entries_of, key_body, overwrite, raise_cap
from support.tasks.staged import SPEC, land_rows, release

from dpcore.errors import LedgerError, RefusedError
from flows.release_history import Joined
from tasks.audit import audit_export, audit_workspace
from tasks.keys import signing
from tasks.keys.decision import Decision, SignedDecision
from tasks.keys.signing import SigningKey, signing_key
from tasks.ledger.entries.keys import ROLES
from tasks.ledger.export import export_lines
from tasks.ledger.key_changes import enrol_key, revoke_key, trust_owner
from tasks.ledger.opening import ledger_state
from tasks.ledger.reconcile import vouch_for_keys
from tasks.ledger.releases import is_approved
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.site.survey import survey_workspace
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

NOW = datetime(2026, 3, 15, 12, tzinfo=UTC)


def state_of(chain: Chain) -> LedgerState:
    return LedgerState.replay(chain.entries)


@pytest.fixture
def owner() -> SigningKey:
    return SigningKey.fresh()


@pytest.fixture
def chain(owner: SigningKey) -> Signed:
    """A ledger of this version: its first key, and a cap."""
    return Signed().by(owner).announce(roles=list(ROLES), name="").cap()


# ---------------------------------------------------------------- enrolment in the replay


def test_an_enrolled_key_writes_what_its_roles_allow_and_a_revoked_one_nothing(chain: Signed, owner: SigningKey):
    other = SigningKey.fresh()
    chain.enrol(other, "release").by(other).reserve("a").spend("a").publish("a")
    assert state_of(chain).releases["a"].status == "published"
    chain.by(owner).revoke(other).by(other).reserve("b", period="2026-02")
    with pytest.raises(LedgerError, match=r"entry 8 \(reserve\) is not signed by an active key"):
        state_of(chain)


FORGERIES: dict[str, tuple[Callable[[Signed, SigningKey, SigningKey], Any], str]] = {
    "a key announces itself": (
        lambda c, _, s: c.by(s).announce(),
        "no key of the ledger enrolled it",
    ),
    "a key announces itself with roles": (
        lambda c, _, s: c.by(s).announce(roles=list(ROLES), name=""),
        "no key of the ledger enrolled it",
    ),
    "an unknown key raises the cap": (
        lambda c, _, s: c.by(s).cap("100", reason="more"),
        "is not signed by an active key",
    ),
    "an unknown key enrols itself in another's name": (
        lambda c, o, s: c.by(s).add(
            "key", body=key_body(s, o.public.key_id, roles=list(ROLES), name=""), population=""
        ),
        "is not signed by the key that it replaces",
    ),
    "a key that only releases enrols another": (
        lambda c, _, s: c.enrol(s, "release").by(s).enrol(SigningKey.fresh(), "release"),
        "is signed by a key without the role 'cap'",
    ),
    "a key that only releases widens its own roles": (
        lambda c, _, s: c.enrol(s, "release").by(s).announce(roles=list(ROLES), name=""),
        "announces a key a second time",
    ),
    "a key that only releases replaces itself": (
        lambda c, _, s: (
            c.enrol(s, "release").by(s).add("key", body=key_body(SigningKey.fresh(), s.public.key_id), population="")
        ),
        "is signed by a key without the role 'cap'",
    ),
    "a revoked key is enrolled again": (
        lambda c, _, s: c.enrol(s, "release").revoke(s).enrol(s, "release"),
        "enrols a key that was revoked",
    ),
    "the last owner revokes itself": (lambda c, o, _: c.revoke(o), "revokes the last key that may enrol another"),
    "an enrolment for no role": (lambda c, _, s: c.enrol(s), "enrols a key for unknown roles"),
    "an enrolment for an unknown role": (lambda c, _, s: c.enrol(s, "root"), "enrols a key for unknown roles"),
    "somebody vouches for an unknown key": (lambda c, _, s: c.reconcile(s), "vouches for an unknown key"),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_key_breaks_the_chain(chain: Signed, owner: SigningKey, case: str):
    forge, words = FORGERIES[case]
    state_of(chain)
    forge(chain, owner, SigningKey.fresh())
    with pytest.raises(LedgerError, match=words) as caught:
        state_of(chain)
    assert caught.value.rule == "ledger-broken"


def test_an_owner_can_hand_over_and_be_revoked(chain: Signed, owner: SigningKey):
    heir = SigningKey.fresh()
    chain.enrol(heir, "cap").by(heir).revoke(owner).enrol(SigningKey.fresh(), "release")
    assert not state_of(chain).keys[owner.public.key_id].active


def test_enrolling_a_key_again_changes_its_roles(chain: Signed, owner: SigningKey):
    other = SigningKey.fresh()
    chain.enrol(other, "release").enrol(other, "approve", name="ada")
    assert (state_of(chain).keys[other.public.key_id].roles, len(state_of(chain).keys)) == (("approve",), 2)
    with pytest.raises(LedgerError, match="without the role 'release'"):
        state_of(chain.by(other).reserve())


# ---------------------------------------------------------------- every kind of entry, and every role


KINDS: dict[str, tuple[str, Callable[[Signed], Signed], Callable[[Signed], Signed]]] = {
    # the role; what was before; the entry
    "reserve": ("release", lambda c: c, lambda c: c.reserve()),
    "spend": ("release", lambda c: c.reserve(), lambda c: c.spend()),
    "fail": ("release", lambda c: c.reserve().spend(), lambda c: c.fail()),
    "void": ("release", lambda c: c.reserve(), lambda c: c.void()),
    "publish": ("release", lambda c: c.reserve().spend(), lambda c: c.publish()),
    "await": ("release", lambda c: c.reserve().spend(), lambda c: c.wait()),
    "refuse a request": ("release", lambda c: c, lambda c: c.refuse("b", who=None)),
    "approve": ("approve", lambda c: c.reserve().spend().wait(), lambda c: c.approve()),
    "refuse a bundle": ("approve", lambda c: c.reserve().spend().wait(), lambda c: c.refuse()),
    "retract": ("approve", lambda c: c.reserve().spend().publish(), lambda c: c.retract()),
    "cap": ("cap", lambda c: c, lambda c: c.cap("2", reason="agreed")),
    "enrol": ("cap", lambda c: c, lambda c: c.enrol(SigningKey.fresh(), "release")),
    "revoke": ("cap", lambda c: c.enrol(PUPIL, "release"), lambda c: c.revoke(PUPIL)),
    "restore": (
        "cap",
        lambda c: c,
        lambda c: c.add("restore", body={"who": "x", "backup_made_at": ""}, population=""),
    ),
    "reconcile": ("cap", lambda c: c, lambda c: c.reconcile()),
}
PUPIL = SigningKey.fresh()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_signs_the_kinds_of_its_role_and_no_others(chain: Signed, kind: str, role: str):
    needed, before, write = KINDS[kind]
    holder = SigningKey.fresh()
    write(before(chain).enrol(holder, role).by(holder))  # type: ignore[arg-type]
    if role == needed:
        assert state_of(chain).head == chain.entries[-1]
    else:
        with pytest.raises(LedgerError, match=f"without the role '{needed}'"):
            state_of(chain)


def test_a_writer_is_told_which_role_its_key_has_not(place: Place, tmp_path: Path):
    holder = SigningKey.fresh()
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        ledger.enrol_key(holder.public, roles=["release"], name="second")
        owner = signing_key(place.keys).public
    with closing(Ledger.open(place.address, holder, anchors=[owner])) as ledger:
        assert ledger.reserve(request()).status == "reserved"
        with pytest.raises(LedgerError) as caught:
            ledger.raise_cap(POPULATION, cap("9"), BASIS, "more")
        assert (caught.value.rule, owner.key_id in caught.value.hint) == ("key-role-missing", True)
        assert [e.kind for e in ledger.entries()] == ["key", "cap", "key", "reserve"], "nothing was written"


# ---------------------------------------------------------------- ledgers of before


@pytest.fixture
def legacy(owner: SigningKey) -> Signed:
    return Signed().by(owner).announce().cap()


def test_a_key_that_announced_itself_is_provisional_until_somebody_vouches(legacy: Signed, owner: SigningKey):
    second = SigningKey.fresh()
    legacy.by(second).announce().cap("2", reason="agreed").reserve().by(owner)
    assert not state_of(legacy).keys[second.public.key_id].vouched
    legacy.reconcile(second)
    assert state_of(legacy).keys[second.public.key_id].vouched
    with pytest.raises(LedgerError, match="announces itself"):
        state_of(legacy.by(SigningKey.fresh()).announce())


def test_vouching_for_a_key_vouches_for_its_successor(legacy: Signed, owner: SigningKey):
    second, third = SigningKey.fresh(), SigningKey.fresh()
    legacy.by(second).announce().add("key", body=key_body(third, second.public.key_id), population="")
    legacy.by(third).reserve().by(owner).reconcile(second)
    assert all(key.vouched for key in state_of(legacy).keys.values())


def test_a_key_that_nobody_vouched_for_cannot_vouch_enrol_or_revoke(legacy: Signed, owner: SigningKey):
    stranger = SigningKey.fresh()
    legacy.by(stranger).announce()
    for attempt in (
        lambda c: c.reconcile(stranger),
        lambda c: c.enrol(SigningKey.fresh(), "release"),
        lambda c: c.revoke(owner),
    ):
        forged = Signed(legacy.entries).by(stranger)
        attempt(forged)
        with pytest.raises(LedgerError, match="nobody vouched for"):
            state_of(forged)


@pytest.fixture
def golden(tmp_path: Path) -> Workspace:
    """A workspace as version 3 left it: two releases, and a rotated key between them."""
    with tarfile.open(GOLDEN / "version-3.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    workspace = Workspace(tmp_path)
    workspace.create()
    return workspace


# ---------------------------------------------------------------- an attacker who can write ledger.db


def faults(workspace: Workspace) -> dict[str, str]:
    return {check.name: check.detail for check in audit_workspace(workspace) if check.outcome == "broken"}


def refused_everywhere(workspace: Workspace, tmp_path: Path, public: Path, rule: str) -> None:
    """No reader believes such a ledger, and no writer goes on."""
    overdue = entries_of(workspace)
    assert faults(workspace), "the audit of the workspace"
    land_rows(workspace.root, "2026-03")
    with pytest.raises(LedgerError) as caught:
        release(workspace, "2026-03")
    assert caught.value.rule == rule
    assert caught.value.hint
    assert caught.value.where.startswith("ledger entry")
    assert entries_of(workspace) == overdue, "nothing was written on top"
    for look in (lambda: ledger_state(workspace), lambda: Joined.of(workspace).rows()):
        with pytest.raises(LedgerError):
            look()
    seen = survey_workspace(workspace, now=NOW)
    assert not seen.ok
    assert seen.verified < len(overdue)
    export = tmp_path / "export.ndjson"
    export.write_text("".join(export_lines(overdue)))
    checks = audit_export(export, workspace.releases, [trusted_key(public)])
    assert any(not check.ok for check in checks), "the offline audit"


def trusted_key(path: Path) -> Any:
    from tasks.audit import read_public_key

    return read_public_key(path)


def test_a_key_that_a_writer_of_the_file_announces_is_believed_nowhere(workspace: Workspace, tmp_path: Path):
    overwrite(workspace, announce_and_raise(workspace))
    refused_everywhere(workspace, tmp_path, workspace.keys / "signing.pub", "ledger-broken")


def test_neither_is_it_in_a_ledger_of_before(golden: Workspace, tmp_path: Path):
    overwrite(golden, announce_and_raise(golden))
    with pytest.raises(LedgerError, match="no trusted key of the ledger enrolled") as caught:
        ledger_state(golden)
    assert "ledger reconcile --vouch" in caught.value.hint
    refused_everywhere(golden, tmp_path, golden.keys / "signing.pub", "key-unvouched")


def test_a_person_vouches_for_old_keys_once_and_the_audit_says_who(golden: Workspace):
    spec, second = load_spec(golden.spec_path), SigningKey.fresh()
    overwrite(golden, raise_cap(Signed(entries_of(golden)).by(second).announce()).entries)
    with pytest.raises(RefusedError, match="reason"):
        vouch_for_keys(golden, spec, [second.public.key_id], reason=" ", who="ada")
    entry, signed = vouch_for_keys(golden, spec, [second.public.key_id], reason="the second office", who="ada")
    assert signed == {second.public.key_id: 2}
    assert faults(golden) == {}
    words = next(check.detail for check in audit_workspace(golden) if check.name == "keys")
    assert f"ada vouches for {second.public.key_id} in entry {entry.seq}" in words
    with pytest.raises(LedgerError, match="every key of the ledger is vouched for"):
        vouch_for_keys(golden, spec, [second.public.key_id], reason="again", who="ada")


def test_a_successor_that_never_signed_is_anchored_by_a_person_s_word(tmp_path: Path):
    """Of a rotation of before, only the old key signed anything."""
    workspace, first = Workspace(tmp_path / "workspace"), SigningKey.fresh()
    workspace.create()
    workspace.spec_path.write_text(SPEC)
    own = signing_key(workspace.keys)
    with closing(Ledger.open(workspace.ledger_path, own)):
        pass
    rotated = key_body(SigningKey.fresh(), first.public.key_id)
    rotated |= {"key_id": own.public.key_id, "public_key": own.public.text}
    overwrite(workspace, Signed().by(first).announce().cap().add("key", body=rotated, population="").entries)
    assert list(faults(workspace)) == ["keys"]
    with pytest.raises(LedgerError) as caught:
        ledger_state(workspace)
    assert caught.value.rule == "ledger-not-anchored"
    vouch_for_keys(workspace, load_spec(workspace.spec_path), [first.public.key_id], reason="rotated in May", who="ada")
    assert faults(workspace) == {}


def test_vouching_for_one_of_two_strangers_is_not_enough(golden: Workspace):
    chain = Signed(entries_of(golden))
    for stranger in (known := SigningKey.fresh(), SigningKey.fresh()):
        chain.by(stranger).announce()
    overwrite(golden, chain.entries)
    with pytest.raises(LedgerError, match="no trusted key of the ledger enrolled"):
        vouch_for_keys(golden, load_spec(golden.spec_path), [known.public.key_id], reason="ours", who="ada")
    assert entries_of(golden) == chain.entries, "it is all or nothing"


def test_a_ledger_that_a_stranger_began_is_not_this_workspaces(workspace: Workspace, tmp_path: Path):
    """It enrols the workspace's key, so that the next run could sign: that key has never signed it."""
    stranger, own = SigningKey.fresh(), signing_key(workspace.keys)
    body = key_body(SigningKey.fresh(), None) | {"key_id": own.public.key_id, "public_key": own.public.text}
    chain = Signed().by(stranger).announce(roles=list(ROLES), name="").cap("100")
    chain.add("key", body=body | {"roles": list(ROLES), "name": ""}, population="")
    shutil.rmtree(workspace.releases)  # and no bundle contradicts it
    workspace.releases.mkdir()
    workspace.lineage_path.unlink()
    public = workspace.keys / "signing.pub"
    overwrite(workspace, chain.entries)
    refused_everywhere(workspace, tmp_path, public, "ledger-not-anchored")


def test_entries_of_a_revoked_key_are_believed_nowhere(workspace: Workspace, tmp_path: Path):
    spec, thief = load_spec(workspace.spec_path), SigningKey.fresh()
    enrol_key(workspace, spec, thief.public, roles=["release", "cap"], name="")
    revoke_key(workspace, spec, thief.public.key_id, reason="stolen", who="ada")
    assert faults(workspace) == {}
    with closing(Ledger.open(workspace.ledger_path, thief)) as ledger, pytest.raises(LedgerError) as caught:
        ledger.raise_cap(POPULATION, cap("9"), BASIS, "more")
    assert caught.value.rule == "signing-key-replaced"
    overwrite(workspace, raise_cap(Signed(entries_of(workspace)).by(thief)).entries)
    refused_everywhere(workspace, tmp_path, workspace.keys / "signing.pub", "ledger-broken")


def test_a_lost_key_is_revoked_by_another_owner_who_enrols_the_next(workspace: Workspace):
    spec, second = load_spec(workspace.spec_path), SigningKey.fresh()
    first = signing_key(workspace.keys).public
    enrol_key(workspace, spec, second.public, roles=["cap"], name="safe")
    land_rows(workspace.root, "2026-03")
    (workspace.keys / "signing.key").unlink()  # lost; the next use makes another
    with pytest.raises(LedgerError) as caught:
        release(workspace, "2026-03")
    assert (caught.value.rule, "keys trust" in caught.value.hint) == ("ledger-not-anchored", True)
    trust_owner(workspace, first)
    with pytest.raises(LedgerError) as caught:
        release(workspace, "2026-03")
    assert (caught.value.rule, "safe" in caught.value.hint) == ("key-not-enrolled", True)
    fresh = signing_key(workspace.keys).public
    with closing(Ledger.open(workspace.ledger_path, second, anchors=[first])) as ledger:
        ledger.enrol_key(fresh, roles=ROLES, name="")
        ledger.revoke_key(first.key_id, reason="lost", who="ada")
    release(workspace, "2026-03")
    assert faults(workspace) == {}


def test_the_workspaces_own_key_is_neither_enrolled_nor_revoked_by_itself(workspace: Workspace):
    spec, own = load_spec(workspace.spec_path), signing_key(workspace.keys).public
    with pytest.raises(LedgerError, match="cannot enrol itself"):
        enrol_key(workspace, spec, own, roles=ROLES, name="")
    with pytest.raises(LedgerError, match="cannot revoke itself"):
        revoke_key(workspace, spec, own.key_id, reason="x", who="ada")
    with pytest.raises(LedgerError, match="no active key"):
        revoke_key(workspace, spec, "0" * 32, reason="x", who="ada")


# ---------------------------------------------------------------- a shared ledger


def test_a_second_workspace_is_enrolled_by_the_owner_and_trusts_them_before_it_writes(place: Place, tmp_path: Path):
    second = Place(place.address, tmp_path / "second")
    second.keys.mkdir()
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
    owner, newcomer = signing_key(place.keys).public, signing_key(second.keys)
    with opened(second) as ledger, pytest.raises(LedgerError) as caught:
        ledger.reserve(request())
    assert caught.value.rule == "key-not-enrolled"
    for word in ("keys/signing.pub", owner.key_id, "keys enrol signing.pub --role release", "keys trust"):
        assert word in caught.value.hint
    with opened(place) as ledger:
        ledger.enrol_key(newcomer.public, roles=["release"], name="second")
    with opened(second) as ledger, pytest.raises(LedgerError) as caught:
        ledger.reserve(request())
    assert caught.value.rule == "ledger-not-anchored"
    with closing(Ledger.open(place.address, newcomer, anchors=[owner])) as ledger:
        assert ledger.reserve(request()).status == "reserved"
    with opened(second) as ledger:
        assert ledger.reserve(request()).status == "reserved", "its own signature anchors the ledger from now on"


# ---------------------------------------------------------------- approvals


DIGEST = "b" * 64
RULE = {"by": ["ada", "grace"], "at_least": 2}


def decided(key: SigningKey, word: str = "approve", release_id: str = "a", digest: str = DIGEST) -> dict[str, str]:
    said = {"who": "somebody", "reason": "looked"}
    decision = Decision(decision=word, release_id=release_id, bundle_digest=digest, at="2026-01-01T00:00:00Z", **said)
    return said | SignedDecision.by(key, decision).as_json()


def approve(chain: Signed, key: SigningKey, **changes: str) -> Signed:
    return chain.add("approve", "a", {"bundle_digest": DIGEST, **decided(key, **changes)})


@pytest.fixture
def ada() -> SigningKey:
    return SigningKey.fresh()


@pytest.fixture
def grace() -> SigningKey:
    return SigningKey.fresh()


@pytest.fixture
def waiting(chain: Signed, ada: SigningKey, grace: SigningKey) -> Signed:
    chain.enrol(ada, "approve", name="ada").enrol(grace, "approve", name="grace")
    chain.reserve("a", approve=RULE).spend("a").wait("a", DIGEST)
    return chain


def test_two_approvers_publish_a_release_that_asks_for_two(waiting: Signed, ada: SigningKey, grace: SigningKey):
    approve(waiting, ada)
    assert not is_approved(state_of(waiting).keys, state_of(waiting).releases["a"])
    approve(waiting, grace).publish("a")
    release = state_of(waiting).releases["a"]
    assert (release.status, len(release.approvals)) == ("published", 2)


BAD_APPROVALS: dict[str, tuple[Callable[[Signed, SigningKey, SigningKey], Any], str]] = {
    "published after one": (lambda c, a, _: approve(c, a).publish("a"), "publishes what too few have approved"),
    "twice by one key": (lambda c, a, _: approve(approve(c, a), a), "approves a second time with one key"),
    "twice under one name": (
        lambda c, a, g: approve(approve(c.enrol(OTHER, "approve", name="ada"), a), OTHER).publish("a"),
        "publishes what too few have approved",
    ),
    "for another digest": (lambda c, a, _: approve(c, a, digest="c" * 64), "about something else"),
    "for another release": (lambda c, a, _: approve(c, a, release_id="z"), "about something else"),
    "a refusal passed on as approval": (
        lambda c, a, _: approve(c, a, word="refuse"),
        "about something else",
    ),
    "by a key without the role": (
        lambda c, a, g: approve(c.enrol(OTHER, "release", name="ada"), OTHER),
        "without the role 'approve'",
    ),
    "by an approver that is not named": (
        lambda c, a, g: approve(c.enrol(OTHER, "approve", name="eve"), OTHER),
        "does not name as approver",
    ),
    "by the workspace, which is not named": (lambda c, a, g: c.approve("a", DIGEST), "does not name as approver"),
    "by a revoked approver": (lambda c, a, g: approve(c.revoke(a), a), "a key that is not active"),
    "by two of whom one was revoked": (
        lambda c, a, g: approve(approve(c, a).revoke(a), g).publish("a"),
        "publishes what too few have approved",
    ),
    "in another's name": (
        lambda c, a, g: c.add("approve", "a", {"bundle_digest": DIGEST, **decided(g), "approver": a.public.key_id}),
        "that its approver did not sign",
    ),
    "of a bundle that was made anew": (
        lambda c, a, g: approve(approve(c, a).wait("a", "d" * 64), g),
        "approves another bundle than the one that waits",
    ),
    "refused by somebody who is not named": (lambda c, a, g: c.refuse("a"), "does not name as approver"),
}
OTHER = SigningKey.fresh()


@pytest.mark.parametrize("case", BAD_APPROVALS)
def test_an_approval_that_does_not_count_breaks_the_chain(
    waiting: Signed, ada: SigningKey, grace: SigningKey, case: str
):
    forge, words = BAD_APPROVALS[case]
    state_of(waiting)
    forge(waiting, ada, grace)
    with pytest.raises(LedgerError, match=words):
        state_of(waiting)


def test_a_release_for_which_too_few_approvers_have_keys_is_not_reserved(place: Place):
    with opened(place) as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        with pytest.raises(LedgerError) as caught:
            ledger.reserve(request(approve=RULE))
        assert caught.value.rule == "approvers-missing"
        for name in RULE["by"]:  # type: ignore[attr-defined]
            ledger.enrol_key(SigningKey.fresh().public, roles=["approve"], name=name)
        assert ledger.reserve(request(approve=RULE)).status == "reserved"


def test_measurements_are_no_business_of_an_approver(waiting: Signed, ada: SigningKey):
    with pytest.raises(LedgerError, match="without the role 'release'"):
        state_of(waiting.by(ada).reserve("b", {"moments": "0.1"}, period="2026-02"))


@pytest.mark.parametrize("written", [0, 1])
def test_a_first_key_whose_making_was_killed_is_made_with_both_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
):
    write, done = signing._write_durably, []

    def killed(path: Path, *content: Any, **options: Any) -> None:
        if len(done) == written:
            raise KeyboardInterrupt
        done.append(path)
        write(path, *content, **options)

    with monkeypatch.context() as patch:
        patch.setattr(signing, "_write_durably", killed)
        with pytest.raises(KeyboardInterrupt):
            signing_key(tmp_path)
    assert (tmp_path / "signing.pub").read_text() if written else not list(tmp_path.iterdir())
    key = signing_key(tmp_path)
    assert (tmp_path / "signing.pub").read_text() == key.public.pem
