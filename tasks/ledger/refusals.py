"""What the ledger refuses to write, and what the writer can do about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dpcore.accounting import Cap, Cost, population_balance
from dpcore.errors import BudgetExceededError, LedgerError
from dpcore.mechanisms.registry import cost_of
from tasks.ledger.entries.entry import GENESIS, Entry
from tasks.ledger.entries.fields import (
    CLOCK_TOLERANCE,
    EARLIEST_TIME,
    LONGEST_SILENCE,
    is_text,
    time_of,
)
from tasks.ledger.entries.status import ReleaseStatus
from tasks.ledger.releases import UNFINISHED, ReleaseState, ReserveRequest
from tasks.ledger.state import LedgerState, Population
from tasks.spec.privacy import what_differs
from tasks.spec.relations import at_most

CLOCK_BEHIND_HINT = (
    "set this machine's clock; if it is right, the last writer's was wrong: restore a backup from before that entry, "
    "and reconcile what was spent since"
)

CLOCK_AHEAD_HINT = (
    "set this machine's clock; if nothing was written for years indeed, "
    'say so with `dprelease budget raise --reason "..."`'
)

MIXED_HINT = (
    "pure costs and Gaussian noise together are counted as zCDP, which takes more of a cap: "
    "with mechanisms of the kind that the population has used so far, more fits"
)


def require_room(state: LedgerState, request: ReserveRequest) -> None:
    """Refuse a release that the lifetime budget of its population does not allow.

    Raises: BudgetExceededError.
    """
    cap = state.populations[request.population].cap
    wanted = sum((cost_of(event) for event in request.events.values()), Cost())
    if cap.admits(state.committed(request.population) + wanted):
        return
    used = population_balance(state.committed(request.population), delta=cap.delta)
    mixed = (state.committed(request.population) + wanted).is_mixed
    raise BudgetExceededError(
        f"the lifetime budget of {request.population!r} does not allow this release: "
        f"epsilon {at_most(used.epsilon)} of {at_most(cap.epsilon)} is spent or reserved",
        rule="budget-exceeded",
        where="privacy.lifetime",
        hint="ask for a smaller epsilon, or raise the cap in the spec and run `dprelease budget raise --reason`"
        + (f"; {MIXED_HINT}" if mixed else ""),
    )


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


def require_same_cap(known: Population, cap: Cap, basis: dict[str, str]) -> None:
    """Refuse a specification whose cap or basis is not its population's.

    Raises: LedgerError.
    """
    require_adding_up(known, basis)
    differs = cap_difference(known, cap)
    if differs is not None:
        raise differs


def cap_difference(known: Population, cap: Cap) -> LedgerError | None:
    """Why a specification's cap is refused: it is not the population's; None if it is."""
    if known.cap == cap:
        return None
    return LedgerError(
        f"the spec's lifetime ({_cap_figures(cap)}) differs from the ledger's ({_cap_figures(known.cap)})",
        rule="cap-differs",
        where="privacy.lifetime",
        hint='restore the earlier figures, or run `dprelease budget raise --reason "..."` to write the new ones',
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
    return ", ".join(f"{name} {at_most(getattr(cap, name))}" for name in ("epsilon", "delta", "delta_num"))
