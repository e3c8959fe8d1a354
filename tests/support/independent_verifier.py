"""A second verifier of ledgers and bundles, written from deployments/guides/formats.md alone: no code of the product.

It checks chain, signatures, keys and roles, caps at every reservation, what was measured, approved and published, and
the files and statements of the bundles. Of a record's budget it checks the cap, not the balances. It neither recomputes
costs from noise nor redraws rows, and leaves superseding to the product.
Usage: python independent_verifier.py EXPORT BUNDLES PUBLIC_KEY
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

Facts, Cost = dict[str, Any], dict[str, Fraction]

HASHED = ("seq", "at", "kind", "population", "release_id", "body", "previous")
FIELDS = {*HASHED, "hash", "key_id", "signature"}
BODIES = {  # the fields that a kind always has, then groups of which an entry has all fields or none
    "key": "key_id public_key replaces|roles name",
    "cap": "epsilon delta delta_num basis reason|who|rule|window",
    "reserve": "name period sequence measurements stated spec_digest seeds flow_run_id supersedes reason"
    "|approve|window",
    "spend": "measurement event cost seeded digest|build|flow_run_id",
    "fail": "status stage", "void": "reason", "retract": "who reason", "restore": "who backup_made_at",
    "await": "bundle_digest flow_run_id", "publish": "bundle_digest flow_run_id",
    "approve": "bundle_digest who reason|approver statement signature",
    "refuse": "rule reason who flow_run_id|name period stated|approver statement signature",
    "revoke": "key_id reason who",
    "reconcile": "reason who nothing_was_spent charges lost retired|vouches",
}  # fmt: skip
DRAWN, WAITS = {"measured", "failed", "check-failed"}, {"awaiting-approval"}
MAY_FOLLOW = {  # the statuses of a release that an entry of a kind may follow
    "spend": {"reserved", *DRAWN}, "fail": DRAWN, "await": WAITS | DRAWN, "void": {"reserved"}, "approve": WAITS,
    "publish": WAITS | DRAWN, "refuse": WAITS, "retract": {"published"},
}  # fmt: skip
ROLES, OWNER_KINDS = {"release", "cap", "approve"}, {"cap", "key", "revoke", "restore", "reconcile"}
COSTS, CAP = ("epsilon", "rho", "rho_of_pure", "delta_num"), ("epsilon", "delta", "delta_num")
KINDS = {"pure": set(), "gaussian": set(), "zcdp": set(), "split": {"pure", "rho"}, "slots": {"slots", "each"}}
RELATIONS = {"replace-one", "add-remove"}
SPAN, MONTH = re.compile(r"[1-9][0-9]{0,3}"), re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
DECIDED, STATEMENT = ("decision", "release_id", "bundle_digest", "who", "reason"), "statement.intoto.json"
EXACT = re.compile(r"(0|[1-9][0-9]{0,3999})(/[1-9][0-9]{0,3999})?")
TIME = re.compile(r"20[2-9]\d-(0[1-9]|1[0-2])-([0-2]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z")
TABLES = {None: {"data.parquet"}, "projected": {"projected.parquet"}, "both": {"data.parquet", "projected.parquet"}}
FILES = {"codebook.json", "model.json", "record.json", "report.html", "lineage.ndjson"}
LATER = {*FILES, "registry.yaml", STATEMENT}
TYPES = ("https://in-toto.io/Statement/v1", "urn:dprelease:release:1", b"application/vnd.in-toto+json")


UNREADABLE = (ArithmeticError, LookupError, TypeError, ValueError, OSError)


class BrokenError(Exception):
    """The evidence does not hold; the message says where and why."""


def require(holds: object, where: object, what: str) -> None:
    if not holds:
        raise BrokenError(f"{where}: {what}")


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def is_signed(public: bytes, signature: str, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature, validate=True), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def figures(facts: Facts, names: tuple[str, ...]) -> Cost:
    """Exact numbers: not negative, in lowest terms, at most 10^12."""
    require(all(EXACT.fullmatch(facts[name]) for name in names), "figures", "are not exact numbers")
    numbers = {name: Fraction(facts[name]) for name in names}
    require(all(str(n) == facts[k] and n <= 10**12 for k, n in numbers.items()), "figures", "are not exact numbers")
    return numbers


def cost_of(facts: Facts) -> Cost:
    """The figures of a cost; `delta` is written only if it is positive."""
    cost = figures(facts, tuple(facts))
    require(facts.keys() - {"delta"} == set(COSTS) and cost.get("delta", 1), "a cost", "has other figures")
    return {"delta": Fraction(0)} | cost


def added(costs: Iterable[Cost]) -> Cost:
    """The sum of costs, figure by figure."""
    total = dict.fromkeys((*COSTS, "delta", "releases"), Fraction(0))
    for cost in costs:
        total = {name: figure + cost.get(name, 0) for name, figure in total.items()}
    return total


def cap_of(facts: Facts) -> Facts:
    """The figures of a cap, and its kind; None is a cap from before caps had kinds."""
    rule = dict(facts.get("rule", {"kind": None}))
    kind, cap = rule.pop("kind"), figures(facts, CAP) | {"thresholds": Fraction(0)} | figures(rule, tuple(rule))
    whole = cap.get("slots", Fraction(0)).denominator == 1
    fits = rule.keys() - {"thresholds"} == (KINDS[kind] if "rule" in facts else set())
    require(fits and whole and cap["thresholds"] <= cap["delta"] <= 1, "a cap", "has figures of another kind")
    return cap | {"kind": kind}


def gaussian_delta(rho: float, epsilon: float) -> float:
    """The delta of Gaussian noise of the whole rho."""
    if not rho or epsilon < 0:
        return float(epsilon < 0)
    mu = math.sqrt(2 * rho)
    first, second = (math.erfc((epsilon / mu + side * mu / 2) / math.sqrt(2)) / 2 for side in (-1, 1))
    return first - (math.exp(epsilon) * second if second else 0.0)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The delta of everything counted as zCDP; every order gives a valid one."""
    orders = (1 + 10 ** (step / 500) for step in range(-4000, 4000))
    logs = ((a - 1) * (a * rho - epsilon) + a * math.log1p(-1 / a) - math.log(a - 1) for a in orders)
    return math.exp(min(0.0, *logs))


