"""Privacy costs of measurements, and the (epsilon, delta) statements they compose to.

An event says what was measured; its `Cost`, pure or of Gaussian noise, follows from its
mechanism. `release_statement` turns the costs of one release, which its specification fixes
beforehand, into a statement; a `Cap` limits all costs of a population, which may be chosen
adaptively, and `Months` says which of them meet in a window of months. Costs are exact fractions.
The package fails closed: a cost that cannot be stated is infinite.
"""

from __future__ import annotations

from dpcore.accounting.balance import Balance
from dpcore.accounting.caps import Cap, CapKind
from dpcore.accounting.certainty import group_delta, loss_tail, loss_tail_of_views
from dpcore.accounting.changes import statement_of_any_changes, total_delta
from dpcore.accounting.costs import LARGEST_FIGURE, Budget, Cost, Epsilon, Rho, times, total
from dpcore.accounting.curves import (
    INFINITE,
    delta_of_rho,
    epsilon_of_rho,
    float_above,
    float_below,
    gaussian_delta,
    gaussian_epsilon,
    rho_of_epsilon,
)
from dpcore.accounting.months import Months, month_name, month_number, most_in_a_window
from dpcore.accounting.slots import slots_delta, slots_epsilon
from dpcore.accounting.statements import Statement, population_balance, release_statement

__all__ = [
    "INFINITE",
    "LARGEST_FIGURE",
    "Balance",
    "Budget",
    "Cap",
    "CapKind",
    "Cost",
    "Epsilon",
    "Months",
    "Rho",
    "Statement",
    "delta_of_rho",
    "epsilon_of_rho",
    "float_above",
    "float_below",
    "gaussian_delta",
    "gaussian_epsilon",
    "group_delta",
    "loss_tail",
    "loss_tail_of_views",
    "month_name",
    "month_number",
    "most_in_a_window",
    "population_balance",
    "release_statement",
    "rho_of_epsilon",
    "slots_delta",
    "slots_epsilon",
    "statement_of_any_changes",
    "times",
    "total",
    "total_delta",
]
