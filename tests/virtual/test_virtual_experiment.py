"""Experiments in virtual time: repeatable to the byte, and right where theory is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.design.config import Experiment, parse
from experiments.load import trace
from experiments.worlds.virtual.world import Virtual
from experiments.worlds.world import RunFiles, RunResult, Trial


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
    trial = Trial(experiment=built, block=0, arm=built.arm(arm), order=0)
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


@pytest.mark.parametrize("arm", ["planes", "priority", "wfq"])
def test_control_no_longer_waits_behind_a_backlog(tmp_path: Path, arm: str) -> None:
    # 120 PRODUCEs of 0.5 ms within 40 ms: a backlog of 20 ms at the end of each burst.
    built = experiment([CONTROL, LOAD], 0.6, virtual=COSTS)
    _, fifo = run(built, "fifo", tmp_path)
    _, rival = run(built, arm, tmp_path)
    assert np.quantile(latency_ms(fifo, "control"), 0.95) > 8
    assert np.quantile(latency_ms(rival, "control"), 0.95) < 3


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
    # 12 000 customers; over seeds the mean has a standard deviation of 1.4 %.
    assert found_ms == pytest.approx(expected_ms, rel=0.06)


def test_demand_is_spread_over_the_partitions_of_a_request(tmp_path: Path) -> None:
    load = {**LOAD, "service": {"kind": "constant", "mean_us": 700.0}}
    _, table = run(experiment([load], 0.2), "fifo", tmp_path)
    assert set(table["service_ns"].to_pylist()) == {700_000}
