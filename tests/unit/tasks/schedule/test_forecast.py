"""When the budget is used up: counted like the ledger counts, dated like the schedule fires."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from support.tasks import monthly
from support.tasks.builders import Chain, unreserved

from dpcore.accounting import Cost
from tasks.ledger.state import LedgerState
from tasks.schedule.calendar import month_before
from tasks.schedule.coming import MOST_MONTHS
from tasks.schedule.forecast import Forecast, forecast_of
from tasks.schedule.outlook import Outlook
from tasks.spec import ReleaseSpec, load_spec
from tasks.spec.plan import plan_release

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture
def spec(tmp_path: Path) -> ReleaseSpec:
    return load_spec(monthly.fresh(tmp_path, monthly.YEAR).spec_path)


def with_schedule(spec: ReleaseSpec, cron: str | None) -> ReleaseSpec:
    return spec.model_copy(update={"schedule": spec.schedule.model_copy(update={"cron": cron})})


def taken(*periods: str, cap: str = "1.0") -> LedgerState:
    """A ledger in which these months are published at 0.1 each."""
    chain = Chain().cap(cap)
    for period in periods:
        release_id = f"small-{period}-1"
        chain.reserve(release_id, {"moments": "0.1"}, name="small", period=period)
        chain.spend(release_id, epsilon="0.1").publish(release_id)
    return LedgerState.replay(chain.entries)


def foreseen(spec: ReleaseSpec, state: LedgerState, past: list[datetime] | None = None) -> Forecast:
    return forecast_of(spec, state, past=past or [], now=NOW)


def test_releases_go_on_each_month_until_the_cap_is_reached(spec: ReleaseSpec) -> None:
    forecast = foreseen(spec, taken("2026-01", "2026-02"))
    assert forecast.left == 8
    assert [f"{date:%Y-%m-%d}" for date, _ in forecast.steps][:2] == ["2026-04-01", "2026-05-01"]
    assert [round(epsilon, 9) for _, epsilon in forecast.steps] == [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert f"{forecast.last:%Y-%m}" == "2026-11"
    assert f"{forecast.refused:%Y-%m}" == "2026-12"


def test_the_count_is_that_of_the_cap(spec: ReleaseSpec) -> None:
    state = taken("2026-01")
    known = state.populations["people"]
    each = Cost(epsilon=Fraction(1, 10), rho_of_pure=Fraction(1, 200))
    assert foreseen(spec, state).left == known.cap.releases_left(state.spent("people"), each)


def test_a_cap_that_is_reached_leaves_nothing_and_dates_the_refusal(spec: ReleaseSpec) -> None:
    forecast = foreseen(spec, taken("2026-01", "2026-02", cap="0.2"))
    assert (forecast.left, forecast.steps, forecast.last) == (0, (), None)
    assert f"{forecast.refused:%Y-%m-%d}" == "2026-04-01"


def test_a_month_that_has_its_release_is_not_charged_again(spec: ReleaseSpec) -> None:
    forecast = foreseen(spec, taken("2026-02", "2026-03"))
    assert f"{forecast.steps[0][0]:%Y-%m-%d}" == "2026-05-01", "March was released early"


def test_the_month_of_the_last_firing_counts_from_now_on_until_it_has_its_release(spec: ReleaseSpec) -> None:
    forecast = foreseen(spec, taken("2026-01"))
    assert forecast.left == 9
    assert [f"{date:%Y-%m-%d}" for date, _ in forecast.steps][:3] == ["2026-03-10", "2026-04-01", "2026-05-01"]
    assert f"{forecast.last:%Y-%m}" == "2026-11", "as if February had been released on its day"
    assert "now for 2026-02" in forecast.rhythm
    assert "now for" not in foreseen(spec, taken("2026-01", "2026-02")).rhythm


def test_a_late_month_is_not_counted_again_by_a_schedule_that_fires_soon(spec: ReleaseSpec) -> None:
    forecast = foreseen(with_schedule(spec, "*/5 * * * *"), taken("2026-01"))
    days = [f"{date:%Y-%m-%d}" for date, _ in forecast.steps]
    assert days[:3] == ["2026-03-10", "2026-03-31", "2026-04-30"], "months begin at 22:00 UTC in Berlin's summer"


def test_a_late_month_that_does_not_fit_is_not_dated(spec: ReleaseSpec) -> None:
    """The refusal that can be foreseen is the schedule's next."""
    forecast = foreseen(spec, taken("2025-12", "2026-01", cap="0.2"))
    assert (forecast.left, f"{forecast.refused:%Y-%m-%d}") == (0, "2026-04-01")


