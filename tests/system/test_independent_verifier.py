"""A verifier that shares no code with the product accepts what the product released, and finds what was changed."""

from __future__ import annotations

import ast
import base64
import copy
import json
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support import independent_verifier
from support.independent_verifier import BrokenError, canonical, sha256, verify
from support.tasks.builders import BASIS, POPULATION, Chain, request
from support.tasks.goldens import GOLDEN

from dpcore.accounting import Cap, CapKind, Cost, month_name, month_number
from dpcore.errors import LedgerError
from tasks.audit import audit_export, broken, read_public_key
from tasks.ledger.entries.bodies import CapChange, Reconciliation, body_to_json
from tasks.ledger.entries.costs import cost_to_json
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.marks import mark_text
from tasks.ledger.export import export_lines
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.spec.privacy import Windows

SOURCE = Path(independent_verifier.__file__)
GAUSSIAN, PURE = "small-2026-01-1", "small-2026-02-1"


class Evidence:
    """The golden evidence, to be changed: lines of the export, bundles, public key, and the keys that signed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bundles, self.key = folder, folder / "bundles", folder / "key.pub"
        self.entries = [json.loads(line) for line in (folder / "export.ndjson").read_text().splitlines()]

    def secret(self, name: str) -> Ed25519PrivateKey:
        text = (self.folder / "secrets" / name).read_bytes()
        key = serialization.load_pem_private_key(text, None)
        assert isinstance(key, Ed25519PrivateKey)
        return key

    def verify(self) -> int:
        export = self.folder / "changed.ndjson"
        export.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries))
        return verify(export, self.bundles, self.key)

    def find(self, kind: str, place: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = [entry for entry in self.entries if entry["kind"] == kind][place]
        return found

    def edit(self, entry: dict[str, Any], **facts: Any) -> None:
        entry["body"] = canonical(json.loads(entry["body"]) | facts).decode()

    def chain(self) -> None:
        """Give all entries fitting hashes and the signatures of their keys, as their holders could."""
        names = ("first", "ada", "office", "second")
        signers = {sha256(self.secret(n).public_key().public_bytes_raw())[:32]: self.secret(n) for n in names}
        head = "0" * 64
        for seq, entry in enumerate(self.entries, 1):
            entry |= {"seq": seq, "previous": head}
            head = entry["hash"] = sha256(canonical([entry[name] for name in independent_verifier.HASHED]))
            if entry["key_id"] in signers:
                entry["signature"] = sign(signers[entry["key_id"]], head)

    def append(self, name: str, kind: str, facts: dict[str, Any], **fields: str) -> None:
        key = self.secret(name).public_key().public_bytes_raw()
        fresh = {"at": self.entries[-1]["at"], "kind": kind, "population": "people", "release_id": "", "hash": ""}
        fresh |= {"key_id": sha256(key)[:32], "signature": "", "body": canonical(facts).decode()}
        self.entries.append(fresh | fields)
        self.chain()

    def rewrite(self, name: str, content: bytes) -> None:
        path = self.bundles / "small" / PURE / name
        if path.exists():
            path.chmod(0o644)
        path.write_bytes(content)


def sign(key: Ed25519PrivateKey, message: str) -> str:
    return base64.b64encode(key.sign(message.encode())).decode()


def unpacked(archive: str, folder: Path) -> Path:
    with tarfile.open(GOLDEN / archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(unpacked("evidence-4.tar.gz", tmp_path))


# ---------------------------------------------------------------- what holds


@pytest.mark.parametrize("rho", ["0", "1/100", "1/20", "1/5"])
@pytest.mark.parametrize("epsilon", ["0", "1/10", "1/2", "3/2"])
def test_it_admits_what_the_product_admits(epsilon: str, rho: str):
    cost = Cost(Fraction(epsilon), Fraction(rho), Fraction(epsilon) ** 2 / 2, releases=1)
    figures = {field.name: getattr(cost, field.name) for field in fields(Cost)}
    for kind in (None, CapKind.PURE, CapKind.GAUSSIAN, CapKind.ZCDP):
        for cap in (Cap(Fraction(limit, 7), Fraction(1, 10**6), Fraction(0), kind) for limit in range(1, 40)):
            limits = {field.name: getattr(cap, field.name) for field in fields(Cap)}
            assert independent_verifier.admits(limits, figures) == cap.admits(cost, releases=1)
            assert independent_verifier.admits(limits, figures, fixed=True) == cap.admits_if_fixed(cost)


@pytest.mark.parametrize("epsilon", ["1/2", "1", "2", "4"])
@pytest.mark.parametrize("delta", ["1/1000000000", "1/1000000", "1/1000"])
def test_it_accepts_the_parts_and_the_slots_that_the_product_computes_and_few_more(epsilon: str, delta: str):
    """The product rounds what an epsilon buys down: a thousandth more breaks the promise."""
    figures = Fraction(epsilon), Fraction(delta), Fraction(0)
    split, each = Cap.split(*figures, pure=Fraction(1, 4)), Fraction(1, 20)
    assert split.rho is not None
    slots = Cap.of_slots(*figures, each=each)
    assert slots.slots is not None
    for cap, more in (
        (split, {"rho": split.rho * Fraction(1001, 1000)}),
        (slots, {"slots": slots.slots + 1}),
    ):
        limits = {field.name: getattr(cap, field.name) for field in fields(Cap)}
        assert independent_verifier.keeps(limits)
        assert not independent_verifier.keeps(limits | more)


# ---------------------------------------------------------------- caps of every kind, over windows of months

RULE = {"column": "seen", "timezone": "UTC", "person": "id"}
FIRST = month_number("2025-06")
MILLIONTH = Fraction(1, 10**6)
FIGURES = Fraction(2), MILLIONTH, Fraction(0)
CAPS = {
    "none": Cap(*FIGURES),
    "pure": Cap(*FIGURES, CapKind.PURE),
    "gaussian": Cap(*FIGURES, CapKind.GAUSSIAN),
    "zcdp": Cap(*FIGURES, CapKind.ZCDP, thresholds=MILLIONTH / 2),
    "split": Cap.split(*FIGURES, pure=Fraction(3, 4), thresholds=MILLIONTH / 2),
    "slots": Cap.of_slots(*FIGURES, each=Fraction(1, 10)),
}


class Both:
    """One ledger, entry by entry, by the product and by the verifier."""

    def __init__(self) -> None:
        self.chain, self.product, self.verifier = Chain(), LedgerState(), independent_verifier.Ledger()

    def accept(self, kind: str, name: str, body: dict[str, Any], population: str = POPULATION) -> bool:
        """Whether they take a further entry, which both must answer alike; one that they refuse is left out."""
        entry = self.chain.add(kind, name, body, population=population).entries[-1]
        product, verifier = self.product.snapshot(), copy.deepcopy(self.verifier)
        try:
            self.product.apply(entry)
            accepted = True
        except LedgerError:
            self.product, accepted = product, False
            self.chain.entries.pop()
        try:
            self.verifier.apply(entry.as_json())
            verified = True
        except (BrokenError, *independent_verifier.UNREADABLE):
            self.verifier, verified = verifier, False
        assert verified == accepted, (kind, name)
        return accepted

    def cap(self, cap: Cap, span: int | None, rule: dict[str, str]) -> bool:
        reason = "more" if self.chain.entries else None
        return self.accept(
            "cap", "", body_to_json(CapChange.of(cap, BASIS, reason, "board", Windows(span, rule if span else None)))
        )

    def reserve(self, name: str, month: int, costs: list[Cost], **more: Any) -> bool:
        """Reserve costs under the first relation and, unless it is None, the second."""
        relation = more.pop("relation", "replace-one")
        own, *other = ({"cost": costs[0]}, *({"other": cost} for cost in costs[1:]))
        plan = {key: cost_to_json(cost) for part in (own, *other) for key, cost in part.items()}
        plan |= {"event": {"mechanism": "x", "neighbours": relation}}
        facts = body_to_json(request(month_name(month)).reservation(1)) | {"name": name}
        return self.accept("reserve", name, facts | {"measurements": {"m": plan}} | more)


def pure(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Cost:
    return Cost(epsilon, rho_of_pure=epsilon**2 / 2, delta=delta)


@pytest.mark.parametrize("kind", [kind for kind in CAPS if kind != "gaussian"])
@pytest.mark.parametrize("span", [12, None])
def test_both_take_three_years_of_months_under_a_span_and_an_end_without_one(kind: str, span: int | None):
    both, each = Both(), pure(Fraction(1, 16))
    both.cap(CAPS[kind], span, RULE)
    taken = [both.reserve(f"r{n}", FIRST + n, [each, each], window=RULE) for n in range(60)]
    assert all(taken) == (span is not None)
    assert not all(both.reserve(f"s{n}", FIRST + 59, [each, each], window=RULE) for n in range(60))


def test_a_month_counts_in_every_window_where_nothing_says_that_others_were_left_out():
    both, each = Both(), pure(Fraction(1, 2))
    both.cap(CAPS["pure"], 1, RULE)
    assert both.reserve("a", FIRST, [each, each])
    assert both.reserve("b", FIRST, [each, each], window={"column": "another"})
    assert all(both.reserve(f"c{n}", FIRST + n, [pure(Fraction(1))] * 2, window=RULE) for n in range(3))
    assert not both.reserve("d", FIRST, [each, each], window=RULE)
    assert both.cap(CAPS["pure"], 1, {"column": "another"})
    assert not both.reserve("e", FIRST + 9, [each, each], window={"column": "another"})


def some_costs(dice: random.Random) -> list[Cost]:
    """A measurement's cost under the relation that it declares and, nearly always, under the other."""
    figure, factor = Fraction(dice.randint(1, 9), 23), dice.choice([1, 1, 2])
    make: Callable[[Fraction], Cost] = dice.choice(
        [
            lambda size: pure(size / 5),
            lambda size: pure(size / 9),
            lambda size: Cost(rho=size**2 / 20),
            lambda size: pure(size / 19, MILLIONTH / 11),
        ]
    )
    return [make(figure), make(factor * figure)][: 1 if dice.random() < 0.03 else 2]


