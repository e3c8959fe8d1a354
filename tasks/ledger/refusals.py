"""What the ledger refuses to write, and what the writer can do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Any

from dpcore.accounting import Cap, CapKind, Cost
from dpcore.errors import BudgetExceededError, LedgerError
from dpcore.records.schema import Neighbours
from tasks.ledger.entries.entry import GENESIS, Entry
from tasks.ledger.entries.fields import (
    CLOCK_TOLERANCE,
    EARLIEST_TIME,
    LONGEST_SILENCE,
    is_text,
    time_of,
)
from tasks.ledger.entries.populations import Population
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import UNFINISHED, ReleaseState, ReserveRequest
from tasks.ledger.state import LedgerState
from tasks.spec.privacy import ALL_MONTHS, Windows, what_differs
from tasks.spec.relations import at_most
from tasks.workspace.redaction import ErrorBoundary

CLOCK_BEHIND_HINT = (
    "set this machine's clock; if it is right, the last writer's was wrong: restore a backup from before that entry, "
    "and reconcile what was spent since"
)

CLOCK_AHEAD_HINT = (
    "set this machine's clock; if nothing was written for years indeed, "
    'say so with `dprelease budget raise --reason "..."`'
)

KIND_HINT = (
    "name a mechanism of the cap's kind under `model.mechanism`, or choose `lifetime.kind: zcdp`, which takes both, "
    'and write it with `dprelease budget raise --reason "..."`'
)


def require_room(state: LedgerState, request: ReserveRequest) -> None:
    """Refuse a release that the lifetime budget of its population does not allow.

    Raises: BudgetExceededError, LedgerError for a cost of another kind than the cap counts.
    """
    known, reservation = state.populations[request.population], request.reservation(0)
    taken = known.taking(reservation)
    costs = taken.costs_of(reservation, reservation.measurements, releases=1)
    relations = sorted(taken.declared, key=lambda declared: declared is not taken.relation_of(reservation))
    for cost in (costs[relation] for relation in relations):
        differs = None if cost is None else kind_difference(known, cost)
        if differs is not None:
            raise differs
    balances = {relation: taken.balance(relation) for relation in relations}
    if not taken.fills_slots and all(balance.months is not None for balance in balances.values()):
        raise _kind_differs(
            "pure epsilon in slots", "more than a slot, or an earlier one did, under a promised relation"
        )
    for relation, balance in balances.items():
        if not balance.is_admitted:
            raise _no_room(request.population, known, relation, unknown=balance.months is None)


def _no_room(population: str, known: Population, relation: Neighbours, *, unknown: bool) -> BudgetExceededError:
    epsilon, cap = known.balance(relation).statement.epsilon, known.cap.epsilon
    used = "an unknown epsilon" if unknown else f"epsilon {at_most(epsilon)}"
    window = "" if known.windows.span is None else f" within {known.windows.span} consecutive months"
    declared = known.declared | {known.neighbours}
    counted = "" if declared == {relation} else f", counted for {relation.value} neighbours"
    return BudgetExceededError(
        f"the lifetime budget of {population!r} does not allow this release: "
        f"{used} of {at_most(cap)} is spent or reserved{window}{counted}",
        rule="budget-exceeded",
        where="privacy.lifetime",
        hint="entries of an earlier version do not say what they cost under this relation: use the population's own"
        if unknown
        else "ask for a smaller epsilon, or raise the cap in the spec and run `dprelease budget raise --reason`",
    )


def kind_difference(known: Population, wanted: Cost) -> LedgerError | None:
    """Why a cost is refused: it is of another kind than the population's cap counts; None if it is not.

    A cap of an earlier version names no kind: then what was taken first decides.
    """
    cap, taken = known.cap, known.taken
    kind = cap.kind or (CapKind.of(taken) if taken.epsilon or taken.rho else None)
    counts = cap if cap.kind or kind is None else replace(cap, kind=kind)
    if counts.takes(wanted):
        return None
    if cap.each is not None and not wanted.rho:
        return _kind_differs(f"pure epsilon in slots of {at_most(cap.each)}", f"epsilon {at_most(wanted.epsilon)}")
    return _kind_differs(KIND_WORDS[kind or CapKind.ZCDP], KIND_WORDS[CapKind.of(wanted)])


def _kind_differs(counted: str, wanted: str) -> LedgerError:
    return LedgerError(
        f"the cap counts {counted} alone, and this release costs {wanted}",
        rule="cap-kind",
        where="model.mechanism",
        hint=KIND_HINT,
    )


KIND_WORDS = {
    CapKind.PURE: "pure epsilon",
    CapKind.GAUSSIAN: "Gaussian noise",
    CapKind.ZCDP: "pure epsilon and Gaussian noise",
    CapKind.SPLIT: "pure epsilon and Gaussian noise, each within its part,",
    CapKind.SLOTS: "pure epsilon in slots",
}


def require_appended(state: LedgerState, broken: Sequence[Entry]) -> None:
    """Require that the first broken entry is as the database took it: it follows the head, and its hash is right.

    Raises: LedgerError.
    """
    if not broken:
        raise LedgerError(
            "every entry of the ledger can be read: there is nothing to set aside",
            rule="nothing-to-set-aside",
            where="ledger",
            hint="`dprelease audit` shows what holds",
        )
    first, head = broken[0], state.head
    place = (head.seq + 1, head.hash) if head else (1, GENESIS)
    if (first.seq, first.previous) != place or first.hash != first.expected_hash():
        raise LedgerError(
            f"ledger entry {first.seq} was changed after it was appended: entries after it may be honest",
            rule="ledger-edited",
            where=f"ledger entry {first.seq}",
            hint="restore the ledger from a backup into another database, and reconcile it",
        )


def require_writable(body: dict[str, Any]) -> None:
    """Refuse text that no file of the release could hold, such as bytes of a command line that are no UTF-8.

    Raises: LedgerError.
    """
    if not is_text(json.dumps(body, ensure_ascii=False)):
        raise LedgerError(
            "a text of this entry cannot be written as UTF-8",
            rule="text-unwritable",
            where="--reason, --who",
            hint="write plain text, in the terminal's encoding",
        )


def require_clock(now: datetime, head: Entry | None, *, spoken: bool) -> None:
    """Refuse to write by a clock that cannot be right: later entries are dated no earlier than this one.

    Raises: LedgerError for a clock far behind the last entry or, unless a person speaks, far ahead of it.
    """
    latest = time_of(head.at if head else EARLIEST_TIME)
    if now < latest - CLOCK_TOLERANCE:
        raise _clock_differs("behind the ledger's last entry", "clock-behind", CLOCK_BEHIND_HINT)
    if head is not None and now > latest + LONGEST_SILENCE and not spoken:
        raise _clock_differs("ahead of the ledger's last entry", "clock-ahead", CLOCK_AHEAD_HINT)


def _clock_differs(how: str, rule: str, hint: str) -> LedgerError:
    return LedgerError(f"this machine's clock is far {how}", rule=rule, where="clock", hint=hint)


def require_reconciled(state: LedgerState) -> None:
    """Refuse to go on from a restored backup before somebody reconciles it.

    Raises: LedgerError.
    """
    if state.restored is not None:
        raise LedgerError(
            "the ledger was restored from a backup; what was spent after that is not in it",
            rule="ledger-unreconciled",
            where=f"ledger entry {state.restored.seq}",
            hint='run `dprelease ledger reconcile --reason "..."` with --nothing-was-spent or --charge EPSILON',
        )


def find_release_to_resume(known: Sequence[ReleaseState], supersedes: str | None) -> ReleaseState | None:
    """Find the release of the period that a request resumes; None if it begins another.

    Raises: LedgerError for a period whose bundle a person refused or retracted, and for superseding another than
    the latest.
    """
    last = known[-1] if known else None
    if supersedes is None:
        if last is not None and last.status == ReleaseStatus.REFUSED:
            raise _refused_before(last.release_id)
        require_not_retracted(last)
        return last
    if last is not None and last.status in UNFINISHED and last.reservation.supersedes == supersedes:
        return last
    if last is None or last.status in UNFINISHED or last.release_id != supersedes:
        raise _cannot_supersede(supersedes)
    return None


def _refused_before(release_id: str) -> LedgerError:
    return LedgerError(
        f"{release_id} was completed, and a person refused to publish it",
        rule="release-refused",
        where=release_id,
        hint=_again(release_id),
    )


def require_not_retracted(last: ReleaseState | None) -> None:
    """Refuse to release a month again whose latest release a person retracted, unless it is to be superseded.

    Raises: LedgerError.
    """
    if last is not None and last.status == ReleaseStatus.RETRACTED:
        raise LedgerError(
            f"{last.release_id} was published, and a person retracted it: its month is not released again by itself",
            rule="release-retracted",
            where=last.release_id,
            hint=f"if the data may still be used: {_again(last.release_id)}",
        )


def _again(release_id: str) -> str:
    return f'`dprelease run --supersedes {release_id} --reason "..."` measures the period again, and is charged'


def _cannot_supersede(release_id: str | None) -> LedgerError:
    return LedgerError(
        f"{release_id!r} is not the latest finished release of this period",
        rule="supersedes-wrong",
        where="--supersedes",
        hint="`dprelease history` shows the releases of a period; only its latest can be superseded",
    )


def require_same_cap(known: Population, cap: Cap, basis: dict[str, str], windows: Windows) -> None:
    """Refuse a specification whose cap, span or basis is not its population's.

    Raises: LedgerError.
    """
    require_adding_up(known, basis)
    differs = cap_difference(known, cap, windows)
    if differs is not None:
        raise differs


def cap_difference(known: Population, cap: Cap, windows: Windows) -> LedgerError | None:
    """Why a specification's cap is refused: it is not the population's; None if it is.

    A specification that names no kind takes the population's.
    """
    figures = ("epsilon", "delta", "delta_num", *(("kind", "pure", "each") if cap.kind else ()))
    if any(getattr(cap, name) != getattr(known.cap, name) for name in figures):
        return _cap_differs("lifetime", _cap_figures(cap), _cap_figures(known.cap), "privacy.lifetime")
    if windows.span != known.windows.span:
        stated, kept = (ALL_MONTHS if span is None else f"{span} months" for span in (windows.span, known.windows.span))
        return _cap_differs("span", stated, kept, "privacy.unit.span")
    if windows.span is not None and windows.rule != known.windows.rule:
        stated, kept = _rule_words(windows.rule), _rule_words(known.windows.rule)
        return _cap_differs("rule of months", stated, kept, "source.period_column")
    return None


def _cap_differs(what: str, stated: str, known: str, where: str) -> LedgerError:
    return LedgerError(
        f"the spec's {what} ({stated}) differs from the ledger's ({known})",
        rule="cap-differs",
        where=where,
        hint='restore what was there, or run `dprelease budget raise --reason "..."` to write the new one',
    )


def _rule_words(rule: Mapping[str, str] | None) -> str:
    return ", ".join(f"{name} {text}" for name, text in sorted(rule.items())) if rule else "none"


def raised_cap(known: Population, cap: Cap, cost: Cost | None) -> Cap:
    """The cap that is written over a population's: without a kind of its own it keeps what was counted so far.

    Raises: LedgerError for a kind that does not cover what was taken.
    """
    taken = known.taken
    if cap.kind is None:
        with ErrorBoundary(ValueError, refusal=lambda _: _figures_too_small()):
            cap = _with_kind_of(known, cap, cost)
    if not cap.takes(taken, releases=int(taken.releases)) or not replace(known, cap=cap).fills_slots:
        raise LedgerError(
            f"a cap that counts {KIND_WORDS[cap.kind or CapKind.ZCDP]} does not cover what the population has spent",
            rule="cap-kind",
            where="privacy.lifetime.kind",
            hint="use `kind: zcdp`, which counts both",
        )
    return cap


def _with_kind_of(known: Population, cap: Cap, cost: Cost | None) -> Cap:
    """A cap with the population's kind; for one that names none, with the kind of what was taken, or else of a cost."""
    figures, present = (cap.epsilon, cap.delta, cap.delta_num), known.cap
    if present.pure is not None:
        return Cap.split(*figures, pure=present.pure)
    if present.each is not None:
        return Cap.of_slots(*figures, each=present.each)
    counted = known.taken if known.taken != Cost() else cost
    return replace(cap, kind=present.kind or (CapKind.of(counted) if counted else None))


def _figures_too_small() -> LedgerError:
    return LedgerError(
        "the new cap is smaller than the part for pure costs, or than a slot, of the present one",
        rule="cap-figures",
        where="privacy.lifetime",
        hint="name a kind under `lifetime.kind`, with its own figures",
    )


def require_adding_up(known: Population, basis: dict[str, str]) -> None:
    """Refuse a specification whose costs do not add to those of its population.

    Raises: LedgerError.
    """
    key = what_differs(known.basis, basis)
    if key is None:
        return
    raise LedgerError(
        f"the population's budget is counted for {key} {known.basis.get(key)!r}, the spec says {basis.get(key)!r}: "
        "their costs cannot be added",
        rule="budget-basis-differs",
        where=f"privacy.{key}",
        hint="put the old value back; under another population's name, or in another ledger, what was spent on the "
        "same people would not be counted",
    )


def _cap_figures(cap: Cap) -> str:
    named = {name: getattr(cap, name) for name in ("epsilon", "delta", "delta_num", "pure", "slots", "each")}
    figures = [f"{name} {at_most(Fraction(value))}" for name, value in named.items() if value is not None]
    return ", ".join([*([f"kind {cap.kind.value}"] if cap.kind else []), *figures])
