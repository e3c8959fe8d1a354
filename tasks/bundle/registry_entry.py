"""The release as an entry of the DP Deployments Registry: a function of its record.

The schema is https://github.com/opendp/deployments-registry-data; strings are Markdown there.
What only the steward knows comes from the specification's `about` section; the entry says which of it is missing.
"""

from __future__ import annotations

from typing import Any

import yaml

from tasks.bundle.odds import lifetime
from tasks.bundle.projection_text import published_output
from tasks.bundle.query_text import BEYOND_THE_ANSWER
from tasks.spec.privacy import OF_ANSWER
from tasks.spec.relations import PARTICIPATION, UNPROVED, VALUES, at_least, at_most, is_unproved

REGISTRY = "registry.yaml"
NOT_STATED = "Not stated by the steward."
NO_DELTA = "not proved"
"""Stands in for a number: nothing bounds how far a release departs from its guarantee."""
COMPLETE_BY_ABOUT = ("curator", "use", "region", "access", "why")
"""Keys of `about` that an entry of the third tier needs besides the record."""


def deployment_text(record: dict[str, Any]) -> str:
    """Return the entry as YAML."""
    return yaml.safe_dump(build_deployment(record), sort_keys=False, allow_unicode=True, width=100)


def build_deployment(record: dict[str, Any]) -> dict[str, Any]:
    """Build the entry from a release's record."""
    about = record["specification"].get("about", {})
    return {
        "url_slug": record["release_id"],
        "status": "Draft",
        "tier": tier_of(about),
        "deployment": {
            "basic": _basic(record, about),
            "dp_variant": _variant(record),
            "privacy_loss": _loss(record),
            "deployment_model": _deployment_model(record, about),
            "accounting": _accounting(record),
            "implementation": _implementation(record, about),
            "administrative": _administrative(record, about),
        },
    }


def tier_of(about: dict[str, Any]) -> int:
    """Return 3 if the steward stated everything that the record cannot know, and 2 otherwise."""
    return 3 if all(about.get(key) for key in COMPLETE_BY_ABOUT) else 2


def unproved(record: dict[str, Any]) -> list[str]:
    """Return the mechanisms of a release whose guarantee is not proved for the sampler that ran."""
    return [m["mechanism"] for m in record["privacy"]["measurements"] if m["status"] != "proved"]


def variant_name(record: dict[str, Any]) -> str:
    """Return "Pure DP" only if nothing is added to epsilon, not even by finite precision, and everything is proved."""
    privacy = record["privacy"]
    if unproved(record):
        return "Custom"
    return "Approximate DP" if privacy["delta"] or privacy["delta_num"] else "Pure DP"


def privacy_parameters(record: dict[str, Any]) -> dict[str, float | str]:
    """Return epsilon, delta (with the bound for finite precision, if there is one), and rho if noise was Gaussian."""
    privacy = record["privacy"]
    rho = sum(m["rho"] or 0.0 for m in privacy["measurements"])
    delta = NO_DELTA if unproved(record) else privacy["delta"] + privacy["delta_num"]
    figures = {"epsilon": privacy["epsilon"], "delta": delta}
    return figures | ({"rho": rho} if rho else {})


