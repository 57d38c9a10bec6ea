"""Shares of capacity: one trace for all machines, with the same load on each.

The load is defined as the CPU seconds of work that arrive per second, summed over
entries. On a machine k times slower, all times of the trace are k times later.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.design import calibration, capacity
from experiments.design.arrival_processes import Bursts, Mmpp, OnOff, Poisson
from experiments.design.calibration import Calibration, Cost
from experiments.design.config import Experiment, parse
from experiments.design.config_errors import ExperimentError
from experiments.design.points import PlannedPoint, planned_points, points
from experiments.load import trace
from experiments.running.runner import plan
from experiments.running.trials import drawing_key, trial_key

NOMINAL_US = {"control": 200.0, "bulk": 1000.0}
CONTENT: dict[str, Any] = {
    "experiment": {"name": "shares", "seed": 5, "blocks": 1, "baseline": "fifo"},
    "workload": {
        "duration_s": 4.0,
        "warmup_s": 0.5,
        "traffic": [
            {
                "name": "control",
                "connections": 4,
                "arrivals": {"kind": "constant", "load": 0.1},
                "request": {"api": "leader-and-isr"},
            },
            {
                "name": "bulk",
                "connections": 8,
                "arrivals": {
                    "kind": "bursts",
                    "load": 3.0,
                    "idle_load": 0.1,
                    "gaps": "even",
                    "every_s": 0.1,
                    "on_s": 0.01,
                },
                "request": {"api": "produce"},
            },
        ],
    },
    "arms": [{"name": "fifo", "scheduler": "fifo"}],
    "nominal": {
        "source": "a test",
        "costs": {name: {"mean_us": us} for name, us in NOMINAL_US.items()},
    },
}


def content(**arrivals: Any) -> dict[str, Any]:
    """Return the content with keys of the first entry's arrivals replaced."""
    made = copy.deepcopy(CONTENT)
    made["workload"]["traffic"][0]["arrivals"].update(arrivals)
    return made


def machine(**costs_us: float) -> Calibration:
    costs = {name: Cost(mean_us=mean_us) for name, mean_us in costs_us.items()}
    return Calibration(source="a test", costs=costs)


def refusal(made: dict[str, Any]) -> str:
    with pytest.raises(ExperimentError) as caught:
        parse(made)
    return str(caught.value)


# ---- the config ----


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rate_per_s": 3.0}, "needs either rate_per_s or load; both are given"),
        ({"load": None}, "needs either rate_per_s or load; neither is given"),
    ],
)
def test_exactly_one_of_rate_and_load(keys: dict[str, Any], message: str) -> None:
    assert refusal(content(**keys)) == f"workload.traffic[0].arrivals: {message}"


def test_a_negative_load_is_refused_by_its_path() -> None:
    assert refusal(content(load=-0.1)).startswith("workload.traffic[0].arrivals.load: ")


def test_rates_and_loads_do_not_mix_in_a_workload() -> None:
    assert refusal(content(load=None, rate_per_s=3.0)) == (
        "workload: 'bulk' states a load and 'control' a rate; all traffic is stretched "
        "to the machine together, or none is"
    )


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ({"load": 1.0, "idle_rate_per_s": 9.0}, "idle_rate_per_s goes with rate_per_s"),
        ({"rate_per_s": 1.0, "idle_load": 0.1}, "idle_load goes with load"),
    ],
)
def test_rates_between_bursts_are_stated(
    arrivals: dict[str, Any], message: str
) -> None:
    made = copy.deepcopy(CONTENT)
    bursts = {"kind": "bursts", "every_s": 1.0, "on_s": 0.1, **arrivals}
    made["workload"]["traffic"][1]["arrivals"] = bursts
    assert refusal(made).startswith(f"workload.traffic[1].arrivals: {message}")


def test_costs_of_unknown_traffic_are_refused() -> None:
    made = copy.deepcopy(CONTENT)
    made["nominal"]["costs"]["contrl"] = {"mean_us": 1.0}
    assert "nominal.costs: no traffic is called 'contrl'" in refusal(made)


def test_a_load_without_a_cost_cannot_be_drawn_and_says_what_to_do() -> None:
    made = {**CONTENT, "nominal": None}
    built = parse(made)
    assert capacity.uncosted(built) == ["control", "bulk"]
    with pytest.raises(ExperimentError, match=r"\['control'\].*doorkeeper calibrate"):
        trace.generate(built, 0)


