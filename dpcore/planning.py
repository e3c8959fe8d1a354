"""Choices before any data are touched: from public constants only.

Everything that the specification leaves open (dimension, mechanism, generator,
weight of the count) is decided here, with its reason, from the number of rows that
the steward expects, the privacy budget, and the shape of the record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpcore.accounting import Budget, Cost, Epsilon, Rho, rho_of_epsilon, total
from dpcore.encoding import Encoding
from dpcore.exactgram import EXACT, POINT_BITS, PROJECTION_BITS, Layout
from dpcore.mechanisms.base import ExpectedError, Gives, GramEvent
from dpcore.registry import BY_NAME, Entry, Status, basis_mechanism, cost_of, gram_mechanism, mechanism_of
from dpcore.schema import Neighbours, PrivacyUnit, RecordSchema, Role, RowRule

NOISE_SHARE = 0.25
"""Dimension rule: the noise's operator norm stays below this share of the average eigenvalue."""

WEIGHT_GRID = 64
"""The count's weight is rounded to multiples of 1/64."""

AUTO = "auto"
LDA = "lda"
"""The generator whose classes share a covariance."""

MOMENTS, PROJECTION = "moments", "projection"
"""Names of the measurements in allocation, ledger and record."""

GAUSSIAN_NOISE = ("gaussian", "noisy-power-method")
"""Mechanisms that spend rho and need delta > 0; all others spend epsilon."""

PROJECTION_SHARE = Fraction(3, 10)
"""What private principal components take of the budget when they are measured apart, as in RON-Gauss's 0.3/0.7."""


class PlanError(ValueError):
    """A choice that cannot be carried out; names the key, the rule and what to do."""

    def __init__(self, message: str, *, rule: str, where: str, hint: str) -> None:
        super().__init__(message)
        self.rule, self.where, self.hint = rule, where, hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the specification says about a release; `auto` leaves a choice to the plan."""

    schema: RecordSchema
    neighbours: Neighbours
    unit: PrivacyUnit
    epsilon: Fraction
    delta: Fraction
    expected_rows: int
    projection: str = "ron"
    projection_mechanism: str = AUTO
    dimension: int | str = AUTO
    mechanism: str = AUTO
    generator: str = AUTO
    allocation: dict[str, Fraction] | None = None

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(f"epsilon must be positive, got {self.epsilon}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {self.delta}")
        if self.expected_rows < 1:
            raise ValueError(f"expected_rows must be at least 1, got {self.expected_rows}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One release, decided: what will be measured, with how much noise, and why."""

    schema: RecordSchema
    projection: str
    dimension: int
    encoded_width: int
    generator: str
    event: GramEvent
    expected: ExpectedError
    signal_to_noise: float
    expected_rows: int
    reasons: tuple[str, ...]
    projection_event: GramEvent | None = None
    projection_share: Fraction = Fraction(0)

    @property
    def events(self) -> dict[str, GramEvent]:
        """Everything that will be measured, by the names that ledger and record use."""
        first = {} if self.projection_event is None else {PROJECTION: self.projection_event}
        return {**first, MOMENTS: self.event}

    @property
    def reuses_gram(self) -> bool:
        """Whether the principal components come out of the measured moments, at no cost of their own."""
        return self.projection == "private-pca" and self.projection_event is None

    @property
    def knows_centre(self) -> bool:
        """Whether the projection comes with a mean point: neither random nor measured directions do."""
        first = self.projection_event
        return self.projection != "ron" and (first is None or mechanism_of(first.mechanism).gives is not Gives.BASIS)

    @property
    def approximate(self) -> tuple[str, ...]:
        """The mechanisms of this release whose guarantee is not wholly proved."""
        names = dict.fromkeys(event.mechanism for event in self.events.values())
        return tuple(name for name in names if BY_NAME[name].status is Status.APPROXIMATE)

    @property
    def cost(self) -> Cost:
        """What the release will cost."""
        return total(cost_of(event) for event in self.events.values())

    @property
    def allocation(self) -> dict[str, float]:
        """Shares of the budget."""
        shares = {PROJECTION: float(self.projection_share), MOMENTS: float(1 - self.projection_share)}
        return {name: share for name, share in shares.items() if share}

    def expected_error(self) -> dict[str, float]:
        """Expected error of the release, in records and relative to the expected rows."""
        rows = self.expected_rows
        weight = float(self.event.layout.count_weight)
        return {
            "frobenius": self.expected.frobenius,
            "operator": self.expected.operator,
            "count_sd": self.expected.diagonal_sd * math.sqrt(self.event.layout.classes) / weight**2,
            "mean_sd": self.expected.off_diagonal_sd * math.sqrt(self.event.layout.classes) / weight / rows,
            "relative_operator": self.expected.operator * self.event.layout.blocks / rows,
            "signal_to_noise": self.signal_to_noise,
        }

    def as_json(self) -> dict[str, Any]:
        """The plan for people and machines."""
        return {
            "allocation": self.allocation,
            "dimension": self.dimension,
            "encoded_width": self.encoded_width,
            "mechanism": self.event.mechanism,
            "projection": self.projection,
            "generator": self.generator,
            "reasons": list(self.reasons),
            "expected_error": self.expected_error(),
        }


