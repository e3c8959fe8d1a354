"""The content of a ledger entry, one type for each kind of event.

`parse_body` reads the JSON text that an entry stores, and `body_to_json` writes the JSON of a new entry. The fields
have the names that they have in the JSON. A field with a default is absent from the entries of earlier versions, or
from some entries of its kind. `tasks.ledger.entries.contents` states which texts are valid; a replay checks them first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, ClassVar

from dpcore.accounting import Cap, CapKind, Cost
from dpcore.records.schema import Neighbours
from tasks.keys.decision import SignedDecision
from tasks.ledger.entries.costs import cost_from_json, cost_to_json
from tasks.ledger.entries.fields import exact_number
from tasks.spec.privacy import Windows


class Body:
    """The content of an entry; each subclass is one kind of event."""

    __slots__ = ()
    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str = "") -> None:
        if kind:  # a dataclass with slots is made a second time, without the argument
            cls.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEnrolment(Body, kind="key"):
    """A key may sign entries: it announces itself, or another key enrols it."""

    key_id: str
    public_key: str
    replaces: str | None = None
    roles: tuple[str, ...] | None = None
    """None in entries from before keys had roles."""
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRevocation(Body, kind="revoke"):
    """A key signs no further entries."""

    key_id: str
    reason: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapChange(Body, kind="cap"):
    """The lifetime budget of a population, on its first use or with a reason later."""

    epsilon: Fraction
    delta: Fraction
    delta_num: Fraction
    basis: dict[str, str]
    reason: str | None
    who: str | None = None
    rule: dict[str, str] | None = None
    """The kind of the cap, with the figures that only this kind has; None in entries of earlier versions."""
    window: dict[str, str] | None = None
    """How many months of a unit are protected together, and by which rule records belong to one; None for all."""

    @staticmethod
    def of(cap: Cap, basis: dict[str, str], reason: str | None, who: str | None, windows: Windows) -> CapChange:
        """The entry that sets a cap."""
        return CapChange(
            epsilon=cap.epsilon,
            delta=cap.delta,
            delta_num=cap.delta_num,
            basis=basis,
            reason=reason,
            who=who,
            rule=None if cap.kind is None else {"kind": cap.kind.value} | _figures_of_kind(cap),
            window=None if windows.span is None else {SPAN: str(windows.span), **(windows.rule or {})},
        )

    @property
    def cap(self) -> Cap:
        """The cap that the entry sets.

        Raises: ValueError for figures that are no cap of its kind.
        """
        figures: dict[str, Any] = {
            name: exact_number(text) for name, text in (self.rule or {}).items() if name != "kind"
        }
        if "slots" in figures:
            figures["slots"] = int(figures["slots"])
        kind = None if self.rule is None else CapKind(self.rule["kind"])
        return Cap(self.epsilon, self.delta, self.delta_num, kind=kind, **figures)

    @property
    def neighbours(self) -> Neighbours:
        """The relation that the cap was first counted for.

        Raises: ValueError for an unknown one.
        """
        return Neighbours(self.basis.get("neighbours", Neighbours.REPLACE_ONE))

    @property
    def windows(self) -> Windows:
        """Over which months the cap counts."""
        if self.window is None:
            return Windows()
        rule = {name: text for name, text in self.window.items() if name != SPAN}
        return Windows(int(self.window[SPAN]), rule)


def _figures_of_kind(cap: Cap) -> dict[str, str]:
    """The figures that only caps of its kind have, as exact text; a part for thresholds only if there is one."""
    figures = {name: getattr(cap, name) for name in FIGURES_OF_KINDS}
    return {name: str(figure) for name, figure in figures.items() if figure}


FIGURES_OF_KINDS = ("pure", "rho", "slots", "each", "thresholds")

SPAN = "span"
"""The key of a window under which the number of months stands, beside the rule by which records belong to one."""


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """A measurement that a reservation allows, and what it costs.

    The event stays JSON: a ledger replays without the mechanisms that it names.
    """

    event: dict[str, Any]
    cost: Cost
    other: Cost | None = field(default=None, compare=False)
    """The cost under the relation that the event does not declare; None if there is none, or none was written."""


@dataclass(frozen=True, slots=True)
class RequiredApprovers:
    """The names or fingerprints of the keys that may approve a release, and how many of them must."""

    by: tuple[str, ...]
    at_least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation(Body, kind="reserve"):
    """Budget that is set apart for a release, and what the release may draw with it."""

    name: str
    period: str
    sequence: int
    measurements: dict[str, MeasurementPlan]
    stated: dict[str, float]
    spec_digest: str
    seeds: dict[str, str]
    flow_run_id: str | None
    supersedes: str | None
    reason: str | None
    approve: str | RequiredApprovers = "none"
    """`none`, `required` for any key with the role approve, or which approvers."""
    window: dict[str, str] | None = None
    """By which rule the rows of other months were left out; None if nothing says that they were."""

    @property
    def neighbours(self) -> Neighbours | None:
        """The relation that the release declares; None if its measurements name none.

        Raises: ValueError if they name several, or one that is unknown.
        """
        declared = [plan.event["neighbours"] for plan in self.measurements.values() if "neighbours" in plan.event]
        if any(one != declared[0] for one in declared):
            raise ValueError("a release declares one relation")
        return Neighbours(declared[0]) if declared else None

    def can_serve(self, wanted: Reservation) -> bool:
        """Whether a run that asks for another reservation of the same name can go on with this one."""
        return all(
            getattr(self, name) == getattr(wanted, name)
            for name in ("period", "measurements", "spec_digest", "supersedes")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend(Body, kind="spend"):
    """A measurement that was drawn, and its cost."""

    measurement: str
    event: dict[str, Any]
    cost: Cost
    seeded: bool
    digest: str
    build: dict[str, Any] | None = None
    """The audit of the build that drew the noise."""
    flow_run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Body, kind="fail"):
    """A measured release did not come to publication."""

    status: str
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBundle(Body):
    """The digest of a bundle, and the flow run that made it."""

    bundle_digest: str
    flow_run_id: str | None


class ApprovalRequest(SealedBundle, kind="await"):
    """A sealed bundle waits for approval."""

    __slots__ = ()


class Publication(SealedBundle, kind="publish"):
    """A bundle is the release."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleDecision(Body):
    """Who decides about a bundle, and why; with the approver's own signature if another key writes the entry."""

    who: str | None
    reason: str
    approver: str | None = None
    statement: str | None = None
    signature: str | None = None

    @property
    def signed(self) -> SignedDecision | None:
        """The decision that the approver signed, unless the key of the entry decides."""
        if self.approver is None or self.statement is None or self.signature is None:
            return None
        return SignedDecision(approver=self.approver, statement=self.statement, signature=self.signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(BundleDecision, kind="approve"):
    """A person lets a bundle be published."""

    bundle_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(BundleDecision, kind="refuse"):
    """A person refuses a bundle, or the budget refuses a release, which the entry then describes."""

    rule: str
    flow_run_id: str | None
    name: str | None = None
    period: str | None = None
    stated: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction(Body, kind="retract"):
    """A person takes a published release back; what it cost stays spent."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Void(Body, kind="void"):
    """A reservation of which nothing was spent is given back."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Body, kind="restore"):
    """The entries before this one are a restored backup."""

    who: str
    backup_made_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation(Body, kind="reconcile"):
    """A person's answer for what is missing in a ledger: costs by population, or nothing at all."""

    reason: str
    who: str
    nothing_was_spent: bool
    charges: dict[str, Cost]
    lost: tuple[tuple[int, str], ...]
    """Sequence numbers and hashes of entries that are gone."""
    retired: tuple[str, ...]
    """Release ids that are not used again."""
    vouches: tuple[str, ...] = ()
    """Keys that announced themselves, and that the person answers for."""

    @staticmethod
    def of(
        *,
        reason: str,
        who: str,
        charges: dict[str, Cost],
        lost: Iterable[tuple[int, str]] = (),
        retired: Iterable[str] = (),
        vouches: Iterable[str] = (),
    ) -> Reconciliation:
        """The reconciliation with these charges, and with what it lists in order."""
        vouched = tuple(sorted(set(vouches)))
        return Reconciliation(
            reason=reason,
            who=who,
            nothing_was_spent=not charges and not vouched,
            charges=charges,
            lost=tuple(sorted(set(lost))),
            retired=tuple(sorted(set(retired))),
            vouches=vouched,
        )


BODIES_BY_KIND: Mapping[str, type[Body]] = {
    body.kind: body
    for body in (
        KeyEnrolment, KeyRevocation, CapChange, Reservation, Spend, Failure, ApprovalRequest, Publication, Approval,
        Refusal, Retraction, Void, Restore, Reconciliation,
    )
}  # fmt: skip


def parse_approval_rule(value: str | dict[str, Any]) -> str | RequiredApprovers:
    """Parse `none`, `required`, or which approvers."""
    return value if isinstance(value, str) else RequiredApprovers(tuple(value["by"]), value["at_least"])


_PARSERS: Mapping[str, Callable[[Any], object]] = {
    "approve": parse_approval_rule,
    "charges": lambda charges: {name: cost_from_json(cost) for name, cost in charges.items()},
    "cost": cost_from_json,
    "lost": lambda lost: tuple((seq, digest) for seq, digest in lost),
    "measurements": lambda plans: {
        name: MeasurementPlan(plan["event"], *(cost_from_json(plan[key]) for key in ("cost", "other") if key in plan))
        for name, plan in plans.items()
    },
    **dict.fromkeys(("epsilon", "delta", "delta_num"), exact_number),
    **dict.fromkeys(("retired", "roles", "vouches"), tuple),
}
"""How a field is read whose type is not one of JSON's."""

_PROOF = frozenset({"approver", "statement", "signature"})

TOGETHER: Mapping[str, tuple[frozenset[str], ...]] = {
    KeyEnrolment.kind: (frozenset({"roles", "name"}),),
    Approval.kind: (_PROOF,),
    Refusal.kind: (frozenset({"name", "period", "stated"}), _PROOF),
}
"""Later fields that an entry has all of, or none."""

_OMITTED_IF_NONE = frozenset({"rule", "window"}).union(*(names for groups in TOGETHER.values() for names in groups))


def parse_body(kind: str, text: str) -> Body:
    """Parse the body of an entry.

    Raises: ValueError, LookupError, TypeError, AttributeError for a text that is none of this kind.
    """
    return BODIES_BY_KIND[kind](
        **{name: _PARSERS[name](value) if name in _PARSERS else value for name, value in json.loads(text).items()}
    )


def body_to_json(body: Body) -> dict[str, Any]:
    """The JSON object of a new entry's body."""
    values = {field.name: getattr(body, field.name) for field in fields(body)}  # type: ignore[arg-type]
    return {
        name: _json_value(value) for name, value in values.items() if value is not None or name not in _OMITTED_IF_NONE
    }


def _json_value(value: Any) -> Any:
    """A value in the types of JSON."""
    match value:
        case Cost():
            return cost_to_json(value)
        case Fraction():
            return str(value)
        case MeasurementPlan():
            other = {} if value.other is None else {"other": cost_to_json(value.other)}
            return {"event": value.event, "cost": cost_to_json(value.cost)} | other
        case RequiredApprovers():
            return {"by": list(value.by), "at_least": value.at_least}
        case dict():
            return {name: _json_value(inner) for name, inner in value.items()}
    return value