def slots_delta(slots: int, each: float, epsilon: float) -> float:
    """The delta of so many pure releases of `each`: the worst are coins, each wrong with the odds 1 : e^each."""
    right, found = -math.log1p(math.exp(-each)), 0.0
    for wrong in range(slots + 1):
        over = (slots - 2 * wrong) * each - epsilon
        ways = math.lgamma(slots + 1) - math.lgamma(wrong + 1) - math.lgamma(slots - wrong + 1)
        found -= math.exp(ways + slots * right - wrong * each) * math.expm1(-over) if over > 0 else 0.0
    return found


def keeps(cap: Facts) -> bool:
    """Whether the figures of a split or of slots keep what the cap promises."""
    delta, epsilon = float(cap["delta"] - cap["thresholds"]) * 1.001, cap["epsilon"]
    if cap["kind"] == "split":
        return gaussian_delta(float(cap["rho"]), float(epsilon - cap["pure"])) <= delta
    if cap["slots"] * cap["each"] <= epsilon:
        return True
    few = delta > 0 and cap["slots"] <= 10**4
    return few and slots_delta(int(cap["slots"]), float(cap["each"]), float(epsilon)) <= delta


def admits(cap: Facts, cost: Cost, *, fixed: bool = False) -> bool:
    """Whether a total, or one `fixed` beforehand, fits a cap; 1/1000 of delta allows for the grid and for rounding."""
    kind, epsilon, rho, of_pure = cap["kind"], cost["epsilon"], cost["rho"], cost["rho_of_pure"]
    if cost["delta_num"] > cap["delta_num"] or cost["delta"] > cap["thresholds"]:
        return False
    if kind == "split":
        return epsilon <= cap["pure"] and rho <= cap["rho"] and keeps(cap)
    if kind == "slots":
        count = cost["releases"]
        return not rho and epsilon <= count * cap["each"] and count <= cap["slots"] and keeps(cap)
    if (kind == "pure" and rho) or (kind == "gaussian" and (epsilon or of_pure)):
        return False
    if not rho and epsilon <= cap["epsilon"]:
        return True
    found, delta, left = 1.0, float(cap["delta"] - cap["thresholds"]) * 1.001, float(cap["epsilon"] - epsilon)
    if rho and kind in (None, "gaussian") and ((fixed and not kind) or not (epsilon or of_pure)):
        found = gaussian_delta(float(rho), left)  # Gaussian noise of the whole rho, pure costs added
    if kind != "gaussian" and (of_pure or not epsilon):  # or everything counted as zCDP
        found = min(found, zcdp_delta(float(rho + of_pure), float(cap["epsilon"])))
    return delta > 0 and found <= delta


