"""Conversion of load shares to rates, and of nominal time to a machine's time.

A trace is drawn in nominal time: the time of the machine whose costs are stated in
``[nominal]`` (or in a traffic entry's ``service``). A load becomes a rate by these
costs only, so the drawn trace and its hash are equal on all machines and in all worlds.
For a machine with other costs the trace is *stretched*: all instants are multiplied by
the ratio of the trace's cost there to its nominal cost. The work that arrives per
second, in seconds of the machine's time, is therefore the config's on every machine.

A workload in ``rate_per_s`` is never stretched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from experiments.design.calibration import Calibration
from experiments.design.config import Arm, BrokerSection, Experiment
from experiments.design.config_errors import ExperimentError
from experiments.design.faults import stretched
from experiments.design.workload import ConstantService, Traffic, Workload
from experiments.design.world_config import MeasuredWorld

_QUANTUM: Final = "doorkeeper.quantum.us"
_WithKeys = TypeVar("_WithKeys", Arm, BrokerSection, MeasuredWorld)


def in_rates(experiment: Experiment) -> Experiment:
    """Return the experiment in nominal time: rates for loads, a service for each cost.

    A load without a stated or measured cost is not changed. With a calibration and
    without nominal costs, the calibrated machine is the nominal one.
    """
    workload = experiment.workload
    if workload.in_shares and experiment.nominal is None:
        experiment = experiment.changed(nominal=experiment.machine)
    costs_us = nominal_us(experiment)
    traffic = tuple(
        _costing(entry, costs_us[entry.name]) if entry.name in costs_us else entry
        for entry in workload.traffic
    )
    drawn = workload.changed(traffic=traffic)
    return experiment.changed(workload=drawn)


def uncosted(experiment: Experiment) -> list[str]:
    """Return the traffic with loads that cannot become rates for lack of a cost."""
    workload = in_rates(experiment).workload
    return [entry.name for entry in workload.traffic if entry.arrivals.in_shares]


def drawable(experiment: Experiment) -> Experiment:
    """Return the experiment with rates, from which a trace can be drawn.

    :raises ExperimentError: if a needed cost of some traffic is not known.
    """
    for name in uncosted(experiment):
        raise ExperimentError(
            f"workload.traffic[{name!r}].arrivals",
            "a load is no rate before the cost of a request is known: measure it with "
            "`doorkeeper calibrate` and give --calibration FILE, or state it in "
            "[nominal]",
        )
    return in_rates(experiment)


def stretch(experiment: Experiment) -> float:
    """Return the factor that stretches a trace for the machine; 1 without calibration.

    ``experiment`` must be the one with loads, before their conversion to rates.
    """
    if experiment.machine is None or not experiment.workload.in_shares:
        return 1.0
    drawn = in_rates(experiment)
    return _work_us(drawn, machine_us(drawn)) / _work_us(drawn, nominal_us(drawn))


def on_machine(experiment: Experiment, factor: float) -> Experiment:
    """Return an experiment with rates as it is after its trace has been stretched.

    The load is stretched: rates, bursts, lengths, the drain, slow clients, the times of
    faults and of recovery, the limit of lateness. Time-outs and SLOs are not. Of a
    broker's keys the quantum is stretched, if the experiment states it: requests that
    arrive during a quantum wait for its end, and their number should be the same on
    every machine.
    """
    if factor == 1.0:
        return experiment
    workload = experiment.workload
    longer = workload.changed(
        duration_s=workload.duration_s * factor,
        warmup_s=workload.warmup_s * factor,
        traffic=tuple(_slowed(entry, factor) for entry in workload.traffic),
    )
    limits, analysis = experiment.limits, experiment.analysis
    patient = limits.changed(
        drain_s=limits.drain_s * factor,
        lateness_p99_ms=limits.lateness_p99_ms * factor,
    )
    return experiment.changed(
        workload=longer,
        limits=patient,
        analysis=analysis.changed(
            recovery_s=tuple((a * factor, b * factor) for a, b in analysis.recovery_s)
        ),
        faults=stretched(experiment.faults, factor),
        broker=_longer_quantum(experiment.broker, factor),
        live=_longer_quantum(experiment.live, factor),
        arms=tuple(_longer_quantum(arm, factor) for arm in experiment.arms),
    )


def mean_request_us(experiment: Experiment) -> float | None:
    """Return the mean cost of a request on the machine; None if a cost is not known.

    Entries are weighted by their requests; ``experiment`` is one with rates.
    """
    costs_us = machine_us(experiment)
    workload = experiment.workload
    if any(entry.name not in costs_us for entry in workload.traffic):
        return None
    requests = sum(_requests(workload, entry) for entry in workload.traffic)
    return _work_us(experiment, costs_us) / requests if requests else None


def nominal_us(experiment: Experiment) -> dict[str, float]:
    """Return the nominal cost of each entry's requests, as far as known.

    An entry's own ``service`` has precedence over ``[nominal]``.
    """
    stated = experiment.nominal.costs if experiment.nominal else {}
    return {
        entry.name: entry.service.mean()
        if entry.service
        else stated[entry.name].mean_us
        for entry in experiment.workload.traffic
        if entry.service or entry.name in stated
    }


def machine_us(experiment: Experiment) -> dict[str, float]:
    """Return the cost of each entry's requests on the machine: nominal, or measured."""
    measured = experiment.machine.costs if experiment.machine else {}
    found = nominal_us(experiment)
    found.update(
        (entry.name, measured[entry.name].mean_us)
        for entry in experiment.workload.traffic
        if entry.name in measured
    )
    return found


