"""The plan that a specification leads to, with its cap, the basis of its budget and the guarantee it states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting import Cap
from dpcore.errors import SpecError
from dpcore.planning.budgeted_checks import make_checked_plan
from dpcore.planning.forecast import LEAST_SIGNAL, expected_signal, nice_below
from dpcore.planning.plan import Plan
from dpcore.planning.request import AUTO, COPULA, PLANNED, PlanError, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Role
from tasks.spec import ReleaseSpec
from tasks.spec.modelling import ModelSpec
from tasks.spec.privacy import MOST_EPSILON, Windows
from tasks.spec.relations import Figures, at_least, at_most, relation_figures
from tasks.spec.rules.drawable import refuse_undrawable_rules
from tasks.workspace.redaction import ErrorBoundary

ENLARGED = tuple(Fraction(factor) for factor in ("1.25", "1.6", "2", "2.5", "3.2", "4", "5", "7", "10", "20", "50"))
"""Multiples of epsilon, and of the number of rows, among which a remedy for too much noise is looked for."""


@dataclass(frozen=True, kw_only=True)
class PlannedRelease:
    """A specification, and what the planner decided where it leaves something open."""

    spec: ReleaseSpec
    plan: Plan
    encoding: Encoding

    @staticmethod
    def of(spec: ReleaseSpec) -> PlannedRelease:
        """Plan a release.

        Raises: SpecError where the specification asks for what cannot be carried out.
        """
        plan = plan_release(spec)
        return PlannedRelease(spec=spec, plan=plan, encoding=Encoding(plan.schema))

    @property
    def stated(self) -> dict[str, float]:
        """The (epsilon, delta) that the release states; see `stated_guarantee`."""
        return stated_guarantee(self.spec, self.plan)

    @property
    def relations(self) -> dict[str, Figures | None]:
        """What the release promises for the values of a unit, and for its being in the data at all."""
        return relation_figures(self.plan.events.values(), self.spec.neighbours, self.stated)


def plan_release(spec: ReleaseSpec) -> Plan:
    """Decide what the specification leaves open.

    Raises: SpecError where it asks for what cannot be carried out.
    """
    model, kind = spec.model, spec.privacy.lifetime.kind
    request = PlanRequest(
        schema=spec.schema,
        neighbours=spec.neighbours,
        unit=spec.unit,
        epsilon=spec.privacy.epsilon,
        delta=spec.privacy.delta,
        expected_rows=spec.expected_rows,
        projection=_projection_kind(spec),
        projection_mechanism=model.projection.mechanism or "auto",
        dimension=model.projection.asked_dimension,
        mechanism="gaussian"
        if model.mechanism == AUTO and spec.privacy.lifetime.kind == "gaussian"
        else model.mechanism,
        generator=model.generator,
        allocation=model.shares,
        radius=model.radius or Fraction(1),
        normalise=model.normalise is not None,
        pure_only=kind in ("pure", "slots"),
    )
    with ErrorBoundary(ValueError, refusal=_impossible_plan):
        plan = make_checked_plan(request, spec.checks.budgeted)
        _refuse_other_kind(spec, plan)
        _refuse_output(spec, plan)
        return plan


def plan_run(spec: ReleaseSpec) -> Plan:
    """Decide what the specification leaves open, for a release that is to be made.

    Raises: SpecError where it asks for what cannot be carried out, or where the release would be mostly noise and the
    specification does not accept that, or where the generator would find no rows under the rules.
    """
    plan = plan_release(spec)
    refuse_undrawable_rules(plan.schema, plan.generator)
    refusal = noise_refusal(spec, plan)
    if refusal is not None:
        raise refusal
    return plan


def noise_refusal(spec: ReleaseSpec, plan: Plan) -> SpecError | None:
    """Why a release of this plan is refused as mostly noise, from public constants alone; None if it is not."""
    signal = expected_signal(plan)
    if signal >= LEAST_SIGNAL or spec.model.accept_noise:
        return None
    remedies = [*_quieter_models(spec), *_larger_figures(spec), "declare fewer columns or categories"]
    foreseen = f"its signal is foreseen to be {at_least(signal, 2)}, below {LEAST_SIGNAL:g}"
    return SpecError(
        f"the release would be mostly noise: {foreseen}",
        rule="mostly-noise",
        where="model.accept_noise",
        hint=f"{'; or '.join(remedies)}; or accept it with `accept_noise: true`",
    )


def _quieter_models(spec: ReleaseSpec) -> list[str]:
    """Which choices to leave to the planner, where a specification makes them and the planner makes better ones."""
    free = ModelSpec(output=spec.model.output)
    choices = ("projection", "mechanism", "generator", "allocation", "radius", "normalise")
    given = [name for name in choices if getattr(spec.model, name) != getattr(free, name)]
    if given and _is_clear(spec.model_copy(update={"model": free})):
        return [f"leave out {' and '.join(f'`model.{name}`' for name in given)}, so that the planner decides"]
    return []


def _larger_figures(spec: ReleaseSpec) -> list[str]:
    """Which larger epsilon, and which larger number of rows, would be enough by itself."""
    privacy, rows = spec.privacy, spec.expected_rows
    units = "persons" if privacy.unit.person and privacy.unit.rows == "weight" else "rows"
    epsilons = (nice_below(factor * privacy.epsilon) for factor in ENLARGED if factor * privacy.epsilon <= MOST_EPSILON)
    enough = next((e for e in epsilons if _is_clear(_with_epsilon(spec, e))), None)
    counts = (int(nice_below(factor * rows)) for factor in ENLARGED)
    many = next((n for n in counts if n > rows and _is_clear(spec.model_copy(update={"expected_rows": n}))), None)
    return [
        *([f"raise `privacy.epsilon` to about {float(enough):g}"] if enough is not None else []),
        *([f"release about {many:,} {units} at a time, such as those of several months"] if many is not None else []),
    ]


def _with_epsilon(spec: ReleaseSpec, epsilon: Fraction) -> ReleaseSpec:
    return spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"epsilon": epsilon})})


def _is_clear(spec: ReleaseSpec) -> bool:
    """Whether a specification can be planned, and is not foreseen to be mostly noise."""
    try:
        return expected_signal(plan_release(spec)) >= LEAST_SIGNAL
    except SpecError:
        return False


def _impossible_plan(error: ValueError) -> SpecError:
    if isinstance(error, PlanError):
        return SpecError(str(error), rule=error.rule, where=error.where, hint=error.hint)
    return SpecError(  # a budget beyond what a mechanism can draw for
        str(error),
        rule="plan-impossible",
        where="privacy.epsilon",
        hint="use an ordinary epsilon and larger parts of it, or fewer columns; `dprelease plan` shows the split",
    )


def _refuse_other_kind(spec: ReleaseSpec, plan: Plan) -> None:
    """Refuse costs that the specification's own kind of cap does not count."""
    lifetime = spec.privacy.lifetime
    if lifetime.cap.takes(plan.cost):
        return
    if lifetime.each is not None and not plan.cost.rho:
        message = f"a release costs epsilon {at_most(plan.cost.epsilon)}, more than a slot of {at_most(lifetime.each)}"
        raise PlanError(message, rule="cap-kind", where="privacy.lifetime.each", hint="raise `each`, or lower epsilon")
    raise PlanError(
        f"a cap of kind {lifetime.kind} does not count what the planned measurements cost",
        rule="cap-kind",
        where="privacy.lifetime.kind",
        hint="use `mechanism: auto`, mechanisms of that kind, or `kind: zcdp`, which counts both",
    )


