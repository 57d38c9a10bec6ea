"""Ratios of mean latencies of preemptive planes: theory against model and Kafka.

Two threads on one CPU, of which one preempts the other, are an M/G/1 queue with
preemptive-resume priority: the values of golden set A (``test_theory_of_experiments``).
"""

import json

import pytest

from experiments.design.calibration import Calibration, Cost
from experiments.design.config import parse
from experiments.design.points import planned_points
from experiments.theory.latency_ratios import ratios, write
from experiments.theory.measure import TrialMeasures, replay
from experiments.theory.predict import MEAN_LATENCY, theory
from experiments.worlds.model.model_world import Model
from tests.model.test_theory_of_experiments import (
    GOLDEN,
    SET_A,
    experiment,
    said,
    traffic,
    waits_ms,
)

ONE_EACH = {"num.io.threads": 1}
LONG = {"server": "threads", "slice_us": 20_000.0}


def test_planes_of_one_thread_each_are_preemptive_priority():
    found = said(SET_A, "planes", broker=ONE_EACH, model=LONG)
    assert waits_ms(found) == pytest.approx((0.0526316, 16.2632), rel=GOLDEN)
    assert not found.silences


@pytest.mark.parametrize(
    ("model", "broker"),
    [
        ({**LONG, "slice_us": 5_000.0}, ONE_EACH),
        ({**LONG, "wakes": False}, ONE_EACH),
        (LONG, {"num.io.threads": 2}),
    ],
    ids=["short slices", "no wake-up preemption", "two threads of data"],
)
def test_planes_that_do_not_always_preempt_have_no_closed_form(model, broker):
    found = said(SET_A, "planes", broker=broker, model=model)
    assert found.silences == ("threads of two planes share CPUs",)


def test_control_that_wants_half_of_the_cpu_does_not_always_preempt():
    entries = (traffic("control", 600.0, 1000.0), traffic("produce", 50.0, 4000.0))
    found = said(entries, "planes", broker=ONE_EACH, model=LONG)
    assert found.silences == ("threads of two planes share CPUs",)


def test_the_model_meets_it(tmp_path):
    """Four blocks: the ratio of control is predicted as 0.065."""
    subject = compared(blocks=4)
    (point,) = planned_points(subject)
    found: dict[str, list[TrialMeasures]] = {}
    for arm, measures in replay(Model(lambda: None), point):
        found.setdefault(arm, []).append(measures)
    rows = {row.reported: row for row in ratios(subject, "model", "", found, 0.25)}
    control = rows["control"]
    assert control.predicted == pytest.approx(1.0526316 / 16.25, rel=GOLDEN)
    assert control.low < control.predicted < control.high
    assert rows["produce"].predicted == pytest.approx(20.2632 / 19.25, rel=GOLDEN)
    assert rows["produce"].verdict == "agrees"


def compared(blocks=2, **changed):
    """Return an experiment of fifo and planes on preempting threads."""
    content = experiment(SET_A, broker=ONE_EACH, model=LONG).content()
    content["experiment"] |= {"baseline": "arm", "blocks": blocks}
    content["arms"].append({**content["arms"][0], "name": "two", "scheduler": "planes"})
    content["workload"] |= {"duration_s": 40.0, "warmup_s": 5.0}
    return parse({**content, **changed})


def measures(control_s):
    return TrialMeasures(
        values={(MEAN_LATENCY, "control"): control_s, (MEAN_LATENCY, "produce"): 0.02},
        moments={},
        path=None,
    )


def test_a_ratio_is_judged_by_its_interval_and_the_margin():
    """The predicted ratio is 0.0648; the cases agree, differ, and are too wide."""
    base = [measures(0.010), measures(0.011)]

    def verdict(*of_planes):
        found = {"arm": base, "two": [measures(each) for each in of_planes]}
        rows = ratios(compared(), "model", "", found, 0.25)
        (row,) = [it for it in rows if it.reported == "control"]
        return row.verdict

    ratio = 1.0526316 / 16.25
    assert verdict(0.010 * ratio, 0.011 * ratio) == "agrees"
    assert verdict(0.010 * ratio * 1.3, 0.011 * ratio * 1.3) == "differs"
    assert verdict(0.010 * ratio * 0.7, 0.011 * ratio * 1.4) == "open"


def test_written_ratios_are_read_by_the_report(tmp_path):
    found = {"arm": [measures(0.010)], "two": [measures(0.001)]}
    rows = ratios(compared(), "model", "", found, 0.25)
    write(rows, 0.25, "so it is", tmp_path / "theory.json")
    content = json.loads((tmp_path / "theory.json").read_text())
    assert content["said"] == "so it is"
    (row,) = [it for it in content["ratios"] if it["reported"] == "control"]
    # One block gives no interval.
    assert (row["low"], row["high"], row["verdict"]) == (None, None, "open")
    assert row["measured"] == pytest.approx(0.1)


def test_kafka_is_threads_whose_requests_cost_what_was_calibrated():
    """Calibrated costs are half of the nominal costs, so the waits are half as long."""
    machine = Calibration(
        source="a test",
        costs={"control": Cost(mean_us=500.0), "produce": Cost(mean_us=2000.0)},
    )
    fast = [
        {**entry, "arrivals": {"kind": "poisson", "rate_per_s": 2 * rate}}
        for entry, rate in zip(SET_A, (50.0, 187.5), strict=True)
    ]
    subject = experiment(fast, broker=ONE_EACH, model=LONG).with_machine(machine)
    found = theory(subject, subject.arms[0], "kafka")
    # Constant services: M/D/1 with two sizes, rate x mean square / 2 / (1 - load).
    square = 100 * 0.5**2 + 375 * 2.0**2
    expected = square / 1000 / 2 / (1 - 0.8)
    assert waits_ms(found) == pytest.approx((expected, expected))


def test_a_world_without_threads_in_its_model_is_not_kafkas():
    subject = experiment(SET_A)
    found = theory(subject, subject.arms[0], "kafka")
    assert found.silences == ("the arm's model is not of threads, as Apache Kafka is",)
    assert not found.predictions
