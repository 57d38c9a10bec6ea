"""Experiments in virtual time: byte-for-byte repeatable, and consistent with theory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.design.config import Experiment, parse
from experiments.load import trace
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial, RunFiles, RunResult


def experiment(traffic: list[dict[str, Any]], duration_s: float, **more: Any) -> Any:
    return parse(
        {
            "experiment": {"name": "v", "seed": 9, "blocks": 1, "baseline": "fifo"},
            "workload": {"duration_s": duration_s, "traffic": traffic},
            "arms": [
                {"name": name, "scheduler": name}
                for name in ("fifo", "planes", "priority", "wfq")
            ],
            **more,
        }
    )


CONTROL = {
    "name": "control",
    "connections": 8,
    "arrivals": {"kind": "poisson", "rate_per_s": 200.0},
    "request": {"api": "leader-and-isr"},
}
LOAD = {
    "name": "load",
    "connections": 30,
    "arrivals": {
        "kind": "bursts",
        "rate_per_s": 3000.0,
        "every_s": 0.2,
        "on_s": 0.04,
    },
    "request": {"api": "produce", "partitions": 10, "topic_partitions": 10},
}
COSTS = {"slice_us": {"produce": 50.0, "control": 50.0}}


def run(built: Experiment, arm: str, directory: Path) -> tuple[RunResult, Any]:
    out = RunFiles(requests=directory / "r.parquet", samples=directory / "s.parquet")
    trial = MachineTrial(experiment=built, block=0, arm=built.arm(arm))
    result = Virtual().run(trial, trace.generate(built, 0), out)
    assert result.valid, result.reason
    return result, pq.read_table(out.requests)


def latency_ms(table: Any, request_class: str) -> Any:
    mine = np.array(table["class"].to_pylist()) == request_class
    late = table["client_done_ns"].to_numpy() - table["intended_ns"].to_numpy()
    return late[mine] / 1e6


@pytest.mark.parametrize("arm", ["fifo", "planes", "priority", "wfq"])
def test_two_runs_of_a_trial_are_the_same_to_the_nanosecond(
    tmp_path: Path, arm: str
) -> None:
    built = experiment([CONTROL, LOAD], 0.3, virtual=COSTS)
    _, one = run(built, arm, tmp_path)
    _, two = run(built, arm, tmp_path)
    assert one.equals(two)


def test_control_no_longer_waits_behind_a_backlog(tmp_path: Path) -> None:
    # 120 PRODUCEs of 0.5 ms within 40 ms: a backlog of 20 ms at the end of each burst.
    built = experiment([CONTROL, LOAD], 0.6, virtual=COSTS)
    _, fifo = run(built, "fifo", tmp_path)
    assert np.quantile(latency_ms(fifo, "control"), 0.95) > 8
    for arm in ("planes", "priority", "wfq"):
        _, rival = run(built, arm, tmp_path)
        assert np.quantile(latency_ms(rival, "control"), 0.95) < 3, arm


def test_every_request_of_every_api_is_answered(tmp_path: Path) -> None:
    apis = ["fetch", "metadata", "list-offsets", "update-metadata", "produce"]
    traffic = [
        {
            "name": api,
            "connections": 2,
            "arrivals": {"kind": "poisson", "rate_per_s": 100.0},
            "request": {"api": api},
        }
        for api in apis
    ]
    result, table = run(experiment([*traffic, CONTROL], 0.3), "planes", tmp_path)
    assert result.counts["ok"] == result.counts["sent"] == table.num_rows
    assert result.lateness_ns["p99"] == 0


def test_a_queue_with_constant_service_waits_as_long_as_md1_does(
    tmp_path: Path,
) -> None:
    mean_us, rho = 1000.0, 0.6
    queue = {
        "name": "queue",
        "connections": 40,
        "arrivals": {"kind": "poisson", "rate_per_s": rho * 1e6 / mean_us},
        "request": {"api": "metadata"},
        "service": {"kind": "constant", "mean_us": mean_us},
    }
    _, table = run(experiment([queue], 20.0), "fifo", tmp_path)
    assert set(table["service_ns"].to_pylist()) == {1_000_000}
    # Pollaczek-Khinchine for M/D/1: wait = rho s / (2 (1 - rho)) = 0.75 ms.
    expected_ms = 1.0 + rho * 1.0 / (2 * (1 - rho))
    found_ms = latency_ms(table, "metadata").mean()
    # 12,000 customers; over seeds the mean has a standard deviation of 1.4 %.
    assert found_ms == pytest.approx(expected_ms, rel=0.06)


def test_demand_is_spread_over_the_partitions_of_a_request(tmp_path: Path) -> None:
    load = {**LOAD, "service": {"kind": "constant", "mean_us": 700.0}}
    _, table = run(experiment([load], 0.2), "fifo", tmp_path)
    assert set(table["service_ns"].to_pylist()) == {700_000}


def stated(read_us: float, costs_us: dict[str, float]) -> dict[str, Any]:
    """Return a machine with these mean costs, which include reading."""
    costs = {name: {"mean_us": mean_us} for name, mean_us in costs_us.items()}
    read = {"mean_us": read_us} if read_us else None
    return {"source": "a test", "costs": costs, "read": read}


def at_once(name: str, api: str, requests: int) -> dict[str, Any]:
    """Return traffic of ``requests`` requests within the first 10 us of a run."""
    return {
        "name": name,
        "connections": requests,
        "arrivals": {
            "kind": "bursts",
            "rate_per_s": requests / 1e-5,
            "gaps": "even",
            "every_s": 1.0,
            "on_s": 1e-5,
        },
        "request": {"api": api},
    }


def test_reading_is_a_part_of_what_a_request_costs(tmp_path: Path) -> None:
    costs = {"load": 700.0, "control": 200.0}
    built = experiment([CONTROL, LOAD], 0.2, nominal=stated(60.0, costs))
    _, table = run(built, "fifo", tmp_path)
    mean_ns = {"produce": 700_000, "control": 200_000}
    for name, served_ns, prior_ns in zip(
        *(table[key].to_pylist() for key in ("class", "service_ns", "prior_ns")),
        strict=True,
    ):
        # A request sent behind another is read together with it.
        assert prior_ns in {0, 60_000}
        assert served_ns + prior_ns == mean_ns[name]
    assert 0.5 < np.mean(table["prior_ns"].to_numpy() > 0) < 1


def test_a_request_that_costs_less_than_reading_costs_its_reading(
    tmp_path: Path,
) -> None:
    built = experiment([CONTROL], 0.1, nominal=stated(60.0, {"control": 20.0}))
    _, table = run(built, "fifo", tmp_path)
    assert set(table["service_ns"].to_pylist()) == {0}
    assert set(table["prior_ns"].to_pylist()) == {60_000}


def test_no_policy_comes_before_what_reads_the_others(tmp_path: Path) -> None:
    traffic = [at_once("load", "metadata", 10), at_once("control", "leader-and-isr", 1)]
    costs = {"load": 1000.0, "control": 200.0}
    keys = {"set": {"num.network.threads": 1}}
    latencies_ms, read = [], []
    for read_us in (0.0, 100.0):
        built = experiment(traffic, 0.5, nominal=stated(read_us, costs), broker=keys)
        _, table = run(built, "priority", tmp_path)
        latencies_ms += latency_ms(table, "control").tolist()
        received_ns = table["received_ns"].to_numpy()
        control = np.array(table["class"].to_pylist()) == "control"
        queued_ns = table["enqueued_ns"].to_numpy()[control]
        read.append(int((received_ns <= queued_ns).sum()))
        # The total work does not depend on the order.
        ended_ns = table["local_done_ns"].to_numpy().max()
        assert ended_ns / 1e6 == pytest.approx(10.2, abs=0.01)
    # The running slice, and the request itself.
    assert latencies_ms[0] == pytest.approx(1.2, abs=0.01)
    # All requests read together with it, and its own remaining service.
    assert read[1] > 5
    assert latencies_ms[1] == pytest.approx(0.1 * read[1] + 0.1, abs=0.01)


def test_a_lonely_request_takes_its_cost_and_both_ways(tmp_path: Path) -> None:
    rare = {**CONTROL, "arrivals": {"kind": "constant", "rate_per_s": 20.0}}
    built = experiment(
        [rare],
        0.5,
        nominal=stated(60.0, {"control": 200.0}),
        virtual={"latency_us": [40.0, 40.0]},
    )
    _, table = run(built, "priority", tmp_path)
    assert latency_ms(table, "control") == pytest.approx(0.2 + 2 * 0.04)
    read_ns, sent_ns = (table[it].to_numpy() for it in ("received_ns", "sent_ns"))
    assert set(read_ns - sent_ns) == {100_000}


def test_the_first_of_many_is_read_before_it_is_served_and_all_cost_their_mean(
    tmp_path: Path,
) -> None:
    """Closed form: n requests of mean cost c end at n c, whatever reading costs."""
    built = experiment(
        [at_once("load", "metadata", 10)], 0.5, nominal=stated(60.0, {"load": 1000.0})
    )
    for arm in ("fifo", "wfq"):
        _, table = run(built, arm, tmp_path)
        assert table["client_done_ns"].to_numpy().max() == pytest.approx(10e6, abs=2e4)


def test_bytes_in_flight_during_a_slice_arrive_before_the_next_turn(
    tmp_path: Path,
) -> None:
    # A control request arrives 3 ms into a PRODUCE of ten slices of 1 ms.
    slow = {
        **at_once("load", "produce", 1),
        "request": {"api": "produce", "partitions": 10, "topic_partitions": 10},
    }
    urgent = {**at_once("control", "leader-and-isr", 1), "start_s": 0.003}
    built = experiment(
        [slow, urgent],
        0.5,
        nominal=stated(0.0, {"load": 10_000.0, "control": 200.0}),
        broker={"set": {"doorkeeper.quantum.us": 1}},
        virtual={"latency_us": [40.0, 40.0]},
    )
    _, table = run(built, "priority", tmp_path)
    (control_ms,) = latency_ms(table, "control")
    # The running slice, the request itself, and the network in both directions.
    assert 0.28 <= control_ms <= 1.28


def test_reading_does_not_change_how_long_one_queue_is_busy(tmp_path: Path) -> None:
    queue = {
        "name": "queue",
        "connections": 400,
        "arrivals": {"kind": "poisson", "rate_per_s": 600.0},
        "request": {"api": "metadata"},
    }
    keys = {"set": {"queued.max.requests": 400}}
    ended = []
    for read_us in (0.0, 300.0):
        nominal = stated(read_us, {"queue": 1000.0})
        built = experiment([queue], 2.0, nominal=nominal, broker=keys)
        _, table = run(built, "fifo", tmp_path)
        ended.append(table["client_done_ns"].to_numpy().max())
    assert ended[0] == ended[1]
