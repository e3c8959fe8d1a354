"""Make golden files: `python -m support.tasks.goldens sampler`, once for each new number; `... forms`; `... rules`;
`... evidence`.

Earlier archives stay as they are: they show that what an earlier program published can still be drawn.
The evidence is what an outside auditor gets, for verifiers that share no code with this program; the secret
keys in it belong to nobody, and let tests re-sign what they change. Make it anew with a new format version.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from support.tasks.builders import released, request
from support.tasks.staged import PLAIN, SPEC, land_rows, plain_model, release

from dpcore.accounting import Cap
from dpcore.synthesis.generators import SAMPLINGS
from tasks.bundle.staging import Staging
from tasks.keys.signing import SigningKey, signing_key
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.export import export_lines
from tasks.ledger.key_changes import enrol_key, rotate_key
from tasks.ledger.opening import writable_ledger
from tasks.ledger.store import Ledger
from tasks.release.approval import approve, decide_apart
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

GOLDEN = Path(__file__).parent / "golden"
FEATURES = [
    {"name": "age", "kind": "numeric", "bounds": [0, 100]},
    {"name": "visits", "kind": "integer", "bounds": [0, 20], "missing": "category"},
    {"name": "seen", "kind": "date", "bounds": ["2026-01-01", "2026-12-31"]},
]
LABEL = {"name": "ward", "kind": "categorical", "categories": ["a", "b"]}
COST = {"name": "cost", "kind": "numeric", "bounds": [0, 100]}
NO_PROJECTION = {"projection": {"kind": "none"}}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian": ("feature", {"generator": "gaussian", "projection": {"kind": "ron", "dimension": 3}}),
    "components": ("feature", {"generator": "gaussian", "projection": {"kind": "private-pca", "dimension": 2}}),
    "supervised": ("target", {"generator": "supervised", **NO_PROJECTION}),
    "mixture": ("label", {"generator": "mixture", **NO_PROJECTION}),
    "lda": ("label", {"generator": "lda", **NO_PROJECTION}),
    "copula": ("feature", {"generator": "copula"}),
}
"""One release of each kind of law: the role of its last column, and its model."""
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "projected": (
        "label",
        {"generator": "mixture", "output": "projected", "projection": {"kind": "ron", "dimension": 2}},
    ),
    "both": (
        "target",
        {
            "generator": "supervised",
            "output": "both",
            "projection": {"kind": "private-pca", "dimension": {"share": 0.9}},
        },
    ),
    "normalised": ("none", {"generator": "gaussian", "normalise": "length", **NO_PROJECTION}),
}
"""Releases of sampler 1 in the forms that came later: projected points, a share of the variance, one length."""


RULED: dict[str, tuple[str, dict[str, Any]]] = {
    "ruled-copula": ("label", {"generator": "copula"}),
    "ruled-alone": ("label", {"generator": "copula", "sampling": "independent"}),
    "ruled-mixture": ("label", {"generator": "mixture", **NO_PROJECTION}),
}
"""Releases under rules, by the samplers that new releases use."""
RULES: list[Any] = [
    "age >= 30 OR ward = 'a'",
    {"not_applicable": {"when": "seen < '2026-03-01'", "columns": ["visits"]}},
    "EXTRACT(MONTH FROM seen) <> 8",
]


def archive(number: int) -> Path:
    """Where the golden workspace of a sampler is."""
    return GOLDEN / f"sampler-{number}.tar.gz"


def specification(family: str, sampling: str | None = None) -> dict[str, Any]:
    role, model = (FAMILIES | FORMS | RULED)[family]
    ends = {"target": [COST | {"role": role}], "none": []}.get(role, [LABEL | {"role": role}])
    plain = [{key: value for key, value in column.items() if key != "missing"} for column in FEATURES]
    return {
        "name": family,
        "source": {"path": "landing/*.csv"} | ({} if ends else {"drop": ["ward"]}),
        "privacy": {"population": "people", "epsilon": 1.0, "lifetime": {"epsilon": 6.0}},
        "expected_rows": 3000,
        "columns": [*(FEATURES if ends else plain), *ends],
        "model": model | ({"sampling": sampling} if sampling else {}),
        "rows": 200,
    } | ({"rules": RULES} if family in RULED else {})


def invented(family: str) -> str:
    dice, costs = np.random.Generator(np.random.PCG64(3)), (FAMILIES | FORMS | RULED)[family][0] == "target"
    days = np.datetime64("2026-01-01") + dice.integers(0, 365, 3000)
    last = [f"{x:.1f}" for x in dice.uniform(0, 100, 3000)] if costs else dice.choice(["a", "b"], 3000)
    rows = zip(dice.normal(50, 15, 3000), dice.poisson(5, 3000), days, last, strict=True)
    head = "age,visits,seen," + ("cost" if costs else "ward")
    return "\n".join([head, *(f"{age:.2f},{visits},{day},{end}" for age, visits, day, end in rows)]) + "\n"


def make_sampler(workspace: Workspace) -> None:
    """Keep a release of each kind of law, for each sampler that new releases use."""
    for sampling, number in SAMPLINGS.items():
        place = Workspace(workspace.root / sampling)
        place.create()
        _keep_releases(place, FAMILIES, archive(number), sampling)


def make_forms(workspace: Workspace) -> None:
    """Keep a release of each later form."""
    _keep_releases(workspace, FORMS, GOLDEN / "forms-1.tar.gz")


def make_rules(workspace: Workspace) -> None:
    """Keep a release of each generator under rules."""
    _keep_releases(workspace, RULED, GOLDEN / "rules-2.tar.gz")


def _keep_releases(workspace: Workspace, families: Iterable[str], path: Path, sampling: str | None = None) -> None:
    """Release once for each family, and keep ledger, bundles, lineage, specification and public key."""
    for family in families:
        workspace.spec_path.write_text(yaml.safe_dump(specification(family, sampling)))
        (workspace.landing / "rows.csv").write_text(invented(family))
        release(workspace, "2026-01")
    shutil.rmtree(workspace.landing)
    workspace.landing.mkdir()
    pack(
        path,
        workspace.root,
        "release.yaml",
        "ledger.db",
        "lineage.ndjson",
        "releases",
        "landing",
        "keys/signing.pub",
    )


EVIDENCE = GOLDEN / "evidence-4.tar.gz"
"""Export, bundles and public key of format version 4."""
GAUSSIAN = SPEC.replace(
    "epsilon: 0.1, lifetime: {epsilon: 1.2}", "epsilon: 0.1, delta: 1.0e-6, lifetime: {epsilon: 0.3, delta: 1.0e-5}"
)
APPROVED = GAUSSIAN.replace(PLAIN, plain_model(", mechanism: gaussian")) + "approve: {by: [ada], at_least: 1}\n"
PURE = GAUSSIAN.replace("delta: 1.0e-6", "delta: 0").replace("epsilon: 0.3", "epsilon: 1.5")


def make_evidence(workspace: Workspace) -> None:
    """A short ledger with an entry of nearly every kind: keys with roles, an approval, a raised cap, a rotation."""
    held = {"first": signing_key(workspace.keys), "ada": SigningKey.fresh(), "office": SigningKey.fresh()}
    workspace.spec_path.write_text(APPROVED)
    spec = load_spec(workspace.spec_path)
    enrol_key(workspace, spec, held["ada"].public, roles=["approve"], name="ada")
    enrol_key(workspace, spec, held["office"].public, roles=["release"], name="office")
    release_month(workspace, "2026-01")
    sealed = Staging(workspace.bundle("small", "small-2026-01-1")).folder
    signed = decide_apart(sealed, "small-2026-01-1", held["ada"], refuse=False, who="ada", reason="looked")
    approve(workspace, "small-2026-01-1", who="ada", reason="looked", signed=signed)
    with closing(writable_ledger(workspace, spec)) as ledger:
        raised = Cap(Fraction(3, 2), Fraction(1, 10**5), Fraction(1, 10**9))
        ledger.raise_cap("people", raised, ledger.state().populations["people"].basis, "the board agreed", who="ada")
    with closing(Ledger.open(workspace.ledger_path, held["office"], anchors=[held["first"].public])) as ledger:
        given_up = ledger.reserve(request("2025-11", name="small")).release_id
        ledger.void(given_up, reason="nothing was drawn")
        failed = ledger.reserve(request("2025-12", name="small")).release_id
        build = ledger.state().releases["small-2026-01-1"].spends["moments"].parse(Spend).build
        ledger.spend(failed, "moments", released(), build=build, flow_run_id="run")
        ledger.fail(failed, status="failed", stage="sample")
        large = request("2025-10", "9", name="small")
        ledger.refuse_request(large, "small-2025-10-1", rule="budget-exceeded", reason="the cap does not allow it")
    rotate_key(workspace, spec, who="ada")
    workspace.spec_path.write_text(PURE)
    release_month(workspace, "2026-02")
    hand_over(workspace, held | {"second": signing_key(workspace.keys)})


def release_month(workspace: Workspace, period: str) -> None:
    land_rows(workspace.root, period)
    release(workspace, period)


def hand_over(workspace: Workspace, keys: dict[str, Any]) -> None:
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        (workspace.root / "export.ndjson").write_text("".join(export_lines(ledger.entries())))
    (workspace.root / "key.pub").write_text(keys["first"].public.pem)
    (workspace.root / "secrets").mkdir()
    for name, key in keys.items():
        (workspace.root / "secrets" / name).write_bytes(key.stored())
    workspace.releases.rename(workspace.root / "bundles")
    pack(EVIDENCE, workspace.root, "export.ndjson", "bundles", "key.pub", "secrets")


def pack(target: Path, root: Path, *names: str) -> None:
    with tarfile.open(target, "w:gz") as packed:
        for name in names:
            packed.add(root / name, name)


MAKERS: dict[str, Callable[[Workspace], None]] = {
    "sampler": make_sampler,
    "forms": make_forms,
    "rules": make_rules,
    "evidence": make_evidence,
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        fresh = Workspace(Path(folder))
        fresh.create()
        MAKERS[sys.argv[1]](fresh)