class Population:
    """A population's cap, and what was taken of it: items of a month, or None, and the cost under each relation."""

    def __init__(self, basis: Facts) -> None:
        self.basis, self.relation = basis, basis.get("neighbours", "replace-one")
        require(self.relation in RELATIONS, "a cap", "has an unknown relation")
        self.cap: Facts = {}
        self.caps: list[tuple[int, Facts, int | None]] = []
        self.span: int | None = None
        self.months: Facts | None = None
        self.taken: list[Facts] = []
        self.declared: set[str] = set()
        self.sizes: list[Facts] = []

    def change(self, facts: Facts, seq: int) -> None:
        """Another cap; with another rule for months nothing of before belongs to a month."""
        self.cap, window = cap_of(facts), dict(facts.get("window", {}))
        span = window.pop("span", None)
        told = "window" not in facts or (SPAN.fullmatch(span) and "column" in window)
        require(told and all(isinstance(text, str) for text in window.values()), "a cap", "has an impossible window")
        if window and window != self.months:
            self.months = window
            for item in self.taken:
                item["month"] = None
        require(self.fills(), "a cap", "has slots that are smaller than an earlier release")
        self.span = int(span) if span else None
        self.caps.append((seq, self.cap, self.span))

    def reserve(self, facts: Facts) -> Facts:
        """Count a reservation; returns the item."""
        plans = facts["measurements"].values()
        names = {plan["event"]["neighbours"] for plan in plans if "neighbours" in plan["event"]} or {self.relation}
        require(len(names) == 1 and names <= RELATIONS, "a reservation", "declares an unknown relation, or several")
        exact = all(plan.keys() - {"other"} == {"cost", "event"} for plan in plans)
        require(exact, "a reservation", "has a measurement with other fields")
        own, other = [cost_of(p["cost"]) for p in plans], [cost_of(p["other"]) for p in plans if "other" in p]
        pure = all(cost["rho_of_pure"] == cost["epsilon"] ** 2 / 2 for cost in (*own, *other))
        require(pure, "a reservation", "misstates a pure cost as zCDP")
        one, year, month = {"releases": Fraction(1)}, *MONTH.fullmatch(facts["period"]).groups()  # type: ignore[union-attr]
        self.months = facts.get("window") if self.months is None else self.months
        told = "window" in facts and facts["window"] == self.months
        unknown, (relation,) = len(other) < len(own), names
        under = dict.fromkeys(RELATIONS, None if unknown else added([*other, one])) | {relation: added([*own, one])}
        if "window" in facts:  # who has rows in other months may be in this one or not
            pair = [under[name] for name in sorted(RELATIONS)]
            most = None if None in pair else {name: max(cost[name] for cost in pair) for name in pair[0]}
            under["replace-one"] = most
        self.taken.append(item := {"month": 12 * int(year) + int(month) if told else None, "under": under})
        self.sizes.append(dict(under))
        self.declared.add(relation)
        return item

    def charge(self, cost: Cost) -> None:
        """Costs of lost entries: of every month, under the relations that something was promised for."""
        known = {name: added([cost, {"releases": Fraction(1)}]) for name in self.declared | {self.relation}}
        self.sizes.append(dict.fromkeys(RELATIONS) | known)
        self.taken.append({"month": None, "under": dict.fromkeys(RELATIONS) | known})

    def admits(self, *, fixed: bool = False) -> bool:
        """Whether the cap holds under every declared relation, in the largest window of each figure."""
        for relation in self.declared:
            costs = [(item["month"], item["under"][relation]) for item in self.taken]
            starts = {month for month, _ in costs if self.span and month is not None} or {None}
            if any(cost is None for _, cost in costs):
                return False
            windows = [added(c for m, c in costs if None in (m, s) or s <= m < s + self.span) for s in starts]
            most = {name: max(window[name] for window in windows) for name in windows[0]}
            if not admits(self.cap, most, fixed=fixed):
                return False
        return True

    def fills(self) -> bool:
        """Whether no single release was larger than a slot, under every relation that the cap binds."""
        costs = [under[relation] for under in self.sizes for relation in self.declared or {self.relation}]
        small = all(cost and not cost["rho"] and cost["epsilon"] <= self.cap.get("each", 0) for cost in costs)
        return self.cap["kind"] != "slots" or small


