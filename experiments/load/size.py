"""The number of requests of a config, and the memory of their trace.

Drawing a trace holds all its requests in memory, so a config whose block needs too much
is refused before anything is drawn. An arrival process also takes a step for each of
its phases, a burst or a state, even an empty one.
"""

from __future__ import annotations

from typing import Final

from experiments.design.arrival_processes import Bursts, Mmpp, OnOff
from experiments.design.capacity import in_rates
from experiments.design.config import Experiment
from experiments.design.config_errors import ExperimentError
from experiments.design.workload import Traffic, Workload
from experiments.load.arrivals import SECOND_NS
from experiments.load.pace import Pace, scales_of

# Measured while half a million requests were drawn: 620, plus a tenth for the hash.
BYTES_PER_REQUEST: Final = 700
# A request's number on its connection is 32 bits wide.
_REQUESTS_MAX: Final = 2**31 - 1


def refuse_oversize(experiment: Experiment, memory_bytes: int) -> None:
    """Refuse an experiment whose trace takes more than half of the memory.

    Traffic whose load cannot become a rate before a calibration is not counted.

    :raises ExperimentError: naming the traffic with the most requests.
    """
    experiment = in_rates(experiment)
    counts = {
        entry.name: expected(experiment, entry)
        for entry in experiment.workload.traffic
        if not entry.arrivals.in_shares
    }
    total = sum(counts.values())
    most = min(_REQUESTS_MAX, memory_bytes // 2 // BYTES_PER_REQUEST)
    if total <= most:
        return
    largest = max(counts, key=lambda name: counts[name])
    raise ExperimentError(
        f"workload.traffic[{largest!r}].arrivals",
        f"means {counts[largest]:,.0f} requests in each block, {total:,.0f} with all "
        f"traffic; their trace takes {total * BYTES_PER_REQUEST / 1e9:,.1f} GB of "
        f"memory, and this machine, which has {memory_bytes / 1e9:,.1f} GB, draws at "
        f"most {most:,.0f}",
    )


def expected(experiment: Experiment, entry: Traffic) -> float:
    """Return the expected requests of an entry per block, or its phases if more."""
    length_s = _length_s(experiment, entry)
    requests = experiment.workload.mean_rate_per_s(entry) * length_s
    match entry.arrivals:
        case Bursts():
            phases = length_s / entry.arrivals.every_s
        case Mmpp():
            dwell_s = entry.arrivals.dwell_s
            phases = length_s * len(dwell_s) / sum(dwell_s)
        case OnOff(sources=sources, on_s=on_s, off_s=off_s):
            phases = length_s * 2 * sources / (on_s + off_s)
        case _:
            phases = 0.0
    return max(requests, phases)


def _length_s(experiment: Experiment, entry: Traffic) -> float:
    """Return the length of an entry's arrivals, in the time of its own rate."""
    workload: Workload = experiment.workload
    pace = Pace(scales_of(experiment.faults, entry.name))
    start, stop = (
        pace.work(round(at_s * SECOND_NS))
        for at_s in (entry.start_s, workload.stop_of(entry))
    )
    return (stop - start) / SECOND_NS
