"""The worlds of Apache Kafka: the same trace and generator, another broker.

Its brokers are bound to the CPU that the live world gives to Doorkeeper. A JVM compiles
its code while it runs, so the load runs unrecorded first. Kafka keeps no row per
request: its own phases are read by JMX, as means per API. The client's side is recorded
as in other worlds. Brokers of a cluster log their requests instead (`request_log`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from experiments.design.config import Arm, Experiment
from experiments.load.trace import Trace
from experiments.processes import scratch
from experiments.processes.pinning import Pinning
from experiments.worlds.arm_session import Session, run_alone
from experiments.worlds.kafka.kafka_hosts import KafkaHosts
from experiments.worlds.kafka.kafka_program import KafkaProgram
from experiments.worlds.kafka.nodes import Mode
from experiments.worlds.kafka.zookeeper_mode import ZooKeeperMode
from experiments.worlds.live.live_cluster import ClusterWorld
from experiments.worlds.world import MachineTrial, RunFiles, RunResult

# Starts and stops of both processes, and the tool that reads JMX.
_OVERHEAD_S: Final = 20.0
# Unrecorded repetitions of a cluster's whole run.
_REHEARSALS: Final = 2
# Starts and stops of ZooKeeper and all brokers, settling, and remaining answers.
_CLUSTER_OVERHEAD_S: Final = 20.0
_CLUSTER_REST_S: Final = 5.0
# Time of encoding and of the probe, without a session's start.
_EPISODE_OVERHEAD_S: Final = 0.3


def make(tick: Callable[[], None]) -> Kafka:
    """Return the world of Kafka 3.9."""
    return Kafka("kafka", ZooKeeperMode(), tick)


class Kafka:
    """Runs trials with Apache Kafka; ``tick`` is called once per second."""

    def __init__(self, name: str, mode: Mode, tick: Callable[[], None]) -> None:
        self.name = name
        self._mode = mode
        self._tick = tick
        self._pinning = Pinning.here()
        self._hosts = KafkaHosts(mode, self._pinning, tick)

    def environment(self) -> Mapping[str, Any]:
        """Return the Kafka version, and the CPUs of its processes."""
        return {
            "kafka": self._mode.version,
            "rehearsal_s": self._hosts.unrecorded_s,
            **self._pinning.environment(),
            **scratch.environment(),
        }

    def estimate_s(self, experiment: Experiment) -> float:
        """Add starts and unrecorded load, which the rounds of a session share."""
        length_s = experiment.workload.duration_s
        if experiment.cluster is not None:
            load_s = (1 + _REHEARSALS) * (length_s + _CLUSTER_REST_S)
            return _CLUSTER_OVERHEAD_S + load_s
        start_s = max(length_s, self._hosts.unrecorded_s) + _OVERHEAD_S
        if experiment.sessions is None:
            return length_s + start_s
        return length_s + _EPISODE_OVERHEAD_S + start_s / experiment.sessions.rounds

    def session(self, experiment: Experiment) -> Session:
        """Return a session of all arms that has not started."""
        return self._session(experiment, experiment.all_arms())

    def run(self, trial: MachineTrial, trace: Trace, out: RunFiles) -> RunResult:
        """Start Kafka, replay the trace without and with recording, write the rows."""
        if trial.experiment.cluster is not None:
            return ClusterWorld(
                name=self.name,
                program=KafkaProgram(trial, self._tick),
                pinning=self._pinning,
                tick=self._tick,
                rehearsals=_REHEARSALS,
            ).run(trial, trace, out)
        session = self._session(trial.experiment, (trial.arm,))
        return run_alone(session, trial, trace, out, unrecorded_first=True)

    def _session(self, experiment: Experiment, arms: Sequence[Arm]) -> Session:
        hosts = self._hosts
        return Session(self.name, experiment, arms, hosts, self._pinning, self._tick)