class Ledger:
    """What the entries say, taken one after the other."""

    def __init__(self) -> None:
        self.hashes, self.time, self.closed, self.restored = ["0" * 64], "", False, False
        self.keys: dict[str, Facts] = {}
        self.signers: set[str] = set()
        self.caps: dict[str, Population] = {}
        self.releases: dict[str, Facts] = {}
        self.beyond: list[str] = []

    def apply(self, entry: Facts) -> None:
        """Check one entry and take it into account."""
        where, kind = f"entry {len(self.hashes)}", entry.get("kind")
        require(set(entry) == FIELDS and kind in BODIES, where, "has other fields or an unknown kind")
        follows = entry["previous"] == self.hashes[-1] and type(entry["seq"]) is int
        require(follows and entry["seq"] == len(self.hashes), where, "does not follow the one before")
        require(entry["hash"] == sha256(canonical([entry[name] for name in HASHED])), where, "was changed")
        require(canonical(facts := json.loads(entry["body"])).decode() == entry["body"], where, "is not canonical")
        needed, *groups = (set(group.split()) for group in BODIES[str(kind)].split("|"))
        known = needed.union(*(group for group in groups if group <= facts.keys()))
        require(facts.keys() == known, where, "lacks a field, or has an unknown one")
        require(TIME.fullmatch(entry["at"]) and entry["at"] >= self.time, where, "has an impossible time")
        require(not self.restored or kind in OWNER_KINDS, where, "follows a restore that nobody reconciled")
        self._check_signature(entry, facts, where)
        if kind in MAY_FOLLOW and (kind != "refuse" or entry["release_id"] in self.releases):
            release = self.releases.get(entry["release_id"], {"status": None, "population": None})
            fits = release["status"] in MAY_FOLLOW[str(kind)] and release["population"] == entry["population"]
            require(fits, where, "does not fit the status of its release")
            self._continue(release, facts, entry, where)
        elif kind not in ("refuse", "restore"):
            getattr(self, f"_{kind}")(entry, facts, where)
        self.hashes.append(entry["hash"])
        self.time = entry["at"]
        self.restored = kind == "restore" or (self.restored and (kind != "reconcile" or bool(facts.get("vouches"))))

    def _check_signature(self, entry: Facts, facts: Facts, where: str) -> None:
        signer, kind = entry["key_id"], entry["kind"]
        if kind == "key" and facts["key_id"] == signer and signer not in self.keys:
            public = base64.b64decode(facts["public_key"], validate=True)
        elif not self.keys:  # entries of before signatures
            require(not signer and not entry["signature"] and kind != "key", where, "has an unknown key")
            return
        else:
            require(signer in self.keys and self.keys[signer]["active"], where, "is not signed by an active key")
            decides = (
                "signature" not in facts and kind in ("approve", "refuse") and entry["release_id"] in self.releases
            )
            role = "cap" if kind in OWNER_KINDS else "approve" if decides or kind == "retract" else "release"
            require(role in self.keys[signer]["roles"], where, "is signed by a key without the role")
            public = self.keys[signer]["public"]
        require(is_signed(public, entry["signature"], entry["hash"].encode()), where, "has a wrong signature")
        self.signers.add(signer)

    def _key(self, entry: Facts, facts: Facts, where: str) -> None:
        name, signer, replaces = facts["key_id"], entry["key_id"], facts["replaces"]
        public = base64.b64decode(facts["public_key"], validate=True)
        require(name == sha256(public)[:32] and len(public) == 32, where, "misnames its key")
        key = {"public": public, "active": True, "roles": ROLES, "name": "", "by": None, "vouched": not self.keys}
        if signer == name:
            require(name not in self.keys and replaces is None, where, "announces a key again")
            require(not self.closed, where, "announces itself in a ledger of enrolled keys")
        else:
            voucher = self.keys[signer]
            require(replaces in (None, signer), where, "is not signed by the key that it replaces")
            key |= {"by": signer, "vouched": voucher["vouched"], "roles": voucher["roles"]}
            if "roles" in facts:
                key = self.keys.get(name, key) | {"roles": set(facts["roles"]), "name": facts["name"]}
                require(voucher["vouched"] and key["vouched"] and key["active"], where, "enrols without trust")
                require(key["roles"] and key["roles"] <= ROLES, where, "enrols for unknown roles")
            else:  # before version 4 a rotation was one entry
                require(replaces == signer and name not in self.keys, where, "announces another key")
                voucher["active"] = False
        self.keys[name] = key
        self.closed = self.closed or "roles" in facts

    def _revoke(self, entry: Facts, facts: Facts, where: str) -> None:
        active = facts["who"] and facts["reason"] and self.keys.get(facts["key_id"], {}).get("active")
        require(active and self.keys[entry["key_id"]]["vouched"], where, "revokes without trust, or what is not active")
        self.keys[facts["key_id"]]["active"], self.closed = False, True
        owners = [k for k in self.keys.values() if k["active"] and k["vouched"] and "cap" in k["roles"]]
        require(owners, where, "revokes the last key that may enrol another")

    def _cap(self, entry: Facts, facts: Facts, where: str) -> None:
        fresh = Population(facts["basis"])
        known = self.caps.setdefault(entry["population"], fresh)
        require(known is fresh or facts["reason"], where, "changes a cap without a reason")
        require(known.basis == facts["basis"], where, "changes what the budget is counted for")
        known.change(facts, entry["seq"])

    def _reserve(self, entry: Facts, facts: Facts, where: str) -> None:
        population, name = entry["population"], entry["release_id"]
        require(population in self.caps and name not in self.releases, where, "has no cap, or reserves again")
        known = self.caps[population]
        item = known.reserve(facts)
        allowed = known.admits()
        require((allowed or known.admits(fixed=True)) and known.fills(), where, "exceeds the cap")
        self.beyond += [] if allowed else [where]  # an earlier version admitted it: to be reported
        fresh = {"facts": facts, "population": population, "item": item, "status": "reserved", "spends": {}}
        self.releases[name] = fresh | {"sealed": None, "sealer": None, "approvals": {}, "bundle": None}

    def _continue(self, release: Facts, facts: Facts, entry: Facts, where: str) -> None:
        kind, reserved, spends = entry["kind"], release["facts"]["measurements"], release["spends"]
        said = kind not in ("approve", "refuse", "retract") or (facts["who"] and facts["reason"])
        require(said, where, "does not say who decides, or why")
        if kind == "spend":
            name, same = facts["measurement"], {"cost": facts["cost"], "event": facts["event"]}
            fresh = name not in spends and facts["seeded"] is False
            require(fresh and reserved.get(name) == same, where, "was not reserved so, is drawn again, or is seeded")
            spends[name], release["status"] = facts["digest"], "measured"
        elif kind in ("fail", "retract"):
            require(facts.get("status", "failed") in ("failed", "check-failed"), where, "has an unknown status")
            release["status"] = facts.get("status", "retracted")
        elif kind == "void":
            release["status"] = "void"
            under = release["item"]["under"]  # what was unknown stays so
            under |= {name: added([]) for name, cost in under.items() if cost is not None}
        elif kind == "refuse":
            self._decide(release, facts, entry, where)
            release["status"] = "refused"
        elif kind == "approve":
            approver, fits = facts.get("approver", entry["key_id"]), facts["bundle_digest"] == release["sealed"]
            again = approver and approver in release["approvals"]
            require(fits and not again, where, "approves another bundle, or a second time")
            release["approvals"][approver] = self._decide(release, facts, entry, where)
        else:
            require(spends.keys() == reserved.keys(), where, "is published before all was measured")
            sealed = {"sealed": facts["bundle_digest"], "sealer": entry["key_id"], "approvals": {}}
            fresh = self._published(release, facts, entry, where) if kind == "publish" else sealed
            release |= {"status": "published" if kind == "publish" else "awaiting-approval"} | fresh

    def _decide(self, release: Facts, facts: Facts, entry: Facts, where: str) -> str:
        """Check who decides about a bundle; returns their name in the list of approvers, or their key."""
        approver = facts.get("approver", entry["key_id"])
        key, wanted = self.keys.get(approver, {"name": ""}), release["facts"].get("approve", "none")
        if "signature" in facts:
            require(key.get("active") and "approve" in key["roles"], where, "passes on what its key may not decide")
            message = b"dprelease decision\n" + facts["statement"].encode()
            require(is_signed(key["public"], facts["signature"], message), where, "passes on an unsigned decision")
            said, decided = (entry["kind"], entry["release_id"], release["sealed"]), json.loads(facts["statement"])
            same = (*said, facts["who"], facts["reason"]) == tuple(decided[name] for name in DECIDED)
            require(same and decided.keys() == {*DECIDED, "at"}, where, "passes on a decision about something else")
        listed = (key["name"], approver) if isinstance(wanted, str) else wanted["by"]
        names = [name for name in (key["name"], approver) if name in listed]
        require(names, where, "is decided by somebody whom the release does not name")
        return names[0]

    def _published(self, release: Facts, facts: Facts, entry: Facts, where: str) -> Facts:
        wanted, digest = release["facts"].get("approve", "none"), facts["bundle_digest"]
        if wanted != "none" or release["sealed"]:
            valid = {n for k, n in release["approvals"].items() if self.keys.get(k, {"active": True})["active"]}
            enough = len(valid) >= (1 if isinstance(wanted, str) else wanted["at_least"])
            require(enough and digest == release["sealed"], where, "is not approved")
        return {"bundle": digest, "sealer": release["sealer"] or entry["key_id"]}

    def _reconcile(self, entry: Facts, facts: Facts, where: str) -> None:
        named = facts["who"] and facts["reason"] and (facts["charges"] or not facts["lost"])
        require(named, where, "does not say who reconciled or why, or charges nothing for lost entries")
        for population, cost in facts["charges"].items():
            self.caps[population].charge(cost_of(cost))
        for release in self.releases.values() if facts["charges"] else ():
            if release["status"] in {"reserved", *MAY_FOLLOW["publish"]}:
                release["status"] = "lost"
        if facts.get("vouches"):
            require(self.keys[entry["key_id"]]["vouched"] and not facts["charges"], where, "vouches without trust")
            self.closed = True
            for name, key in self.keys.items():
                led = key["by"] is not None and self.keys[key["by"]]["vouched"]
                key["vouched"] = key["vouched"] or name in facts["vouches"] or led

    def check_trust(self, anchor: bytes | None) -> None:
        """The trusted key began the ledger or signed in it, and somebody vouched for every other key."""
        first = next(iter(self.keys), None)
        known = first is None if anchor is None else sha256(anchor)[:32] in {first, *self.signers}
        require(known, "keys", "lead to no trusted key")
        vouched = all(key["vouched"] or key["by"] is not None for key in self.keys.values())
        require(vouched, "keys", "hold one that nobody vouched for")