def _refuse_output(spec: ReleaseSpec, plan: Plan) -> None:
    """Refuse projected rows where nothing is projected, where a name is taken, or where checks need original ones."""
    if not spec.model.publishes_projected:
        return
    taken = [c.name for c in plan.schema.columns if c.role is not Role.FEATURE and re.fullmatch(r"c[0-9]+", c.name)]
    faults = {
        "output-without-projection": (
            plan.projection == "none",
            f"without a projection (generator {plan.generator}) there are no projected rows",
            "use `projection: {kind: ron}` or `{kind: private-pca}` with it, or `output: original`",
        ),
        "output-normalised": (
            plan.normalise,
            "points of one length are decoded at a typical length, so they are not points along the projection",
            "remove `normalise`, or use `output: original`",
        ),
        "output-name-taken": (
            bool(taken),
            f"{', '.join(taken)} would stand beside projected columns of such names",
            "rename the label or target, or use `output: original`",
        ),
        "output-checks": (
            bool(plan.check_events) and not spec.model.publishes_original,
            "budgeted checks train on rows in the original columns, which would not be published",
            "use `output: both`, or remove the budgeted checks",
        ),
    }
    for rule, (broken, message, hint) in faults.items():
        if broken:
            raise PlanError(message, rule=rule, where="model.output", hint=hint)


def _projection_kind(spec: ReleaseSpec) -> str:
    """The projection; none where the specification leaves it out beside a generator that keeps every column.

    Where it asks for projected rows, a projection that is left out is a random one.
    """
    kind = spec.model.projection.kind
    if spec.model.generator == COPULA and kind == PLANNED:
        return "none"
    return "ron" if kind == PLANNED and spec.model.publishes_projected else kind


def stated_guarantee(spec: ReleaseSpec, plan: Plan) -> dict[str, float]:
    """What a release states: the epsilon asked for, and delta only if the planned measurements need one."""
    return {"epsilon": float(spec.privacy.epsilon), "delta": float(spec.privacy.delta) if plan.cost.rho else 0.0}


def cap_of(spec: ReleaseSpec) -> Cap:
    """The lifetime cap that the specification states; it names no kind where the first release decides it."""
    return spec.privacy.lifetime.cap


def windows_of(spec: ReleaseSpec) -> Windows:
    """Over how many months the cap counts, and which records belong to one month of one person."""
    return Windows(spec.privacy.unit.months, window_rule(spec))


def window_rule(spec: ReleaseSpec) -> dict[str, str] | None:
    """By which rule a release leaves out the rows of other months; None if it does not."""
    month_rule = spec.month_rule
    if month_rule is None:
        return None
    person, query = spec.privacy.unit.person, spec.query
    return {
        "column": month_rule.column,
        **({"timezone": month_rule.timezone} if month_rule.timezone else {}),
        **({"query": query.sql_sha256} if query else {}),
        **({"person": person} if person else {}),
    }


def basis_of(spec: ReleaseSpec) -> dict[str, str]:
    """What the population's budget is counted for; `tasks.spec.privacy` says which costs add."""
    return {"neighbours": spec.neighbours.value, "unit": spec.protects}