def step(dice: random.Random, both: Both, number: int) -> tuple[str, bool]:
    """One more entry of a random history: its kind, and whether both took it."""
    what = dice.choice(["reserve"] * 7 + ["void", "cap", "charge"])
    rule = dice.choice([RULE] * 5 + [{"column": "another"}])
    reserved = [name for name, release in both.product.releases.items() if release.status == "reserved"]
    if what == "cap":
        return what, both.cap(CAPS[dice.choice(list(CAPS))], dice.choice([None, 1, 3, 12]), rule)
    if what == "charge":
        charge = cost_to_json(pure(Fraction(1, 50)))
        reconciled = Reconciliation.of(reason="lost", who="ada", charges={})
        body = body_to_json(reconciled) | {"charges": {POPULATION: charge}, "nothing_was_spent": False}
        return what, both.accept("reconcile", "", body, population="")
    if what == "void" and reserved:
        return what, both.accept("void", dice.choice(reserved), {"reason": "gone"})
    costs = some_costs(dice)
    window = {"window": rule} if dice.random() < 0.9 else {}
    relation = dice.choice(["replace-one"] * 5 + ["add-remove"])
    return "reserve", both.reserve(f"r{number}", FIRST + dice.randint(-6, 30), costs, relation=relation, **window)


@pytest.mark.parametrize("kind", CAPS)
def test_both_judge_random_histories_alike(kind: str):
    found = set()
    for seed in range(8):
        dice, both = random.Random(f"{kind} {seed}"), Both()  # noqa: S311
        both.cap(CAPS[kind], dice.choice([None, 3, 12]), RULE)
        found |= {step(dice, both, number) for number in range(40)}
    judged = {("reserve", True), ("reserve", False), ("void", True), ("cap", True), ("charge", True)}
    assert found == judged | {("cap", False)}, "slots do not follow a larger release"