def check_bundle(folder: Path, release: Facts, ledger: Ledger) -> None:
    """The files are those that ledger, checksums and statement name; record and model hold what was spent."""
    files, name = {path.name: path.read_bytes() for path in folder.iterdir()}, folder.name
    require(sha256(sums := files.pop("SHA256SUMS")) == release["bundle"], name, "is another bundle than was published")
    digests = {file: sha256(content) for file, content in files.items()}
    listed = "".join(f"{digests[file]}  {file}\n" for file in sorted(digests))
    require(sums.decode() == listed, name, "has a file that was changed, or that its checksums do not name")
    record, model = json.loads(files["record.json"]), json.loads(files["model.json"])
    head, measured = record["ledger"], {m["name"]: m["digest"] for m in record["privacy"]["measurements"]}
    require(record["release_id"] == name and measured == release["spends"], name, "records other measurements")
    require(record["spec_digest"] == release["facts"]["spec_digest"], name, "records another specification")
    require(ledger.hashes[head["entries"]] == head["head"], name, "names another ledger")
    check_budget(name, record["budget"], ledger.caps[release["population"]], head["entries"])
    first, tables = record["record_version"] == 1, TABLES[record["specification"].get("model", {}).get("output")]
    shown = {"moments": model["measurement"]} if first else model["measurements"]  # the first had no statement either
    drawn = {part: sha256(canonical(content)) for part, content in shown.items()}
    require(drawn.items() <= measured.items() and (first or drawn == measured), name, "has a model of something else")
    require(files.keys() ^ tables == (FILES if first else LATER), name, "lacks a file, or has an unknown one")
    if not first:
        check_statement(name, record, digests, json.loads(files[STATEMENT]), ledger.keys[release["sealer"]]["public"])


