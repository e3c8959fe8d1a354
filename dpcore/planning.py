"""Choices before any data are touched: from public constants only.

Everything that the specification leaves open (dimension, mechanism, generator,
weight of the count) is decided here, with its reason, from the number of rows that
the steward expects, the privacy budget, and the shape of the record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Integral
from typing import Any

from dpcore.accounting import Budget, Cost, Epsilon, Rho, total
from dpcore.allocation import (
    FRAME_SHARES,
    Shares,
    apart_error,
    best_share,
    marginals_share,
    moments_budgets,
    part,
    shares_of,
    spends,
    whole_budgets,
)
from dpcore.encoding import Encoding
from dpcore.exactgram import EXACT, GRID_BITS, POINT_BITS, PROJECTION_BITS, Layout
from dpcore.grouping import least_group
from dpcore.histograms import histograms_query
from dpcore.mechanisms.base import ExpectedError, Gives, GramEvent
from dpcore.mechanisms.sums import LAPLACE_SUMS
from dpcore.registry import (
    BY_NAME,
    Entry,
    Event,
    Status,
    basis_mechanism,
    cost_of,
    gram_mechanism,
    mechanism_of,
    vector_mechanism,
)
from dpcore.schema import Neighbours, NominalColumn, RecordSchema, Role, RowRule
from dpcore.structure import Scale, Structure, choose_structure
from dpcore.vectors import VectorEvent
from dpcore.wishes import (
    AUTO,
    CENTRE,
    COPULA,
    DIAGONAL,
    LDA,
    MARGINALS,
    MEAN,
    MOMENTS,
    PROJECTION,
    RADIUS,
    SPREAD,
    PlanError,
    Wishes,
)

NOISE_SHARE = 0.25
"""Dimension rule: the noise's operator norm stays below this share of the average eigenvalue."""

WEIGHT_GRID = 64
"""The count's weight is rounded to multiples of 1/64."""

SUMS_WEIGHT, NO_WEIGHT = Fraction(1, 4), Fraction(1, 1 << GRID_BITS)
"""Weights of the count where counts and sums are measured apart: in that measurement, and in the moments'."""


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
    shares: Shares
    projection_event: GramEvent | None = None
    mean_event: GramEvent | None = None
    marginals_event: VectorEvent | None = None
    check_events: dict[str, VectorEvent] = field(default_factory=dict)
    """What is measured after rows were sampled: how a model of them does on the real rows."""
    sensitivity_to_information: float | None = None
    radius: Fraction = Fraction(1)
    frame_events: dict[str, GramEvent] = field(default_factory=dict)

    @property
    def events(self) -> dict[str, Event]:
        """Everything that will be measured, by the names that ledger and record use, in its order."""
        measured: dict[str, Event | None] = {
            **self.frame_events,
            PROJECTION: self.projection_event,
            MARGINALS: self.marginals_event,
            MEAN: self.mean_event,
            MOMENTS: self.event,
            **self.check_events,
        }
        return {name: event for name, event in measured.items() if event is not None}

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
    def frame_knows_mean(self) -> bool:
        """Whether the frame's centre is measured in every coordinate, and not along the projection only."""
        centre = self.frame_events.get(CENTRE)
        return centre is not None and centre.layout.dimension == self.encoded_width + 1

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
        return {name: float(share) for name, share in self.shares.items() if name in self.events}

    def expected_error(self) -> dict[str, float]:
        """Expected error of the release, in records and relative to the expected rows.

        `sir` is PCA-Gauss's ratio of sensitivity gain to information loss against keeping every
        coordinate; above 1 the projection pays.
        """
        rows, classes = self.expected_rows, self.event.layout.classes
        count_sd, sum_sd = count_and_sum_noise(self.event, self.mean_event)
        figures = {
            "frobenius": self.expected.frobenius,
            "operator": self.expected.operator,
            "count_sd": count_sd * math.sqrt(classes),
            "mean_sd": sum_sd * math.sqrt(classes) / rows,
            "relative_operator": self.expected.operator * self.event.layout.blocks / rows,
            "signal_to_noise": self.signal_to_noise,
        }
        gain = self.sensitivity_to_information
        return figures if gain is None else figures | {"sir": gain}

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


