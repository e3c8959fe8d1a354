"""Steps over a release's record: what it says is what the ledger, replayed, says."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from dpcore.accounting import Cap, Cost, population_balance, release_statement, times, total
from dpcore.measurements.noise_law import noise_facts
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.mechanisms.registry import event_from_json
from dpcore.records.schema import Neighbours
from tasks.audit.checks import Check, NotShownError, check, require
from tasks.audit.evidence import Evidence
from tasks.bundle.odds import exponent
from tasks.bundle.record import record_faults
from tasks.ledger.balances import Composes
from tasks.ledger.entries.bodies import Spend
from tasks.ledger.entries.costs import less
from tasks.ledger.entries.entry import Entry
from tasks.ledger.releases import ReleaseState
from tasks.ledger.state import Population
from tasks.spec.privacy import adds_up, specified_basis
from tasks.spec.relations import PARTICIPATION, VALUES, relation_figures
from tasks.spec.release import public_digest
from tasks.workspace.build_identity import dependencies_digest

KNOWN_VERSIONS = (1, 2)
MOST_FURTHER = 100_000
"""`Cap.releases_left` counts no farther."""


def record_check(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> Check:
    """The record's facts are the ledger's."""
    words = "agrees with the ledger"
    return check(f"{release.release_id}: record", lambda: _record_faults(evidence, record, release), words)


def _record_faults(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> list[str]:
    head = (record["ledger"]["entries"], record["ledger"]["head"])
    return [
        *require(record["record_version"] in KNOWN_VERSIONS, "its version is unknown to this program"),
        *require(record["record_version"] == 1 or not record_faults(record), "it breaks the schema of records"),
        *_identity_faults(record, release),
        *_guarantee_faults(record["privacy"], release),
        *_basis_faults(evidence, record, release),
        *_measurement_faults(record["privacy"], release),
        *_software_faults(record),
        *require(
            head in evidence.known,
            "the ledger head that it names is not in this ledger: the ledger is older, or another one",
        ),
    ]


def _identity_faults(record: dict[str, Any], release: ReleaseState) -> list[str]:
    reserved, published = release.reservation, release.published
    same = record["release_id"] == release.release_id and record["privacy"]["population"] == release.population
    found = require(same, "it is about another release or population")
    for name in ("name", "period", "sequence", "supersedes", "reason"):
        found += require(record[name] == getattr(reserved, name), f"its {name} is not the ledger's")
    seeds = {"projection": record["model"]["projection"]["seed"], "sampling": record["model"]["sampling_seed"]}
    found += require(seeds == reserved.seeds, "its seeds are not those reserved")
    digest = public_digest(record["specification"])
    found += require(
        record["spec_digest"] == reserved.spec_digest == digest, "its specification is not the one reserved"
    )
    runs = published and published.flow_run_id
    return found + require(record["flow_run_id"] == runs, "its flow run is not the one that published")


def _guarantee_faults(privacy: dict[str, Any], release: ReleaseState) -> list[str]:
    stated = release.reservation.stated
    found = []
    for name in ("epsilon", "delta"):
        found += require(privacy[name] == stated[name], f"its {name} is not the ledger's")
    composed = release_statement(release.spent, delta=Fraction(str(stated["delta"])))
    enough = float(composed.epsilon) <= privacy["epsilon"] * (1 + 1e-12)
    exact = float(composed.delta_num) == privacy["delta_num"]
    found += require(enough and exact, "its epsilon or delta_num is not what its measurements cost")
    return found + require(_same_relations(privacy, release), "its figures under a relation are not its measurements'")


def _same_relations(privacy: dict[str, Any], release: ReleaseState) -> bool:
    """Whether what a record says of values and of participation, if it does, follows from its measurements."""
    if VALUES not in privacy and PARTICIPATION not in privacy:  # of a version that left it to the reader
        return True
    events = [event_from_json(entry.parse(Spend).event) for entry in release.spends.values()]
    due = relation_figures(events, Neighbours(privacy["neighbours"]), release.reservation.stated)
    return all(_alike_figures(privacy.get(name), figures) for name, figures in due.items())


def _alike_figures(stated: dict[str, float] | None, due: dict[str, float] | None) -> bool:
    if stated is None or due is None:
        return stated is due
    return stated.keys() == due.keys() and all(_alike(stated[name], figure) for name, figure in due.items())


def _basis_faults(evidence: Evidence, record: dict[str, Any], release: ReleaseState) -> list[str]:
    """The guarantee speaks of the specification's unit, and the budget is counted for such units."""
    privacy, basis = record["privacy"], evidence.state.populations[release.population].basis
    stated = {"unit": privacy["unit"], "neighbours": privacy["neighbours"]}
    found = require(adds_up(basis, stated), "its unit or neighbours are not those that the budget is counted for")
    found += require(stated == specified_basis(record["specification"]), "its unit is not that of its specification")
    figures = (f"{exponent(privacy['epsilon'])} (", f"e^{privacy['epsilon']:g} = ")  # the second is of older versions
    said = any(figure in words for words in privacy["guarantee"] for figure in figures)
    return found + require(said, "its words promise another epsilon")


