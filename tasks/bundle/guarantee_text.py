"""The guarantee of a release and its limits, in sentences that need no mathematics."""

from __future__ import annotations

from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, PrivacyUnit, RowRule
from tasks.bundle import odds
from tasks.bundle.query_text import query_words
from tasks.spec.plan import PlannedRelease
from tasks.spec.relations import PARTICIPATION, VALUES, Figures, at_most


def guarantee(run: PlannedRelease) -> list[str]:
    """Return the guarantee sentence by sentence: who is protected, how well, against whom, over which releases."""
    return [
        _protected_unit(run.spec.unit),
        *query_words(run.spec),
        _promise(run),
        *_precision(run),
        *(_approximation(name) for name in run.plan.approximate),
        "The guarantee holds against everybody, whatever else they know, whatever they compute from the release, and "
        "for all time. What they can learn are facts about the population as a whole, for example that two things go "
        "together. Such a fact can be applied to anyone, in the data or not, and that is not a breach of the "
        "guarantee.",
        _other_relation(run),
        _composition(run),
        _not_covered(run),
    ]


def _protected_unit(unit: PrivacyUnit) -> str:
    if unit.person is None:
        return (
            "Each row of the data is protected. Somebody who has several rows is protected for each of them "
            "separately, not for all of them together."
        )
    used = (
        "each person counts once, whatever the number of their rows"
        if unit.row_rule is RowRule.WEIGHT
        else f"at most the first {unit.most_rows} rows of each person were used"
    )
    return (
        f"Each person in the data is protected, with all of their rows; {used}. Rows without an identifier count "
        "together as one person. Somebody whose rows have no identifier is part of that one person: whether they are "
        "in the data is protected only to the same extent as the contents of a person's rows."
    )


def _promise(run: PlannedRelease) -> str:
    epsilon, delta = run.stated["epsilon"], run.stated["delta"]
    person = run.spec.unit.person is not None
    slack = f", and by at most delta = {at_most(delta)} beyond that" if delta else ""
    changed = f"{'all rows of one person together' if person else 'one row'} had contained anything else"
    if run.spec.neighbours is Neighbours.ADD_REMOVE:  # a change of values costs more: see `_other_relation`
        unit = "one person, with all of their rows," if person else "one row"
        changed = f"{unit} had been added to the data or removed from it"
    return (
        f"Any conclusion that anyone can draw from this release would have been almost as likely if {changed}: "
        f"every probability changes by a factor of at most {odds.factor(epsilon)}{slack}. {odds.certainty(run)}"
    )


def _precision(run: PlannedRelease) -> list[str]:
    if run.plan.approximate:  # nothing bounds what finite precision adds, as `_approximation` says
        return []
    delta_num = float(run.plan.cost.delta_num)
    if delta_num:
        return [f"The computer's finite precision adds at most {at_most(delta_num, 1)} to every probability."]
    if not run.stated["delta"]:
        return ["The guarantee is pure (delta = 0): nothing is added to that factor, not even by rounding."]
    return []


def _composition(run: PlannedRelease) -> str:
    privacy = run.spec.privacy
    cap = privacy.lifetime
    whole = "lifetime" if privacy.unit.months is None else "total"
    lifetime = odds.lifetime(cap.epsilon, cap.delta, cap.delta_num, whole=whole)
    declared, other = _relations(run)
    identified = (
        " For persons, these totals apply to rows that share one identifier in every column by which the "
        "population's releases identify persons."
        if run.spec.unit.person
        else ""
    )
    return (
        f"The costs of releases add up{_windows(run)}. This release is counted together with every other release over "
        f"the population {privacy.population!r}. The ledger keeps their total cost with respect to {declared} within "
        f"{lifetime}{_each_window(run)}, as far as the cost of every measurement is proved, and unless that cap is "
        "changed for a reason that the ledger records (after a change the largest epsilon holds with the deltas added, "
        "as long as no released value decided the new figures). The ledger also adds up their total cost with respect "
        f"to {other}; the cap binds that sum only if another release of the population declares it.{identified} "
        "Anything published about the same people under the name of another population, or without this ledger, adds "
        "to these totals and is not counted here."
    )


def _windows(run: PlannedRelease) -> str:
    """Over which months costs add up, and what that leaves unprotected."""
    span, rule = run.spec.privacy.unit.months, run.spec.month_rule
    if span is None or rule is None:
        return ""
    whom = "a person" if run.spec.unit.person else "a row"
    months = "a month" if span == 1 else f"any {span} consecutive months"
    return (
        f" for what {whom} contributes within {months}: that much is protected together. A record belongs to the "
        f"{rule.words}, and records of other months were left out. Somebody who is in more months than that is "
        "protected with a sum that goes on growing, which the ledger states as well. A record whose month is changed "
        "takes part in two months, at the cost of being in the data or not in each"
    )


def _each_window(run: PlannedRelease) -> str:
    """What a cap with a span limits: every window, and not a lifetime."""
    span = run.spec.privacy.unit.months
    return "" if span is None else f" for every window of {'one month' if span == 1 else f'{span} months'}"