def make_plan(wishes: Wishes) -> Plan:
    """Decide everything that the specification leaves open.

    Raises: PlanError where the wishes cannot be carried out.
    """
    reasons: list[str] = []
    _require_projection(wishes)
    _require_projection_mechanism(wishes)
    _require_measured_allocation(wishes)
    generator, schema = _choose_generator(wishes, reasons)
    encoding = Encoding(schema)
    _require_exact_width(encoding)
    budgets = _budget(wishes)
    share = _projection_share(wishes)
    dimension = _choose_dimension(wishes, encoding, _moments_budgets(wishes, budgets), reasons)
    first, event = _choose_events(wishes, encoding, budgets, dimension, reasons)
    expected = gram_mechanism(event.mechanism).expected_error(event)
    return Plan(
        schema=schema,
        projection=wishes.projection,
        dimension=dimension,
        encoded_width=encoding.width,
        generator=generator,
        event=event,
        expected=expected,
        signal_to_noise=_signal_to_noise(wishes.expected_rows, event, expected),
        expected_rows=wishes.expected_rows,
        reasons=tuple(reasons),
        projection_event=first,
        projection_share=share if first else Fraction(0),
    )


def _signal_to_noise(rows: float, event: GramEvent, expected: ExpectedError) -> float:
    """Average eigenvalue of a class block against the noise's operator norm."""
    return rows / event.layout.blocks / (event.layout.dimension - event.layout.heads) / expected.operator


def _require_projection(wishes: Wishes) -> None:
    entries = [entry for entry in BY_NAME.values() if entry.kind == PROJECTION and entry.mechanism is None]
    known = [entry.name for entry in entries if entry.status is Status.PROVED]
    if wishes.projection not in known:
        raise PlanError(
            f"{wishes.projection!r} is no projection that can be released",
            rule="projection-unknown",
            where="model.projection.kind",
            hint=f"use {', '.join(known)}",
        )


def _require_projection_mechanism(wishes: Wishes) -> None:
    """A named mechanism must be able to give components, and have components to give and budget to spend."""
    name = wishes.projection_mechanism
    if name == AUTO:
        return
    entry = BY_NAME.get(name)
    known = [entry.name for entry in BY_NAME.values() if _gives_components(entry)]
    faults = {
        "projection-mechanism-unused": (
            wishes.projection != "private-pca",
            f"the projection {wishes.projection!r} measures nothing, so it has no mechanism",
        ),
        "mechanism-refuted": (
            entry is not None and entry.status is Status.REFUTED,
            f"mechanism {name!r} is refuted: {entry.reason if entry else ''}",
        ),
        "projection-mechanism-unknown": (name not in known, f"{name!r} gives no private components"),
        "allocation-missing": (
            not _projection_share(wishes),
            f"the allocation leaves nothing for {name!r}, which measures the projection apart",
        ),
    }
    hint = f"use `kind: private-pca` with auto, {', '.join(known)}, and give the projection a fraction of the budget"
    for rule, (broken, message) in faults.items():
        if broken:
            where = "model.allocation" if rule == "allocation-missing" else "model.projection.mechanism"
            raise PlanError(message, rule=rule, where=where, hint=hint)