def test_both_hold_every_release_to_the_size_of_a_slot_under_each_declared_relation():
    """The sum would fit: the releases before cost less than their slots."""
    both, small, slot = Both(), pure(Fraction(1, 40)), pure(Fraction(1, 10))
    both.cap(CAPS["slots"], None, RULE)
    assert all(both.reserve(f"r{n}", FIRST + n, [small, small]) for n in range(4))
    larger = [slot, pure(Fraction(1, 5))]
    assert not both.reserve("larger", FIRST, larger[::-1])
    assert not both.reserve("larger-for-others", FIRST, larger, relation="add-remove")
    assert both.reserve("slot", FIRST, [slot, slot], relation="add-remove")


def test_both_refuse_thresholding_under_a_cap_without_a_kind():
    both, thresholds = Both(), pure(Fraction(1, 10), MILLIONTH / 2)
    both.cap(CAPS["none"], None, RULE)
    assert not both.reserve("a", FIRST, [thresholds, thresholds])
    assert both.cap(CAPS["zcdp"], None, RULE)
    assert both.reserve("a", FIRST, [thresholds, thresholds])


def test_a_cap_with_figures_of_another_kind_is_none():
    facts = body_to_json(CapChange.of(CAPS["split"], BASIS, None, None, Windows(12, RULE)))
    assert Both().accept("cap", "", facts)
    rule, window = facts["rule"], facts["window"]
    wrong = [
        {"rule": {name: text for name, text in rule.items() if name != "rho"}},
        {"rule": rule | {"kind": "zcdp"}},
        {"rule": rule | {"kind": "other"}},
        {"rule": rule | {"slots": "3"}},
        {"rule": rule | {"thresholds": "1/1000"}},
        {"window": {"span": "12"}},
        {"window": window | {"span": "0"}},
        {"window": window | {"span": 12}},
        {"basis": BASIS | {"neighbours": "other"}},
    ]
    assert not any(Both().accept("cap", "", facts | change) for change in wrong)


