"""Breaks every sensitivity and scale on purpose, one at a time, and asks the fast tests to notice.

    cd tests; python -m support.mutants [WORD ...]     # all mutants, or those whose name holds a word

Each mutant is a copy of the tree with one expression changed: a constant times 0.9 or
1.1, a sign flipped, a bound left out. Every mutant is printed as soon as its fate is
known, and the exit code is 1 if the tests let one live. A mutant under which a test does
not come to an end counts as noticed and is printed as such.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from queue import Queue

from support import ROOT

TEST_SECONDS = 60
"""What a test gets before it counts as endless: several times what the slowest needs on a busy machine."""
TESTS = (
    "dpcore/mechanisms/test_sensitivity.py",
    "dpcore/mechanisms/test_relations.py",
    "dpcore/mechanisms/test_vectors.py",
    "dpcore/measurements/test_histograms.py",
    "dpcore/measurements/test_scores.py",
    "dpcore/planning/test_budgeted_checks.py",
    "dpcore/measurements/test_group_encoding.py",
    "dpcore/measurements/test_normalised_points.py",
    "dpcore/estimators/test_local_rows.py",
    "dpcore/estimators/test_pca_gauss.py",
    "dpcore/mechanisms/test_mechanisms.py",
    "dpcore/accounting/test_curves.py",
    "dpcore/accounting/test_statements.py",
    "dpcore/accounting/test_caps.py",
    "dpcore/accounting/test_slots.py",
    "dpcore/accounting/test_months.py",
    "dpcore/accounting/test_spans.py",
    "dpcore/accounting/test_changes.py",
    "dpcore/accounting/test_certainty.py",
    "dpcore/accounting/test_filter.py",
    "dpcore/records/test_exact_sums.py",
    "dpcore/records/test_encoding.py",
    "dpcore/test_measure.py",
    "dpcore/noise/test_noise.py",
    "dpcore/auditing/test_simulated_attacks.py",
    "dpcore/mechanisms/components/test_private_pca.py",
    "dpcore/mechanisms/test_eigenvalues.py",
    "dpcore/mechanisms/test_nuclear_knorm.py",
    "dpcore/mechanisms/test_laplace_sums.py",
    "dpcore/planning/test_planner.py",
)
"""The fast tests that look at bounds and scales, unit and statistical ones; the quickest to notice first."""

NEAREST = {
    "dpcore/mechanisms/wishart.py": ("dpcore/mechanisms/test_mechanisms.py", "dpcore/noise/test_noise.py"),
    "dpcore/mechanisms/gaussian.py": ("dpcore/mechanisms/test_mechanisms.py", "dpcore/noise/test_noise.py"),
    "dpcore/mechanisms/laplace.py": ("dpcore/mechanisms/test_mechanisms.py", "dpcore/noise/test_noise.py"),
    "dpcore/accounting/costs.py": ("dpcore/accounting/test_statements.py", "dpcore/accounting/test_months.py"),
    "dpcore/accounting/slots.py": ("dpcore/accounting/test_slots.py",),
    "dpcore/accounting/months.py": ("dpcore/accounting/test_months.py", "dpcore/accounting/test_spans.py"),
    "dpcore/accounting/caps.py": ("dpcore/accounting/test_caps.py", "dpcore/accounting/test_slots.py"),
    "dpcore/mechanisms/components/power_method.py": ("dpcore/mechanisms/components/test_private_pca.py",),
    "dpcore/mechanisms/components/exponential_pca.py": ("dpcore/mechanisms/components/test_private_pca.py",),
    "dpcore/mechanisms/components/orthonormal.py": ("dpcore/mechanisms/components/test_private_pca.py",),
    "dpcore/measurements/measurement_frame.py": ("dpcore/measurements/test_normalised_points.py",),
    "dpcore/planning/allocation.py": (
        "dpcore/mechanisms/components/test_private_pca.py",
        "dpcore/planning/test_planner.py",
    ),
    "dpcore/mechanisms/sensitivity.py": (
        "dpcore/mechanisms/test_sensitivity.py",
        "dpcore/mechanisms/test_laplace_sums.py",
        "dpcore/mechanisms/test_vectors.py",
        "dpcore/measurements/test_histograms.py",
        "dpcore/measurements/test_scores.py",
        "dpcore/mechanisms/test_eigenvalues.py",
    ),
    "dpcore/mechanisms/vectors.py": ("dpcore/mechanisms/test_vectors.py", "dpcore/measurements/test_histograms.py"),
    "dpcore/mechanisms/queries.py": (
        "dpcore/mechanisms/test_vectors.py",
        "dpcore/measurements/test_histograms.py",
        "dpcore/measurements/test_scores.py",
    ),
    "dpcore/noise/certified.py": ("dpcore/noise/test_noise.py", "dpcore/mechanisms/test_nuclear_knorm.py"),
    "dpcore/noise/wishart.py": ("dpcore/noise/test_noise.py",),
    "dpcore/noise/nuclear.py": ("dpcore/mechanisms/test_nuclear_knorm.py",),
    "dpcore/mechanisms/registry.py": ("dpcore/mechanisms/test_relations.py",),
    "dpcore/mechanisms/laplace_sums.py": ("dpcore/mechanisms/test_laplace_sums.py",),
    "dpcore/mechanisms/nuclear_knorm.py": ("dpcore/mechanisms/test_nuclear_knorm.py",),
    "dpcore/mechanisms/eigenvalues.py": ("dpcore/mechanisms/test_eigenvalues.py",),
}
"""Where a mutated module is looked at first; by default in the tests at its own place."""


@dataclass(frozen=True)
class Mutant:
    """One expression of one file, replaced."""

    file: str
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.old.strip()} -> {self.new.strip()}"


UNBROKEN = Mutant("dpcore/__init__.py", "", "")
LIVES, KILLED, ENDLESS = "LIVES", "killed", "endless"


def scaled(file: str, line: str, expression: str) -> Iterator[Mutant]:
    """The expression inside a line, times 9/10 and 11/10."""
    for tenths in (9, 11):
        yield Mutant(file, line, line.replace(expression, f"(Fraction({tenths}, 10) * ({expression}))", 1))


def scaled_float(file: str, line: str, expression: str) -> Iterator[Mutant]:
    """The same for a real number."""
    for factor in (0.9, 1.1):
        yield Mutant(file, line, line.replace(expression, f"({factor} * ({expression}))", 1))


TENTHS = ("Fraction(9, 10)", "Fraction(11, 10)")


def mutants() -> Iterator[Mutant]:
    """All of them."""
    s, w = "dpcore/mechanisms/sensitivity.py", "dpcore/mechanisms/wishart.py"
    g, a = "dpcore/mechanisms/gaussian.py", "dpcore/mechanisms/laplace.py"
    n, nw, nn = "dpcore/noise/certified.py", "dpcore/noise/wishart.py", "dpcore/noise/nuclear.py"
    e = "dpcore/records/exact_sums.py"
    yield from scaled(s, "else 2 * squared_norm", "2 * squared_norm")
    yield from scaled(s, "return squared_norm if neighbours is Neighbours.ADD_REMOVE else 2", "squared_norm")
    yield from scaled(s, "root_above(2 * squared_norm**2)", "root_above(2 * squared_norm**2)")
    yield from scaled(s, "one_record = squared_norm * (1 + (p - 1) * w / 2)", "squared_norm * (1 + (p - 1) * w / 2)")
    yield from scaled(s, "return 2 * one_record", "2 * one_record")
    yield from scaled(s, "root_above(2 * p + p * (p - 1) * w**2 / 2)", "root_above(2 * p + p * (p - 1) * w**2 / 2)")
    yield Mutant(s, "    if blocks > 1:\n        return 2 * one_record\n", "")
    yield from scaled(s, "Fraction(17, 12)", "Fraction(17, 12)")
    yield from scaled(s, "else Fraction(5, 4)", "Fraction(5, 4)")
    yield from scaled(w, "rate = epsilon / self._sensitivity(neighbours, layout)", "epsilon")
    yield from scaled(w, "Epsilon(event.noise * self._sensitivity", "event.noise")
    yield Mutant(w, "if self.trace_factor and neighbours is not Neighbours.REPLACE_ONE:", "if False:")
    yield from scaled(g, "_squared_sensitivity(layout, neighbours) / (2 * rho)", "2 * rho")
    yield from scaled(g, "/ (2 * event.noise**2)", "2 * event.noise**2")
    spread = "diagonal, other = event.noise**2, event.noise**2 / 2"
    yield from scaled(g, spread, "event.noise**2 / 2")
    yield from (Mutant(g, spread, spread.replace("= event.noise**2,", f"= {f} * event.noise**2,")) for f in TENTHS)
    yield from (Mutant(n, "fmpq(2 * v.numerator,", f"fmpq({two} * v.numerator,") for two in (1, 3))
    yield Mutant(n, "roots[v] + half", "roots[v] - half")
    yield from scaled(s, "one_record = s**2 + length", "s**2 + length")
    yield from scaled(s, "rows * (s**2 + 2 * length", "s**2 + 2 * length")
    yield Mutant(s, "if blocks == 1 else 2 * one_record)", "if blocks else 2 * one_record)")
    sums = "dpcore/mechanisms/laplace_sums.py"
    yield from scaled(sums, "_sensitivity(layout, neighbours) / epsilon", "epsilon")
    yield from scaled(sums, "_sensitivity(event.layout, neighbours or event.neighbours) / event.noise", "event.noise")
    yield from scaled(sums, "float_above(event.noise), size", "event.noise")
    yield Mutant(sums, "rows=layout.rows_per_unit", "rows=1")
    yield from scaled(a, "sensitivity / epsilon", "epsilon")
    yield from scaled(a, "event.neighbours, weight) / event.noise", "event.noise")
    yield from scaled(a, "float_above(event.noise / best_l1_weight(event.neighbours))", "event.noise")
    yield from scaled(a, "float_above(event.noise), blocks * p", "event.noise")
    yield from scaled_float(n, "arb(2 * known + 1, 1) * unit", "unit")
    yield from scaled_float(nw, "root = arb(2).sqrt()", "2")
    yield Mutant(nw, "[a - b for a, b in zip(*self.terms()", "[a + b for a, b in zip(*self.terms()")
    yield Mutant(nw, "[a * ratio_plus for a in plus]", "[a * ratio_minus for a in plus]")
    halved = "ratio_plus = ratio_minus = arb(fmpq(self.rate.denominator, 2 * self.rate.numerator))"
    yield from (Mutant(nw, halved, halved.replace("2 *", f"{k} *")) for k in (1, 3))
    yield Mutant(nw, "2 * self._shape + 1 if trace_factor", "self._shape + 1 if trace_factor")
    yield Mutant(nw, "(first.log() / self._shape).exp()", "(first.log() / (2 * self._shape)).exp()")
    yield Mutant(nw, "fmpq(2 * (base % step) + step,", "fmpq(2 * (base % step),")
    yield Mutant(nw, "fmpq(2 * (base % step) + step,", "fmpq(step - 2 * (base % step),")
    yield Mutant(nw, "fmpq(2 * (base % step) + step,", "fmpq(step,")
    yield Mutant(n, "(known << more) | self._noise.bits(more)", "self._noise.bits(2 * more)")
    k, v = "dpcore/mechanisms/nuclear_knorm.py", "dpcore/mechanisms/eigenvalues.py"
    yield from scaled(k, "rate = epsilon / self._sensitivity(layout, neighbours)", "epsilon")
    yield from scaled(k, "Epsilon(event.noise * self._sensitivity", "event.noise")
    yield Mutant(k, "trace_factor=event.neighbours is Neighbours.REPLACE_ONE", "trace_factor=True")
    yield Mutant(k, "trace_factor=event.neighbours is Neighbours.REPLACE_ONE", "trace_factor=False")
    yield Mutant(k, "if layout.dimension > LARGEST_DIMENSION:", "if False:")
    yield Mutant(k, "size + 2 + rest, neighbours)", "size + rest, neighbours)")
    yield Mutant(k, "_pairing(i + 2, j) + _pairing(i, j + 2)", "_pairing(i + 2, j)")
    yield Mutant(nn, "plus + minus - modulus", "plus + minus + modulus")
    yield Mutant(nn, "plus + minus - modulus", "plus - modulus")
    yield Mutant(nn, "abs(values[j].real)", "values[j].real")
    yield Mutant(nn, "self._factor_at_once = trace_factor and blocks == 1", "self._factor_at_once = trace_factor")
    yield from (Mutant(nn, "- rate * abs(total)", f"- {factor} * rate * abs(total)") for factor in (0.9, 1.1))
    yield Mutant(n, "return True if ball > 0 else False if ball < 0 else None", "return bool(ball.mid() > 0)")
    yield from scaled(s, "else min(components, 2) * squared_norm", "min(components, 2)")
    yield from scaled(s, "return squared_norm if neighbours is Neighbours.ADD_REMOVE else min", "squared_norm")
    yield Mutant(s, "min(components, 2)", "1")
    yield Mutant(v, "* UNIT + components", "* UNIT")
    yield from scaled(v, "components) / epsilon", "epsilon")
    yield from scaled(v, "event.components) / event.noise", "event.noise")
    yield from scaled(v, "float_above(event.noise)", "event.noise")
    yield Mutant(v, "Fraction(layout.rows_per_unit)", "Fraction(1)")
    yield Mutant(v, "if layout.blocks > 1 or layout.labels:", "if False:")
    yield Mutant(v, "(root.real + 0.5).floor()", "root.real.floor()")
    yield Mutant(v, "for _ in range(count)", "for _ in range(1)")
    yield from scaled(e, "return (1 + self.count_weight**2) * self.rows_per_unit", "(1 + self.count_weight**2)")
    yield Mutant(e, "(1 + self.count_weight**2) * self.rows_per_unit", "(1 + self.count_weight**2)")
    yield Mutant(e, "np.where(np.abs(coordinates) <= 1, coordinates, 0.0)", "coordinates")
    yield Mutant(e, "np.nextafter(np.sqrt(share), 0.0)", "np.sqrt(share) * 1.001")
    yield Mutant(e, "np.flatnonzero(squared > limit)", "np.flatnonzero(squared > 1.01 * limit)")
    yield Mutant(e, "np.trunc(layout.weight_on_grid * root)", "np.trunc(layout.weight_on_grid * root * 1.01)")
    yield Mutant(e, "chunk.T if self.layout.blocks == 1 else chunk.T[:, np.flatnonzero(labels == block)]", "chunk.T")
    yield Mutant("dpcore/records/encoding.py", "        coordinates /= self.scale\n", "")
    yield from scaled_float(
        "dpcore/records/encoding.py", "math.sqrt(count / (count - 1))", "math.sqrt(count / (count - 1))"
    )
    yield from directions()
    yield from vectors()
    yield from relations()
    yield from accounting()


def accounting() -> Iterator[Mutant]:
    """Those of costs, conversions and caps."""
    c, k, s, r = (f"dpcore/accounting/{name}.py" for name in ("costs", "curves", "statements", "certainty"))
    yield from scaled(c, "rho_of_pure=budget.value**2 / 2", "budget.value**2 / 2")
    yield Mutant(k, "(alpha - 1) * (alpha * rho - epsilon)", "(alpha - 1) * (alpha * rho + epsilon)")
    yield from scaled_float(k, "mu = math.sqrt(2 * rho)", "2 * rho")
    yield Mutant(k, "second = upper_tail(epsilon / mu + mu / 2)", "second = upper_tail(epsilon / mu - mu / 2)")
    yield Mutant(k, "max(upper_tail(epsilon / mu - mu / 2)", "max(upper_tail(epsilon / mu)")
    yield Mutant(s, "float_above(cost.epsilon) + gaussian", "gaussian")
    yield Mutant(k, "+ alpha * math.log1p(-1 / alpha)", "- alpha * math.log1p(-1 / alpha)")
    yield from scaled_float(k, "(alpha * rho - epsilon)", "epsilon")
    yield Mutant(s, "if cost.is_mixed else", "if False else")
    yield Mutant(r, "rest / mu + side * mu / 2", "rest / mu + side * mu")
    yield Mutant(r, "if gaussian_draws > 1 else 0.0", "if gaussian_draws > 2 else 0.0")
    yield Mutant(r, "/ -math.expm1(x - top)", "")
    yield Mutant(r, "float_above(cost.rho * size**2)", "float_above(cost.rho * size)")
    yield Mutant(c, "self.epsilon + other.epsilon", "max(self.epsilon, other.epsilon)")
    yield Mutant(c, "self.rho + other.rho,", "max(self.rho, other.rho),")
    yield Mutant(c, "self.delta_num + other.delta_num", "max(self.delta_num, other.delta_num)")
    yield Mutant(c, "self.delta + other.delta", "max(self.delta, other.delta)")
    yield Mutant(s, "left = delta - cost.delta", "left = delta")
    yield Mutant(s, "if left < 0:", "if False:")
    yield Mutant(s, "_zcdp_epsilon(cost, delta - cost.delta)", "_zcdp_epsilon(cost, delta)")
    yield Mutant(r, "(curve(x) + thresholds)", "curve(x)")
    yield Mutant(r, "curve + leaks", "curve + 0 * leaks")
    yield Mutant(r, "(size - 1) * float_above(cost.epsilon)", "0.0")
    yield Mutant(r, "lacking = cost.epsilon and not cost.rho_of_pure", "lacking = False")
    yield from caps()
    yield from slots_and_months()


def caps() -> Iterator[Mutant]:
    """Those of the kinds of caps, and of caps that change."""
    p, h = "dpcore/accounting/caps.py", "dpcore/accounting/changes.py"
    yield Mutant(p, "else 2 * self.delta", "else self.delta")
    yield Mutant(p, "                return not cost.rho\n", "                return True\n")
    yield Mutant(p, "return not cost.epsilon and not cost.rho_of_pure", "return True")
    yield Mutant(p, "return not cost.rho and cost.epsilon <= releases", "return cost.epsilon <= releases")
    yield Mutant(p, "<= releases * self._figure(self.each)", "<= 2 * releases * self._figure(self.each)")
    yield Mutant(p, "cost.delta > self.thresholds or not self.takes", "not self.takes")
    yield Mutant(p, "> self.delta_num or cost.delta > self.thresholds:", "> self.delta_num:")
    yield Mutant(p, "return self.delta - self.thresholds", "return self.delta")
    yield Mutant(p, "cost.epsilon <= self._figure(self.pure) and ", "")
    yield Mutant(p, " and cost.rho <= self._figure(self.rho)", "")
    yield Mutant(p, "if within and self._is_covered else", "if within else")
    yield Mutant(p, "releases <= (self.slots or 0) and self._is_covered", "self._is_covered")
    yield Mutant(p, "releases <= (self.slots or 0) and self._is_covered", "releases <= (self.slots or 0)")
    yield Mutant(p, "return zcdp_balance(cost, delta=delta)", "return population_balance(cost, delta=delta)")
    yield Mutant(p, "CapKind.ZCDP) and not cost.rho and", "CapKind.ZCDP) and")
    yield Mutant(p, "releases=releases + count", "releases=count")
    yield Mutant(p, "        if not self.takes(each):\n            return 0\n", "")
    yield Mutant(p, "float_below(epsilon - pure)", "float_below(epsilon)")
    yield Mutant(p, "delta=float_below(delta - thresholds)", "delta=float_below(delta)")
    yield Mutant(p, "CapKind.SLOTS, slots=low", "CapKind.SLOTS, slots=high")
    yield Mutant(h, "for cap in set(caps)", "for cap in caps")
    yield Mutant(
        h, "sum((cap.stated.delta for cap in set(caps)), Fraction(0))", "max(cap.stated.delta for cap in caps)"
    )
    adds = "sum((one.epsilon for one in stated), Fraction(0))"
    yield Mutant(h, adds, "max((one.epsilon for one in stated), default=Fraction(0))")


def slots_and_months() -> Iterator[Mutant]:
    """Those of exact composition, and of windows."""
    slots, months = "dpcore/accounting/slots.py", "dpcore/accounting/months.py"
    yield from (Mutant(slots, "(-_ball(each)).exp()", f"(-_ball(each) * {tenths} / 10).exp()") for tenths in (9, 11))
    yield Mutant(slots, "* (slots - i) / (i + 1)", "* (slots - i)")
    yield Mutant(slots, "factor * masses[-1 - i] for", "factor * masses[i] for")
    yield Mutant(slots, "if (slots - 2 * i) * each > epsilon", "if (slots - i) * each > epsilon")
    yield Mutant(slots, "loss = (slots - 2 * i) * each", "loss = (slots - i) * each")
    yield Mutant(slots, "below + masses[-1 - i]", "below + masses[i]")
    yield Mutant(slots, "max(least, Fraction(found))", "least")
    yield Mutant(slots, "float(ball.upper()), INFINITE", "float(ball.upper()), -INFINITE")
    yield from (Mutant(months, "month + span)", f"month + span {by})") for by in ("- 1", "+ 1"))
    yield Mutant(months, "sums[end] - sums[start]", "sums[end]")
    yield Mutant(months, "return self.always + Cost(", "return Cost(")
    yield Mutant(months, "total([self.always, *self", "total([*self")
    yield Mutant(months, "self.by_month.get(month, Cost()) + cost", "cost")
    yield Mutant(months, "12 * int(year) + int(month) - 1", "10 * int(year) + int(month) - 1")


def relations() -> Iterator[Mutant]:
    """Those of what noise costs under the relation that it was not drawn for."""
    r, knorm, laplace = (
        "dpcore/mechanisms/registry.py",
        "dpcore/mechanisms/nuclear_knorm.py",
        "dpcore/mechanisms/laplace.py",
    )
    others = (
        "dpcore/mechanisms/wishart.py",
        "dpcore/mechanisms/gaussian.py",
        "dpcore/mechanisms/laplace.py",
        "dpcore/mechanisms/laplace_sums.py",
        "dpcore/mechanisms/eigenvalues.py",
        "dpcore/mechanisms/components/power_method.py",
        "dpcore/mechanisms/components/exponential_pca.py",
    )
    yield Mutant(others[0], "event.neighbours if self.trace_factor else neighbours or", "neighbours or")
    yield Mutant(knorm, "tied = event.neighbours is Neighbours.REPLACE_ONE", "tied = False")
    yield Mutant(knorm, "tied = event.neighbours is Neighbours.REPLACE_ONE", "tied = True")
    weight = "weight = best_l1_weight(event.neighbours)"
    yield Mutant(laplace, weight, weight.replace("event", "neighbours or event"))
    for file in others:
        yield Mutant(file, "neighbours or event.neighbours", "event.neighbours")
    yield Mutant(knorm, "else neighbours or event.neighbours", "else event.neighbours")
    for query in ("_sensitivity", "_squared_sensitivity"):
        line = f"self.{query}(event.query, neighbours or event.neighbours)"
        yield Mutant("dpcore/mechanisms/vectors.py", line, line.replace("neighbours or ", ""))
    yield Mutant(
        r, "    own = cost_of(event)\n    if neighbours is event", "    own = Cost()\n    if neighbours is event"
    )
    yield Mutant(r, "SATURATION_FACTOR = 1 << 150", "SATURATION_FACTOR = 1")
    yield Mutant(r, "    if isinstance(event.query, RowsQuery):", "    if False:")
    yield Mutant(r, "if len(known) == len(costs) else None", "if known else None")


def directions() -> Iterator[Mutant]:
    """Those of the mechanisms that release directions."""
    p, b = "dpcore/mechanisms/components/power_method.py", "dpcore/mechanisms/components/exponential_pca.py"
    yield from scaled(p, "root_above(ITERATIONS * squared / (2 * rho))", "2 * rho")
    yield Mutant(p, "root_above(ITERATIONS * squared", "root_above(squared")
    yield from scaled(p, "Rho(event.iterations * squared / (2 * event.noise**2))", "2 * event.noise**2")
    yield from scaled(p, "[(scale * FRAME_UNIT) ** 2]", "scale * FRAME_UNIT")
    yield from scaled(p, "return moved * UNIT", "moved")
    yield Mutant(p, "if components > 1 else r", "if components > 2 else r")
    yield Mutant(p, "r = Fraction(layout.rows_per_unit)", "r = Fraction(1)")
    yield Mutant("dpcore/mechanisms/components/orthonormal.py", "<= FRAME_UNIT**2", "<= 1.01 * FRAME_UNIT**2")
    yield from scaled(b, "noise=epsilon / score_range", "epsilon")
    yield from scaled(b, "Epsilon(event.noise * score_range", "event.noise")
    yield from scaled(b, "else 2 * r", "2 * r")
    yield Mutant(b, "return r if", "return r / 2 if")
    yield Mutant(b, "r = Fraction(layout.rows_per_unit)", "r = Fraction(1)")
    yield from scaled(b, "rate = event.noise / UNIT", "event.noise")
    yield Mutant(b, "sample_bingham_direction(-matrix, generator)", "sample_bingham_direction(matrix, generator)")
    yield from (Mutant(b, "- u - most", f"- {factor} * u - most") for factor in (0.9, 1.1))
    yield Mutant(b, "math.log(m / b) - (m - b) / 2", "math.log(m / b) - (m - b)")
    unlike = "Rho(rho_of_epsilon(float(share * request.epsilon), delta=delta))"
    yield Mutant(
        "dpcore/planning/allocation.py", unlike, "Rho(share * rho_of_epsilon(float(request.epsilon), delta=delta))"
    )


def vectors() -> Iterator[Mutant]:
    """Those of Jiang's statistics and of noisy rows."""
    s, v, q = "dpcore/mechanisms/sensitivity.py", "dpcore/mechanisms/vectors.py", "dpcore/mechanisms/queries.py"
    yield from scaled(
        s, "1 + p + q + Fraction((p + q) * (p + q + 1), 2)", "1 + p + q + Fraction((p + q) * (p + q + 1), 2)"
    )
    yield Mutant(s, "moved = 2 if classes > 1 else 0", "moved = 0")
    yield Mutant(s, "slope = q - 1 + moved", "slope = q - 1")
    yield Mutant(s, "gain = p * (slope * t - (p + 1) * t**2 / 2)", "gain = Fraction(0)")
    yield from scaled(s, "return moved + p * (q + 1)", "moved + p * (q + 1)")
    yield from scaled(s, "Fraction(p * (p + 1), 2) + gain", "Fraction(p * (p + 1), 2)")
    yield from scaled(s, "gain + q * (q + 3)", "q * (q + 3)")
    yield from scaled(s, "root_above(Fraction(4 * dimension))", "root_above(Fraction(4 * dimension))")
    yield from scaled(v, "self._sensitivity(query, neighbours) / epsilon", "epsilon")
    yield from scaled(v, "self._sensitivity(event.query, neighbours or event.neighbours) / event.noise", "event.noise")
    yield from scaled(v, "float_above(event.noise), len(answer)", "event.noise")
    yield from scaled(q, "return bound * UNIT", "bound")
    yield from scaled(q, "return rows_l1(dimension=self.dimension) * GRID", "rows_l1(dimension=self.dimension)")
    yield Mutant(q, "if neighbours is not Neighbours.REPLACE_ONE:", "if False:")
    yield Mutant(v, "(code.encode(cells) + 1) * (GRID / 2)", "(code.encode(cells) + 1) * GRID")
    yield Mutant(v, "np.arange(classes), float(GRID), 0.0)", "np.arange(classes), 1.01 * GRID, 0.0)")
    yield Mutant(v, "number + extra for", "number for")
    yield Mutant("dpcore/estimators/local_rows.py", "FOR_BASIS = Fraction(1, 2)", "FOR_BASIS = Fraction(1, 3)")
    yield Mutant("dpcore/estimators/local_rows.py", "epsilon.value * (1 - FOR_BASIS)", "epsilon.value")
    yield Mutant("dpcore/estimators/pca_gauss.py", "for part in (~coins, coins)", "for part in (coins | ~coins, coins)")
    yield Mutant("dpcore/estimators/pca_gauss.py", "max(part[figure]", "min(part[figure]")
    yield from histograms()
    yield from points_of_one_length()
    yield from scores()