def count_and_sum_noise(moments: GramEvent, mean: GramEvent | None = None) -> tuple[float, float]:
    """Standard deviations of the noise on a class's count and on one coordinate of its sum, in records."""
    if mean is not None:
        return LAPLACE_SUMS.deviations(mean)
    expected, weight = gram_mechanism(moments.mechanism).expected_error(moments), float(moments.layout.count_weight)
    return expected.diagonal_sd / weight**2, expected.off_diagonal_sd / weight


def make_plan(wishes: Wishes) -> Plan:
    """Decide everything that the specification leaves open.

    Raises: PlanError where the wishes cannot be carried out.
    """
    reasons: list[str] = []
    if wishes.projection == AUTO:
        wishes = _with_projection(wishes, reasons)
    _require_projection(wishes)
    if wishes.generator == COPULA or _is_for_copula(wishes):
        return _copula_plan(replace(wishes, generator=COPULA), reasons)
    shares = shares_of(wishes)
    _require_projection_mechanism(wishes, shares)
    _require_frame(wishes)
    generator, schema = _choose_generator(wishes, moments_budgets(wishes, shares), reasons)
    wishes, encoding = replace(wishes, generator=generator), Encoding(schema)
    _require_exact_width(encoding)
    dimension = _choose_dimension(wishes, encoding, moments_budgets(wishes, shares), reasons)
    shares = _best_shares(wishes, encoding, dimension, shares)
    first, event = _choose_events(wishes, encoding, shares, dimension, reasons)
    mean = _mean_event(wishes, event.layout, shares, reasons)
    expected = gram_mechanism(event.mechanism).expected_error(event)
    frame = _frame_events(wishes, encoding, event, shares, reasons)
    return Plan(
        schema=schema,
        projection=wishes.projection,
        dimension=dimension,
        encoded_width=encoding.width,
        generator=LDA if generator == DIAGONAL else generator,
        event=event,
        expected=expected,
        signal_to_noise=_signal_to_noise(wishes.expected_rows, event, expected),
        expected_rows=wishes.expected_rows,
        reasons=tuple(reasons),
        shares=shares,
        projection_event=first,
        mean_event=mean,
        sensitivity_to_information=_gain_to_loss(wishes, encoding, event, expected),
        radius=Fraction(1) if isinstance(wishes.radius, str) else wishes.radius,
        frame_events=frame,
    )


def _with_projection(wishes: Wishes, reasons: list[str]) -> Wishes:
    """The wishes with a projection that costs nothing: none where every column can be kept, else a random one."""
    whole = replace(wishes, projection="none")
    if wishes.dimension == AUTO:
        if wishes.generator == COPULA or _is_for_copula(whole):
            reasons.append("projection none: the table is mixed and large enough for histograms of every column")
            return whole
        random = make_plan(replace(wishes, projection="ron"))
        if random.dimension == Encoding(random.schema).feature_width:
            reasons.append("projection none: every coordinate rises above the noise")
            return whole
    reasons.append("projection ron: random directions cost nothing, and in fewer of them there is less noise")
    return replace(wishes, projection="ron")


COORDINATES = {Rho: 6, Epsilon: 4}
"""Coordinates of groups that a column of a mixed table takes on average; pure noise grows with them."""

GROUPS_WEIGHT = Fraction(20, WEIGHT_GRID)
"""The count's weight beside groups: histograms know the marginals already."""


LEAST_GROUPS = 4
"""A mixed table is left to the copula where a column can have so many groups that rise above the noise."""


def _is_for_copula(wishes: Wishes) -> bool:
    """Whether a table whose generator is left open, and which is not projected, is mixed and large enough."""
    allowed = wishes.generator == AUTO and wishes.projection == "none" and MEAN not in (wishes.allocation or {})
    allowed = allowed and wishes.radius == 1
    if not allowed or (MOMENTS in (wishes.allocation or {}) and MARGINALS not in (wishes.allocation or {})):
        return False
    columns = wishes.schema.encoded_columns
    if not any(isinstance(column, NominalColumn) or column.is_whole for column in columns):
        return False
    try:
        event = _copula_plan(replace(wishes, generator=COPULA), []).event
    except PlanError:
        return False
    return LEAST_GROUPS * least_group(event, len(columns)) <= wishes.expected_rows


