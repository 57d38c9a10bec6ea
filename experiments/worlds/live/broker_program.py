"""The program of a cluster's brokers: its start, and its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from experiments.cluster.member_keys import Endpoints, listener_names, member_keys
from experiments.design.faults import Cut, Fill
from experiments.processes.child import Binding
from experiments.processes.children import Child, CpuTime
from experiments.worlds.live import live_brokers
from experiments.worlds.live.disk import small_disk
from experiments.worlds.world import MachineTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One start of a broker: its files are below ``at``, its requests in ``record``."""

    number: int
    at: Path
    record: Path
    endpoints: Endpoints
    binding: Binding


class BrokerProgram(Protocol):
    """The program of a cluster's brokers with replicas.

    ``stopped`` is the exit status after a clean stop.
    """

    stopped: int

    def start(self, member: Member) -> Child:
        """Start a broker.

        :raises experiments.worlds.world.WorldError: if it is impossible here.
        """

    def wait(self, member: Member, child: Child, timeout_s: float) -> None:
        """Wait until a started broker listens; raise `RunFailed` if it does not."""

    def cpu_time(self, child: Child) -> CpuTime:
        """Return a broker's CPU time so far."""

    def complete(self, record: Path) -> None:
        """Complete the record of a broker that has ended."""


class OurProgram:
    """``doorkeeper serve``, see `BrokerProgram`."""

    stopped = 0

    def __init__(self, trial: MachineTrial, tick: Callable[[], None]) -> None:
        self._trial = trial
        self._tick = tick
        faults = trial.experiment.faults
        self._filled = {it.broker for it in faults if isinstance(it, Fill)}
        cuts = [it for it in faults if isinstance(it, Cut)]
        self._cuttable = {number for it in cuts for number in it.between}

    def start(self, member: Member) -> Child:
        """Start a broker that supports the faults of the trial."""
        experiment, at = self._trial.experiment, member.at
        keys = member_keys(
            experiment,
            self._trial.arm,
            member.number,
            member.endpoints,
            experiment.live.set,
        )
        is_filled = member.number in self._filled
        is_cut = member.number in self._cuttable
        return live_brokers.start_with(
            {**keys, "doorkeeper.record.file": str(member.record)},
            at,
            member.binding,
            self._tick,
            within=small_disk(live_brokers.data(at)) if is_filled else (),
            serve=live_brokers.SERVE_CUT_OFF if is_cut else live_brokers.SERVE,
        )

    def wait(self, member: Member, child: Child, timeout_s: float) -> None:
        """Wait until a started broker listens on all of its listeners."""
        count = len(listener_names(self._trial.experiment, self._trial.arm))
        live_brokers.listening(self._trial.arm, child, count, timeout_s)

    def cpu_time(self, child: Child) -> CpuTime:
        """Return the CPU time of the one thread."""
        return child.cpu_time()

    def complete(self, record: Path) -> None:
        """Do nothing: the broker has written its record."""
