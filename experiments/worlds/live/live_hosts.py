"""Doorkeeper's brokers in a session: a process for each arm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.design.config import Arm, Experiment
from experiments.load.generator import Target
from experiments.processes.children import Child, CpuTime
from experiments.processes.pinning import Pinning, bind_threads
from experiments.worlds.arm_session import Ended, Host
from experiments.worlds.live import live_brokers

_STOP_TIMEOUT_S: Final = 10.0
# An episode is about as long as the default period. Seven idle brokers with samples
# took the CPU from the eighth for 0.3 ms seventy times per second.
RARE_SAMPLES: Final = {"doorkeeper.record.samples.ms": "3600000"}


class LiveHosts:
    """Starts Doorkeeper brokers, see `worlds.arm_session.Hosts`."""

    unrecorded_s = 0.0

    def __init__(self, pinning: Pinning, tick: Callable[[], None]) -> None:
        self._pinning = pinning
        self._tick = tick

    @contextlib.contextmanager
    def start(self, experiment: Experiment, arm: Arm, at: Path) -> Iterator[Host]:
        """Start an arm's broker on any CPU; it is pinned when it listens."""
        samples = {} if experiment.sessions is None else RARE_SAMPLES
        started = live_brokers.start(
            experiment, arm, at, self._pinning, self._tick, samples
        )
        with started as broker:
            yield _Host(
                experiment=experiment,
                arm=arm,
                at=at,
                broker=broker,
                cpu=self._pinning.broker,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    experiment: Experiment
    arm: Arm
    at: Path
    broker: Child
    cpu: int | None

    @property
    def processes(self) -> tuple[Child, ...]:
        return (self.broker,)

    def target(self) -> Target:
        found = live_brokers.target(self.experiment, self.arm, self.broker)
        if self.cpu is not None:
            bind_threads(self.broker.pid, {self.cpu})
        return found

    def cpu_time(self) -> CpuTime:
        return self.broker.cpu_time()

    def stop(self) -> Ended:
        fault = self.broker.stop(_STOP_TIMEOUT_S)
        return Ended(fault=fault, record=live_brokers.recording(self.at))