def test_it_imports_nothing_of_the_product_and_has_at_most_440_lines_that_are_not_blank():
    text = SOURCE.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names, "cryptography"}
    assert len([line for line in text.splitlines() if line.strip()]) <= 440


def test_the_golden_evidence_has_what_a_verifier_must_understand(evidence: Evidence):
    kinds = {entry["kind"] for entry in evidence.entries}
    assert kinds == set(independent_verifier.BODIES) - {"restore", "reconcile", "retract"}, "the last is of version 5"
    caps = [json.loads(entry["body"]) for entry in evidence.entries if entry["kind"] == "cap"]
    assert [cap["reason"] for cap in caps] == [None, "the board agreed"]
    assert "signature" in json.loads(evidence.find("approve")["body"])
    assert '"mechanism":"gaussian"' in evidence.find("spend")["body"]
    size = sum(path.stat().st_size for path in GOLDEN.glob("evidence-*"))
    assert size < 300_000


def test_it_accepts_the_golden_evidence(evidence: Evidence):
    assert evidence.verify() == 2


def test_it_is_a_command(evidence: Evidence):
    given = [str(evidence.folder / "export.ndjson"), str(evidence.bundles), str(evidence.key)]
    done = subprocess.run([sys.executable, "-I", str(SOURCE), *given], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("version", "signed"), [(1, False), (3, True)])
def test_it_accepts_what_earlier_versions_released(tmp_path: Path, version: int, signed: bool):
    root = unpacked(f"version-{version}.tar.gz", tmp_path)
    export = tmp_path / "export.ndjson"
    with closing(Ledger.open_to_read(root / "ledger.db")) as ledger:
        export.write_text("".join(export_lines(ledger.entries())))
    assert verify(export, root / "releases", root / "keys" / "signing.pub" if signed else None) == 2


def test_signing_everything_again_changes_nothing(evidence: Evidence):
    """The attacks below are found for what they change, not for how they are signed."""
    before = json.dumps(evidence.entries)
    evidence.chain()
    assert json.dumps(evidence.entries) == before
    evidence.append("second", "revoke", {"key_id": evidence.find("key", 2)["key_id"], "reason": "x", "who": "x"})
    with pytest.raises(BrokenError, match="revokes without trust"):
        evidence.verify()


# ---------------------------------------------------------------- what was retracted


def retract(evidence: Evidence, by: str = "second", **changes: str) -> None:
    body = {"who": "ada", "reason": "erasure"} | {key: changes.pop(key) for key in ("who", "reason") if key in changes}
    evidence.append(by, "retract", body, **({"release_id": PURE} | changes))


