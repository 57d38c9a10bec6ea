"""What requests cost in a run, beside what they cost when the machine was calibrated.

Loads are shares of what a machine can do, by its calibration. A machine that has become
twice as fast since then has half the load, and perhaps none of the backlog that the
experiment is about, though each of its requests is answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from experiments.design.capacity import machine_us
from experiments.design.config import Experiment
from experiments.design.worlds import WORLDS

# What the reason of such a run begins with.
DRIFTED = "drifted from its calibration"


def cost_ratio(
    world: str,
    experiment: Experiment,
    requests: pa.Table,
    traffic: Sequence[str],
    broker_cpu_s: float | None,
) -> float | None:
    """Return what answered requests cost over what they did then; None if unknown.

    In computed worlds they cost what they are said to.

    It is the broker's CPU over the calibrated cost of all that was answered, and
    unknown in a cluster, where one broker's CPU is measured and others answer, too.
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


def drifted(experiment: Experiment, arm: str, ratio: float | None) -> str:
    """Say that requests cost so much more or less that the load is another, or nothing.

    Only of the baseline, for under the other arms what requests cost is their own
    doing: a block without its baseline is compared with nothing.
    """
    band = experiment.limits.cost_band
    if arm != experiment.experiment.baseline or ratio is None:
        return ""
    if 1 / band <= ratio <= band:
        return ""
    return (
        f"{DRIFTED}: requests of the baseline cost {ratio:.3g} times what they did "
        f"then; up to a factor {band:g} counts"
    )