def _basic(record: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    columns = ", ".join(column["name"] for column in record["specification"]["columns"])
    stated = f"{about['description']}\n\n" if "description" in about else ""
    basic = {
        "name": f"{record['name']}, {record['period']}",
        "data_curators": [about.get("curator", NOT_STATED)],
        "description": f"{stated}{record['rows']} synthetic rows of the columns {columns}{_along(record)}, drawn from "
        f"{'noisy' if unproved(record) else 'differentially private'} moments of the data of {record['period']}.",
        "intended_use": about.get("use", NOT_STATED),
        "data_product_type": "Synthetic data",
        "data_product_region": about.get("region", NOT_STATED),
        "publication_date": record["created_at"][:10],
    }
    return basic | ({"data_product_sector": about["sector"]} if "sector" in about else {})


def _along(record: dict[str, Any]) -> str:
    """Say in which coordinates the rows are published, if not in the original columns alone."""
    words = {"projected": " as points along the projection", "both": ", also as points along the projection"}
    return words.get(published_output(record) or "", "")


def _variant(record: dict[str, Any]) -> dict[str, str]:
    return {
        "variant_name": variant_name(record),
        "data_domain": "All tables of any length whose columns are those of the specification, each within its "
        "public bounds or categories; cells outside are clamped or mapped, record by record.",
        "unprotected_quantities": _unprotected(record),
    }


def _unprotected(record: dict[str, Any]) -> str:
    return (
        f"{_exact_count(record['privacy'])} The specification makes public: columns, bounds, categories, the expected "
        "number of rows, all settings, that a release was made and when, and that data with the declared structure "
        "existed."
    )


def _exact_count(privacy: dict[str, Any]) -> str:
    """Say what is released without noise: the number of rows or persons, unless the record states what hides it."""
    nothing = "No statistic is released without noise."
    if privacy.get(PARTICIPATION) is not None or privacy["neighbours"] == "add-remove":
        return nothing
    if PARTICIPATION in privacy:
        return "One statistic is released without noise: the number of rows (or persons)."
    return f"{nothing} The number of rows (or persons) is treated as known."


def _relations(privacy: dict[str, Any]) -> str:
    """Describe the guarantee under both relations, if the record states both."""
    if PARTICIPATION not in privacy:
        return ""
    stated = {"Replacing the values of one unit": privacy[VALUES], "Adding or removing one": privacy[PARTICIPATION]}
    doubt = f" ({UNPROVED})" if is_unproved(privacy) else ""
    parts = [f"{change}: {_relation_parameters(figures)}{doubt}." for change, figures in stated.items()]
    return f" {' '.join(parts)}"


def _relation_parameters(figures: dict[str, float] | None) -> str:
    if figures is None:
        return "no guarantee"
    return f"epsilon {at_most(figures['epsilon'])}, delta {at_most(figures['delta'] + figures['delta_num'])}"


def _loss(record: dict[str, Any]) -> dict[str, Any]:
    privacy = record["privacy"]
    unit = "Person, with all of their rows" if privacy["unit"].startswith("person") else "Row"
    whom = "person's rows" if privacy["unit"].startswith("person") else "row"
    if "span" in record["budget"]:
        unit, whom = _within_months(unit, whom, record["budget"]["span"])
    unit, whom = (f"{words}{OF_ANSWER if privacy['unit'].endswith(OF_ANSWER) else ''}" for words in (unit, whom))
    beyond = f" {BEYOND_THE_ANSWER}" if privacy["unit"].endswith(OF_ANSWER) else ""
    moved = "replacing" if privacy["neighbours"] == "replace-one" else "adding or removing"
    return {
        "privacy_unit": unit,
        "privacy_unit_details": f"Two tables are adjacent if one results from the other by {moved} one {whom} "
        f"(neighbours: {privacy['neighbours']}; unit: {privacy['unit']}).{beyond}{_relations(privacy)}",
        "privacy_parameters": privacy_parameters(record),
        "privacy_parameters_details": _parameter_details(record),
    }


def _within_months(unit: str, whom: str, span: int) -> tuple[str, str]:
    """The unit and its rows, where so many consecutive months are protected together."""
    months = "one month" if span == 1 else f"{span} consecutive months"
    if unit == "Row":
        return unit, f"{whom} of a month"
    return "Person-month" if span == 1 else f"Person, with all rows of {months}", f"{whom} within {months}"


def _parameter_details(record: dict[str, Any]) -> str:
    privacy = record["privacy"]
    parts = [
        f"{m['name']}: {_measurement_cost(m)} by {m['mechanism']} ({m['status']})" for m in privacy["measurements"]
    ]
    doubtful = unproved(record)
    delta = (
        f"The guarantee of {', '.join(doubtful)} is approximate: it is proved for exact arithmetic and an exact "
        "sampler, and for the values that were drawn, neither epsilon nor a delta is proved."
        if doubtful
        else f"Of delta, {at_most(privacy['delta'])} is due to the mechanisms and {at_most(privacy['delta_num'])} "
        "bounds what finite precision adds."
    )
    return f"These figures are for this release alone. {delta} Measurements: {'; '.join(parts)}."


def _measurement_cost(measurement: dict[str, Any]) -> str:
    named = {"epsilon": measurement["epsilon"], "rho": measurement["rho"]}
    return " and ".join(f"{name} {at_most(value)}" for name, value in named.items() if value is not None)


def _deployment_model(record: dict[str, Any], about: dict[str, Any]) -> dict[str, str]:
    privacy, cap, spent = record["privacy"], record["budget"]["lifetime"], record["budget"]["after"]["epsilon"]
    delta = record["budget"]["after"].get("delta", cap["delta"])
    at_delta = f" at delta {at_most(delta)}" if delta else ""
    whole = "lifetime" if "span" not in record["budget"] else "total"
    within = "" if "span" not in record["budget"] else " for every such window"
    limit = lifetime(cap["epsilon"], cap["delta"], cap["delta_num"], whole=whole)
    return {
        "model_name": "Central",
        "actors": "The steward, the operator's machine and the workers of its cluster, if it has one, see the raw "
        "data. Besides this bundle, auditors of the workspace see the noisy measurements of failed releases and the "
        "times of runs. Everybody else, including adversaries with any other knowledge, sees this bundle and is not "
        f"trusted. Access to the raw data: {about.get('access', NOT_STATED)}",
        "release_type": "Many releases",
        "release_type_details": "One release per period, or several if one supersedes another. "
        f"{_refreshment(record['budget'])} All releases over the population {privacy['population']!r}, counted for "
        f"{privacy['neighbours']} neighbours, stay within {limit}{within}, as far as the cost of every measurement is "
        "proved, and unless that cap is changed for a reason recorded in the ledger; after this release, epsilon "
        f"{at_most(spent)}{at_delta} is spent. A ledger of signed, hash-chained entries refuses any release that would "
        "exceed the cap.",
        "data_source_type": "Dynamic",
        "access_type": "Non-interactive",
    }


def _refreshment(budget: dict[str, Any]) -> str:
    """The refreshment timeframe: after how long the loss of a release no longer counts."""
    span = budget.get("span")
    if span is None:
        return "Refreshment timeframe: none; the budget never resets."
    months = "one month" if span == 1 else f"{span} months"
    return (
        f"Refreshment timeframe: {months}. What a unit contributes within any {months} in a row is protected together, "
        "and the figures below hold for the most expensive such window; older releases no longer count. For somebody "
        f"present in all months the sum so far is epsilon {at_most(budget['odometer']['epsilon'])}, if the schedule "
        "was fixed beforehand."
    )


def _within(budget: dict[str, Any]) -> str:
    return f" within {budget['span']} consecutive months" if "span" in budget else ""


def _parallel(budget: dict[str, Any]) -> str:
    if "span" not in budget:
        return "No parallel composition is claimed between periods."
    return (
        "Periods further apart are composed in parallel: the month of a record is a function of that record alone, and "
        "every release leaves out the records of other months."
    )


_RULES = {
    "pure": "all costs are pure; they add exactly, or are counted as zCDP where that is less",
    "gaussian": "all costs are Gaussian and add as rho, which is converted once by the exact curve",
    "zcdp": "every cost is counted as zCDP, a pure epsilon as epsilon squared over 2, and converted once; pure costs "
    "alone are added where that is less",
    "split": "pure costs and Gaussian noise each stay within a part of their own, and the two parts add",
    "slots": "the releases are pure, of at most one size each, and are composed exactly",
}
"""How the kinds of caps compose costs."""


def _rule(budget: dict[str, Any]) -> str:
    """The rule of the population's cap; records of earlier versions name none."""
    return _RULES.get(
        budget.get("kind", ""),
        "pure costs add exactly, Gaussian costs add as rho and are converted once; over a population that spends "
        "both, everything is counted as zCDP",
    )


def _accounting(record: dict[str, Any]) -> dict[str, str]:
    model, along = record["model"], _along(record)
    points = f" They are published{along}." if along else ""
    return {
        "post_processing": f"The noisy moments are repaired to a valid model ({model['generator']}), synthetic rows "
        "are drawn from it, decoded to the original columns, clamped to their bounds, and checked against the noisy "
        f"moments.{points}",
        "composition": "Sequential, over all measurements of a release and all releases of the population"
        f"{_within(record['budget'])}: {_rule(record['budget'])}. {_parallel(record['budget'])}",
    }


def _implementation(record: dict[str, Any], about: dict[str, Any]) -> dict[str, str]:
    code, numerics = record["code"], record["numerics"]
    builds = "; ".join(_build(m) for m in record["privacy"]["measurements"])
    return {
        "preprocessing_and_hyperparameter_tuning": "Bounds, categories and the expected number of rows are public "
        "knowledge, as the specification declares. Every automatic choice is a function of the specification and of "
        "released noisy values; validation reports its verdicts to the operator only.",
        "mechanisms": f"{_parameter_details(record)}\n\nFloating point: exact integer sums on a grid of "
        f"{numerics['grid_bits']} bits; {numerics['method']}. Noise is drawn from operating-system entropy "
        "and never seeded.\n\n"
        f"Audit of the build before it drew: {builds}.\n\n"
        f"Code: dprelease {code['version']}, SHA-256 {code['digest']}, Python {code['python']}, installed "
        f"distributions SHA-256 {code['dependencies_digest']}. Access to the raw data: "
        f"{about.get('access', NOT_STATED)}",
        "justification": "\n".join(
            [about.get("why", NOT_STATED), "", *(f"- {why}" for why in record["model"]["reasons"])]
        ),
    }


def _build(measurement: dict[str, Any]) -> str:
    attack = measurement["build"]["attack"]
    delta = f", delta {at_most(attack['delta'])}" if attack.get("delta") else ""
    known = ", with the shape of the noise taken as known" if "known shape" in attack.get("how", "") else ""
    return (
        f"{measurement['mechanism']}: epsilon {at_most(attack['claimed'])}{delta} claimed, at least "
        f"{at_least(attack['measured'], 3)} measured by attack ({attack['verdict']}{known})"
    )


def _administrative(record: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    entry = {
        "notes": f"Written by dprelease {record['code']['version']} from the release's record; the bundle's "
        "statement.intoto.json signs this file.",
        "registry_authors": list(about.get("authors") or ["dprelease (generated)"]),
    }
    return entry | ({"sources": "\n".join(f"- {link}" for link in about["links"])} if about.get("links") else {})