def histograms() -> Iterator[Mutant]:
    """Those of histograms and of the groups that are made of them."""
    s, v, q = "dpcore/mechanisms/sensitivity.py", "dpcore/mechanisms/vectors.py", "dpcore/mechanisms/queries.py"
    counted, grouped = "dpcore/measurements/histograms.py", "dpcore/measurements/group_encoding.py"
    yield from scaled(s, "return sum(weights, Fraction(0)) * rows", "sum(weights, Fraction(0))")
    yield Mutant(s, "sum(weights, Fraction(0)) * rows * (1 if", "sum(weights, Fraction(0)) * (1 if")
    yield from scaled(s, "return squares * rows**2", "squares")
    yield Mutant(s, "return squares * rows**2 * (1 if", "return squares * rows * (1 if")
    yield Mutant(s, "squares = sum((weight**2 for", "squares = sum((weight**3 for")
    yield Mutant(q, "rows=self.rows_per_unit) * GRID**2", "rows=1) * GRID**2")
    yield Mutant(q, "rows=self.rows_per_unit) * GRID\n", "rows=1) * GRID\n")
    yield from scaled(v, "self._squared_sensitivity(query, neighbours) / (2 * rho)", "2 * rho")
    yield from scaled(v, "neighbours or event.neighbours) / (2 * event.noise**2)", "2 * event.noise**2")
    yield from scaled(v, "add_and_round(answer, [event.noise**2] * len(answer))", "event.noise**2")
    yield from scaled_float(v, "return float(event.noise)", "float(event.noise)")
    yield from scaled_float(v, "return math.sqrt(2) * float(event.noise)", "math.sqrt(2)")
    yield Mutant(counted, "np.trunc(shares * one)", "np.ceil(shares * one)")
    yield Mutant(counted, "one = float(weight * GRID)", "one = float(GRID)")
    yield Mutant(counted, "known = codes != UNCOUNTED", "known = codes > 0")
    yield Mutant(grouped, "clipped: Floats = points / longest[:, None]", "clipped: Floats = points / longest.max()")


