"""The quickstart's verdicts hold on machines faster or slower than calibrated.

All costs are scaled but not the trace: the load is 0.18, 0.36 or 0.89.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.design import config_file
from experiments.design.capacity import in_rates
from experiments.design.config import Experiment
from experiments.design.workload import ConstantService
from experiments.load import trace
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial, RunFiles

QUICKSTART = Path(__file__).parents[2] / "experiments" / "configs" / "quickstart.toml"
SCALES = (0.5, 1.0, 2.5)
BLOCKS = 4
# Student's t, 0.95, three degrees of freedom.
T_3 = 3.182
ARMS = ("planes", "priority-blind", "priority", "wfq-blind", "wfq")


def quickstart(scale: float, duration_s: float) -> Experiment:
    """Return the shipped experiment with all costs multiplied by ``scale``."""
    built = in_rates(config_file.load(QUICKSTART))
    traffic = []
    for entry in built.workload.traffic:
        assert isinstance(entry.service, ConstantService)
        mean_us = entry.service.mean_us * scale
        service = entry.service.model_copy(update={"mean_us": mean_us})
        traffic.append(entry.model_copy(update={"service": service}))
    longer = {"duration_s": duration_s, "traffic": tuple(traffic)}
    workload = built.workload.model_copy(update=longer)
    return built.model_copy(update={"workload": workload})


def p99_ms(built: Experiment, block: int, arm: str, scratch: Path) -> float:
    """Return the p99 of control; check that the run ends without a backlog."""
    files = RunFiles(requests=scratch / "r.parquet", samples=scratch / "s.parquet")
    trial = MachineTrial(experiment=built, block=block, arm=built.arm(arm))
    result = Virtual().run(trial, trace.generate(built, block), files)
    assert result.valid, result.reason
    assert result.counts["ok"] == result.counts["sent"]
    rows = pq.read_table(files.requests)
    mine = np.array(rows["class"].to_pylist()) == "control"
    done, intended = (rows[k].to_numpy() for k in ("client_done_ns", "intended_ns"))
    # The backlog has drained: each response came soon after the last arrival.
    assert done.max() <= intended.max() + 100_000_000
    latency_ms = (done - intended)[mine] / 1e6
    return float(np.quantile(latency_ms, 0.99))


def test_the_load_of_the_quickstart_leaves_room_for_a_slower_machine() -> None:
    built = quickstart(1.0, 0.6)
    load = sum(
        entry.arrivals.mean_rate_per_s() * entry.service.mean() * 1e-6
        for entry in built.workload.traffic
        if entry.service
    )
    assert 2.5 * load < 0.95


@pytest.mark.slow
def test_machines_half_and_two_and_a_half_times_as_slow_give_the_same_verdicts(
    tmp_path: Path,
) -> None:
    verdicts: dict[str, list[str]] = {arm: [] for arm in ARMS}
    for scale in SCALES:
        built = quickstart(scale, 1.2)
        blocks = range(BLOCKS)
        base = [p99_ms(built, block, "fifo", tmp_path) for block in blocks]
        for arm in ARMS:
            logs = [
                math.log(p99_ms(built, block, arm, tmp_path) / base[block])
                for block in blocks
            ]
            half = T_3 * float(np.std(logs, ddof=1)) / math.sqrt(BLOCKS)
            mean = float(np.mean(logs))
            lower, higher = mean + half < 0, mean - half > 0
            verdicts[arm].append("better" if lower else "worse" if higher else "open")
    assert verdicts == {arm: ["better"] * len(SCALES) for arm in ARMS}
