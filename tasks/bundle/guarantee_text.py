"""The guarantee and its limits in words that a person without mathematics can read."""

from __future__ import annotations

from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, PrivacyUnit, RowRule
from tasks.bundle import odds
from tasks.bundle.query_text import query_words
from tasks.spec.plan import PlannedRelease
from tasks.spec.relations import PARTICIPATION, VALUES, Figures, at_most


def guarantee(run: PlannedRelease) -> list[str]:
    """What is promised, to whom, against whom, over which releases, and what is not: sentence by sentence."""
    return [
        _whom(run.spec.unit),
        *query_words(run.spec),
        _promise(run),
        *_precision(run),
        *(_doubt(name) for name in run.plan.approximate),
        "The promise holds against everybody, whatever else they know, whatever they compute from the release, and "
        "for all time. What they may learn are facts about the population as a whole, such as that two things go "
        "together; such a fact may be applied to anyone, in the data or not, and that is no breach of it.",
        _participation(run),
        _composition(run),
        _not_protected(run),
    ]


def _whom(unit: PrivacyUnit) -> str:
    if unit.person is None:
        return (
            "Protected is every single row of the data. Somebody who has several rows is protected for each of "
            "them by itself, not for all of them together."
        )
    weighted = unit.row_rule is RowRule.WEIGHT
    kept = (
        "each person counted once, whatever the number of rows"
        if weighted
        else f"of which the first {unit.most_rows} were used"
    )
    return (
        f"Protected is every single person in the data with all of their rows, {kept}. Rows without an identifier "
        "count together as one person. Somebody whose rows bear none is part of that one person: whether they are in "
        "the data is protected only as far as what a person contained is."
    )


def _promise(run: PlannedRelease) -> str:
    epsilon, delta = run.stated["epsilon"], run.stated["delta"]
    unit = "one person, with all of their rows," if run.spec.unit.person else "one row"
    slack = f", and by at most delta = {at_most(delta)} beyond that" if delta else ""
    whatever, otherwise = f"Whatever {unit} contained", "had it contained something else"
    if run.spec.neighbours is Neighbours.ADD_REMOVE:  # under which other values cost more: see `_participation`
        whatever, otherwise = f"Whether or not {unit} was in the data", "had it been the other way"
    return (
        f"{whatever}, anything that anyone can conclude from this release would have come out almost as likely "
        f"{otherwise}: every probability changes by a factor of at most {odds.factor(epsilon)}{slack}. "
        f"{odds.certainty(run)}"
    )


def _precision(run: PlannedRelease) -> list[str]:
    if run.plan.approximate:  # nothing bounds what finite precision adds, as `_doubt` says
        return []
    delta_num = float(run.plan.cost.delta_num)
    if delta_num:
        return [f"The computer's finite precision adds at most {at_most(delta_num, 1)} to every probability."]
    if not run.stated["delta"]:
        return ["The promise is pure: nothing is added to that factor (delta = 0), not by rounding either."]
    return []


def _composition(run: PlannedRelease) -> str:
    privacy = run.spec.privacy
    cap = privacy.lifetime
    lifetime = odds.lifetime(cap.epsilon, cap.delta, cap.delta_num)
    declared, other = _relations(run)
    whose = (
        " With persons the sum holds for rows to which every column that identifies them in the population's releases "
        "gives one identifier."
        if run.spec.unit.person
        else ""
    )
    return (
        f"Releases add up. This one is counted together with every release over the population "
        f"{privacy.population!r}, and the ledger keeps what they cost together for {declared} within {lifetime}, as "
        "far as the cost of every measurement is proved, and unless that cap is raised with a reason that the ledger "
        f"keeps. What they cost for {other} adds up as well, and is not capped.{whose} What was published about the "
        "same people under another population's name, or without this ledger, adds to it and is not counted here."
    )