def test_a_calibration_without_some_traffic_is_refused() -> None:
    with pytest.raises(ExperimentError, match="has no cost of 'bulk'"):
        parse(CONTENT).with_machine(machine(control=1.0))


def test_without_nominal_costs_the_calibrated_machine_is_the_nominal_one() -> None:
    built = parse({**CONTENT, "nominal": None})
    there = built.with_machine(machine(**NOMINAL_US))
    assert capacity.stretch(there) == 1.0
    expected = trace.generate(parse(CONTENT), 0).sha256
    assert trace.generate(there, 0).sha256 == expected


def test_a_service_states_the_cost_of_its_entry() -> None:
    made = copy.deepcopy(CONTENT)
    service = {"kind": "exponential", "mean_us": 500.0}
    made["workload"]["traffic"][0]["service"] = service
    assert capacity.nominal_us(parse(made)) == {"control": 500.0, "bulk": 1000.0}


@pytest.mark.parametrize(
    ("service", "mean_us"),
    [
        ({"kind": "choice", "values_us": [1.0, 9.0], "weights": [3.0, 1.0]}, 3.0),
        ({"kind": "lognormal", "mean_us": 7.0, "cv": 2.0}, 7.0),
        # Bounded Pareto: integral of x f(x); for alpha 2 it is 2LH/(L+H), for 1 with
        # H = eL it is L e/(e-1).
        ({"kind": "pareto", "alpha": 2.0, "low_us": 2.0, "high_us": 6.0}, 3.0),
        (
            {"kind": "pareto", "alpha": 1.0, "low_us": 1.0, "high_us": np.e},
            np.e / (np.e - 1),
        ),
    ],
)
def test_mean_costs_of_services(service: dict[str, Any], mean_us: float) -> None:
    made = copy.deepcopy(CONTENT)
    made["workload"]["traffic"][0]["service"] = service
    assert capacity.nominal_us(parse(made))["control"] == pytest.approx(mean_us)


# ---- loads converted to rates ----


@given(
    load=st.floats(0.01, 5),
    idle=st.just(0.0) | st.floats(1e-9, 1),
    cost_us=st.floats(10, 10_000),
)
def test_the_mean_rate_times_the_cost_is_the_mean_load(
    load: float, idle: float, cost_us: float
) -> None:
    bursts = Bursts(kind="bursts", load=load, idle_load=idle, every_s=0.5, on_s=0.1)
    mmpp = Mmpp(kind="mmpp", loads=(load, idle), dwell_s=(0.1, 0.4))
    sources = OnOff(kind="on-off", load=load, on_s=1.0, off_s=3.0, sources=2)
    for process, mean in (
        (Poisson(kind="poisson", load=load), load),
        (bursts, 0.2 * load + 0.8 * idle),
        (mmpp, 0.2 * load + 0.8 * idle),
        (sources, load / 2),
    ):
        rates = process.in_rates(cost_us)
        assert not rates.in_shares
        found = rates.mean_rate_per_s() * cost_us * 1e-6
        assert found == pytest.approx(mean)
        slowed = rates.slowed(2.0)
        assert slowed.mean_rate_per_s() == pytest.approx(rates.mean_rate_per_s() / 2)


def test_the_work_of_a_trace_is_its_load() -> None:
    drawn = trace.generate(parse(CONTENT), 0)
    work_s = drawn.table["demand_ns"].to_numpy().sum() / 1e9
    # Constant arrivals and even bursts are exact within one request of 1 ms. Between
    # bursts, arrivals are Poisson: 360 of 1 ms, five standard deviations are 95 ms.
    assert work_s == pytest.approx(4.0 * (0.1 + 0.1 * 3.0 + 0.9 * 0.1), abs=0.1)


def test_work_arrives_in_bursts_of_its_multiple_of_capacity() -> None:
    drawn = trace.generate(parse(CONTENT), 0)
    bulk = np.array(drawn.column("traffic")) == "bulk"
    at_ns = drawn.table["intended_ns"].to_numpy()[bulk]
    in_burst = at_ns % 100_000_000 < 10_000_000
    # 30 ms of work, 1 ms each, in every one of 40 bursts.
    assert in_burst.sum() == 40 * 30


# ---- machines ----


def there(experiment: Experiment) -> Experiment:
    (point,) = planned_points(experiment)
    return capacity.on_machine(point.experiment, point.stretch)