def _not_covered(run: PlannedRelease) -> str:
    whom = "persons" if run.spec.unit.person else "rows"
    return (
        "The guarantee does not cover the public description itself (columns, bounds, categories, settings), the fact "
        f"that a release was made and when, or what is true of many {whom} together: {odds.group(run)}."
    )


def _approximation(mechanism: str) -> str:
    return (
        f"One measurement, by {mechanism}, is approximate: the guarantee is proved for exact arithmetic and an exact "
        f"sampler, and how far the computer departs from them is not bounded ({BY_NAME[mechanism].reason}). For the "
        "values that were drawn, neither the epsilon nor a delta of this release is proved."
    )


def _other_relation(run: PlannedRelease) -> str:
    """State what holds under the neighbour relation that was not declared, with figures of its own."""
    whom = "person" if run.spec.unit.person else "row"
    declared, other = _relations(run)
    figures, changed = run.relations[PARTICIPATION], f"the {whom} had not been there"
    if run.spec.neighbours is Neighbours.ADD_REMOVE:
        rows = "the rows of the person" if run.spec.unit.person else "the row"
        figures, changed = run.relations[VALUES], f"{rows} had contained anything else"
    if figures is None:
        return (
            f"The guarantee is about {declared}. It does not cover {other}: the release shows how many {whom}s there "
            "are."
        )
    protected = f"{other[0].upper()}{other[1:]} {'are' if other.startswith('the contents') else 'is'} protected as well"
    return f"The guarantee is about {declared}. {protected}: if {changed}, {_changes(figures)}."


def _relations(run: PlannedRelease) -> tuple[str, str]:
    """What the declared relation is about, with its name, and what the other one is about."""
    person = run.spec.unit.person is not None
    contents = "the contents of a person's rows" if person else "the contents of a row"
    presence = f"whether a {'person' if person else 'row'} is in the data at all"
    if run.spec.neighbours is Neighbours.ADD_REMOVE:
        return f"{presence} (add-remove)", contents
    return f"{contents} (replace-one)", presence


def _changes(figures: Figures) -> str:
    """By how much probabilities change; every figure is rounded up."""
    slack = f", and by at most delta = {at_most(figures['delta'])} beyond that" if figures["delta"] else ""
    rounding = f"; finite precision adds at most {at_most(figures['delta_num'], 1)}" if figures["delta_num"] else ""
    return f"every probability would change by a factor of at most {odds.factor(figures['epsilon'])}{slack}{rounding}"


def _measured_statistics(run: PlannedRelease) -> str:
    scores = ", and scores of the synthetic rows," if run.spec.checks.budgeted else ""
    if run.plan.marginals_event is not None:
        return f"histograms of columns and tables of pairs of grouped columns{scores}"
    return f"means, shares, variances and pairwise linear relations{scores}"


def limits(run: PlannedRelease, kept: int) -> list[str]:
    """Return what an analyst should not trust in this release."""
    lines = [
        "No row describes anybody: rows are drawn from a model that was fitted to noisy sums.",
        f"Only {_measured_statistics(run)} were measured; anything finer "
        "(sub-groups, interactions of three columns, tails, order in time) is the model's assumption.",
    ]
    bell = [c.name for c in run.plan.schema.columns if isinstance(c, IntervalColumn) and c.kind is not Kind.BOOLEAN]
    if run.plan.marginals_event is not None:
        lines.append(
            "The values of each column were grouped by its histogram, and pairs of columns were measured by group: "
            "within a group, the values of a column are unrelated to all other columns."
        )
    elif bell:
        lines.append(
            "Within a class, these columns have a single smooth peak between their bounds, whatever their real "
            f"shape: {', '.join(bell[:12])}{' and more' if len(bell) > 12 else ''}."
        )
    if run.plan.projection != "none" and kept < run.encoding.feature_width:
        means = "are kept" if run.plan.knows_centre else "are only guesses"
        done = "were measured" if run.plan.variance_share is None else "are kept of those measured"
        lines.append(
            f"Only {kept} of {run.encoding.feature_width} directions {done}. The means of single "
            f"columns {means}, their spreads come out too small, and relations that these directions miss are lost."
        )
    if run.plan.normalise:
        lines.append(
            "The features of every record were scaled to the same length: only their direction from the middle of the "
            "bounds was measured. All rows are drawn around one typical length, so how far records lie from the middle "
            "and whatever goes with it is lost, and the means of single columns are only guesses."
        )
    moved_target = run.plan.normalise and run.encoding.target_width  # the centre may move points out of the unit ball
    if run.plan.given_radius != 1 or moved_target:
        lines.append(
            "Records far from the centre were clipped to a radius around it before they were measured: if a table has "
            "such records, its spreads come out smaller."
        )
    if run.spec.model.publishes_projected:
        lines.append(
            "The rows of projected.parquet are points along the projection, taken before they are decoded: bounds and "
            "categories of the columns do not hold for them. Rows of your own that you project are not protected."
        )
    if not run.spec.model.publishes_original:
        lines.append(
            "Figures and checks are those of the rows in the original columns, which this release does not publish."
        )
    lines.append(
        "Cells that were out of bounds, missing or of an unknown category were clamped or mapped as the codebook says."
    )
    return lines