def _copula_plan(wishes: Wishes, reasons: list[str]) -> Plan:
    """Histograms of every column, then the Gram of their groups."""
    if wishes.radius != 1:
        raise PlanError(
            "generator 'copula' has no radius: its groups are measured around their own means",
            rule="radius-unused",
            where="model.radius",
            hint="remove the radius",
        )
    if wishes.projection != "none":
        raise PlanError(
            f"generator 'copula' keeps every column, so it does not go with the projection {wishes.projection!r}",
            rule="projection-unused",
            where="model.projection",
            hint="remove the projection, or use `kind: none`",
        )
    _require_projection_mechanism(wishes, {PROJECTION: Fraction(0)})
    schema, rows_per_unit = wishes.schema, _rows_per_unit(wishes)
    columns = schema.encoded_columns
    choices = []
    for way in whole_budgets(wishes):
        kind = type(way)
        share = marginals_share(wishes, kind)
        layout = Layout(1 + COORDINATES[kind] * len(columns), schema.class_count, GROUPS_WEIGHT, rows_per_unit)
        if layout.dimension > (most := EXACT >> (POINT_BITS + PROJECTION_BITS)):
            raise _too_wide(layout.dimension, most)
        if wishes.mechanism == AUTO or spends(_require_releasable(wishes)) is kind:
            choices.append((_best(wishes, layout, [part(wishes, 1 - share, kind, kind)]), share, kind))
    if not choices:
        raise _needs_delta(wishes.mechanism)
    event, share, kind = min(choices, key=lambda choice: _entry_noise(choice[0]))
    query = histograms_query(columns, rows_per_unit)
    histograms = vector_mechanism("histogram-gaussian" if kind is Rho else "histogram-laplace")
    marginals = histograms.calibrate(query, wishes.neighbours, part(wishes, share, kind, kind))
    expected = gram_mechanism(event.mechanism).expected_error(event)
    width = event.layout.dimension - 1
    return Plan(
        schema=schema,
        projection=wishes.projection,
        dimension=width,
        encoded_width=width,
        generator=COPULA,
        event=event,
        expected=expected,
        signal_to_noise=_signal_to_noise(wishes.expected_rows, event, expected),
        expected_rows=wishes.expected_rows,
        reasons=(
            *reasons,
            "generator copula: every column is measured by a histogram, and how columns hang together by "
            "one Gram of their groups, in class blocks, which together cost as much as one",
            f"the histograms take {float(share):g} of the budget"
            + ("" if wishes.allocation is None else ", as the specification says"),
            f"{width} coordinates for the groups of {len(columns)} columns, a public number: the histograms decide "
            "which values share a group",
            f"mechanism {event.mechanism}: "
            + ("pure epsilon" if not wishes.delta else "less expected noise than the alternative"),
        ),
        shares={MARGINALS: share, MOMENTS: 1 - share},
        marginals_event=marginals,
    )


def _signal_to_noise(rows: float, event: GramEvent, expected: ExpectedError) -> float:
    """Average eigenvalue of a class block against the noise's operator norm."""
    return rows / event.layout.blocks / (event.layout.dimension - event.layout.heads) / expected.operator


def _gain_to_loss(wishes: Wishes, encoding: Encoding, event: GramEvent, expected: ExpectedError) -> float | None:
    """The papers' ratio of sensitivity gain to information loss, from public constants.

    The gain is how much less noise the same budget puts on the projected moments than on
    all coordinates; the loss is the share of variance that a random projection leaves
    out on average (principal components leave out less, so for them this is a lower bound).
    """
    mechanism = gram_mechanism(event.mechanism)
    layout = _layout(wishes, encoding.width, encoding.schema.class_count)
    try:
        whole = mechanism.calibrate(layout, wishes.neighbours, mechanism.cost(event))
    except ValueError:  # the mechanism cannot measure so many coordinates at all
        return None
    gain = mechanism.expected_error(whole).operator / expected.operator
    return gain * (event.layout.dimension - event.layout.heads) / encoding.width