def test_a_busy_schedule_counts_for_one_release_a_month(spec: ReleaseSpec) -> None:
    forecast = foreseen(with_schedule(spec, "*/5 * * * *"), taken("2026-02"))
    assert len({f"{date:%Y-%m}" for date, _ in forecast.steps}) == len(forecast.steps) == 9


def test_without_a_schedule_the_rhythm_so_far_goes_on(spec: ReleaseSpec) -> None:
    past = [datetime(2026, month, 5, tzinfo=UTC) for month in (1, 2, 3)]
    forecast = foreseen(with_schedule(spec, None), taken("2025-12", "2026-01", "2026-02"), past)
    assert forecast.rhythm == "one every 30 days, the median so far"
    assert f"{forecast.steps[0][0]:%Y-%m-%d}" == "2026-04-04"


@pytest.mark.parametrize("past", [[], [NOW], [NOW, NOW]])
def test_without_schedule_and_rhythm_nothing_is_dated(spec: ReleaseSpec, past: list[datetime]) -> None:
    forecast = foreseen(with_schedule(spec, None), taken("2026-01"), past)
    assert (forecast.left, forecast.steps, forecast.refused, forecast.rhythm) == (9, (), None, "")


def test_before_the_first_release_the_specifications_cap_counts(spec: ReleaseSpec) -> None:
    assert foreseen(spec, LedgerState()).left == 10


def test_a_cap_for_centuries_is_not_dated(spec: ReleaseSpec) -> None:
    forecast = foreseen(spec, taken(cap="1000"))
    assert forecast.left == 10_000
    assert len(forecast.steps) <= MOST_MONTHS + 1
    assert forecast.last is None


def begun_early(how: str) -> LedgerState:
    """A ledger in which February is published, and March, whose firing is to come, got as far as `how` says."""
    chain = Chain().cap("1.0")
    chain.reserve("small-2026-02-1", {"moments": "0.1"}, name="small", period="2026-02")
    chain.spend("small-2026-02-1", epsilon="0.1").publish("small-2026-02-1")
    if how == "refused for the budget":
        body = {"rule": "budget-exceeded", "reason": "full", "who": None, "flow_run_id": "r"} | unreserved(
            "small", "2026-03"
        )
        return LedgerState.replay(chain.add("refuse", "small-2026-03-1", body).entries)
    early = "small-2026-03-1"
    chain.reserve(early, {"moments": "0.1"}, name="small", period="2026-03")
    if how != "reserved":
        chain.spend(early, epsilon="0.1")
    if how in ("published", "retracted"):
        chain.publish(early)
    if how == "retracted":
        chain.retract(early)
    if how == "refused by a person":
        chain.wait(early).refuse(early)
    return LedgerState.replay(chain.entries)


@pytest.mark.parametrize(
    ("how", "first", "last"),
    [
        ("published", "2026-04", "2026-11"),
        ("reserved", "2026-04", "2026-11"),
        ("measured", "2026-04", "2026-11"),
        ("refused by a person", "2026-04", "2026-11"),
        ("retracted", "2026-04", "2026-11"),
        ("refused for the budget", "2026-03", "2026-11"),
    ],
)
def test_plan_and_site_agree_on_the_months_that_are_still_charged(
    spec: ReleaseSpec, how: str, first: str, last: str
) -> None:
    """A month that a person refused was charged, and no run charges it again before a person asks for that."""
    state = begun_early(how)
    forecast, outlook = foreseen(spec, state), Outlook(spec, plan_release(spec), state, NOW)
    charged = [step.period for step in outlook.year if step.allowed and not step.counted]
    assert [month_before(date.date()) for date, _ in forecast.steps] == charged
    assert (charged[0], charged[-1], outlook.present.lasts_until) == (first, last, last)
    assert forecast.refused is not None
    assert month_before(forecast.refused.date()) == outlook.cap_reached
