"""Several broker processes on the loopback interface, and a scene played to them.

The broker that leads at first has a CPU of its own, for its backlog is what is looked
at; the others, the clients and the controller share the second one. Clients are tasks
of this process, on the same monotonic clock as the brokers.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from experiments.cluster.book import Book
from experiments.cluster.scene import Played, Scene
from experiments.cluster.stage import Address, Node, Stage
from experiments.load.trace import Trace
from experiments.processes.children import Child
from experiments.processes.pinning import Pinning
from experiments.worlds.live import brokers
from experiments.worlds.world import Trial

_STOP_TIMEOUT_S = 10.0
_TICK_S = 1.0


class ClusterRun:
    """One run: its brokers, whose files lie below ``at``."""

    def __init__(
        self,
        trial: Trial,
        replayed: Trace,
        at: Path,
        pinning: Pinning,
        tick: Callable[[], None],
    ) -> None:
        assert trial.experiment.cluster is not None
        self._trial = trial
        self._replayed = replayed
        self._pinning = pinning
        self._tick = tick
        self._leader = trial.experiment.cluster.leader
        numbers = range(trial.experiment.cluster.brokers)
        self._directories = [at / f"broker-{number}" for number in numbers]
        self.records = [brokers.recording(each) for each in self._directories]

    def play(self) -> tuple[Played, str]:
        """Start the brokers, play the scene, stop them; say what went wrong.

        :raises experiments.processes.children.RunFailed: if a broker does not start.
        """
        experiment, arm = self._trial.experiment, self._trial.arm
        with contextlib.ExitStack() as stack:
            children: list[Child] = []
            for number, at in enumerate(self._directories):
                at.mkdir()
                # The first CPU is for who leads.
                child = brokers.start(
                    experiment,
                    arm,
                    at,
                    self._pinning,
                    self._tick,
                    number=number,
                    apart=number != self._leader,
                )
                children.append(stack.enter_context(child))
            targets = [brokers.target(experiment, arm, child) for child in children]
            stage = Stage(
                nodes=tuple(
                    Node(
                        number=number,
                        data=Address(*target.data),
                        control=Address(*(target.control or target.data)),
                    )
                    for number, target in enumerate(targets)
                ),
                connect=trio.open_tcp_stream,
                now_ns=time.monotonic_ns,
                timestamp_ms=time.time_ns() // 1_000_000,
            )
            with self._beside_the_others():
                played = trio.run(self._scene, stage)
            faults = [child.stop(_STOP_TIMEOUT_S) for child in children]
        return played, "; ".join(fault for fault in faults if fault)

    async def _scene(self, stage: Stage) -> Played:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ticking)
            played = await Scene(stage, self._trial, self._replayed, Book()).play()
            nursery.cancel_scope.cancel()
        return played

    async def _ticking(self) -> None:
        while True:
            await trio.sleep(_TICK_S)
            self._tick()

    @contextlib.contextmanager
    def _beside_the_others(self) -> Iterator[None]:
        """Keep this process off the first broker's CPU."""
        allowed = os.sched_getaffinity(0)
        if self._pinning.generator is not None:
            os.sched_setaffinity(0, {self._pinning.generator})
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)