def points_of_one_length() -> Iterator[Mutant]:
    """Those of normalised points."""
    frame = "dpcore/measurements/measurement_frame.py"
    yield Mutant(frame, "whole = whole_points(points)", "whole = points")
    yield Mutant(frame, "np.where(norms > 0, norms, 1.0)", "norms.max(initial=1.0)")
    yield Mutant(frame, "centre[first]) / 2", "centre[first])")
    yield Mutant("dpcore/planning/allocation.py", "{RADIUS, CENTRE} if request.normalise else set()", "set()")


def scores() -> Iterator[Mutant]:
    """Those of budgeted checks."""
    s, q, m, c = (
        "dpcore/mechanisms/sensitivity.py",
        "dpcore/mechanisms/queries.py",
        "dpcore/measurements/scores.py",
        "dpcore/planning/budgeted_checks.py",
    )
    yield from scaled(s, "return Fraction(rows)", "Fraction(rows)")
    yield Mutant(q, "score_sum_l1(neighbours, rows=self.rows_per_unit)", "score_sum_l1(neighbours, rows=1)")
    yield Mutant(q, "return self.l1_sensitivity(neighbours) ** 2", "return self.l1_sensitivity(neighbours)")
    yield Mutant(m, "np.trunc(scores * shares)", "scores")
    yield Mutant(m, "np.clip(product * self.unit + self.offset, -1.0, 1.0)", "product * self.unit + self.offset")
    yield Mutant(m, "- predicted) / 2", "- predicted)")
    yield Mutant("dpcore/records/exact_sums.py", "return np.trunc(whole, out=whole)", "return whole")
    yield Mutant(c, "epsilon=(1 - kept_back) * request.epsilon", "epsilon=request.epsilon")
    yield Mutant(c, "check.share / kept_back", "Fraction(1)")
    yield Mutant(c, "return Rho(whole - used)", "return Rho(whole)")
    yield Mutant(c, "rows = unit_rows(request)", "rows = 1")