def _best_shares(wishes: Wishes, encoding: Encoding, dimension: int, shares: Shares) -> Shares:
    """The shares with the least error, or none for the components where one measurement serves both better.

    Errors are operator norms of the noise over the average eigenvalue of what is kept. A
    single wide measurement spends everything at once: its noise on the projected moments
    is that of its entries, and its components cost nothing more.
    """
    if wishes.projection != "private-pca" or wishes.allocation is not None or wishes.projection_mechanism != AUTO:
        return shares
    size, blocks = _projected_size(wishes, encoding, dimension), encoding.schema.class_count
    eigenvalue, whole = wishes.expected_rows / size, whole_budgets(wishes)
    moments = _best(wishes, _layout(wishes, size, blocks), whole)
    kind = spends(moments.mechanism)
    same_kind = [budget for budget in whole if isinstance(budget, kind)]
    components = _best(wishes, _components_layout(wishes, encoding.width), same_kind)
    wide = _best(wishes, _layout(wishes, encoding.width, blocks), whole)
    errors = _operator(components) / eigenvalue, _operator(moments) * moments.layout.blocks / eigenvalue
    share = best_share(*errors, kind)
    noise = _entry_noise(wide) * 2 * math.sqrt(size) * wide.layout.blocks / eigenvalue
    together = (_operator(wide) * math.sqrt(wide.layout.blocks) / eigenvalue) ** 2 + noise
    return shares_of(wishes, share if apart_error(*errors, share, kind) < together else Fraction(0))


def _operator(event: GramEvent) -> float:
    return gram_mechanism(event.mechanism).expected_error(event).operator


def _mean_event(wishes: Wishes, moments: Layout, shares: Shares, reasons: list[str]) -> GramEvent | None:
    """Counts and sums measured apart, as the papers do; only where the allocation says so."""
    if not shares[MEAN]:
        return None
    if moments.labels:
        raise PlanError(
            "generator 'lda' measures its means with the moments",
            rule="allocation-unused",
            where="model.allocation",
            hint="leave the mean out of the allocation",
        )
    reasons.append("counts and means are measured apart from the second moments, as the specification says")
    layout = replace(moments, count_weight=SUMS_WEIGHT)
    return LAPLACE_SUMS.calibrate(layout, wishes.neighbours, Epsilon(shares[MEAN] * wishes.epsilon))


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


def _require_projection_mechanism(wishes: Wishes, shares: Shares) -> None:
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
            not shares[PROJECTION],
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


def _require_exact_width(encoding: Encoding) -> None:
    most = EXACT >> (POINT_BITS + PROJECTION_BITS)
    if encoding.width > most:
        raise _too_wide(encoding.width, most)


def _too_wide(width: int, most: int) -> PlanError:
    return PlanError(
        f"the record has {width} encoded coordinates, more than {most}",
        rule="record-too-wide",
        where="columns",
        hint="declare fewer columns or categories; beyond that sums are not exact",
    )


def _choose_generator(wishes: Wishes, budgets: list[Budget], reasons: list[str]) -> tuple[str, RecordSchema]:
    schema = wishes.schema
    has_target = any(column.role is Role.TARGET for column in schema.columns)
    choice = wishes.generator
    if choice == AUTO and schema.label:
        return _choose_structure(wishes, budgets, reasons), schema
    if choice == AUTO:
        choice = "supervised" if has_target else "gaussian"
        why = {
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
            hint="use auto, gaussian, supervised, mixture, lda or copula",
        )
    if choice not in ("mixture", LDA) and schema.label is not None:
        columns = (replace(c, role=Role.FEATURE) if c.role is Role.LABEL else c for c in schema.columns)
        reasons.append("the label is modelled as one more feature")
        schema = RecordSchema(tuple(columns))
    return choice, schema


def _choose_structure(wishes: Wishes, budgets: list[Budget], reasons: list[str]) -> str:
    """The generator of a table with a label: class blocks, one block with labels, or the same for means above all.

    Without a dimension yet, class blocks would take the largest at which they rise above the noise:
    enough if that leaves them a coordinate a class.
    """
    encoding, mixture = Encoding(wishes.schema), replace(wishes, generator="mixture")
    classes, dimension = encoding.schema.class_count, _choose_dimension(mixture, encoding, budgets, [])
    if MEAN in (wishes.allocation or {}):
        reasons.append("generator mixture: class blocks, whose counts and means are measured apart")
        return "mixture"
    if wishes.projection != "none" and wishes.dimension == AUTO:
        few = dimension < classes
        why = f"class blocks would rise above the noise in {dimension} dimensions only, fewer than there are classes"
        reasons.append(f"generator lda: {why}" if few else "generator mixture: class blocks cost as much as one")
        return LDA if few else "mixture"
    size = _projected_size(wishes, encoding, dimension)
    block, pooled = (
        _best(way, _layout(way, size, classes), budgets) for way in (mixture, replace(wishes, generator=LDA))
    )
    scale = Scale(
        rows=wishes.expected_rows,
        classes=classes,
        size=size,
        block_noise=_operator(block),
        pooled_noise=_operator(pooled),
    )
    structure, why = choose_structure(scale)
    generator = {Structure.BLOCKS: "mixture", Structure.POOLED: LDA, Structure.DIAGONAL: DIAGONAL}[structure]
    reasons.append(f"generator {LDA if generator == DIAGONAL else generator}: {why}")
    return generator