@settings(max_examples=30, deadline=None)
@given(control=st.floats(20, 2000), bulk=st.floats(100, 10_000))
def test_every_machine_has_the_same_trace_and_the_same_load(
    control: float, bulk: float
) -> None:
    built = parse(CONTENT)
    elsewhere = built.with_machine(machine(control=control, bulk=bulk))
    assert trace.generate(elsewhere, 0).sha256 == trace.generate(built, 0).sha256
    workload = there(elsewhere).workload
    costs_us = {"control": control, "bulk": bulk}
    load = sum(
        entry.arrivals.mean_rate_per_s() * costs_us[entry.name] * 1e-6
        for entry in workload.traffic
    )
    assert load == pytest.approx(0.1 + 0.1 * 3.0 + 0.9 * 0.1)


@pytest.mark.parametrize("factor", [0.5, 2.5])
def test_a_slower_machine_has_the_trace_as_much_later(factor: float) -> None:
    costs = {name: us * factor for name, us in NOMINAL_US.items()}
    elsewhere = parse(CONTENT).with_machine(machine(**costs))
    assert capacity.stretch(elsewhere) == pytest.approx(factor)
    drawn = trace.generate(elsewhere, 0)
    replayed = drawn.stretched(factor, dict.fromkeys(NOMINAL_US, factor))
    assert replayed.sha256 == drawn.sha256
    for name in ("intended_ns", "demand_ns"):
        expected = np.rint(drawn.table[name].to_numpy() * factor)
        assert np.array_equal(replayed.table[name].to_numpy(), expected)
    others = [name for name in drawn.table.column_names if not name.endswith("_ns")]
    assert replayed.table.select(others).equals(drawn.table.select(others))
    assert there(elsewhere).workload.duration_s == pytest.approx(4.0 * factor)
    assert there(elsewhere).workload.warmup_s == pytest.approx(0.5 * factor)
    assert there(elsewhere).limits.drain_s == pytest.approx(5.0 * factor)
    assert there(elsewhere).limits.lateness_p99_ms == pytest.approx(1.0 * factor)
    assert there(elsewhere).limits.timeout_ms == 30_000.0


def test_a_quantum_that_is_stated_is_of_as_many_requests_everywhere() -> None:
    made = copy.deepcopy(CONTENT)
    made["broker"] = {"set": {"doorkeeper.quantum.us": 300, "num.io.threads": 8}}
    own = {"doorkeeper.quantum.us": 100}
    made["arms"].append({"name": "wfq", "scheduler": "wfq", "set": own})
    costs = {name: us * 1.5 for name, us in NOMINAL_US.items()}
    slower = there(parse(made).with_machine(machine(**costs)))
    quanta = [slower.broker_keys(arm)["doorkeeper.quantum.us"] for arm in slower.arms]
    assert quanta == ["450", "150"]
    assert slower.broker.set["num.io.threads"] == 8
    # Kafka has no such key: an arm without it has the broker's default.
    unstated = there(parse(CONTENT).with_machine(machine(**costs)))
    assert "doorkeeper.quantum.us" not in unstated.broker_keys(unstated.arms[0])


def test_the_mean_request_counts_requests_as_often_as_they_come() -> None:
    (point,) = planned_points(parse(CONTENT))
    # Each second has 0.1 s in requests of 200 us and 0.39 s in requests of 1000 us.
    count = 0.1 / 200e-6 + 0.39 / 1000e-6
    assert capacity.mean_request_us(point.experiment) == pytest.approx(
        0.49 / count * 1e6
    )
    described = capacity.describe(point.experiment, point.stretch)
    assert described is not None
    assert described["load"] == pytest.approx({"control": 0.1, "bulk": 0.39})


def test_a_workload_in_rates_is_not_stretched() -> None:
    made = copy.deepcopy(CONTENT)
    for entry in made["workload"]["traffic"]:
        entry["arrivals"] = {"kind": "constant", "rate_per_s": 10.0}
    elsewhere = parse(made).with_machine(machine(control=900.0, bulk=9000.0))
    assert capacity.stretch(elsewhere) == 1.0
    assert there(elsewhere) == capacity.in_rates(elsewhere)


def test_a_cell_depends_on_the_machine_and_its_trace_does_not() -> None:
    built = parse(CONTENT)
    elsewhere = built.with_machine(machine(control=300.0, bulk=1000.0))
    here, slower = (
        next(plan(planned_points(experiment))) for experiment in (built, elsewhere)
    )
    assert drawing_key(here.experiment, 0) == drawing_key(slower.experiment, 0)
    assert trial_key(here, "live", "c") != trial_key(slower, "live", "c")
    assert slower.point.stretch == pytest.approx((0.1 * 1.5 + 0.39) / 0.49)


