"""The guarantee and its limits in words that a person without mathematics can read."""

from __future__ import annotations

import math

from dpcore.registry import BY_NAME
from dpcore.schema import IntervalColumn, Kind, Neighbours, PrivacyUnit
from tasks.stores.run import ReleaseRun


def guarantee(run: ReleaseRun) -> list[str]:
    """What is promised to each person or row, sentence by sentence."""
    epsilon, delta = run.stated["epsilon"], run.stated["delta"]
    unit = "one person, with all of their rows," if run.spec.unit.person else "one row"
    slack = f", and by at most delta = {delta:g} beyond that." if delta else "."
    sentences = [
        f"Whatever {unit} contained, anything that anyone can conclude from this release would have come out "
        f"almost as likely had it contained something else: every probability changes by a factor of at most "
        f"e^{epsilon:g} = {math.exp(epsilon):.3g}{slack}",
    ]
    delta_num = float(run.plan.cost.delta_num)
    if delta_num:
        sentences.append(f"The computer's finite precision adds at most {delta_num:.1g} to every probability.")
    elif not delta and not run.plan.approximate:
        sentences.append("The promise is pure: nothing is added to that factor (delta = 0), not by rounding either.")
    sentences += [_doubt(name) for name in run.plan.approximate]
    sentences.append(_participation(run.spec.neighbours, run.spec.unit))
    sentences.append(
        "The promise holds whatever else is known, and whatever is computed from the release later. Releases over "
        "the same population add up; the ledger keeps the sum below the lifetime cap."
    )
    return sentences


def _doubt(mechanism: str) -> str:
    return (
        f"One measurement, by {mechanism}, is approximate: the promise is proved for exact arithmetic and an exact "
        f"sampler, and how far the computer stays from them is not bounded ({BY_NAME[mechanism].reason})."
    )


def _participation(neighbours: Neighbours, unit: PrivacyUnit) -> str:
    whom = "a person" if unit.person else "a row"
    if neighbours is Neighbours.REPLACE_ONE:
        return (
            f"The values of {whom} are protected, not the fact that {whom} is in the data: "
            "the number of participants is treated as known (replace-one)."
        )
    return f"Both the values of {whom} and the fact of being in the data are protected (add-remove)."


def limits(run: ReleaseRun) -> list[str]:
    """What an analyst should not trust in this release."""
    lines = [
        "No row describes anybody: rows are drawn from a model that was fitted to noisy sums.",
        "Only means, shares, variances and pairwise linear relations were measured; anything finer "
        "(sub-groups, interactions of three columns, tails, order in time) is the model's assumption.",
    ]
    bell = [c.name for c in run.plan.schema.columns if isinstance(c, IntervalColumn) and c.kind is not Kind.BOOLEAN]
    if bell:
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
    lines.append("Cells out of bounds, missing or of unknown category were clamped or mapped, as the codebook says.")
    return lines