def _not_protected(run: PlannedRelease) -> str:
    whom = "persons" if run.spec.unit.person else "rows"
    return (
        "Not protected are the public description itself (columns, bounds, categories, settings), the fact that a "
        f"release was made and when, and what is true of many {whom} together: {odds.group(run)}."
    )


def _doubt(mechanism: str) -> str:
    return (
        f"One measurement, by {mechanism}, is approximate: the promise is proved for exact arithmetic and an exact "
        f"sampler, and how far the computer stays from them is not bounded ({BY_NAME[mechanism].reason}). For what "
        "was drawn neither the epsilon nor a delta of this release is proved."
    )


def _participation(run: PlannedRelease) -> str:
    """What holds under the other relation than the declared one, with figures of its own."""
    declared, other = _relations(run)
    figures, otherwise = run.relations[PARTICIPATION], "had it not been there"
    if run.spec.neighbours is Neighbours.ADD_REMOVE:
        figures, otherwise = run.relations[VALUES], "had it been anything else"
    if figures is None:
        return f"The promise is about {declared}. Not protected is {other}: the release shows how many there are."
    return f"The promise is about {declared}. Protected as well is {other}: {otherwise}, {_changes(figures)}."


def _relations(run: PlannedRelease) -> tuple[str, str]:
    """What the declared relation is about, with its name, and what the other one is about."""
    whom = "person" if run.spec.unit.person else "row"
    contained, is_there = f"what a {whom} of the data contained", f"whether a {whom} is in the data at all"
    if run.spec.neighbours is Neighbours.ADD_REMOVE:
        return f"{is_there} (add-remove)", contained
    return f"{contained} (replace-one)", is_there


def _changes(figures: Figures) -> str:
    """By how much probabilities change; every figure is rounded up."""
    slack = f", and by at most delta = {at_most(figures['delta'])} beyond that" if figures["delta"] else ""
    rounding = f"; finite precision adds at most {at_most(figures['delta_num'], 1)}" if figures["delta_num"] else ""
    return f"every probability would change by a factor of at most {odds.factor(figures['epsilon'])}{slack}{rounding}"


def _measured(run: PlannedRelease) -> str:
    scores = ", and scores of what came out," if run.spec.checks.budgeted else ""
    if run.plan.marginals_event is not None:
        return f"histograms of columns and tables of pairs of their groups{scores}"
    return f"means, shares, variances and pairwise linear relations{scores}"


def limits(run: PlannedRelease) -> list[str]:
    """What an analyst should not trust in this release."""
    lines = [
        "No row describes anybody: rows are drawn from a model that was fitted to noisy sums.",
        f"Only {_measured(run)} were measured; anything finer "
        "(sub-groups, interactions of three columns, tails, order in time) is the model's assumption.",
    ]
    bell = [c.name for c in run.plan.schema.columns if isinstance(c, IntervalColumn) and c.kind is not Kind.BOOLEAN]
    if run.plan.marginals_event is not None:
        lines.append(
            "Histograms decide which values of a column share a group, and pairs of columns were measured by groups: "
            "inside a group a column hangs together with nothing."
        )
    elif bell:
        lines.append(
            "Within a class these columns come out with one smooth hump between their bounds, whatever their "
            f"real shape: {', '.join(bell[:12])}{' and more' if len(bell) > 12 else ''}."
        )
    if run.plan.projection != "none" and run.plan.dimension < run.encoding.feature_width:
        lost = "their means are kept" if run.plan.knows_centre else "their means are only guessed"
        lines.append(
            f"Only {run.plan.dimension} directions of {run.encoding.feature_width} were measured. Of single columns "
            f"{lost}, spreads come out too small, and relations that these directions miss are lost."
        )
    if run.plan.frame_events or run.plan.radius != 1:
        lines.append(
            "Records far from the centre were drawn back to a radius around it before they were measured: "
            "spreads come out smaller where a table has far-off records."
        )
    lines.append("Cells out of bounds, missing or of unknown category were clamped or mapped, as the codebook says.")
    return lines