def fate_of(mutant: Mutant, tree: Path) -> str:
    """What the fast tests of dpcore say of a broken tree."""
    path = tree / mutant.file
    original = path.read_text()
    text = original.replace(mutant.old, mutant.new, 1)
    if "Fraction(" in mutant.new and "from fractions import Fraction" not in text:
        text = text.replace("from dataclasses", "from fractions import Fraction\nfrom dataclasses", 1)
    path.write_text(text)
    try:
        file = Path(mutant.file)  # the tests of the mutated module notice first: others are not even loaded before
        near = NEAREST.get(mutant.file, (file.with_name(f"test_{file.name}").as_posix(),))
        parts = [name for name in TESTS if name in near], [name for name in TESTS if name not in near]
        return next((fate for part in parts if part and (fate := _said(part, tree)) != LIVES), LIVES)
    finally:
        path.write_text(original)


def _said(names: Sequence[str], tree: Path) -> str:
    tests = [str(file) for name in names for file in sorted(tree.glob(f"tests/*/{name}"))]
    quickly = ("-x", "-q", "-m", "not slow", "--hypothesis-profile=mutants")  # no failure is made smaller
    limit = (f"--timeout={TEST_SECONDS}", "--timeout-method=thread")  # which ends the process
    command = [sys.executable, "-m", "pytest", *tests, *quickly, *limit]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    return LIVES if done.returncode == 0 else ENDLESS if "+ Timeout +" in done.stdout + done.stderr else KILLED


