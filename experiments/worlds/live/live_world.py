"""The live world: a fresh broker process per run, real sockets, real files.

The broker and the load generator each have a CPU, so that neither takes time from the
other. On a machine with a single CPU both share it, and the manifest states this. Every
run starts from an empty data directory, which is deleted afterwards. Broker and
generator use the same monotonic clock, so their stamps can be subtracted.

A failed run raises no exception: a broker that dies or does not stop, and a late
generator, are results with a reason, and the runner decides. Only a broker that ends
before it listens stops the experiment, because its configuration is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.design.config import Arm, Experiment
from experiments.load.trace import Trace
from experiments.processes import scratch
from experiments.processes.pinning import Pinning
from experiments.worlds.arm_session import Session, run_alone
from experiments.worlds.live.broker_program import OurProgram
from experiments.worlds.live.live_cluster import ClusterWorld
from experiments.worlds.live.live_hosts import LiveHosts
from experiments.worlds.world import MachineTrial, RunFiles, RunResult

# Starts of both processes, set-up, joining and writing of rows.
_OVERHEAD_S = 0.8
# Starts and stops of ZooKeeper and a cluster's brokers, and settling times.
_CLUSTER_OVERHEAD_S = 12.0
# Probing, encoding, and an episode's share of its session's start and end.
_EPISODE_OVERHEAD_S = 0.15


def make(tick: Callable[[], None]) -> Live:
    """Return this world."""
    return Live(tick)


class Live:
    """Runs trials with real processes; ``tick`` is called once per second."""

    name = "live"

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._pinning = Pinning.here()

    def environment(self) -> Mapping[str, Any]:
        """Return the CPUs and files of the processes."""
        return {**self._pinning.environment(), **scratch.environment()}

    def estimate_s(self, experiment: Experiment) -> float:
        """Return the load's length plus the overhead of a run."""
        overhead_s = _OVERHEAD_S if experiment.sessions is None else _EPISODE_OVERHEAD_S
        if experiment.cluster is not None:
            overhead_s = _CLUSTER_OVERHEAD_S
        return experiment.workload.duration_s + overhead_s

    def session(self, experiment: Experiment) -> Session:
        """Return a session of all arms that has not started."""
        return self._session(experiment, experiment.all_arms())

    def run(self, trial: MachineTrial, trace: Trace, out: RunFiles) -> RunResult:
        """Start a broker, replay the trace to it, stop it, write the joined rows."""
        if trial.experiment.cluster is None:
            session = self._session(trial.experiment, (trial.arm,))
            return run_alone(session, trial, trace, out, unrecorded_first=False)
        return ClusterWorld(
            name=self.name,
            program=OurProgram(trial, self._tick),
            pinning=self._pinning,
            tick=self._tick,
        ).run(trial, trace, out)

    def _session(self, experiment: Experiment, arms: Sequence[Arm]) -> Session:
        hosts = LiveHosts(self._pinning, self._tick)
        return Session(self.name, experiment, arms, hosts, self._pinning, self._tick)