def _measurement_faults(privacy: dict[str, Any], release: ReleaseState) -> list[str]:
    found, told = [], [measurement["name"] for measurement in privacy["measurements"]]
    for measurement in privacy["measurements"]:
        name, entry = measurement["name"], release.spends.get(measurement["name"])
        if entry is None or measurement["ledger_entry"] != {"seq": entry.seq, "hash": entry.hash}:
            found.append(f"its measurement {name!r} is not in the ledger")
            continue
        found += _one_measurement(measurement, entry)
    silent = [name for name in release.spends if name not in told]
    return found + [f"it lacks the measurement {name!r}" for name in silent]


def _one_measurement(measurement: dict[str, Any], entry: Entry) -> list[str]:
    name, spend = measurement["name"], entry.parse(Spend)
    found = require(
        measurement.get("build") == spend.build,
        f"the audit of the build that it names for {name!r} is not the ledger's",
    )
    same = all(measurement[key] == getattr(spend, key) for key in ("digest", "seeded"))
    found += require(same, f"its digest of {name!r} is not the ledger's")
    event = measurement["mechanism"] == spend.event["mechanism"] and measurement["parameters"] == spend.event
    found += require(event, f"its parameters of {name!r} are not the ledger's")
    figures = {key: measurement[key] or 0.0 for key in ("epsilon", "rho", "delta_num")}
    exact = figures == {key: float(getattr(spend.cost, key)) for key in figures}
    found += require(exact, f"its cost of {name!r} is not the ledger's")
    found += require(_same_noise(measurement, spend.event), f"the noise that it states of {name!r} is another")
    labelled = measurement["status"] == BY_NAME[measurement["mechanism"]].status.value
    return found + require(labelled, f"it labels the proof of {name!r} otherwise than the registry")


def _software_faults(record: dict[str, Any]) -> list[str]:
    """The versions are those of the list, and the digest that statement and registry entry repeat is the list's."""
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
    """Whether the noise that a record states, if it does, follows from the event's parameters."""
    if "noise" not in measurement:  # of a version that left it to the reader
        return True
    stated, due = measurement["noise"], noise_facts(event_from_json(event))
    figures = [_figures(noise) for noise in (stated, due)]
    same = stated["law"] == due["law"] and figures[0].keys() == figures[1].keys()
    return same and all(_alike(figures[0][key], value) for key, value in figures[1].items())


def _figures(noise: dict[str, Any]) -> dict[str, float | None]:
    return {"parameter": noise["parameter"], **(noise["covariance"] or {})}


def _alike(stated: float | None, due: float | None) -> bool:
    """Equal, up to how another machine rounds."""
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
    """Earlier versions stated mixed costs as if all were fixed beforehand; what agrees with that is not broken.

    Raises: NotShownError.
    """
    found = _balance_faults(evidence, record, release, population_balance, Cap.admits)
    if found and not _balance_faults(evidence, record, release, release_statement, Cap.admits_if_fixed):
        raise NotShownError(
            "an earlier version stated it as if all costs had been fixed beforehand; for pure costs and Gaussian noise "
            f"together, chosen one after the other, more is counted today: {'; '.join(found)}"
        )
    return found


Admits = Callable[[Cap, Cost], bool]


def _balance_faults(
    evidence: Evidence, record: dict[str, Any], release: ReleaseState, compose: Composes, admits: Admits
) -> list[str]:
    budget, known = record["budget"], evidence.history.at(release.population, int(record["ledger"]["entries"]))
    spent = total(entry.parse(Spend).cost for entry in release.spends.values())
    balances = {"after": known.spent}
    if record["record_version"] > 1:  # version 1 told the balance when its run began
        balances["before"] = less(known.spent, spent)
    lifetime = {name: float(getattr(known.cap, name)) for name in ("epsilon", "delta", "delta_num")}
    found = require(budget["lifetime"] == lifetime, "its lifetime is not the cap of that time")
    for when, cost in balances.items():
        due = compose(cost, delta=known.cap.delta).as_json()
        same = budget[when] == due or (record["record_version"] == 1 and _was_stricter(budget[when], due))
        found += require(same, f"its balance {when} is not the ledger's")
    strict = record["record_version"] > 1
    left = _is_releases_left(budget["releases_left"], known, release, admits, and_no_more=strict)
    return found + require(left, "its number of releases left is not the ledger's")


def _was_stricter(stated: dict[str, float], due: dict[str, float]) -> bool:
    """Version 1 counted Gaussian noise as zCDP only: a larger epsilon for the same costs."""
    return stated["epsilon"] >= due["epsilon"] and {**stated, "epsilon": 0} == {**due, "epsilon": 0}


def _is_releases_left(
    count: int, known: Population, release: ReleaseState, admits: Admits, *, and_no_more: bool
) -> bool:
    """Whether so many further releases fit, and not one more: two looks instead of a search."""
    each = total(plan.cost for plan in release.reservation.measurements.values())
    committed = known.spent + known.reserved
    enough = count == 0 or admits(known.cap, committed + times(each, count))
    more = and_no_more and count < MOST_FURTHER and admits(known.cap, committed + times(each, count + 1))
    return 0 <= count <= MOST_FURTHER and enough and not more
