"""Measured cost of the answered requests over their calibrated cost, per run.

Loads are shares of the calibrated capacity. If the machine's speed has changed since
the calibration, the offered load differs from the configured one by this factor. The
ratio is recorded, and discards nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from experiments.design.capacity import machine_us
from experiments.design.config import Experiment
from experiments.design.world_config import WORLDS


def cost_ratio(
    world: str,
    experiment: Experiment,
    requests: pa.Table,
    traffic: Sequence[str],
    broker_cpu_s: float | None,
) -> float | None:
    """Return the CPU time of answered requests over their calibrated cost, or None.

    The numerator is the broker's CPU time, the denominator the calibrated cost of all
    answered requests. The ratio is unknown in computed worlds, where costs are given,
    and in a cluster, where several brokers answer and one broker's CPU is measured.
    ``traffic`` are the entries of the trace's requests.
    """
    machine = experiment.machine
    if machine is None or experiment.cluster is not None or WORLDS[world].computed:
        return None
    answered = requests.filter(pc.equal(requests["outcome"], "ok"))
    entries = [traffic[number] for number in answered["request_id"].to_pylist()]
    costs_us = machine_us(experiment)
    calibrated_us = math.fsum(costs_us[entry] for entry in entries)
    if broker_cpu_s is None or not calibrated_us:
        return None
    return broker_cpu_s * 1e6 / calibrated_us