def _gives_components(entry: Entry) -> bool:
    return entry.mechanism is not None and entry.mechanism.gives in (Gives.GRAM, Gives.BASIS)


def _require_measured_allocation(wishes: Wishes) -> None:
    measured = {MOMENTS, PROJECTION} if wishes.projection == "private-pca" else {MOMENTS}
    unused = sorted(set(wishes.allocation or {}) - measured)
    if unused:
        raise PlanError(
            f"the allocation gives budget to {', '.join(unused)}, which this release does not measure",
            rule="allocation-unused",
            where="model.allocation",
            hint=f"use `allocation: auto`, or fractions of {' and '.join(sorted(measured))} only",
        )


def _projection_share(wishes: Wishes) -> Fraction:
    """What the projection may take: the fraction asked for, or the usual one."""
    if wishes.projection != "private-pca":
        return Fraction(0)
    if wishes.allocation is None:
        return PROJECTION_SHARE
    return wishes.allocation.get(PROJECTION, Fraction(0))


def _scaled(budgets: list[Budget], share: Fraction) -> list[Budget]:
    """A share of each way to spend the budget."""
    return [replace(budget, value=budget.value * share) for budget in budgets]


def _moments_budgets(wishes: Wishes, budgets: list[Budget]) -> list[Budget]:
    """What the projection leaves to the moments, for each way to spend it."""
    rest = 1 - _projection_share(wishes)
    if wishes.projection_mechanism == AUTO:
        return _scaled(budgets, rest)
    return [_part(wishes, rest, type(budget), _spends(wishes.projection_mechanism)) for budget in budgets]


def _spends(mechanism: str) -> type[Budget]:
    """The kind of budget that a mechanism spends."""
    return Rho if mechanism in GAUSSIAN_NOISE else Epsilon


def _part(wishes: Wishes, share: Fraction, kind: type[Budget], other: type[Budget]) -> Budget:
    """A share of the budget for a measurement of one kind, beside one of another kind that takes the rest.

    Two of a kind share epsilon or rho, which add. Unlike kinds share epsilon: the Gaussian
    one gets the rho that stays within its part at the whole delta, so that the parts,
    stated one beside the other, stay within the epsilon asked for.
    """
    if kind is Epsilon:
        return Epsilon(share * wishes.epsilon)
    delta = float(wishes.delta)
    if other is Rho:
        return Rho(share * rho_of_epsilon(float(wishes.epsilon), delta=delta))
    return Rho(rho_of_epsilon(float(share * wishes.epsilon), delta=delta))


def _require_exact_width(encoding: Encoding) -> None:
    most = EXACT >> (POINT_BITS + PROJECTION_BITS)
    if encoding.width > most:
        raise PlanError(
            f"the record has {encoding.width} encoded coordinates, more than {most}",
            rule="record-too-wide",
            where="columns",
            hint="declare fewer columns or categories; beyond that sums are not exact",
        )