def calibration(experiment: Experiment) -> Calibration | None:
    """Return the machine's measured costs, or the nominal ones without calibration."""
    return experiment.machine or experiment.nominal


def read_ns(experiment: Experiment) -> int:
    """Return the cost of reading one request, which no policy affects."""
    costs = calibration(experiment)
    return 0 if costs is None else costs.read_ns


def describe(experiment: Experiment, factor: float) -> Mapping[str, Any] | None:
    """Return the manifest's entry about costs; None if no cost is known.

    ``load`` is the work of each entry, as a share of the machine's time.
    """
    costs_us = machine_us(experiment)
    mean_us = mean_request_us(experiment)
    if mean_us is None:
        return None
    there = on_machine(experiment, factor).workload
    return {
        "stretch": factor,
        "mean_request_ns": round(mean_us * 1000),
        "load": {
            entry.name: _requests(there, entry)
            * (costs_us[entry.name] * 1e-6)
            / there.duration_s
            for entry in there.traffic
        },
    }


def _costing(entry: Traffic, cost_us: float) -> Traffic:
    service = entry.service or ConstantService(kind="constant", mean_us=cost_us)
    arrivals = entry.arrivals.in_rates(cost_us)
    return entry.changed(arrivals=arrivals, service=service)


def _slowed(entry: Traffic, factor: float) -> Traffic:
    return entry.changed(
        arrivals=entry.arrivals.slowed(factor),
        start_s=entry.start_s * factor,
        stop_s=None if entry.stop_s is None else entry.stop_s * factor,
        read_ms=entry.read_ms * factor,
    )


def _longer_quantum(section: _WithKeys, factor: float) -> _WithKeys:
    stated_us = section.set.get(_QUANTUM)
    if stated_us is None:
        return section
    longer_us = max(1, round(float(stated_us) * factor))
    return section.changed(set={**section.set, _QUANTUM: longer_us})


def _work_us(experiment: Experiment, costs_us: Mapping[str, float]) -> float:
    """Return the expected cost of all requests of a run."""
    workload = experiment.workload
    return sum(
        _requests(workload, entry) * costs_us[entry.name] for entry in workload.traffic
    )


def _requests(workload: Workload, entry: Traffic) -> float:
    """Return the expected number of an entry's requests in a run."""
    length_s = workload.stop_of(entry) - entry.start_s
    return workload.mean_rate_per_s(entry) * length_s
