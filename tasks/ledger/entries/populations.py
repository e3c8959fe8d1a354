"""What was taken of a population's lifetime budget: costs by month, under both neighbouring relations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol

from dpcore.accounting import Balance, Cap, CapKind, Cost, Months, Statement, month_number
from dpcore.records.schema import Neighbours
from tasks.ledger.entries.bodies import CapChange, Reservation
from tasks.ledger.entries.costs import larger, less
from tasks.ledger.entries.entry import Entry
from tasks.spec.privacy import Windows


class Drawn(Protocol):
    """A release with what it has drawn."""

    reservation: Reservation
    spends: dict[str, Entry]


Costs = Mapping[Neighbours, Cost | None]
"""A cost under each relation; None where it is not known, or where there is no guarantee."""


def _sum(costs: list[Cost | None], releases: int) -> Cost | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known, Cost(releases=releases)) if len(known) == len(costs) else None


@dataclass(frozen=True, slots=True)
class Tally:
    """Costs by the month of their data, under each relation; None under one if any of them is not known."""

    under: Mapping[Neighbours, Months | None] = field(default_factory=lambda: dict.fromkeys(Neighbours, Months()))

    def adding(self, month: int | None, costs: Costs) -> Tally:
        """The tally after further costs; those without a month count in every window."""
        return Tally({relation: _adding(months, month, costs[relation]) for relation, months in self.under.items()})

    def removing(self, month: int | None, costs: Costs) -> Tally:
        """The tally without costs that are part of it."""
        negative = {relation: None if cost is None else less(Cost(), cost) for relation, cost in costs.items()}
        return self.adding(month, negative)

    def without_months(self) -> Tally:
        """The same costs, each counted in every window."""
        return Tally(
            {
                relation: None if months is None else Months({}, months.largest(None))
                for relation, months in self.under.items()
            }
        )


def _larger(costs: Costs) -> Cost | None:
    """The larger cost of both relations; None if one of them is not known."""
    values, presence = costs[Neighbours.REPLACE_ONE], costs[Neighbours.ADD_REMOVE]
    return None if values is None or presence is None else larger(values, presence)


def _adding(months: Months | None, month: int | None, cost: Cost | None) -> Months | None:
    return None if months is None or cost is None else months.adding(month, cost)


@dataclass(frozen=True, slots=True)
class Population:
    """A population's cap, what its budget is counted for, and what was taken of it."""

    cap: Cap
    basis: dict[str, str]
    neighbours: Neighbours
    """The relation that the first cap was counted for."""
    cap_entry: Entry
    """The entry that set the cap; it says when and why, and since later versions who."""
    windows: Windows = field(default_factory=Windows)
    """Over how many months the cap counts, and the rule by which the tallies tell months apart."""
    spent: Tally = field(default_factory=Tally)
    reserved: Tally = field(default_factory=Tally)
    declared: frozenset[Neighbours] = frozenset()
    """The relations under which releases promised something: the cap binds each of them."""
    former_delta: Fraction = Fraction(0)
    """The deltas of earlier caps under which something was taken."""
    largest: Costs = field(default_factory=lambda: dict.fromkeys(Neighbours, Cost()))
    """The most that a single release took, figure by figure, given back or not: slots have a size."""

    def balance(self, neighbours: Neighbours | None = None, *, reserved: bool = True) -> Balance:
        """What is spent, and by default what is reserved too, against the cap, under a relation."""
        relation = neighbours or self.neighbours
        spent, held = self.spent.under[relation], self.reserved.under[relation]
        both = None if spent is None or held is None else spent + held
        return Balance(self.cap, self.windows.span, both if reserved else spent, self.former_delta)

    def reserved_balance(self, neighbours: Neighbours) -> Balance:
        """What is reserved and not yet spent, against the cap."""
        return Balance(self.cap, self.windows.span, self.reserved.under[neighbours])

    @property
    def taken(self) -> Cost:
        """What was taken in all, under the relation of the first cap; nothing if that is not known."""
        balance = self.balance()
        return balance.cost if balance.months is not None else Cost()

    @property
    def bound(self) -> frozenset[Neighbours]:
        """The relations that the cap binds: those of its releases and, before the first, its own."""
        return self.declared or frozenset({self.neighbours})

    @property
    def is_within_cap(self) -> bool:
        """Whether the cap holds under every relation that it binds, by this rule or by the one of earlier versions."""
        return self.fills_slots and all(self.balance(relation).was_admitted for relation in self.bound)

    @property
    def fills_slots(self) -> bool:
        """Whether no single release is larger than a slot, under any relation that the cap binds."""
        if self.cap.kind is not CapKind.SLOTS:
            return True
        sizes = [self.largest[relation] for relation in self.bound]
        return all(size is not None and self.cap.takes(size, releases=1) for size in sizes)

    def _with_size(self, costs: Costs) -> Costs:
        """The largest releases, with one more."""
        pairs = {relation: (self.largest[relation], costs[relation]) for relation in Neighbours}
        return {r: None if one is None or other is None else larger(one, other) for r, (one, other) in pairs.items()}

    def charging(self, cost: Cost) -> Population:
        """The population with a cost that a person answers for, as that of one release.

        It counts under every promised relation, and is unknown under others.
        """
        known = self.declared | {self.neighbours}
        costs = {relation: replace(cost, releases=1) if relation in known else None for relation in Neighbours}
        return replace(self, spent=self.spent.adding(None, costs), largest=self._with_size(costs))

    def with_cap(self, entry: Entry, body: CapChange) -> Population:
        """The population after another cap.

        A cap that differs, chosen when outcomes were known, adds a delta of its own (GUARANTEE.md).
        """
        cap, windows = body.cap, body.windows
        rule = windows.rule or self.windows.rule
        differs = (cap, windows.span) != (self.cap, self.windows.span)
        changed = replace(
            self,
            cap=cap,
            cap_entry=entry,
            windows=Windows(windows.span, rule),
            former_delta=self.former_delta + (self.cap.stated.delta if differs and self._was_used else 0),
        )
        if rule == self.windows.rule:
            return changed
        return replace(changed, spent=self.spent.without_months(), reserved=self.reserved.without_months())

    @property
    def _was_used(self) -> bool:
        return bool(self.declared) or self.spent != Tally()

    def relation_of(self, reservation: Reservation) -> Neighbours:
        """The relation that a release declares: the population's own where an entry names none."""
        return reservation.neighbours or self.neighbours

    def costs_of(self, reservation: Reservation, names: Iterable[str], *, releases: int) -> Costs:
        """What these measurements of a release cost together; `releases` is 1 with the first of them."""
        plans, own = [reservation.measurements[name] for name in names], self.relation_of(reservation)
        costs = {
            relation: _sum([plan.cost if relation is own else plan.other for plan in plans], releases)
            for relation in Neighbours
        }
        if reservation.window is not None:  # who has rows in other months may be in this one or not
            costs[Neighbours.REPLACE_ONE] = _larger(costs)
        return costs

    def month_of(self, reservation: Reservation) -> int | None:
        """The month that a release's costs belong to; None if nothing says that it left other months out."""
        told_apart = reservation.window is not None and reservation.window == self.windows.rule
        return month_number(reservation.period) if told_apart else None

    def without(self, release: Drawn) -> Population:
        """The population as it were if a release had not drawn what it has."""
        reservation = release.reservation
        costs = self.costs_of(reservation, release.spends, releases=bool(release.spends))
        return replace(self, spent=self.spent.removing(self.month_of(reservation), costs))

    def before(self, release: Drawn) -> Population:
        """The population as it were without a release whose reservation stands."""
        reservation = release.reservation
        left = reservation.measurements.keys() - release.spends.keys()
        costs = self.costs_of(reservation, left, releases=not release.spends)
        without = self.without(release)
        return replace(without, reserved=without.reserved.removing(self.month_of(reservation), costs))

    def taking(self, reservation: Reservation) -> Population:
        """The population with a further reservation.

        Its relation is declared from now on, and its rule tells months apart if none did before.
        """
        rule = reservation.window if self.windows.rule is None else self.windows.rule
        declaring = replace(
            self,
            windows=replace(self.windows, rule=rule),
            declared=self.declared | {self.relation_of(reservation)},
        )
        costs = declaring.costs_of(reservation, reservation.measurements, releases=1)
        reserved = self.reserved.adding(declaring.month_of(reservation), costs)
        return replace(declaring, reserved=reserved, largest=self._with_size(costs))

    def releases_left(self, costs: Costs, first: int) -> int | None:
        """How many further releases of these costs fit, under every relation that the cap then binds.

        `first` is the month of the first, where months count; None means that there is no end.
        """
        counts = [
            0 if cost is None else self.balance(relation).releases_left(cost, first=first)
            for relation, cost in costs.items()
            if relation in self.bound
        ]
        ends = [count for count in counts if count is not None]
        return min(ends) if ends else None

    def statement(self, neighbours: Neighbours | None = None, *, reserved: bool = False) -> Statement:
        """The privacy loss within any window, by what is spent, or with what is reserved too."""
        return self.balance(neighbours, reserved=reserved).statement