def _choose_generator(wishes: Wishes, reasons: list[str]) -> tuple[str, RecordSchema]:
    schema = wishes.schema
    has_target = any(column.role is Role.TARGET for column in schema.columns)
    choice = wishes.generator
    if choice == AUTO:
        choice = "mixture" if schema.label else "supervised" if has_target else "gaussian"
        why = {
            "mixture": "the label splits the moments into class blocks, which together cost as much as one",
            "supervised": "the target is measured jointly with the features and never projected",
            "gaussian": "there is neither label nor target",
        }
        reasons.append(f"generator {choice}: {why[choice]}")
    if choice == LDA:
        _require_label(schema)
        reasons.append(
            "generator lda: class counts, class means and the second moment that all classes share come out of one "
            "block, at the price of one; rows are Gaussian around their class's mean with the shared covariance, "
            "because the greedy sampler of Jiang et al. works in plain columns, not along projections, and row by row"
        )
    if choice not in ("mixture", "supervised", "gaussian", LDA):
        raise PlanError(
            f"generator {choice!r} cannot be released by this version",
            rule="generator-unavailable",
            where="model.generator",
            hint="use auto, gaussian, supervised, mixture or lda",
        )
    if choice not in ("mixture", LDA) and schema.label is not None:
        columns = (replace(c, role=Role.FEATURE) if c.role is Role.LABEL else c for c in schema.columns)
        reasons.append("the label is modelled as one more feature")
        schema = RecordSchema(tuple(columns))
    return choice, schema


def _require_label(schema: RecordSchema) -> None:
    if schema.label is None:
        raise PlanError(
            "generator 'lda' needs a label",
            rule="generator-needs-label",
            where="model.generator",
            hint="give a categorical column `role: label`",
        )


def _budget(wishes: Wishes) -> list[Budget]:
    """The ways in which the promised (epsilon, delta) can be spent: pure, and as zCDP if delta allows."""
    ways: list[Budget] = [Epsilon(wishes.epsilon)]
    if wishes.delta > 0:
        ways.append(Rho(rho_of_epsilon(float(wishes.epsilon), delta=float(wishes.delta))))
    return ways


def _layout(wishes: Wishes, size: int, blocks: int) -> Layout:
    rows_per_unit = wishes.unit.most_rows if wishes.unit.person and wishes.unit.row_rule is RowRule.AT_MOST else 1
    if wishes.generator == LDA and blocks > 1:  # classes are labels in one block, whose points they share
        return Layout(size + blocks, 1, count_weight(size, blocks), rows_per_unit, labels=blocks)
    return Layout(size + 1, blocks, count_weight(size), rows_per_unit)


def _projected_size(wishes: Wishes, encoding: Encoding, dimension: int) -> int:
    """Coordinates of a projected point: the target's are kept beside the features'."""
    return encoding.width if wishes.projection == "none" else dimension + encoding.target_width


def count_weight(size: int, labels: int = 1) -> Fraction:
    """The weight s of the count in (s, y) that balances the errors of means and second moment.

    s² = q solves 2 (size + 1) q² + k q = k; rounded to 1/64. k is the square of the
    number of labels in one block: a class's mean has that many times fewer rows.
    """
    k = labels**2
    q = (math.sqrt(k**2 + 8 * k * (size + 1)) - k) / (4 * (size + 1))
    return Fraction(max(1, round(math.sqrt(q) * WEIGHT_GRID)), WEIGHT_GRID)


def _candidates(wishes: Wishes, layout: Layout, budgets: list[Budget]) -> list[GramEvent]:
    """The events that the wishes allow, each spending the whole budget."""
    if wishes.mechanism == AUTO:
        pure = "wishart-difference"
        names = [f"{pure}-trace" if wishes.neighbours is Neighbours.REPLACE_ONE else pure, "gaussian"]
    else:
        names = [_require_releasable(wishes)]
    events = []
    for name in names:
        for budget in budgets:
            if (name == "gaussian") == isinstance(budget, Rho):
                events.append(_calibrated(name, layout, wishes, budget))
    if not events:
        raise PlanError(
            f"mechanism {wishes.mechanism!r} needs delta > 0",
            rule="mechanism-needs-delta",
            where="privacy.delta",
            hint="set a small delta such as 1.0e-6, or use a pure mechanism",
        )
    return events