def _require_frame(wishes: Wishes) -> None:
    """A frame that is bought spends what the moments spend, and so must components that are measured by name."""
    if wishes.radius == AUTO and wishes.projection_mechanism != AUTO:
        raise PlanError(
            f"a radius that is bought does not go with components by {wishes.projection_mechanism!r}",
            rule="radius-not-applicable",
            where="model.radius",
            hint="use `mechanism: auto` for the projection, or give the radius as a number",
        )


def _frame_events(
    wishes: Wishes, encoding: Encoding, moments: GramEvent, shares: Shares, reasons: list[str]
) -> dict[str, GramEvent]:
    """What is measured for the frame: the mean squared length of points, their mean, and the length around it."""
    if not shares[RADIUS]:
        return {}
    kind, rows_per_unit = spends(moments.mechanism), _rows_per_unit(wishes)
    budgets = {name: part(wishes, shares[name], kind, kind) for name in FRAME_SHARES}
    taken = float(sum(shares[name] for name in FRAME_SHARES))
    reasons.append(
        f"radius: points are measured around their mean and in units of their spread, which take {taken:g} of "
        "the budget; the noise is then no larger than the table needs"
    )
    one = Layout(2, 1, Fraction(1), rows_per_unit)
    if kind is Epsilon:  # pure noise on a mean grows with its coordinates
        size = encoding.width if wishes.projection == "private-pca" else moments.layout.dimension - moments.layout.heads
        sums = Layout(size + 1, 1, SUMS_WEIGHT, rows_per_unit)
        centre = LAPLACE_SUMS.calibrate(sums, wishes.neighbours, budgets[CENTRE])
    else:
        centre = _best(wishes, Layout(encoding.width + 1, 1, Fraction(1), rows_per_unit), [budgets[CENTRE]])
    lengths = {name: _best(wishes, one, [budgets[name]]) for name in (RADIUS, SPREAD)}
    return {RADIUS: lengths[RADIUS], CENTRE: centre, SPREAD: lengths[SPREAD]}


def _require_label(schema: RecordSchema) -> None:
    if schema.label is None:
        raise PlanError(
            "generator 'lda' needs a label",
            rule="generator-needs-label",
            where="model.generator",
            hint="give a categorical column `role: label`",
        )


def _rows_per_unit(wishes: Wishes) -> int:
    return wishes.unit.most_rows if wishes.unit.person and wishes.unit.row_rule is RowRule.AT_MOST else 1


def _components_layout(wishes: Wishes, size: int) -> Layout:
    """The shape of a measurement for components: all classes together, with the mean."""
    return Layout(size + 1, 1, count_weight(size), _rows_per_unit(wishes))


def _layout(wishes: Wishes, size: int, blocks: int) -> Layout:
    """The shape of the moments' measurement."""
    rows_per_unit = _rows_per_unit(wishes)
    if wishes.generator in (LDA, DIAGONAL) and blocks > 1:  # classes are labels in one block, whose points they share
        weight = Fraction(1) if wishes.generator == DIAGONAL else count_weight(size, blocks)
        return Layout(size + blocks, 1, weight, rows_per_unit, labels=blocks)
    apart = MEAN in (wishes.allocation or {})
    return Layout(size + 1, blocks, NO_WEIGHT if apart else count_weight(size), rows_per_unit)


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
        raise _needs_delta(wishes.mechanism)
    return events


