"""Several broker processes on the loopback interface, under load and faults.

The broker that leads first has its own CPU, because its backlog is measured. The
others, ZooKeeper, the controller and the clients share the second CPU. Brokers with
replicas have low priority there: their work is endless, and all others wait for the
remaining time. Clients are tasks of this process, on the same monotonic clock as the
brokers.

Worlds differ in the program of the brokers with replicas, and in the number of
rehearsals.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from experiments.cluster.attempt_log import AttemptLog
from experiments.cluster.cluster_under_test import Address, ClusterUnderTest, Node
from experiments.cluster.loaded_cluster import ClusterOutcome, LoadedCluster, reasons
from experiments.cluster.recorded import BrokerRecording, record_outcome
from experiments.load.trace import Trace
from experiments.processes.children import RunFailed
from experiments.processes.loopback import HOST, free_ports
from experiments.processes.own_zookeeper import start_own_zookeeper
from experiments.processes.pinning import Pinning
from experiments.processes.scratch import scratch
from experiments.processes.speed_probe import SpeedProbe
from experiments.processes.zookeeper import wait_for_zookeeper
from experiments.records.machine import Watch
from experiments.worlds.live.broker_processes import LiveBrokers
from experiments.worlds.live.broker_program import BrokerProgram
from experiments.worlds.world import MachineTrial, RunFiles, RunResult

_START_S = 60.0
_STOP_TIMEOUT_S = 30.0
_TICK_S = 1.0
_TICK_MS_MAX = 3000
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWorld:
    """A world with broker processes: its name, its program, and its rehearsals."""

    name: str
    program: BrokerProgram
    pinning: Pinning
    tick: Callable[[], None]
    rehearsals: int = 0

    def run(self, trial: MachineTrial, replayed: Trace, out: RunFiles) -> RunResult:
        """Run a trial on new processes, and write its rows.

        A failed run is a result with a reason.

        :raises WorldError: if the next run would fail in the same way.
        """
        with scratch(f"doorkeeper-{trial.run_id}-") as at:
            try:
                return self._run(trial, replayed, out, Path(at))
            except RunFailed as failure:
                return RunResult.without_rows(str(failure), replayed)

    def _run(
        self, trial: MachineTrial, replayed: Trace, out: RunFiles, at: Path
    ) -> RunResult:
        run = _ClusterRun(self, trial, replayed, at)
        with SpeedProbe(self.pinning, at, self.tick) as probe:
            watch = Watch(probe, self.pinning.broker)
            outcome, fault = run.run()
            loop_us, machine = watch.end()
        result = record_outcome(self.name, trial, replayed, out, outcome, run.records)
        faults = [each for each in (fault, result.reason) if each]
        return replace(
            result,
            valid=not faults,
            reason="; ".join(faults),
            loop_us=loop_us,
            machine=machine,
        )


class _ClusterRun:
    """One run: ZooKeeper and its brokers, with files below ``at``."""

    def __init__(
        self, world: ClusterWorld, trial: MachineTrial, replayed: Trace, at: Path
    ) -> None:
        assert trial.experiment.cluster is not None
        self._cluster = trial.experiment.cluster
        self._trial = trial
        self._replayed = replayed
        self._at = at
        self._world = world
        self._pinning, self._tick = world.pinning, world.tick
        self.records: list[BrokerRecording] = []

    def run(self) -> tuple[ClusterOutcome, str]:
        """Run the trial on new processes; return its outcome and the faults found.

        :raises RunFailed: if a broker does not start, or the trial cannot be run.
        :raises WorldError: if these keys allow no broker.
        """
        (port,) = free_ports(1)
        with self._zookeeper(port), self._brokers(port) as brokers:
            fault = ""
            with self._pinning.as_generator():
                try:
                    outcome = trio.run(self._run_trial, brokers, port)
                except* RunFailed as failures:
                    fault = reasons(failures)
            if fault:
                raise RunFailed(fault)
            faults = brokers.end()
        return outcome, "; ".join(faults)

    @contextlib.contextmanager
    def _zookeeper(self, port: int) -> Iterator[None]:
        binding = self._pinning.binding(self._pinning.generator)
        tick_ms = min(_TICK_MS_MAX, max(1, round(self._cluster.session_ms / 2)))
        with start_own_zookeeper(
            self._at, port, binding, self._tick, tick_ms=tick_ms
        ) as child:
            wait_for_zookeeper(child, port, _START_S)
            yield
            if fault := child.stop(_STOP_TIMEOUT_S):
                raise RunFailed(fault)

    @contextlib.contextmanager
    def _brokers(self, zookeeper: int) -> Iterator[LiveBrokers]:
        with contextlib.ExitStack() as stack:
            brokers = LiveBrokers(
                self._trial,
                self._at,
                stack,
                program=self._world.program,
                pinning=self._pinning,
                zookeeper=f"{HOST}:{zookeeper}",
                tick=self._tick,
                records=self.records,
            )
            brokers.begin()
            yield brokers

    async def _run_trial(self, brokers: LiveBrokers, zookeeper: int) -> ClusterOutcome:
        *nodes, controller = [
            Node(number=number, data=Address(HOST, port))
            for number, port in enumerate(brokers.ports)
        ]
        # ZooKeeper reports wall-clock time, all others this clock.
        apart_ns = time.time_ns() - time.monotonic_ns()
        under_test = ClusterUnderTest(
            nodes=tuple(nodes),
            controller=controller,
            zookeeper=f"{HOST}:{zookeeper}",
            faults=brokers,
            connect=trio.open_tcp_stream,
            now_ns=time.monotonic_ns,
            timestamp_ms=time.time_ns() // _NS_PER_MS,
            zookeeper_ns=lambda at_ms: at_ms * _NS_PER_MS - apart_ns,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ticking)
            await nursery.start(brokers.run)
            outcome = await LoadedCluster(
                under_test,
                self._trial,
                self._replayed,
                AttemptLog(),
                self._world.rehearsals,
            ).run()
            nursery.cancel_scope.cancel()
        return outcome

    async def _ticking(self) -> None:
        while True:
            await trio.sleep(_TICK_S)
            self._tick()