def check_budget(name: str, budget: Facts, known: Population, entries: int) -> None:
    """The record names the cap that was in force at its head, with kind and span; older records have neither."""
    _, cap, span = max((change for change in known.caps if change[0] <= entries), key=lambda change: change[0])
    require(budget["lifetime"] == {figure: float(cap[figure]) for figure in CAP}, name, "names another cap")
    same = (budget.get("kind"), budget.get("span")) == (cap["kind"], span)
    require(same and (span or budget["releases_left"] is not None), name, "names another kind or span of its cap")


def check_statement(name: str, record: Facts, digests: dict[str, str], envelope: Facts, public: bytes) -> None:
    """The key that sealed the bundle signed a statement over its files."""
    payload, kind = base64.b64decode(envelope["payload"], validate=True), envelope["payloadType"].encode()
    message = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    (signature,), statement = envelope["signatures"], json.loads(payload)
    signed = signature["keyid"] == sha256(public)[:32] and is_signed(public, signature["sig"], message)
    require(signed, name, "has a statement that the publishing key did not sign")
    require((statement["_type"], statement["predicateType"], kind) == TYPES, name, "has another kind of statement")
    subjects = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
    require(subjects == {f: d for f, d in digests.items() if f != STATEMENT}, name, "states other files")
    same = all(statement["predicate"][fact] == record[fact] for fact in ("release_id", "ledger", "spec_digest"))
    require(same, name, "states another release")