def _needs_delta(mechanism: str) -> PlanError:
    return PlanError(
        f"mechanism {mechanism!r} needs delta > 0",
        rule="mechanism-needs-delta",
        where="privacy.delta",
        hint="set a small delta such as 1.0e-6, or use a pure mechanism",
    )


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
        if not isinstance(wishes.dimension, Integral) or not 1 <= wishes.dimension <= encoding.feature_width:
            raise PlanError(
                f"dimension must be a whole number between 1 and {encoding.feature_width}, got {wishes.dimension!r}",
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
    wishes: Wishes, encoding: Encoding, shares: Shares, dimension: int, reasons: list[str]
) -> tuple[GramEvent | None, GramEvent]:
    """What is measured for the projection, if anything, and for the moments."""
    blocks = encoding.schema.class_count
    layout = _layout(wishes, _projected_size(wishes, encoding, dimension), blocks)
    first, event = None, _best(wishes, layout, moments_budgets(wishes, shares))
    if wishes.projection_mechanism != AUTO:
        first = _named_components(wishes, encoding, dimension, event, shares[PROJECTION], reasons)
    elif wishes.projection == "private-pca":
        first, event = _principal_events(wishes, encoding, shares, event, reasons)
    if wishes.mechanism == AUTO:
        way = "pure epsilon" if wishes.delta == 0 else "less expected noise than the alternative at this dimension"
        reasons.append(f"mechanism {event.mechanism}: {way}")
    if not shares[MEAN]:
        reasons.append(
            f"count weight {float(event.layout.count_weight):.3g}: balances the errors of means and second moments"
        )
    return first, event


def _principal_events(
    wishes: Wishes, encoding: Encoding, shares: Shares, second: GramEvent, reasons: list[str]
) -> tuple[GramEvent | None, GramEvent]:
    """Private principal components: out of one wide measurement, or measured apart from the moments.

    The wide measurement spends everything at once and its components cost nothing more;
    apart, the moments are measured in few dimensions with what the components leave.
    """
    share = shares[PROJECTION]
    if share == 0:
        layout = _layout(wishes, encoding.width, encoding.schema.class_count)
        wide = _best(wishes, layout, moments_budgets(wishes, shares))
        reasons.append("private principal components come out of the measured moments, at no cost of their own")
        return None, wide
    why = "the least expected error" if wishes.allocation is None else "as the specification says"
    reasons.append(f"private principal components are measured apart with {float(share):g} of the budget: {why}")
    kind = spends(second.mechanism)
    return _best(wishes, _components_layout(wishes, encoding.width), [part(wishes, share, kind, kind)]), second


def _named_components(
    wishes: Wishes, encoding: Encoding, dimension: int, second: GramEvent, share: Fraction, reasons: list[str]
) -> GramEvent:
    """Private principal components measured apart, by the mechanism that the specification names."""
    name = wishes.projection_mechanism
    kind, other = spends(name), spends(second.mechanism)
    if kind is Rho and not wishes.delta:
        raise _needs_delta(name)
    entry = BY_NAME[name]
    doubt = f"; its guarantee is approximate: {entry.reason}" if entry.status is Status.APPROXIMATE else ""
    reasons.append(
        f"private principal components are measured apart by {name} with {float(share):g} of the budget, "
        f"as the specification says{doubt}"
    )
    return _components_event(wishes, encoding, dimension, part(wishes, share, kind, other))


def _components_event(wishes: Wishes, encoding: Encoding, dimension: int, budget: Budget) -> GramEvent:
    """A noisy Gram of all coordinates, or directions of the features' alone."""
    name, fault = wishes.projection_mechanism, ""
    try:
        if mechanism_of(name).gives is Gives.GRAM:
            layout = _components_layout(wishes, encoding.width)
            return gram_mechanism(name).calibrate(layout, wishes.neighbours, budget)
        layout = _components_layout(wishes, encoding.feature_width)
        return basis_mechanism(name).calibrate(layout, wishes.neighbours, budget, components=dimension)
    except ValueError as error:
        fault = str(error)
    where, hint = "model.projection.mechanism", "use `mechanism: auto` for the projection"
    raise PlanError(fault, rule="mechanism-not-applicable", where=where, hint=hint)


def _entry_noise(event: GramEvent) -> float:
    return gram_mechanism(event.mechanism).expected_error(event).off_diagonal_sd