def _calibrated(name: str, layout: Layout, wishes: Wishes, budget: Budget) -> GramEvent:
    fault = ""
    try:
        return gram_mechanism(name).calibrate(layout, wishes.neighbours, budget)
    except ValueError as error:
        fault = str(error)
    raise PlanError(fault, rule="mechanism-not-applicable", where="model.mechanism", hint="use `mechanism: auto`")


def _require_releasable(wishes: Wishes) -> str:
    entry = BY_NAME.get(wishes.mechanism)
    hint = "use auto, or a proved moments mechanism of `dprelease mechanisms`"
    if entry is None or (entry.mechanism is None and entry.status is not Status.REFUTED):
        raise PlanError(
            f"{wishes.mechanism!r} is no mechanism for moments",
            rule="mechanism-unknown",
            where="model.mechanism",
            hint=hint,
        )
    if entry.status is Status.REFUTED:
        raise PlanError(
            f"mechanism {entry.name!r} is refuted: {entry.reason}",
            rule="mechanism-refuted",
            where="model.mechanism",
            hint=hint,
        )
    if entry.mechanism is not None and entry.mechanism.gives is not Gives.GRAM:
        raise PlanError(
            f"mechanism {entry.name!r} gives a {entry.mechanism.gives} only, and a release needs whole moments",
            rule="mechanism-not-moments",
            where="model.mechanism",
            hint=hint,
        )
    return entry.name


def _best(wishes: Wishes, layout: Layout, budgets: list[Budget]) -> GramEvent:
    """The event with the least expected noise."""
    events = _candidates(wishes, layout, budgets)
    return min(events, key=lambda event: gram_mechanism(event.mechanism).expected_error(event).frobenius)


def _choose_dimension(wishes: Wishes, encoding: Encoding, budgets: list[Budget], reasons: list[str]) -> int:
    if wishes.projection == "none":
        return encoding.width
    if wishes.dimension != AUTO:
        if not 1 <= int(wishes.dimension) <= encoding.feature_width:
            raise PlanError(
                f"dimension must be between 1 and {encoding.feature_width}, got {wishes.dimension}",
                rule="dimension-out-of-range",
                where="model.projection.dimension",
                hint="use fewer dimensions than the features have coordinates, or `auto`",
            )
        return int(wishes.dimension)

    def quiet(dimension: int) -> bool:
        layout = _layout(wishes, _projected_size(wishes, encoding, dimension), encoding.schema.class_count)
        event = _best(wishes, layout, budgets)
        expected = gram_mechanism(event.mechanism).expected_error(event)
        return _signal_to_noise(wishes.expected_rows, event, expected) >= 1 / NOISE_SHARE

    low, high = 1, encoding.feature_width
    while low < high:  # the signal-to-noise ratio falls with the dimension
        middle = (low + high + 1) // 2
        low, high = (middle, high) if quiet(middle) else (low, middle - 1)
    kept = "every feature coordinate is kept" if low == encoding.feature_width else f"of {encoding.feature_width}"
    reasons.append(
        f"dimension {low} ({kept}): the largest at which the noise's operator norm stays below "
        f"{NOISE_SHARE:g} of the average eigenvalue of a class block"
    )
    return low


def _choose_events(
    wishes: Wishes, encoding: Encoding, budgets: list[Budget], dimension: int, reasons: list[str]
) -> tuple[GramEvent | None, GramEvent]:
    """What is measured for the projection, if anything, and for the moments."""
    blocks = encoding.schema.class_count
    layout = _layout(wishes, _projected_size(wishes, encoding, dimension), blocks)
    first, event = None, _best(wishes, layout, _moments_budgets(wishes, budgets))
    if wishes.projection_mechanism != AUTO:
        first = _named_components(wishes, encoding, dimension, event, reasons)
    elif wishes.projection == "private-pca":
        first, event = _principal_events(wishes, encoding, budgets, event, reasons)
    if wishes.mechanism == AUTO:
        way = "pure epsilon" if wishes.delta == 0 else "less expected noise than the alternative at this dimension"
        reasons.append(f"mechanism {event.mechanism}: {way}")
    reasons.append(
        f"count weight {float(event.layout.count_weight):.3g}: balances the errors of means and second moments"
    )
    return first, event