def test_a_virtual_cell_depends_on_the_cost_of_reading() -> None:
    """Otherwise a resumed experiment would keep rows of another calibration."""
    keys = set()
    for read_us in (30.0, 31.0):
        made = copy.deepcopy(CONTENT)
        made["nominal"]["read"] = {"mean_us": read_us}
        keys.add(trial_key(next(plan(planned_points(parse(made)))), "virtual", "c"))
    assert len(keys) == 2


def test_all_requests_of_an_entry_cost_its_mean() -> None:
    drawn = trace.generate(parse(CONTENT), 0)
    demands = set(zip(drawn.column("traffic"), drawn.column("demand_ns"), strict=True))
    assert demands == {("control", 200_000), ("bulk", 1_000_000)}


def test_costs_under_an_arm_are_no_input() -> None:
    made = copy.deepcopy(CONTENT)
    made["nominal"]["arms"] = {"fifo": {"bulk": 1.1}}
    assert "nominal.arms" in refusal(made)


def test_a_sweep_moves_loads_as_it_moves_rates() -> None:
    made = copy.deepcopy(CONTENT)
    key = "workload.traffic.control.arrivals.load"
    levels = [
        {"name": "half", "scale": {key: 0.5}},
        {"name": "more", "set": {key: 0.2}},
    ]
    factor = {"name": "load", "levels": levels}
    made["sweep"] = {"design": "factorial", "factors": [factor]}
    rates = [
        it.experiment.workload.traffic[0].arrivals.mean_rate_per_s()
        for it in planned_points(parse(made))
    ]
    assert rates == pytest.approx([0.05 / 200e-6, 0.2 / 200e-6])


def test_a_calibration_is_read_as_it_was_written(tmp_path: Any) -> None:
    cost = Cost(mean_us=2.0, low_us=1.5, high_us=2.5)
    written = Calibration(source="here", costs={"control": cost}, read=cost)
    path = tmp_path / "deep" / "calibration.json"
    calibration.write(written, path)
    assert calibration.read(path) == written
    path.write_text('{"source": "x", "costs": {"control": {"mean_us": 0}}}')
    with pytest.raises(ExperimentError, match=r"calibration\.json: costs"):
        calibration.read(path)


# ---- stages ------------------------------------------------------------------------


def test_a_stretched_experiment_keeps_the_bounds_of_a_file() -> None:
    (point,) = planned_points(parse(CONTENT))
    with pytest.raises(ExperimentError) as caught:
        capacity.on_machine(point.experiment, 1e9)
    assert "expected" in caught.value.fault


def test_a_planned_point_has_rates() -> None:
    built = parse(CONTENT)
    (point,) = points(built)
    assert point.experiment == built
    assert not point.planned().experiment.workload.in_shares
    with pytest.raises(ValueError, match="has rates, found loads"):
        PlannedPoint(experiment=built)


def test_a_machine_trial_is_the_planned_trial_stretched() -> None:
    elsewhere = parse(CONTENT).with_machine(machine(control=300.0, bulk=1000.0))
    (point,) = planned_points(elsewhere)
    trial = next(plan([point]))
    there = trial.on_machine()
    assert (there.run_id, there.session) == (trial.run_id, trial.session)
    assert there.experiment.workload.duration_s == pytest.approx(
        trial.experiment.workload.duration_s * point.stretch
    )


def test_requests_of_another_size_cost_a_machine_in_proportion() -> None:
    """A machine three times slower stretches each point by three."""
    key = "nominal.costs.bulk"
    sizes = {"as calibrated": 1000.0, "larger": 4000.0}
    entries = [
        {"levels": {"size": name.replace(" ", "-")}, "set": {key: {"mean_us": us}}}
        for name, us in sizes.items()
    ]
    content = {**CONTENT, "sweep": {"design": "listed", "points": entries}}
    machine = Calibration(
        source="here",
        costs={
            name: Cost(mean_us=3 * us, low_us=2 * us, high_us=4 * us)
            for name, us in NOMINAL_US.items()
        },
    )
    found = points(parse(content).with_machine(machine))
    assert [capacity.stretch(it.experiment) for it in found] == pytest.approx([3, 3])
    costs = [capacity.machine_us(it.experiment) for it in found]
    assert costs == [
        {"control": 600.0, "bulk": pytest.approx(3 * us)} for us in sizes.values()
    ]
    larger = found[1].experiment.machine
    assert larger is not None
    assert larger.costs["bulk"].high_us == pytest.approx(16_000)
