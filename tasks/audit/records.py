"""Checks of a release's record: it states what the replayed ledger gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpcore.accounting import Balance, Cost, release_statement, times, total
from dpcore.measurements.noise_law import noise_facts
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.registry import event_from_json
from dpcore.records.schema import Neighbours
from tasks.audit.checks import Check, NotShownError, check, require
from tasks.audit.evidence import Evidence
from tasks.bundle.odds import exponent
from tasks.bundle.record import budget_facts, further_releases, record_faults
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.entries.entry import Entry
from tasks.ledger.entries.populations import Population
from tasks.ledger.releases import ReleaseState
from tasks.spec import ReleaseSpec
from tasks.spec.plan import window_rule
from tasks.spec.privacy import adds_up, specified_basis
from tasks.spec.relations import PARTICIPATION, VALUES, relation_figures
from tasks.spec.release import public_digest
from tasks.workspace.build_identity import dependencies_digest

Figures = Mapping[str, float | None]

KNOWN_VERSIONS = (1, 2)
MOST_FURTHER = 100_000
"""The largest number that `Cap.releases_left` returns."""


def record_check(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> Check:
    """The record's facts are the ledger's."""
    return check(
        f"{release.release_id}: record",
        lambda: _record_faults(evidence, record, release),
        "agrees with the ledger",
    )


def _record_faults(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> list[str]:
    head = (record["ledger"]["entries"], record["ledger"]["head"])
    drawn = max((entry.seq for entry in release.spends.values()), default=0)
    return [
        *require(record["record_version"] in KNOWN_VERSIONS, "its version is unknown to this program"),
        *require(record["record_version"] == 1 or not record_faults(record), "it breaks the schema of records"),
        *_identity_faults(record, release),
        *_stated_guarantee_faults(record["privacy"], release),
        *_basis_faults(evidence, record, release),
        *_told_measurement_faults(record["privacy"], release),
        *_software_faults(record),
        *require(
            record["record_version"] == 1 or head[0] >= drawn, "it names a ledger head before its own measurements"
        ),
        *_window_faults(evidence, record, release),
        *require(
            head in evidence.known,
            "the ledger head that it names is not in this ledger: the ledger is older, or another one",
        ),
    ]


def _window_faults(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> list[str]:
    """The specification's span is the cap's, and it leaves out rows of other months by the rule of the reservation."""
    rule, span = release.reservation.window, evidence.history.at(release.population, release.reserve_seq).windows.span
    if rule is None and span is None:
        return []
    spec = ReleaseSpec.from_public_json(record["specification"])
    return [
        *require(window_rule(spec) == rule, "its specification does not tell months apart as the ledger says"),
        *require(spec.privacy.unit.months == span, "its specification's span is not the cap's"),
    ]


def _identity_faults(record: dict[str, Any], release: ReleaseState) -> list[str]:
    reserved, published = release.reservation, release.published
    same = record["release_id"] == release.release_id and record["privacy"]["population"] == release.population
    stated = ("name", "period", "sequence", "supersedes", "reason")
    other = [name for name in stated if record[name] != getattr(reserved, name)]
    seeds = {"projection": record["model"]["projection"]["seed"], "sampling": record["model"]["sampling_seed"]}
    digest = public_digest(record["specification"])
    return [
        *require(same, "it is about another release or population"),
        *(f"its {name} is not the ledger's" for name in other),
        *require(seeds == reserved.seeds, "its seeds are not those reserved"),
        *require(record["spec_digest"] == reserved.spec_digest == digest, "its specification is not the one reserved"),
        *require(
            record["flow_run_id"] == (published and published.flow_run_id), "its flow run is not the one that published"
        ),
    ]


def _stated_guarantee_faults(privacy: dict[str, Any], release: ReleaseState) -> list[str]:
    stated = release.reservation.stated
    other = [name for name in ("epsilon", "delta") if privacy[name] != stated[name]]
    composed = release_statement(release.spent, delta=Fraction(str(stated["delta"])))
    enough = float(composed.epsilon) <= privacy["epsilon"] * (1 + 1e-12)
    exact = float(composed.delta_num) == privacy["delta_num"]
    return [
        *(f"its {name} is not the ledger's" for name in other),
        *require(enough and exact, "its epsilon or delta_num is not what its measurements cost"),
        *require(_same_relations(privacy, release), "its figures under a relation are not its measurements'"),
    ]


def _same_relations(privacy: dict[str, Any], release: ReleaseState) -> bool:
    """Whether the record's figures for values and participation, if it states them, follow from its measurements."""
    if VALUES not in privacy and PARTICIPATION not in privacy:  # of a version that left it to the reader
        return True
    events = [event_from_json(entry.parse(Spend).event) for entry in release.spends.values()]
    due = relation_figures(events, Neighbours(privacy["neighbours"]), release.reservation.stated)
    return all(_alike_figures(privacy.get(name), figures) for name, figures in due.items())


