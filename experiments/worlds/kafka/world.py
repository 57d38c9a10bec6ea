"""The worlds of Apache Kafka: the same trace, the same generator, another broker.

Every run starts a broker of its own, bound to the CPU that the live world gives to
ours. A JVM compiles its code while it runs, so the load is rehearsed before the replay
that counts. Kafka keeps no row per request: what it says of its own phases comes by
JMX, as means per API; the client's side is recorded as ever.

An arm is one of Kafka's topologies: ``fifo`` is one plane, ``planes`` adds the control
plane of KIP-291, which only 3.9 with ZooKeeper has. Kafka has nothing else, and the
experiment is told so.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.design.config import Arm, Experiment
from experiments.load.generator import REHEARSED, Target
from experiments.load.trace import Trace
from experiments.processes import scratch
from experiments.processes.children import CpuTime, RunFailed, process_cpu_s
from experiments.processes.java import TERMINATED, NoJava
from experiments.processes.pinning import Pinning
from experiments.processes.speed_probe import SpeedProbe
from experiments.processes.zookeeper import NoZooKeeper
from experiments.records.machine import Watch
from experiments.worlds import generating
from experiments.worlds.joining import LoadEnd, record_run
from experiments.worlds.kafka import apache_kafka, phases
from experiments.worlds.kafka.nodes import Mode, Running, Site
from experiments.worlds.kafka.zookeeper_mode import ZooKeeperMode
from experiments.worlds.world import RunFiles, RunResult, Trial, WorldError

_SCHEDULER = "doorkeeper.scheduler"
_REHEARSALS = 3
# The first controller of a new cluster: requests of an older one are refused, and one
# of a newer would depose the controller that creates the load's topics.
_CONTROLLER_EPOCH = 1
# Both starts and stops, and the tool that reads JMX.
_OVERHEAD_S = 20.0
_STOP_TIMEOUT_S = 30.0


def make(tick: Callable[[], None]) -> Kafka:
    """Return the world of Kafka 3.9."""
    return Kafka("kafka", ZooKeeperMode(), tick)


class Kafka:
    """Runs trials with Apache Kafka; ``tick`` is called once a second meanwhile."""

    def __init__(self, name: str, mode: Mode, tick: Callable[[], None]) -> None:
        self.name = name
        self._mode = mode
        self._tick = tick
        self._pinning = Pinning.here()

    def environment(self) -> Mapping[str, Any]:
        """Say which Kafka runs, and where."""
        return {
            "kafka": self._mode.version,
            "rehearsals": _REHEARSALS,
            **self._pinning.environment(),
            **scratch.environment(),
        }

    def estimate_s(self, experiment: Experiment) -> float:
        """Add starts and rehearsals to the load's length."""
        return (1 + _REHEARSALS) * experiment.workload.duration_s + _OVERHEAD_S

    def run(self, trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        """Start Kafka, rehearse and replay the trace, write the rows."""
        settings = settings_of(trial.experiment, trial.arm, self._mode)
        with scratch.scratch(f"kafka-{trial.run_id}-") as at:
            try:
                return self._run(trial, settings, trace, out, Path(at))
            except (apache_kafka.NoKafka, NoJava, NoZooKeeper) as missing:
                raise WorldError(str(missing)) from missing
            except RunFailed as failure:
                return RunResult.without_rows(str(failure), trace)

    def _run(
        self,
        trial: Trial,
        settings: Mapping[str, str],
        replayed: Trace,
        out: RunFiles,
        at: Path,
    ) -> RunResult:
        has_control = trial.arm.scheduler == "planes"
        binding = self._pinning.binding(self._pinning.broker)
        site = Site(at=at, binding=binding, tick=self._tick)
        with (
            SpeedProbe(self._pinning, at, self._tick) as probe,
            self._mode.node(site, settings, control_plane=has_control) as node,
            generating.start(trial, replayed, at, self._pinning, self._tick) as load,
        ):
            processes = (node.broker, *node.beside)
            load.tell(_target(node).line())
            # The set-up, and what is replayed without a record: the JVM compiles.
            said = load.line(generating.patience_s(trial, _REHEARSALS), *processes)
            if said != REHEARSED:
                raise load.failure(f"said {said!r} instead of {REHEARSED!r}")
            before_s = process_cpu_s(node.broker.pid)
            watch = Watch(probe, self._pinning.broker, processes)
            summary = json.loads(load.line(generating.patience_s(trial), *processes))
            used = CpuTime(used_s=process_cpu_s(node.broker.pid) - before_s)
            probes_ns, machine = watch.end()
            told = self._phases(node)
            fault = node.broker.stop(_STOP_TIMEOUT_S, TERMINATED)
        end = LoadEnd(**summary, broker_cpu=used, fault=fault)
        seen = generating.observations(at)
        result = record_run(self.name, trial, replayed, out, seen, None, end)
        return replace(
            result, broker_phases_ms=told, probes_ns=probes_ns, machine=machine
        )

    def _phases(self, node: Running) -> phases.Phases:
        try:
            return phases.read(self._mode.version, node.jmx)
        except subprocess.SubprocessError as error:
            raise RunFailed(f"Kafka's metrics cannot be read: {error}") from error


def settings_of(experiment: Experiment, arm: Arm, mode: Mode) -> dict[str, str]:
    """Return an arm's broker keys as a kind of Kafka can have them.

    :raises WorldError: if the arm asks for what it has not.
    """
    keys = experiment.broker_keys(arm)
    scheduler = keys.pop(_SCHEDULER)
    ours = sorted(key for key in keys if key.startswith("doorkeeper."))
    if scheduler not in mode.schedulers or ours:
        asked = ", ".join([f"the scheduler {scheduler!r}", *ours])
        raise WorldError(
            f"arm {arm.name!r} asks for {asked}; Apache Kafka {mode.version} has "
            f"{' and '.join(mode.schedulers)}, and no key of ours: choose arms, as "
            f"with --schedulers {','.join(mode.schedulers)}"
        )
    return keys


def _target(node: Running) -> Target:
    return Target(
        data=node.data,
        control=node.control,
        controller_epoch=_CONTROLLER_EPOCH,
        rehearsals=_REHEARSALS,
    )
