"""Agreement of an effect between worlds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from spark_analysis.judging.study import Study
from spark_analysis.judging.world_agreement import WorldCell, hold_together
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.quotient import quotient
from tests.spark_analysis.world_studies import WILD, study_in


def compared(*studies: Study, arm: str = "planes") -> WorldCell:
    """Return the comparison of two worlds in control's p99 under an arm."""
    (found,) = [
        it
        for it in hold_together(studies, {}).cells
        if it.reference.arm == arm
        and (it.reference.class_name, it.reference.metric.name) == ("control", "p99_ms")
    ]
    return found


def test_worlds_of_different_experiments_are_refused() -> None:
    virtual, live = (
        study_in("virtual", {"planes": 0.2}),
        study_in("live", {"planes": 1}),
    )
    live = replace(live, manifest=replace(live.manifest, name="another"))
    with pytest.raises(RecordingError, match="worlds of different experiments"):
        hold_together([virtual, live], {})


def test_measurement_is_the_reference() -> None:
    worlds = ("model", "virtual", "kraft", "live", "kafka")
    found = hold_together([study_in(it, {"planes": 0.5}) for it in worlds], {})
    order = [study.manifest.world for study in found.studies]
    assert order == ["live", "kafka", "kraft", "virtual", "model"]
    pairs = {(cell.first, cell.world) for cell in found.cells}
    assert pairs == {(a, b) for i, a in enumerate(order) for b in order[i + 1 :]}


@pytest.mark.parametrize(
    ("live", "virtual", "agreement"),
    [
        (0.1, 0.1, "agrees"),
        # A quarter of log 0.1 is the margin: ratios up to 1.78 agree.
        (0.1, 0.15, "agrees"),
        (0.1, 0.3, "differs"),
        # Near 1 the margin is the metric's: an effect of 0 % does not agree with 9 %.
        (1.09, 1.0, "differs"),
        (1.0, 1.0, "agrees"),
        (1.19, 1.042, "differs"),
    ],
)
def test_the_margin_is_relative_to_the_effect(
    live: float, virtual: float, agreement: str
) -> None:
    found = compared(
        study_in("virtual", {"planes": virtual}), study_in("live", {"planes": live})
    )
    assert found.agreement == agreement
    assert found.quotient is not None
    assert found.quotient.value == pytest.approx(virtual / live)
    assert math.log(found.margin) == pytest.approx(
        max(math.log(1.05), 0.25 * abs(math.log(live)))
    )


def test_an_effect_of_unknown_size_is_open() -> None:
    found = compared(
        study_in("live", {"planes": 0.5}, WILD), study_in("virtual", {"planes": 0.5})
    )
    assert found.agreement == "open"


def test_worlds_on_the_same_traces_are_paired_session_by_session() -> None:
    """Both vary widely but equally: only the paired ratio is precise."""
    live, virtual = (
        study_in(world, {"planes": 0.5}, WILD) for world in ("live", "virtual")
    )
    found = compared(live, virtual)
    assert (found.paired, found.agreement) == (10, "agrees")
    assert found.quotient == pytest.approx((1, 1, 1))
    (comparison,) = virtual.comparisons
    manifest = replace(
        comparison.manifest,
        runs=tuple(
            replace(run, trace_sha256=f"other-{run.block}")
            for run in comparison.manifest.runs
        ),
    )
    other = replace(virtual, comparisons=(replace(comparison, manifest=manifest),))
    found = compared(live, other)
    assert (found.paired, found.agreement) == (0, "open")


def test_a_refused_cell_is_open() -> None:
    live = study_in("live", {"planes": math.inf})
    found = compared(live, study_in("virtual", {"planes": 0.5}))
    assert (found.agreement, found.quotient) == ("open", None)


def test_the_calibration_of_a_simulated_world_widens_the_quotient() -> None:
    live, virtual = (study_in(world, {"planes": 0.5}) for world in ("live", "virtual"))
    (comparison,) = virtual.comparisons
    rules = replace(comparison.rules, calibration_error=0.2)
    other = replace(virtual, comparisons=(replace(comparison, rules=rules),))
    found, wider = (compared(live, it).quotient for it in (virtual, other))
    assert found is not None
    assert wider is not None
    assert wider.high > found.high * 1.3


# ---- ratio of two effects ----


def test_of_normal_logarithms_the_quotient_has_the_classical_interval() -> None:
    # Half-widths 0.3 and 0.4 add in quadrature: 0.5.
    over = Estimate(2.0, 2.0 * math.exp(-0.3), 2.0 * math.exp(0.3))
    under = Estimate(4.0, 4.0 * math.exp(-0.4), 4.0 * math.exp(0.4))
    found = quotient(over, under)
    assert found is not None
    expected = (0.5, 0.5 * math.exp(-0.5), 0.5 * math.exp(0.5))
    assert found == pytest.approx(expected)


def test_the_interval_of_a_quotient_covers_as_often_as_it_says() -> None:
    # Means of eight normal logarithms with t intervals of 95 %. The bound is four
    # standard errors of 2000 pairs below.
    rng = np.random.default_rng(7)
    logs = rng.normal(0.0, [[[0.2]], [[0.4]]], (2, 2000, 8))
    half = 2.3646 * logs.std(axis=2, ddof=1) / math.sqrt(8)
    means = logs.mean(axis=2)
    covered = 0
    for number in range(2000):
        one, two = (
            Estimate(*np.exp(means[k, number] + half[k, number] * np.array([0, -1, 1])))
            for k in (0, 1)
        )
        found = quotient(one, two)
        assert found is not None
        covered += found.low <= 1.0 <= found.high
    assert covered / 2000 > 0.93


def test_unbounded_ratios_stay_unbounded_and_lost_ones_have_no_quotient() -> None:
    open_above = Estimate(2.0, 1.0, math.inf)
    found = quotient(open_above, Estimate(1.0, 0.9, 1.1))
    assert found is not None
    assert found.high == math.inf
    assert 0 < found.low < 2.0
    assert quotient(Estimate(math.inf, 1.0, math.inf), open_above) is None
    assert quotient(open_above, Estimate(0.0, 0.0, 0.0)) is None
