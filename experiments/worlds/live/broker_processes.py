"""The broker processes of a run on a cluster, over all their starts, and their faults.

A restarted broker keeps its ports and its files. The controller is a Doorkeeper broker
in every world; brokers with replicas run the world's program.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import trio

from experiments.cluster.member_keys import Endpoints
from experiments.cluster.recorded import BrokerRecording
from experiments.processes.child import Binding
from experiments.processes.children import UNKNOWN_CPU_TIME, Child, CpuTime
from experiments.processes.cut_off import RESTORED, SILENT
from experiments.processes.loopback import HOST, free_ports
from experiments.processes.pinning import Pinning
from experiments.worlds.live import live_brokers
from experiments.worlds.live.broker_program import BrokerProgram, Member, OurProgram
from experiments.worlds.live.disk import fill, free
from experiments.worlds.world import MachineTrial

_START_S, _STOP_TIMEOUT_S = 60.0, 30.0
# Period of a slow broker, which runs for part of it.
_PERIOD_S = 0.02


class LiveBrokers:
    """The brokers of a run by number, the last one its controller; `run` must run.

    Brokers with replicas run ``program``. ``records`` receives the path of each of
    their recordings. ``stack`` ends remaining processes.
    """

    def __init__(
        self,
        trial: MachineTrial,
        at: Path,
        stack: ExitStack,
        *,
        program: BrokerProgram,
        pinning: Pinning,
        zookeeper: str,
        tick: Callable[[], None],
        records: list[BrokerRecording],
    ) -> None:
        assert trial.experiment.cluster is not None
        self._at = at
        self._stack = stack
        self._pinning = pinning
        self._zookeeper = zookeeper
        self._records = records
        self._cluster = trial.experiment.cluster
        self._count = self._cluster.brokers + 1
        self._programs: list[BrokerProgram] = [program] * self._cluster.brokers
        self._programs.append(OurProgram(trial, tick))
        ports = free_ports(2 * self._count)
        self.ports, self._control_ports = ports[: self._count], ports[self._count :]
        # For each broker, the brokers that it is currently cut off from.
        self._silent: defaultdict[int, set[int]] = defaultdict(set)
        self._members: dict[int, Member] = {}
        self._up: dict[int, Child] = {}
        self._faults: list[str] = []
        self._slowing: dict[int, trio.CancelScope] = {}
        self._nursery: trio.Nursery

    def begin(self) -> None:
        """Start all brokers, the controller first, so that it is elected.

        :raises RunFailed: if one does not start.
        """
        *others, controller = range(self._count)
        for numbers in ([controller], others):
            for number in numbers:
                self._start(number)
            for number in numbers:
                self._wait(number)

    def end(self) -> list[str]:
        """Stop all running brokers, the controller last; return any faults as text."""
        *others, controller = sorted(self._up)
        for numbers in (others, [controller]):
            for number in numbers:
                self._up[number].terminate()
            faults = [self._ending(number, self._up[number]) for number in numbers]
            self._faults += filter(None, faults)
        for broker, record in self._records:
            self._programs[broker].complete(record)
        return self._faults

    def _ending(self, number: int, child: Child) -> str:
        return child.ending(_STOP_TIMEOUT_S, self._programs[number].stopped)

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the background tasks of faults until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    # ---- starts -------------------------------------------------------------------

    async def stop(self, number: int) -> None:
        """Stop a broker cleanly, and wait until it has stopped."""
        child = self._up.pop(number, None)
        if child is not None:
            child.terminate()
            if fault := await trio.to_thread.run_sync(self._ending, number, child):
                self._faults.append(fault)

    async def kill(self, number: int) -> None:
        """Kill a broker; its files remain."""
        await trio.lowlevel.checkpoint()
        self._up.pop(number).kill()

    async def restart(self, number: int) -> None:
        """Start a broker on its files; a running one is stopped first."""
        await self.stop(number)
        # Not in a thread, because a child dies with the thread that created it.
        self._start(number)
        await trio.to_thread.run_sync(self._wait, number)

    async def cut(self, one: int, other: int, *, apart: bool) -> None:
        """Cut the connection between two brokers, or restore it."""
        await trio.lowlevel.checkpoint()
        for number, from_whom in ((one, other), (other, one)):
            if apart:
                self._silent[number].add(from_whom)
            else:
                self._silent[number].discard(from_whom)
            if number in self._up:
                self._send(number, SILENT if apart else RESTORED, from_whom)

    async def slow(self, number: int, factor: float) -> None:
        """Run a broker for only part of the time from now on."""
        await trio.lowlevel.checkpoint()
        if number in self._slowing:
            self._slowing.pop(number).cancel()
        if factor > 1:
            scope = self._slowing[number] = trio.CancelScope()
            self._nursery.start_soon(self._keep_slow, scope, self._up[number], factor)

    async def _keep_slow(
        self, scope: trio.CancelScope, child: Child, factor: float
    ) -> None:
        runs_s = _PERIOD_S / factor
        try:
            with scope:
                while True:
                    child.signal(signal.SIGSTOP)
                    await trio.sleep(_PERIOD_S - runs_s)
                    child.signal(signal.SIGCONT)
                    await trio.sleep(runs_s)
        finally:
            child.signal(signal.SIGCONT)

    async def fill(self, number: int, *, full: bool) -> None:
        """Fill a broker's disk, or free it again."""
        happens = fill if full else free
        child, disk = self._up[number], live_brokers.data(self._files(number))
        await trio.to_thread.run_sync(happens, child, disk)

    def cpu_time(self, number: int) -> CpuTime:
        """Return a broker's CPU time, which requires that it was never restarted."""
        starts = sum(it.broker == number for it in self._records)
        if starts > 1 or number not in self._up:
            return UNKNOWN_CPU_TIME
        return self._programs[number].cpu_time(self._up[number])

    # ---- processes ----------------------------------------------------------------

    def _send(self, number: int, word: str, other: int) -> None:
        """Send a broker the state of its connections to another."""
        line = f"{word} {self.ports[other]} {self._control_ports[other]}"
        self._up[number].send(line)

    def _start(self, number: int) -> None:
        at = self._files(number)
        at.mkdir(exist_ok=True)
        starts = sum(it.broker == number for it in self._records)
        record = at / f"life-{starts}.rows"
        if number < self._cluster.brokers:
            self._records.append(BrokerRecording(number, record))
        endpoints = Endpoints(
            host=HOST,
            data=self.ports[number],
            control=self._control_ports[number],
            zookeeper=self._zookeeper,
        )
        member = self._members[number] = Member(
            number=number,
            at=at,
            record=record,
            endpoints=endpoints,
            binding=self._binding(number),
        )
        child = self._programs[number].start(member)
        self._up[number] = self._stack.enter_context(child)
        for other in sorted(self._silent[number]):
            self._send(number, SILENT, other)

    def _binding(self, number: int) -> Binding:
        """Bind the leader to the first CPU, the controller to the clients' CPU."""
        if number == self._cluster.leader:
            return self._pinning.binding(self._pinning.broker)
        if number == self._cluster.brokers:
            return self._pinning.binding(self._pinning.generator)
        return self._pinning.behind_generator()

    def _wait(self, number: int) -> None:
        # A restarted broker waits for the expiry of its last ZooKeeper session.
        patience_s = _START_S + self._cluster.session_ms / 1000
        member, child = self._members[number], self._up[number]
        self._programs[number].wait(member, child, patience_s)

    def _files(self, number: int) -> Path:
        return self._at / f"broker-{number}"