def remove(evidence: Evidence, release_id: str) -> None:
    shutil.rmtree(evidence.bundles / "small" / release_id)


def product_finds(evidence: Evidence) -> list[str]:
    given = evidence.folder / "changed.ndjson", evidence.bundles, [read_public_key(evidence.key)]
    return [check.name for check in broken(audit_export(*given))]


@pytest.mark.parametrize("release_id", [PURE, GAUSSIAN])
def test_it_accepts_a_retracted_release_with_its_bundle_and_without(evidence: Evidence, release_id: str):
    retract(evidence, release_id=release_id)
    assert evidence.verify() == 2
    assert product_finds(evidence) == []
    mark = evidence.bundles / "small" / f"{release_id}.RETRACTED.json"
    mark.write_text(mark_text(Entry.from_json(evidence.entries[-1])))
    remove(evidence, release_id)
    assert evidence.verify() == 1
    assert product_finds(evidence) == []


RETRACTIONS: dict[str, tuple[Callable[[Evidence], object], str]] = {
    "another bundle removed": (lambda e: (retract(e), remove(e, GAUSSIAN)), "are not those that the ledger published"),
    "a bundle removed that nobody retracted": (lambda e: remove(e, PURE), "are not those that the ledger published"),
    "twice": (lambda e: (retract(e), retract(e)), "does not fit the status"),
    "what failed": (lambda e: retract(e, release_id="small-2025-12-1"), "does not fit the status"),
    "what nobody knows": (lambda e: retract(e, release_id="small-2031-12-1"), "does not fit the status"),
    "of others": (lambda e: retract(e, population="others"), "does not fit the status"),
    "by a key without the role": (lambda e: retract(e, "office"), "without the role"),
    "by nobody": (lambda e: retract(e, who=""), "does not say who decides"),
    "for no reason": (lambda e: retract(e, reason=""), "does not say who decides"),
    "a failure that calls itself a retraction": (
        lambda e: (
            e.edit(e.find("fail"), status="retracted"),
            e.chain(),
        ),
        "has an unknown status",
    ),
    "a bundle that was changed": (
        lambda e: (retract(e), e.rewrite("data.parquet", b"raw rows")),
        "has a file that was changed",
    ),
}


@pytest.mark.parametrize("case", RETRACTIONS)
def test_it_rejects_a_retraction_as_the_product_does(evidence: Evidence, case: str):
    change, words = RETRACTIONS[case]
    change(evidence)
    with pytest.raises(BrokenError, match=words):
        evidence.verify()
    assert product_finds(evidence) != []


def test_a_record_names_the_cap_of_its_head_with_kind_and_span():
    both, basis = Both(), {"releases_left": None}
    both.cap(CAPS["pure"], 12, RULE)
    both.cap(CAPS["zcdp"], None, RULE)
    known, lifetime = both.verifier.caps[POPULATION], {"epsilon": 2.0, "delta": 1e-6, "delta_num": 0.0}
    first = basis | {"lifetime": lifetime, "kind": "pure", "span": 12}
    independent_verifier.check_budget("r", first, known, 1)
    changes = ({"kind": "zcdp"}, {"span": 6}, {"span": None}, {"lifetime": lifetime | {"epsilon": 3.0}})
    for budget, head in ((first, 2), *((first | change, 1) for change in changes)):
        with pytest.raises(BrokenError, match=r"of its cap|another cap"):
            independent_verifier.check_budget("r", budget, known, head)


# ---------------------------------------------------------------- what was changed


def swap(evidence: Evidence) -> None:
    evidence.entries[11], evidence.entries[12] = evidence.entries[12], evidence.entries[11]


def announce_stranger(evidence: Evidence) -> None:
    key = Ed25519PrivateKey.generate()
    raw = key.public_key().public_bytes_raw()
    body = {"key_id": sha256(raw)[:32], "public_key": base64.b64encode(raw).decode(), "replaces": None}
    evidence.append("second", "key", body, key_id=sha256(raw)[:32], population="")
    evidence.entries[-1]["signature"] = sign(key, evidence.entries[-1]["hash"])


