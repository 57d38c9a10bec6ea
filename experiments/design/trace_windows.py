"""The trace file of an experiment: its lookup, and the check of its windows.

Block n replays window n: the requests that arrive in ``[n, n + 1) * duration_s`` of the
trace, at ``trace_speed``. Windows are consecutive and disjoint, so all blocks together
replay the beginning of the file once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.design.config import Experiment, parse
from experiments.design.config_errors import ExperimentError
from experiments.design.trace_file import TraceFile, digest, recorded
from experiments.design.workload import Traffic


def with_trace(experiment: Experiment, config: Path) -> Experiment:
    """Return the experiment with the absolute path, hash and means of its trace.

    :raises ExperimentError: if the file does not fit the experiment.
    """
    workload = experiment.workload
    if workload.trace is None:
        return experiment
    path = (config.parent / workload.trace).resolve()
    sha256 = workload.trace_sha256 or digest(path)
    trace = recorded(str(path), sha256)
    content = experiment.content()
    content["workload"] |= {"trace": str(path), "trace_sha256": sha256}
    for entry, written in zip(
        workload.traffic, content["workload"]["traffic"], strict=True
    ):
        if entry.is_recorded:
            rate_per_s, mean_us = _means(trace, entry)
            written["arrivals"] = {"kind": "trace", "rate_per_s": rate_per_s}
            written["service"] = {"kind": "trace", "mean_us": mean_us}
    found = parse(content)
    check_windows(found)
    return found


def trace_of(experiment: Experiment) -> TraceFile:
    """Return the trace of an experiment that has one.

    :raises ExperimentError: if the file is missing or has changed.
    """
    workload = experiment.workload
    assert workload.trace is not None
    if workload.trace_sha256 is None:
        raise ExperimentError("workload.trace", "was not read with its config")
    return recorded(workload.trace, workload.trace_sha256)


def window(experiment: Experiment, block: int) -> slice:
    """Return the rows of a block's window.

    :raises ExperimentError: if the trace ends before the window.
    """
    begin_ns, end_ns = bounds_ns(experiment, block)
    trace = trace_of(experiment)
    if end_ns > trace.arrival_ns[-1]:
        length_s = experiment.workload.duration_s * experiment.workload.trace_speed
        raise ExperimentError(
            "workload.trace",
            f"{trace.path} lasts {trace.span_s:.6g} s, and {experiment.blocks} blocks "
            f"of {length_s:.6g} s need {experiment.blocks * length_s:.6g} s; it has "
            f"{int(trace.span_s / length_s)} such windows",
        )
    first, last = np.searchsorted(trace.arrival_ns, (begin_ns, end_ns))
    return slice(int(first), int(last))


def bounds_ns(experiment: Experiment, block: int) -> tuple[int, int]:
    """Return the bounds of a block's window, as instants of the trace."""
    workload = experiment.workload
    length_ns = workload.duration_s * workload.trace_speed * 1e9
    return round(block * length_ns), round((block + 1) * length_ns)


def check_windows(experiment: Experiment) -> None:
    """Check that the trace has a class and a flow for each of its requests.

    :raises ExperimentError: if one is missing, the trace is too short, or a window has
        no request of some class after the warm-up.
    """
    workload = experiment.workload
    if workload.trace is None:
        return
    trace = trace_of(experiment)
    entries = [entry for entry in workload.traffic if entry.is_recorded]
    known = [entry.reported_class for entry in entries]
    for code, name in enumerate(trace.classes):
        if name not in known:
            row = int(np.argmax(trace.class_code == code))
            words = f"no traffic entry replays {name!r}, only {', '.join(known)}"
            raise trace.fault(row, "class", words)
    for entry in entries:
        of_class = trace.of_class(entry.reported_class)
        too_many = of_class & (trace.flow_position >= entry.clients)
        if too_many.any():
            row = int(np.argmax(too_many))
            flows = 1 + int(trace.flow_position[of_class].max())
            words = (
                f"{trace.flows[trace.flow_code[row]]!r} is one of {flows} flows of "
                f"{entry.reported_class!r}, and "
                f"workload.traffic[{entry.name!r}].clients is {entry.clients}"
            )
            raise trace.fault(row, "flow", words)
    window(experiment, experiment.blocks - 1)
    for block in range(experiment.blocks):
        _check_classes(experiment, trace, entries, block)


def _check_classes(
    experiment: Experiment, trace: TraceFile, entries: list[Traffic], block: int
) -> None:
    """Refuse a window in which a class has no analysed request."""
    workload = experiment.workload
    rows = window(experiment, block)
    begin_ns, _ = bounds_ns(experiment, block)
    warm_ns = begin_ns + round(workload.warmup_s * workload.trace_speed * 1e9)
    analysed = trace.arrival_ns[rows] >= warm_ns
    for entry in entries:
        if not trace.of_class(entry.reported_class)[rows][analysed].any():
            raise ExperimentError(
                "workload.trace",
                f"{trace.path} has no request of {entry.reported_class!r} after the "
                f"warm-up of block {block}, which begins at {begin_ns / 1e9:.6g} s",
            )


def _means(trace: TraceFile, entry: Traffic) -> tuple[float, float]:
    """Return the mean rate and service time of an entry's class; 0 and 1 if empty."""
    of_class = trace.of_class(entry.reported_class)
    count = int(of_class.sum())
    if not count or not trace.span_s:
        return 0.0, 1.0
    return count / trace.span_s, float(trace.service_ns[of_class].mean()) / 1e3
