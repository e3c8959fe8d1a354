"""A signed entry is input like any other: whatever it holds, its replay ends soon, with a meaning or a refusal."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tasks.builders import BASIS, POPULATION, cap, facts_of, opened, released, request

from dpcore.accounting import Cost, population_balance
from dpcore.errors import LedgerError
from tasks.audit import audit_export
from tasks.keys.decision import Decision, SignedDecision
from tasks.keys.signing import SigningKey
from tasks.ledger.entries.bodies import (
    BODIES_BY_KIND,
    TOGETHER,
    Body,
    Reconciliation,
    SealedBundle,
    Spend,
    body_to_json,
)
from tasks.ledger.entries.contents import BODIES, LATER_FIELDS
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.fields import (
    canonical,
    exact_number,
    is_time,
    time_of,
    time_text,
)
from tasks.ledger.export import export_lines
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.spec.privacy import Windows

RULE = {"column": "seen", "timezone": "UTC"}
WHEN = "2026-01-01T00:00:00.000000Z"


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey.fresh()


@pytest.fixture(scope="module")
def honest(key: SigningKey, tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """A ledger with entries of every kind, as the program writes them."""
    moments = [datetime(2026, 1, 1, tzinfo=UTC)]

    def clock() -> datetime:
        moments[0] += timedelta(minutes=1)
        return moments[0]

    path, approver = tmp_path_factory.mktemp("honest") / "ledger.db", SigningKey.fresh()
    with closing(Ledger.open(path, key, clock=clock)) as ledger:
        ledger.ensure_cap(
            POPULATION, cap(), BASIS, who="ada", windows=Windows(12, RULE), cost=Cost(epsilon=Fraction(1, 10))
        )
        ledger.enrol_key(approver.public, roles=["approve"], name="ada")
        for month, approve in ((1, "none"), (2, "required"), (3, "required")):
            release_id = ledger.reserve(request(f"2026-0{month}", approve=approve)).release_id
            ledger.spend(release_id, "moments", released(), build={"code_digest": "c" * 64}, flow_run_id="run")
        ledger.fail("visits-2026-01-1", status="failed", stage="sample")
        ledger.publish("visits-2026-01-1", bundle_digest="b" * 64, flow_run_id="run")
        for month in (2, 3):
            ledger.await_approval(f"visits-2026-0{month}-1", bundle_digest="b" * 64, flow_run_id="run")
        yes, no = (decided(approver, word, month) for word, month in (("approve", 2), ("refuse", 3)))
        ledger.approve("visits-2026-02-1", bundle_digest="b" * 64, who="ada", reason="looked", signed=yes)
        ledger.refuse_bundle("visits-2026-03-1", who="ada", reason="looked", signed=no)
        ledger.retract("visits-2026-02-1", who="ada", reason="erasure")
        ledger.revoke_key(approver.public.key_id, reason="left", who="ada")
        ledger.refuse_request(request("2026-05"), "visits-2026-05-1", rule="budget-exceeded", reason="full")
        ledger.reserve(request("2026-04", window=RULE))
        ledger.void("visits-2026-04-1", reason="gone")
        ledger.raise_cap(POPULATION, cap("2"), BASIS, "a second year", who="ada", windows=Windows(1, RULE))
        ledger.mark_restored(who="ada", made_at=WHEN)
        charges = {POPULATION: Cost(epsilon=Fraction(1, 3))}
        lost = Reconciliation.of(reason="a fire", who="ada", charges=charges, lost=[(30, "9" * 64)], retired=["x-1"])
        ledger.reconcile(lost)
        return ledger.entries()


def decided(approver: SigningKey, word: str, month: int) -> SignedDecision:
    release_id, digest = f"visits-2026-0{month}-1", "b" * 64
    decision = Decision(decision=word, release_id=release_id, bundle_digest=digest, who="ada", reason="looked", at=WHEN)
    return SignedDecision.by(approver, decision)


def resealed(key: SigningKey, entries: list[Entry], index: int, **changes: Any) -> list[Entry]:
    """The entries with one changed, and from it on hashed and signed again with the right key."""
    forged = [*entries[:index], replace(entries[index], **changes), *entries[index + 1 :]]
    for place in range(index, len(forged)):
        linked = replace(forged[place], previous=forged[place - 1].hash) if place else forged[place]
        linked = replace(linked, hash=linked.expected_hash())
        forged[place] = replace(linked, signature=key.sign(linked.hash.encode()))
    return forged


def place_of(entries: list[Entry], kind: str) -> int:
    return next(index for index, entry in enumerate(entries) if entry.kind == kind)


def refusal(entries: list[Entry]) -> LedgerError:
    start = time.process_time()
    with pytest.raises(LedgerError) as caught:
        LedgerState.replay(entries)
    assert time.process_time() - start < 5
    assert caught.value.rule == "ledger-broken"
    return caught.value


# ---------------------------------------------------------------- every field of every kind


def test_a_parsed_body_is_written_as_it_was(honest: list[Entry]):
    assert {entry.kind for entry in honest} == BODIES_BY_KIND.keys() == BODIES.keys()
    for entry in honest:
        assert canonical(body_to_json(entry.content)) == entry.body


def test_a_body_of_another_kind_is_not_returned(honest: list[Entry]):
    with pytest.raises(TypeError, match="is no Spend"):
        honest[place_of(honest, "cap")].parse(Spend)


def test_an_entry_is_of_its_kind_and_of_what_its_kind_is_a_kind_of(honest: list[Entry]):
    for entry in honest:
        found = {body for body in BODIES_BY_KIND.values() if entry.is_a(body)}
        assert found == {type(entry.content)}
        assert entry.is_a(SealedBundle) == (entry.kind in ("await", "publish"))
        assert not replace(entry, kind="unheard-of").is_a(Body)


def test_the_honest_ledger_has_every_kind_and_every_field(honest: list[Entry]):
    LedgerState.replay(honest)
    assert {entry.kind for entry in honest} == BODIES.keys()
    for kind, body in BODIES.items():
        found = set().union(*(facts_of(entry) for entry in honest if entry.kind == kind))
        assert found == body.keys() | LATER_FIELDS.get(kind, {}).keys(), kind


FIELDS = [(kind, name) for kind in BODIES for name in BODIES[kind] | LATER_FIELDS.get(kind, {})]
NEVER = [True, -1, 1.5, float(10**300), "\ud800", [[]], {"a": {"b": []}}, [1]]
"""Values that are written into no field, but for two: one is a truth, one a mapping of whatever an audit says."""
FREE = {"seeded": True, "nothing_was_spent": True, "build": {"a": {"b": []}}}


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_field_takes_only_what_the_program_writes(key: SigningKey, honest: list[Entry], kind: str, name: str):
    index, entry = next((i, e) for i, e in enumerate(honest) if e.kind == kind and name in facts_of(e))
    for value in NEVER:
        if value == FREE.get(name):
            continue
        error = refusal(resealed(key, honest, index, body=canonical(facts_of(entry) | {name: value})))
        assert (error.where, name in str(error)) == (f"ledger entry {index + 1}", True)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in BODIES for name in BODIES[kind]])
def test_no_field_may_be_missing(key: SigningKey, honest: list[Entry], kind: str, name: str):
    index = place_of(honest, kind)
    facts = {field: value for field, value in facts_of(honest[index]).items() if field != name}
    error = refusal(resealed(key, honest, index, body=canonical(facts)))
    assert error.where == f"ledger entry {index + 1}"


@pytest.mark.parametrize("kind", BODIES)
def test_no_field_may_be_added(key: SigningKey, honest: list[Entry], kind: str):
    index = place_of(honest, kind)
    error = refusal(resealed(key, honest, index, body=canonical(facts_of(honest[index]) | {"more": None})))
    assert "unknown" in str(error)


LATER = [(kind, name) for kind in LATER_FIELDS for name in LATER_FIELDS[kind]]


@pytest.mark.parametrize(("kind", "name"), LATER)
def test_entries_of_earlier_versions_lack_later_fields(key: SigningKey, honest: list[Entry], kind: str, name: str):
    entry = next(e for e in honest if e.kind == kind and name in facts_of(e))
    together = next((names for names in TOGETHER.get(kind, ()) if name in names), {name})
    facts = {field: value for field, value in facts_of(entry).items() if field not in together}
    LedgerState.replay(resealed(key, honest, honest.index(entry), body=canonical(facts)))


@pytest.mark.parametrize(("kind", "names"), [(kind, names) for kind in TOGETHER for names in TOGETHER[kind]])
def test_fields_that_belong_together_are_not_torn_apart(
    key: SigningKey, honest: list[Entry], kind: str, names: frozenset[str]
):
    for name in names:
        index, entry = next((i, e) for i, e in enumerate(honest) if e.kind == kind and name in facts_of(e))
        facts = {field: value for field, value in facts_of(entry).items() if field != name}
        refusal(resealed(key, honest, index, body=canonical(facts)))


FIGURES = ["1e99999999", "1e5", "0.5", "-1", "-0", "+1", "NaN", "inf", "1/0", "2/4", "01", "1_0", " 1", "", "1/1"]
FIGURES += ["١", "9" * 5000, "1/" + "9" * 5000, str(10**13), 1, 0.5, True, None, ["1"]]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure)[:12] or "empty")
def test_costs_and_caps_are_exact_numbers_in_one_spelling(key: SigningKey, honest: list[Entry], figure: Any):
    for kind, path in (("cap", ["epsilon"]), ("spend", ["cost", "rho"]), ("reconcile", ["charges", POPULATION, "rho"])):
        index = place_of(honest, kind)
        facts = facts_of(honest[index])
        inner = facts
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = figure
        error = refusal(resealed(key, honest, index, body=canonical(facts)))
        assert (error.where, path[0] in str(error)) == (f"ledger entry {index + 1}", True)


BODIES_OF_NOTHING: dict[str, Callable[[Entry], str]] = {
    "no-json": lambda entry: "{",
    "a-list": lambda entry: "[]",
    "a-word": lambda entry: '"x"',
    "empty": lambda entry: "",
    "respaced": lambda entry: entry.body.replace(":", ": ", 1),
    "a-field-twice": lambda entry: entry.body[:-1] + ',"reason":null}',
    "not-a-number": lambda entry: entry.body.replace("null", "NaN"),
    "deep-lists": lambda entry: "[" * 10_000 + "]" * 10_000,
    "deep-mappings": lambda entry: '{"a":' * 10_000 + "1" + "}" * 10_000,
    "a-long-number": lambda entry: '{"epsilon":' + "9" * 100_000 + "}",
}


@pytest.mark.parametrize("case", BODIES_OF_NOTHING)
def test_a_body_is_one_json_object_in_its_one_spelling(key: SigningKey, honest: list[Entry], case: str):
    index = place_of(honest, "cap")
    error = refusal(resealed(key, honest, index, body=BODIES_OF_NOTHING[case](honest[index])))
    assert "one spelling" in str(error)


def test_nested_depth_inside_a_free_mapping_is_refused_or_read(key: SigningKey, honest: list[Entry]):
    index = place_of(honest, "spend")
    deep = '{"a":' * 10_000 + "1" + "}" * 10_000
    body = re.sub(r'"build":\{[^}]*\}', lambda _: f'"build":{deep}', honest[index].body)
    assert deep in body
    refusal(resealed(key, honest, index, body=body))


ENVELOPES: dict[str, dict[str, Any]] = {
    "not-a-time": {"at": "not a time"},
    "a-date": {"at": "2026-01-01"},
    "no-fraction": {"at": "2026-01-01T00:00:00Z"},
    "an-offset": {"at": "2026-01-01T00:00:00.000000+00:00"},
    "a-leap-second": {"at": "2026-12-31T23:59:60.000000Z"},
    "a-day-that-is-none": {"at": "2026-02-30T00:00:00.000000Z"},
    "other-digits": {"at": "２０２６-01-01T00:00:00.000000Z"},
    "before-the-product": {"at": "2019-12-31T23:59:59.999999Z"},
    "earlier-than-the-one-before": {"at": "2025-12-31T00:00:00.000000Z"},
    "later-than-the-one-after": {"at": "2031-12-31T00:00:00.000000Z"},
    "a-path-as-release": {"release_id": "../../etc"},
    "half-a-character": {"population": "\ud800"},
    "a-kind-that-is-none": {"kind": "gift"},
    "a-kind-in-other-words": {"kind": "a\ud800b"},
}


@pytest.mark.parametrize("case", ENVELOPES)
def test_times_and_names_of_an_entry_are_such_as_the_program_writes(key: SigningKey, honest: list[Entry], case: str):
    error = refusal(resealed(key, honest, place_of(honest, "cap"), **ENVELOPES[case]))
    assert "ledger entry" in error.where
    str(error).encode()


@pytest.mark.parametrize(
    "changes", [{"seq": True}, {"seq": 2.0}, {"seq": "2"}, {"at": 5}, {"body": {}}, {"hash": None}]
)
def test_fields_of_other_types_are_refused(honest: list[Entry], changes: dict[str, Any]):
    refusal([honest[0], replace(honest[1], **changes)])


@given(st.datetimes(min_value=datetime(2020, 1, 2), max_value=datetime(9999, 12, 31)))
def test_a_written_time_is_read_as_the_same_moment_and_sorts_like_it(moment: datetime):
    zoned = moment.replace(tzinfo=UTC)
    assert time_of(time_text(zoned)) == zoned
    assert is_time(time_text(zoned))
    assert (time_text(zoned) < WHEN) == (zoned < time_of(WHEN))


@given(st.fractions(min_value=0, max_value=10**12))
def test_an_exact_number_is_read_as_itself(number: Fraction):
    assert exact_number(str(number)) == number


@pytest.mark.parametrize("figure", ["0", "1/" + "9" * 900, str(10**12)])
@pytest.mark.parametrize("delta", ["0", "1/" + "9" * 900, "1/1000", "1"])
def test_every_cost_that_is_read_can_be_composed_and_shown(figure: str, delta: str):
    number = exact_number(figure)
    statement = population_balance(Cost(number, number, number**2 / 2, number), delta=exact_number(delta))
    assert json.dumps(str(statement.as_json()))


# ---------------------------------------------------------------- anything at all, resealed

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.sampled_from(["", "0", "1e99999999", "-1", "a", "b" * 64, "2026-01", "../x", "failed"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from paths(inner, (*path, name))


def outcome(entries: list[Entry]) -> LedgerState | LedgerError:
    try:
        return LedgerState.replay(entries)
    except LedgerError as error:
        return error


def budgets(state: LedgerState) -> dict[str, Any]:
    return {name: (known.cap, known.windows, known.spent, known.reserved) for name, known in state.populations.items()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_ledger_is_refused_or_means_something_that_can_be_told(
    key: SigningKey, honest: list[Entry], data: st.DataObject
):
    """One value anywhere in a body becomes another; its signer has the right key."""
    index = data.draw(st.integers(0, len(honest) - 1))
    facts = facts_of(honest[index])
    *above, last = data.draw(st.sampled_from(list(paths(facts))))
    inner = facts
    for step in above:
        inner = inner[step]
    inner[last] = data.draw(ODD)
    found = outcome(resealed(key, honest, index, body=canonical(facts)))
    if isinstance(found, LedgerError):
        assert found.rule == "ledger-broken"
        return
    for population in found.populations.values():
        for tally in (population.spent, population.reserved):
            costs = [c for m in tally.under.values() if m for c in (m.always, *m.by_month.values())]
            assert all(min(vars_of(cost)) >= 0 for cost in costs)
        assert population.cap.epsilon >= 0
        population.statement().as_json()
    if honest[index].kind not in ("cap", "reconcile", "reserve"):
        assert budgets(found) == budgets(LedgerState.replay(honest))


def vars_of(cost: Cost) -> tuple[Fraction, ...]:
    return cost.epsilon, cost.rho, cost.rho_of_pure, cost.delta_num, cost.delta, Fraction(cost.releases)


# ---------------------------------------------------------------- the audit and the commands


def audited(entries: list[Entry], key: SigningKey, folder: Path, **options: Any) -> dict[str, str]:
    export, bundles = folder / "ledger.ndjson", folder / "bundles"
    bundles.mkdir(exist_ok=True)
    export.write_text("".join(export_lines(entries)))
    checks = audit_export(export, bundles, [key.public], "visits-2026-04-1", **options)
    return {check.name: check.detail for check in checks if not check.ok}


def test_an_offline_audit_names_the_entry_whose_time_cannot_be(key: SigningKey, honest: list[Entry], tmp_path: Path):
    now = datetime(2027, 1, 1, tzinfo=UTC)
    assert audited(honest, key, tmp_path, now=now) == {}
    late = resealed(key, honest, 1, at="2026-06-01T00:00:00.000000Z")
    assert audited(late, key, tmp_path, now=now) == {
        "ledger chain": "ledger entry 3 (key) states an earlier time than the one before"
    }
    nonsense = resealed(key, honest, 1, at="not a time")
    assert "ledger entry 2 (cap) states no time" in audited(nonsense, key, tmp_path, now=now)["ledger chain"]


def test_an_offline_audit_reports_a_ledger_from_the_future(key: SigningKey, honest: list[Entry], tmp_path: Path):
    last = len(honest) - 1
    ahead = resealed(key, honest, last, at="2032-01-01T00:00:00.000000Z")
    faults = audited(ahead, key, tmp_path, now=datetime(2027, 1, 1, tzinfo=UTC))
    assert list(faults) == ["ledger times"]
    assert f"entry {last + 1} is dated 2032-01-01T00:00:00.000000Z, in the future" in faults["ledger times"]
    assert audited(ahead, key, tmp_path, now=datetime(2032, 1, 1, tzinfo=UTC)) == {}


def test_a_deep_export_breaks_the_audit_and_not_the_program(key: SigningKey, tmp_path: Path):
    (tmp_path / "bundles").mkdir()
    export = tmp_path / "ledger.ndjson"
    export.write_text("[" * 100_000 + "\n")
    (broken,) = audit_export(export, tmp_path / "bundles", [key.public])
    assert (broken.name, broken.ok) == ("ledger chain", False)


def test_text_that_cannot_be_written_never_enters_the_ledger(tmp_path: Path):
    """Bytes of a command line that are no UTF-8 arrive as half characters; the record could not hold them."""
    with opened(tmp_path / "ledger.db") as ledger:
        ledger.ensure_cap(POPULATION, cap(), BASIS)
        before = ledger.entries()
        for write in (
            lambda: ledger.raise_cap(POPULATION, cap("2"), BASIS, "\udcff", who="ada"),
            lambda: ledger.raise_cap(POPULATION, cap("2"), BASIS, "growth", who="\udcff"),
            lambda: ledger.reserve(request(supersedes=None, reason="\udcff")),
        ):
            with pytest.raises(LedgerError) as caught:
                write()
            assert caught.value.rule == "text-unwritable"
        assert ledger.entries() == before