def _alike_figures(stated: Figures | None, due: Figures | None) -> bool:
    if stated is None or due is None:
        return stated is due
    return stated.keys() == due.keys() and all(_alike(stated[name], figure) for name, figure in due.items())


def _basis_faults(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> list[str]:
    """The guarantee is about the specification's unit, and the budget is counted for such units."""
    privacy, basis = record["privacy"], evidence.state.populations[release.population].basis
    stated = {"unit": privacy["unit"], "neighbours": privacy["neighbours"]}
    same = stated == specified_basis(record["specification"])
    relation = evidence.state.populations[release.population].relation_of(release.reservation)
    figures = (f"{exponent(privacy['epsilon'])} (", f"e^{privacy['epsilon']:g} = ")  # the second is of older versions
    said = any(figure in words for words in privacy["guarantee"] for figure in figures)
    return [
        *require(adds_up(basis, stated), "its unit is not the one that the budget is counted for"),
        *require(privacy["neighbours"] == relation, "its neighbours are not those that its costs are counted for"),
        *require(same, "its unit is not that of its specification"),
        *require(said, "its words promise another epsilon"),
    ]


def _told_measurement_faults(privacy: dict[str, Any], release: ReleaseState) -> list[str]:
    told = [(measurement["name"], measurement) for measurement in privacy["measurements"]]
    names = [name for name, _ in told]
    return [
        *(fault for name, stated in told for fault in _one_measurement(stated, release.spends.get(name))),
        *(f"it lacks the measurement {name!r}" for name in release.spends if name not in names),
    ]


def _one_measurement(measurement: dict[str, Any], entry: Entry | None) -> list[str]:
    name = measurement["name"]
    if entry is None or measurement["ledger_entry"] != {"seq": entry.seq, "hash": entry.hash}:
        return [f"its measurement {name!r} is not in the ledger"]
    spend = entry.parse(Spend)
    build = measurement.get("build") == spend.build
    same = all(measurement[key] == getattr(spend, key) for key in ("digest", "seeded"))
    event = measurement["mechanism"] == spend.event["mechanism"] and measurement["parameters"] == spend.event
    figures = {key: measurement[key] or 0.0 for key in ("epsilon", "rho", "delta_num")}
    exact = figures == {key: float(getattr(spend.cost, key)) for key in figures}
    noise = _same_noise(measurement, spend.event)
    labelled = measurement["status"] == BY_NAME[measurement["mechanism"]].status.value
    return [
        *require(build, f"the audit of the build that it names for {name!r} is not the ledger's"),
        *require(same, f"its digest of {name!r} is not the ledger's"),
        *require(event, f"its parameters of {name!r} are not the ledger's"),
        *require(exact, f"its cost of {name!r} is not the ledger's"),
        *require(noise, f"the noise that it states for {name!r} does not follow from the parameters"),
        *require(labelled, f"it labels the proof of {name!r} otherwise than the registry"),
    ]


def _software_faults(record: dict[str, Any]) -> list[str]:
    """The versions are those in the list of distributions, and `dependencies_digest` is the digest of this list."""
    if record["record_version"] == 1:  # it named the main libraries only
        return []
    code = record["code"]
    same = code["dependencies_digest"] == dependencies_digest(code["dependencies"])
    installed = {line.partition(" ")[0] for line in code["dependencies"]}
    named = {f"{name}=={version}" for name, version in record["software"].items()}
    return [
        *require(same, "the digest of what was installed is not that of its list"),
        *require(named <= installed, "its versions are not those of what was installed"),
    ]


def _same_noise(measurement: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether the noise that a record states, if it states any, follows from the event's parameters."""
    if "noise" not in measurement:  # of a version that left it to the reader
        return True
    stated, due = measurement["noise"], noise_facts(event_from_json(event))
    return stated["law"] == due["law"] and _alike_figures(_noise_figures(stated), _noise_figures(due))


def _noise_figures(noise: dict[str, Any]) -> Figures:
    return {"parameter": noise["parameter"], **(noise["covariance"] or {})}


def _alike(stated: float | None, due: float | None) -> bool:
    """Whether two figures are equal up to the rounding of another machine."""
    if stated is None or due is None:
        return stated is due
    return math.isclose(stated, due, rel_tol=1e-9)


def accounting_check(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> Check:
    """The balance that the record states is the one that the ledger gives at the head it names."""
    return check(
        f"{release.release_id}: balance",
        lambda: _accounting_faults(evidence, record, release),
        f"is what the first {record['ledger']['entries']} entries give",
    )


def _accounting_faults(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> list[str]:
    """Earlier versions counted mixed costs by the rule for fixed costs; a record that agrees with it is not broken.

    Raises: NotShownError.
    """
    found = _balance_faults(evidence, record, release)
    if found and not _balance_faults(evidence, record, release, if_fixed=True):
        raise NotShownError(
            "an earlier version stated it as if all costs had been fixed beforehand; for pure costs and Gaussian noise "
            f"together, chosen one after the other, more is counted today: {'; '.join(found)}"
        )
    return found


def _balance_faults(
    evidence: Evidence, record: dict[str, Any], release: ReleaseState, *, if_fixed: bool = False
) -> list[str]:
    """Where a record's budget is not the ledger's, by the present rule or by that for costs fixed beforehand."""
    budget, known = record["budget"], evidence.history.at(release.population, int(record["ledger"]["entries"]))
    is_first = record["record_version"] == 1  # it stated the balance at the start of its run
    lifetime = {name: float(getattr(known.cap, name)) for name in ("epsilon", "delta", "delta_num")}
    found = require(budget["lifetime"] == lifetime, "its lifetime is not the cap of that time")
    due = budget_facts(known, release) | (_if_fixed(known, release) if if_fixed else {})
    earlier = known.cap.kind is None and (if_fixed or "relations" not in budget)
    left_out = {*({"before"} if is_first else ()), *(SINCE_SPANS if earlier else ())}
    extra = BUDGET_WORDS.keys() & budget.keys() - due.keys()
    found += require(not extra, "it states figures of a budget that is counted otherwise")
    for name in sorted(due.keys() - left_out):
        same = budget.get(name) == due[name] or (is_first and _was_stricter(budget[name], due[name]))
        found += require(same, f"its {BUDGET_WORDS[name]} is not the ledger's")
    left = _is_releases_left(budget["releases_left"], known, release, if_fixed=if_fixed, and_no_more=not is_first)
    return found + require(left, "its number of releases left is not the ledger's")


BUDGET_WORDS = {
    "kind": "kind of cap",
    "span": "span",
    "before": "balance before",
    "after": "balance after",
    "relations": "balance under both relations",
    "odometer": "sum over all months",
}
SINCE_SPANS = ("relations", "kind", "span", "odometer")
"""What records of earlier versions do not state: their caps had neither kinds nor spans."""


def _if_fixed(known: Population, release: ReleaseState) -> dict[str, Any]:
    """The balances as earlier versions stated them, as if all costs had been fixed beforehand."""
    costs = {"before": known.without(release), "after": known}
    return {
        when: release_statement(held.balance(reserved=False).cost, delta=known.cap.delta).as_json()
        for when, held in costs.items()
    }


def _was_stricter(stated: dict[str, float], due: dict[str, float]) -> bool:
    """Version 1 counted Gaussian noise as zCDP only: a larger epsilon for the same costs."""
    return stated["epsilon"] >= due["epsilon"] and {**stated, "epsilon": 0} == {**due, "epsilon": 0}


def _is_releases_left(
    count: int | None, known: Population, release: ReleaseState, *, if_fixed: bool, and_no_more: bool
) -> bool:
    """Whether exactly this many further releases fit, or at least so many in records of the first version."""
    if and_no_more and not if_fixed:
        return count == further_releases(known, release)
    each = total(plan.cost for plan in release.reservation.measurements.values())
    balance = known.balance(known.relation_of(release.reservation))
    if count is None or not 0 <= count <= MOST_FURTHER:
        return False
    enough = count == 0 or _fits(balance, each, count, if_fixed=if_fixed)
    more = and_no_more and count < MOST_FURTHER and _fits(balance, each, count + 1, if_fixed=if_fixed)
    return enough and not more


def _fits(balance: Balance, each: Cost, count: int, *, if_fixed: bool) -> bool:
    """Whether so many further releases fit."""
    after = balance.adding(None, times(each, count))
    return after.was_admitted if if_fixed else after.is_admitted
