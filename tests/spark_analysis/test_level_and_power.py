"""A small version of ``make validate-statistics``: level, coverage and power.

Tolerances are three standard deviations of a binomial share.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from spark_analysis import validation
from spark_analysis.validation import Rates, Scenario, simulate

EXPERIMENTS = 100


@pytest.fixture(scope="module")
def rates() -> dict[str, Rates]:
    """Rates of sessions with a process effect of 2 %, by quantile."""
    scenario = Scenario(heavy=False, process=0.02, requests_per_round=20)
    return {of.metric.label: of for of in simulate(scenario, EXPERIMENTS, seed=31)}


def at_most(nominal: float, trials: int) -> float:
    return nominal + 3 * math.sqrt(nominal * (1 - nominal) / trials)


@pytest.mark.parametrize("label", ["p95", "p99"])
def test_a_process_effect_keeps_the_level(rates: dict[str, Rates], label: str) -> None:
    of = rates[label]
    assert of.level <= at_most(0.05, EXPERIMENTS)
    assert of.family <= at_most(0.05, EXPERIMENTS)
    assert of.false_equivalent <= at_most(0.05, EXPERIMENTS)
    assert of.coverage >= 1 - at_most(0.05, EXPERIMENTS)


def test_a_degenerate_contrast_takes_no_power(rates: dict[str, Rates]) -> None:
    of = rates["p95"]
    assert of.power_large == of.power_large_degenerate == 1.0
    assert of.power_small > 0.5


def test_thin_tails_are_judged_by_the_jackknife(rates: dict[str, Rates]) -> None:
    assert rates["p99"].pooled == 1.0
    assert rates["p95"].pooled < 1.0


def test_rounds_as_units_would_break_the_level() -> None:
    scenario = Scenario(heavy=False, process=0.05)
    (p95, _) = simulate(scenario, 60, seed=5)
    assert p95.level_of_rounds > at_most(0.05, 60) >= p95.level


def test_the_table_is_written_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(heavy=True, process=0.02, requests_per_round=20)
    monkeypatch.setattr(validation, "SCENARIOS", (scenario,))
    page = tmp_path / "method.md"
    page.write_text(
        "before\n<!-- table: make validate-statistics -->\nold\n"
        "<!-- end of table -->\nafter\n"
    )
    validation.main(experiments=2, page=page)
    first = page.read_text()
    validation.main(experiments=2, page=page)
    assert page.read_text() == first
    assert first.startswith("before\n")
    assert first.endswith("<!-- end of table -->\nafter\n")
    assert "old" not in first
    assert first.count("| heavy | 120 | 2% |") == 2