def _principal_events(
    wishes: Wishes, encoding: Encoding, budgets: list[Budget], second: GramEvent, reasons: list[str]
) -> tuple[GramEvent | None, GramEvent]:
    """Private principal components: out of one wide measurement, or measured apart from the moments.

    The wide measurement spends everything at once and its components cost nothing more;
    apart, the moments are measured in few dimensions with what the components leave. The
    planner takes what is expected to leave less noise on an entry of the moments.
    """
    wide = _best(wishes, _layout(wishes, encoding.width, encoding.schema.class_count), budgets)
    share = _projection_share(wishes)
    noise = {name: _entry_noise(event) for name, event in (("wide", wide), ("second", second))}
    reuse = share == 0 or (wishes.allocation is None and noise["wide"] <= noise["second"])
    what = "come out of the measured moments" if reuse else f"are measured apart with {float(share):g} of the budget"
    reasons.append(
        f"private principal components {what}: noise of {noise['wide']:.3g} on an entry if measured together, "
        f"{noise['second']:.3g} if apart"
    )
    if reuse:
        return None, wide
    return _best(wishes, _layout(wishes, encoding.width, 1), _same_way(budgets, second, share)), second


def _named_components(
    wishes: Wishes, encoding: Encoding, dimension: int, second: GramEvent, reasons: list[str]
) -> GramEvent:
    """Private principal components measured apart, by the mechanism that the specification names."""
    name, share = wishes.projection_mechanism, _projection_share(wishes)
    kind, other = _spends(name), _spends(second.mechanism)
    if kind is Rho and not wishes.delta:
        raise PlanError(
            f"mechanism {name!r} needs delta > 0",
            rule="mechanism-needs-delta",
            where="privacy.delta",
            hint="set a small delta such as 1.0e-6, or use a pure mechanism",
        )
    entry = BY_NAME[name]
    doubt = f"; its guarantee is approximate: {entry.reason}" if entry.status is Status.APPROXIMATE else ""
    reasons.append(
        f"private principal components are measured apart by {name} with {float(share):g} of the budget, "
        f"as the specification says{doubt}"
    )
    return _components_event(wishes, encoding, dimension, _part(wishes, share, kind, other))


def _components_event(wishes: Wishes, encoding: Encoding, dimension: int, budget: Budget) -> GramEvent:
    """A noisy Gram of all coordinates, or directions of the features' alone."""
    name, fault = wishes.projection_mechanism, ""
    try:
        if mechanism_of(name).gives is Gives.GRAM:
            layout = _layout(wishes, encoding.width, 1)
            return gram_mechanism(name).calibrate(layout, wishes.neighbours, budget)
        layout = _layout(wishes, encoding.feature_width, 1)
        return basis_mechanism(name).calibrate(layout, wishes.neighbours, budget, components=dimension)
    except ValueError as error:
        fault = str(error)
    where, hint = "model.projection.mechanism", "use `mechanism: auto` for the projection"
    raise PlanError(fault, rule="mechanism-not-applicable", where=where, hint=hint)


def _entry_noise(event: GramEvent) -> float:
    return gram_mechanism(event.mechanism).expected_error(event).off_diagonal_sd


def _same_way(budgets: list[Budget], event: GramEvent, share: Fraction) -> list[Budget]:
    """The share of the budget, spent in the same way (pure or zCDP) as another event spends the rest."""
    kind = type(gram_mechanism(event.mechanism).cost(event))
    return [budget for budget in _scaled(budgets, share) if isinstance(budget, kind)]