def verify(export: Path, bundles: Path, public_key: Path | None) -> int:
    """Return how many bundles hold, or raise BrokenError; only a ledger of version 1 has no key."""
    ledger, anchor = Ledger(), None
    try:
        for line in export.read_text().splitlines():
            ledger.apply(json.loads(line))
        if public_key is not None:
            anchor = load_pem_public_key(public_key.read_bytes()).public_bytes(Encoding.Raw, PublicFormat.Raw)
        ledger.check_trust(anchor)
        published = {name: release for name, release in ledger.releases.items() if release["bundle"]}
        folders = {path.parent.name: path.parent for path in bundles.rglob("SHA256SUMS")}
        needed = {name for name, release in published.items() if release["status"] != "retracted"}
        require(needed <= folders.keys() <= published.keys(), "bundles", "are not those that the ledger published")
        for name, folder in folders.items():
            check_bundle(folder, published[name], ledger)
    except UNREADABLE as error:
        raise BrokenError(f"unreadable: {error!r}") from error
    sys.stderr.writelines(f"{where} exceeds the cap as mixed costs are counted today\n" for where in ledger.beyond)
    return len(folders)


if __name__ == "__main__":
    sys.exit(0 if verify(*map(Path, sys.argv[1:4])) else "no bundle is there")
