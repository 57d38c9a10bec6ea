"""Closed-loop clients: the model and the whole broker agree on every instant.

The expected times are worked out by hand from arrivals and constant service times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from experiments.design.config import Experiment, parse
from experiments.design.config_file import load
from experiments.load import trace
from experiments.worlds.model.model_world import Model
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial, RunFiles, World

ROOT = Path(__file__).parents[2]
MS = 1_000_000
# Trio's clock is a float in seconds, and each slice adds a rounding error.
RESOLUTION_NS = 20_000
WORLDS = [Model(lambda: None), Virtual()]
Moments = npt.NDArray[np.int64]


def experiment(
    rows: int, service_ms: float, client: dict[str, Any], **more: Any
) -> Experiment:
    """Return traffic of one connection with ``rows`` requests, 0.1 ms apart."""
    return parse(
        {
            "experiment": {
                "name": "loop",
                "seed": 5,
                "blocks": 1,
                "baseline": "fifo",
                "again": False,
            },
            "workload": {
                "duration_s": 0.1,
                "traffic": [
                    {
                        "name": "produce",
                        "arrivals": {
                            "kind": "bursts",
                            "gaps": "even",
                            "rate_per_s": 10_000.0,
                            "every_s": 0.1,
                            "on_s": rows * 1e-4,
                        },
                        "request": {"api": "produce"},
                        "service": {"kind": "constant", "mean_us": service_ms * 1000},
                        "client": client,
                    }
                ],
            },
            "arms": [{"name": "fifo", "scheduler": "fifo"}],
            **more,
        }
    )


def run(world: World, built: Experiment, arm: str, directory: Path) -> pa.Table:
    files = RunFiles(requests=directory / "requests", samples=directory / "samples")
    trial = MachineTrial(experiment=built, block=0, arm=built.arm(arm))
    result = world.run(trial, trace.generate(built, 0), files)
    assert result.valid, result.reason
    return pq.read_table(files.requests)


def moments(table: pa.Table, name: str) -> Moments:
    """Return a stamp of each row, relative to the first arrival."""
    stamps: Moments = table[name].to_numpy()
    return stamps - int(table["intended_ns"].to_numpy()[0])


@pytest.mark.parametrize("world", WORLDS, ids=lambda it: it.name)
def test_waiting_rows_are_carried_by_the_next_request(
    world: World, tmp_path: Path
) -> None:
    built = experiment(5, 1.0, {"batch": 3, "further": 0.5})
    table = run(world, built, "fifo", tmp_path)
    # Row 0 alone for 1 ms; rows 1 to 3 for 1 + 0.5 + 0.5 ms; row 4 for 1 ms.
    sent, done = [0, MS, MS, MS, 3 * MS], [MS, 3 * MS, 3 * MS, 3 * MS, 4 * MS]
    assert moments(table, "sent_ns") == pytest.approx(sent, abs=RESOLUTION_NS)
    assert moments(table, "client_done_ns") == pytest.approx(done, abs=RESOLUTION_NS)
    assert table["service_ns"].to_pylist() == [MS, 2 * MS, 0, 0, MS]
    assert set(table["outcome"].to_pylist()) == {"ok"}


@pytest.mark.parametrize("world", WORLDS, ids=lambda it: it.name)
def test_a_client_lingers(world: World, tmp_path: Path) -> None:
    built = experiment(3, 1.0, {"batch": 9, "further": 0.0, "linger_ms": 5.0})
    table = run(world, built, "fifo", tmp_path)
    expected = [5 * MS] * 3
    assert moments(table, "sent_ns") == pytest.approx(expected, abs=RESOLUTION_NS)


@pytest.mark.parametrize("world", WORLDS, ids=lambda it: it.name)
def test_a_broker_slower_than_patience_works_for_nothing(
    world: World, tmp_path: Path
) -> None:
    """Each attempt takes 8 ms and times out after 5, with others still queued."""
    client = {"request_timeout_ms": 5.0, "retry_backoff_ms": 1.0}
    built = experiment(1, 8.0, client, limits={"timeout_ms": 20.0, "drain_s": 1.0})
    table = run(world, built, "fifo", tmp_path)
    assert table["outcome"].to_pylist() == ["timeout"]
    assert table["client_done_ns"].to_pylist() == [None]


@pytest.mark.parametrize("world", WORLDS, ids=lambda it: it.name)
def test_a_retry_waits_for_the_attempt_that_nobody_waits_for(
    world: World, tmp_path: Path
) -> None:
    """The broker is busy for 8 ms, then serves both attempts of 1 ms each.

    The row arrives 1 ms after the busy period begins. Its first attempt times out after
    5 ms, and the second is sent 1 ms later.
    """
    client = {"request_timeout_ms": 5.0, "retry_backoff_ms": 1.0}
    content = experiment(1, 1.0, client).content()
    (row,) = content["workload"]["traffic"]
    busy = {**row, "name": "busy", "request": {"api": "metadata"}, "client": None}
    busy["service"] = {"kind": "constant", "mean_us": 8000.0}
    row["start_s"] = 0.001
    content["workload"]["traffic"] = [busy, row]
    table = run(world, parse(content), "fifo", tmp_path)
    mine = table.filter(pc.equal(table["class"], "produce"))
    # Both arrivals are within the first 0.1 ms of their bursts.
    assert moments(mine, "sent_ns")[0] == pytest.approx(6 * MS, abs=RESOLUTION_NS)
    assert moments(mine, "client_done_ns")[0] == pytest.approx(9 * MS, abs=MS // 5)


@pytest.mark.parametrize("world", WORLDS, ids=lambda it: it.name)
def test_all_traffic_of_the_operators_mix_is_answered(
    world: World, tmp_path: Path
) -> None:
    content = load(ROOT / "experiments/configs/operators.toml").content()
    del content["sweep"]
    content["workload"] |= {"duration_s": 1.0, "warmup_s": 0.1}
    table = run(world, parse(content), "priority", tmp_path)
    assert set(table["outcome"].to_pylist()) == {"ok"}
    assert set(table["class"].to_pylist()) == {
        "failover",
        "control",
        "replication",
        "produce",
        "fetch",
        "catch-up",
        "group",
        "metadata",
    }