def open_and_announce(evidence: Evidence) -> None:
    """The same in a ledger of before version 4, where a key could announce itself, but nobody believes it."""
    evidence.entries = evidence.entries[:1]
    shutil.rmtree(evidence.bundles)
    evidence.bundles.mkdir()
    facts = json.loads(evidence.entries[0]["body"])
    evidence.entries[0]["body"] = canonical({n: facts[n] for n in ("key_id", "public_key", "replaces")}).decode()
    announce_stranger(evidence)


def raised(evidence: Evidence) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(evidence.find("cap")["body"])
    return facts | {"reason": "more", "epsilon": "9"}


def lower_the_cap(evidence: Evidence) -> None:
    evidence.edit(evidence.find("cap", 1), epsilon="1/5")
    evidence.chain()


def lower_the_first_cap(evidence: Evidence) -> None:
    """The Gaussian release costs epsilon 0.0834 at the cap's delta."""
    evidence.edit(evidence.find("cap"), epsilon="83/1000")
    evidence.chain()


def respell_a_number(evidence: Evidence) -> None:
    evidence.edit(evidence.find("cap", 1), epsilon="6/4")
    evidence.chain()


def add_a_field(evidence: Evidence) -> None:
    evidence.edit(evidence.find("void"), note="x")
    evidence.chain()


def change_the_decision(evidence: Evidence) -> None:
    evidence.edit(evidence.find("approve"), who="grace")
    evidence.chain()


def exchange_the_statement(evidence: Evidence) -> None:
    """Another bundle's statement, with checksums and ledger that fit it."""
    folder = evidence.bundles / "small" / PURE
    evidence.rewrite("statement.intoto.json", (folder.parent / GAUSSIAN / "statement.intoto.json").read_bytes())
    digests = {path.name: sha256(path.read_bytes()) for path in folder.iterdir() if path.name != "SHA256SUMS"}
    evidence.rewrite("SHA256SUMS", "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode())
    digest = sha256((folder / "SHA256SUMS").read_bytes())
    evidence.edit(evidence.find("publish", 1), bundle_digest=digest)
    evidence.chain()


def foreign_key(evidence: Evidence) -> None:
    public = Ed25519PrivateKey.generate().public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    evidence.key.write_bytes(pem)


ATTACKS: dict[str, tuple[Callable[[Evidence], object], str]] = {
    "edited body": (lambda e: e.edit(e.find("cap"), epsilon="30"), "entry 4: was changed"),
    "wrong signature": (
        lambda e: e.find("spend").update(signature=e.find("void")["signature"]),
        "entry 6: has a wrong signature",
    ),
    "missing entry": (lambda e: e.entries.pop(11), "entry 12: does not follow"),
    "swapped entries": (swap, "entry 12: does not follow"),
    "unvouched key": (announce_stranger, "announces itself in a ledger of enrolled keys"),
    "unvouched key of before": (open_and_announce, "nobody vouched for"),
    "revoked key's entry": (lambda e: e.append("first", "cap", raised(e)), "not signed by an active key"),
    "role violation": (lambda e: e.append("office", "cap", raised(e)), "without the role"),
    "cap exceeded": (lower_the_cap, "entry 19: exceeds the cap"),
    "cap exceeded by Gaussian noise": (lower_the_first_cap, "entry 5: exceeds the cap"),
    "number in another spelling": (respell_a_number, "exact"),
    "unknown field": (add_a_field, "entry 12: lacks a field, or has an unknown one"),
    "decision of somebody else": (change_the_decision, "passes on a decision about something else"),
    "changed bundle file": (lambda e: e.rewrite("data.parquet", b"raw rows"), "has a file that was changed"),
    "extra file": (lambda e: e.rewrite("notes.txt", b"x"), "has a file that was changed, or that its checksums"),
    "exchanged statement": (exchange_the_statement, "the publishing key did not sign"),
    "foreign public key": (foreign_key, "keys: lead to no trusted key"),
}


@pytest.mark.parametrize("case", ATTACKS)
def test_it_rejects(evidence: Evidence, case: str):
    change, words = ATTACKS[case]
    change(evidence)
    with pytest.raises(BrokenError, match=words):
        evidence.verify()
    given = evidence.folder / "changed.ndjson", evidence.bundles, [read_public_key(evidence.key)]
    assert broken(audit_export(*given)), "the product finds it too"
