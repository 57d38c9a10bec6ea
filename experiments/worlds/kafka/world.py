"""The worlds of Apache Kafka: the same trace, the same generator, another broker.

Its brokers are bound to the CPU that the live world gives to ours. A JVM compiles its
code while it runs, so the load is rehearsed before what counts. Kafka keeps no row per
request: what it says of its own phases comes by JMX, as means per API; the client's
side is recorded as ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from experiments.design.config import Experiment
from experiments.load.generator import REHEARSED
from experiments.load.trace import Trace
from experiments.processes import scratch
from experiments.processes.children import RunFailed
from experiments.processes.pinning import Pinning
from experiments.processes.speed_probe import SpeedProbe
from experiments.records.machine import Watch
from experiments.worlds import generating
from experiments.worlds.joining import LoadEnd, record_run
from experiments.worlds.kafka.hosts import KafkaHosts
from experiments.worlds.kafka.nodes import Mode
from experiments.worlds.kafka.zookeeper_mode import ZooKeeperMode
from experiments.worlds.session import Session
from experiments.worlds.world import RunFiles, RunResult, Trial

# Before a run that has its broker to itself.
_REHEARSALS: Final = 3
# Both starts and stops, and the tool that reads JMX.
_OVERHEAD_S: Final = 20.0
# Encoding, and what the probe takes; a session's start is another matter.
_BESIDE_EPISODE_S: Final = 0.3


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
        self._hosts = KafkaHosts(mode, self._pinning, tick)

    def environment(self) -> Mapping[str, Any]:
        """Say which Kafka runs, and where."""
        return {
            "kafka": self._mode.version,
            "rehearsals": _REHEARSALS,
            "rehearsal_s": self._hosts.rehearsal_s,
            **self._pinning.environment(),
            **scratch.environment(),
        }

    def estimate_s(self, experiment: Experiment) -> float:
        """Add starts and rehearsals to the load's length, or what is between two."""
        length_s = experiment.workload.duration_s
        if experiment.episodes is not None:
            return length_s + _BESIDE_EPISODE_S
        return (1 + _REHEARSALS) * length_s + _OVERHEAD_S

    def session(self, experiment: Experiment) -> Session:
        """Return a session of episodes: all arms' brokers at once, not started yet."""
        return Session(self.name, experiment, self._hosts, self._pinning, self._tick)

    def run(self, trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        """Start Kafka, rehearse and replay the trace, write the rows."""
        with scratch.scratch(f"kafka-{trial.run_id}-") as at:
            try:
                return self._run(trial, trace, out, Path(at))
            except RunFailed as failure:
                return RunResult.without_rows(str(failure), trace)

    def _run(self, trial: Trial, replayed: Trace, out: RunFiles, at: Path) -> RunResult:
        with (
            SpeedProbe(self._pinning, at, self._tick) as probe,
            self._hosts.start(trial.experiment, trial.arm, at) as host,
            generating.start(trial, replayed, at, self._pinning, self._tick) as load,
        ):
            load.tell(replace(host.target(), rehearsals=_REHEARSALS).line())
            # The set-up, and what is replayed without a record: the JVM compiles.
            patience_s = generating.patience_s(trial, _REHEARSALS)
            said = load.line(patience_s, *host.processes)
            if said != REHEARSED:
                raise load.failure(f"said {said!r} instead of {REHEARSED!r}")
            before = host.cpu_time()
            watch = Watch(probe, self._pinning.broker, host.processes)
            patience_s = generating.patience_s(trial)
            summary = json.loads(load.line(patience_s, *host.processes))
            used = host.cpu_time() - before
            loop, machine = watch.end()
            ended = host.stop()
        end = LoadEnd(**summary, broker_cpu=used, fault=ended.fault)
        seen = generating.observations(at)
        result = record_run(self.name, trial, replayed, out, seen, None, end)
        return replace(
            result,
            broker_phases_ms=ended.phases_ms,
            probes_ns=(loop.mean_ns,),
            machine=machine,
        )
