"""The world of Apache Kafka 3.9: the same trace, the same generator, another broker.

Every run starts a ZooKeeper and a broker of its own, bound to the CPU that the live
world gives to ours. A JVM compiles its code while it runs, so the load is rehearsed
before the replay that counts. Kafka keeps no row per request: what it says of its own
phases comes by JMX, as means per API; the client's side is recorded as ever.

An arm is one of Kafka's two topologies: ``fifo`` is one plane, ``planes`` adds the
control plane of KIP-291. Kafka has nothing else, and the experiment is told so.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.design.config import Arm, Experiment
from experiments.load.generator import Target
from experiments.load.trace import Trace
from experiments.processes.children import Child, CpuTime, RunFailed
from experiments.processes.java import TERMINATED
from experiments.processes.places import Places
from experiments.processes.zookeeper import start_zookeeper, wait_for_zookeeper
from experiments.worlds import generating
from experiments.worlds.joining import LoadEnd, record_run
from experiments.worlds.kafka import apache_kafka, nodes, phases
from experiments.worlds.kafka.nodes import VERSION, Ports
from experiments.worlds.world import Cell, RunFiles, RunResult, WorldError

_SCHEDULER = "doorkeeper.scheduler"
_REHEARSALS = 3
# The first controller of a new cluster: requests of an older one are refused, and one
# of a newer would depose the controller that creates the load's topics.
_CONTROLLER_EPOCH = 1
# Both starts and stops, and the tool that reads JMX.
_OVERHEAD_S = 20.0
_START_TIMEOUT_S, _STOP_TIMEOUT_S = 60.0, 30.0
# The kernel's CPUCLOCK_SCHED: a process with all its threads.
_PROCESS_CPU_CLOCK = 2


def make(tick: Callable[[], None]) -> Kafka:
    """Return this world."""
    return Kafka(tick)


class Kafka:
    """Runs cells with Apache Kafka; ``tick`` is called once a second meanwhile."""

    name = "kafka"

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._places = Places.here()

    def environment(self) -> Mapping[str, Any]:
        """Say which Kafka runs, and where."""
        return {
            "kafka": VERSION,
            "rehearsals": _REHEARSALS,
            **self._places.environment(),
        }

    def estimate_s(self, experiment: Experiment) -> float:
        """Add starts and rehearsals to the load's length."""
        return (1 + _REHEARSALS) * experiment.workload.duration_s + _OVERHEAD_S

    def run(self, cell: Cell, trace: Trace, out: RunFiles) -> RunResult:
        """Start ZooKeeper and Kafka, rehearse and replay the trace, write the rows."""
        settings = settings_of(cell.experiment, cell.arm)
        with tempfile.TemporaryDirectory(prefix=f"kafka-{cell.run_id}-") as scratch:
            try:
                return self._run(cell, settings, trace, out, Path(scratch))
            except apache_kafka.NoKafka as missing:
                raise WorldError(str(missing)) from missing
            except RunFailed as failure:
                return RunResult(
                    valid=False,
                    reason=str(failure),
                    recorded=False,
                    trace_sha256=trace.sha256,
                )

    def _run(
        self,
        cell: Cell,
        settings: Mapping[str, str],
        replayed: Trace,
        out: RunFiles,
        at: Path,
    ) -> RunResult:
        has_control = cell.arm.scheduler == "planes"
        ports = Ports.free()
        keys = nodes.properties(at, ports, settings, control_plane=has_control)
        bound = self._places.binding(self._places.broker)
        with start_zookeeper(at, ports.zookeeper, bound, self._tick) as zookeeper:
            wait_for_zookeeper(zookeeper, ports.zookeeper, _START_TIMEOUT_S)
            broker = nodes.broker(at, ports, keys, bound, self._tick)
            load = generating.start(cell, replayed, at, self._places, self._tick)
            with broker, load:
                nodes.wait_for_broker(broker, ports, _START_TIMEOUT_S)
                before_s = _cpu_s(broker)
                load.tell(_target(ports, has_control=has_control).line())
                patience_s = generating.patience_s(cell, 1 + _REHEARSALS)
                summary = json.loads(load.line(patience_s, broker, zookeeper))
                used = CpuTime(used_s=_cpu_s(broker) - before_s)
                told = _phases(ports)
                fault = broker.stop(_STOP_TIMEOUT_S, TERMINATED)
        end = LoadEnd(**summary, broker_cpu=used, fault=fault)
        seen = generating.observations(at)
        result = record_run(self.name, cell, replayed, out, seen, None, end)
        return replace(result, broker_phases_ms=told)


def settings_of(experiment: Experiment, arm: Arm) -> dict[str, str]:
    """Return an arm's broker keys as Kafka can have them.

    :raises WorldError: if the arm asks for what Kafka has not.
    """
    keys = experiment.broker_keys(arm)
    scheduler = keys.pop(_SCHEDULER)
    ours = sorted(key for key in keys if key.startswith("doorkeeper."))
    if scheduler not in ("fifo", "planes") or ours:
        asked = ", ".join([f"the scheduler {scheduler!r}", *ours])
        raise WorldError(
            f"arm {arm.name!r} asks for {asked}; Apache Kafka has fifo and planes, and "
            "no key of ours: choose arms, as with --schedulers fifo,planes"
        )
    return keys


def _target(ports: Ports, *, has_control: bool) -> Target:
    return Target(
        data=("127.0.0.1", ports.data),
        control=("127.0.0.1", ports.control) if has_control else None,
        controller_epoch=_CONTROLLER_EPOCH,
        rehearsals=_REHEARSALS,
    )


def _cpu_s(node: Child) -> float:
    """Return the CPU seconds of all threads so far (``clock_getcpuclockid(3)``)."""
    return time.clock_gettime(~node.pid << 3 | _PROCESS_CPU_CLOCK)


def _phases(ports: Ports) -> phases.Phases:
    try:
        return phases.read(VERSION, ports.jmx)
    except subprocess.SubprocessError as error:
        raise RunFailed(f"Kafka's metrics cannot be read: {error}") from error