def main() -> int:
    """Try all mutants, one per core at a time, print each with its fate, return 1 if one lives."""
    chosen = [m for m in mutants() if not sys.argv[1:] or any(word in m.name for word in sys.argv[1:])]
    for mutant in chosen:
        if mutant.old not in (ROOT / mutant.file).read_text():
            raise SystemExit(f"the tree no longer holds {mutant.old!r} in {mutant.file}: update {Path(__file__).name}")
    cores = len(os.sched_getaffinity(0))
    trees: Queue[Path] = Queue()

    def tried(mutant: Mutant) -> tuple[Mutant, str, float]:
        tree, start = trees.get(), time.monotonic()
        try:
            return mutant, fate_of(mutant, tree), time.monotonic() - start
        finally:
            trees.put(tree)

    living = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPool(cores) as pool:
        ignored = shutil.ignore_patterns(".venv", ".git", "demo", ".mypy_cache", ".ruff_cache", ".hypothesis")
        for core in range(cores):
            trees.put(Path(shutil.copytree(ROOT, Path(folder) / str(core), ignore=ignored)))
        if tried(UNBROKEN)[1] != LIVES:
            raise SystemExit("the tests do not pass on the tree as it is: they can say nothing of mutants")
        for number, (mutant, fate, seconds) in enumerate(pool.imap_unordered(tried, chosen), 1):
            print(f"{number:3}/{len(chosen)} {fate:7} {seconds:5.1f} s  {mutant.name}", flush=True)
            living += fate == LIVES
    print(f"{len(chosen) - living} killed, {living} alive")
    return 1 if living else 0


if __name__ == "__main__":
    raise SystemExit(main())
