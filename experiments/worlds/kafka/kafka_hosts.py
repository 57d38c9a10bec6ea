"""Apache Kafka's brokers in a session: a node for each arm, all alive.

A JVM compiles its code while it runs, so a new node has load for much longer than a
Doorkeeper broker; it stays warm for the whole session.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.design.config import Arm, Experiment
from experiments.load.generator import Target
from experiments.processes.children import Child, CpuTime, process_cpu_s
from experiments.processes.java import TERMINATED, NoJava
from experiments.processes.pinning import Pinning
from experiments.processes.zookeeper import NoZooKeeper
from experiments.worlds.arm_session import Ended, Host
from experiments.worlds.kafka import apache_kafka, kafka_phases
from experiments.worlds.kafka.nodes import Mode, Running, Site
from experiments.worlds.kafka.request_queue import queue_of
from experiments.worlds.kafka.settings import has_control_plane, settings_of
from experiments.worlds.world import WorldError

STOP_TIMEOUT_S: Final = 30.0
# The first controller epoch of a new cluster. Requests with an older epoch are refused,
# and a newer one would depose the controller that creates the load's topics.
CONTROLLER_EPOCH: Final = 1
UNRECORDED_S: Final = 20.0
# A JVM reads each node's metrics; ten such JVMs at once exceeded their time limit.
_READING_METRICS: Final = threading.Lock()


class KafkaHosts:
    """Starts nodes of one kind of Kafka, see `worlds.arm_session.Hosts`."""

    unrecorded_s = UNRECORDED_S

    def __init__(self, mode: Mode, pinning: Pinning, tick: Callable[[], None]) -> None:
        self._mode = mode
        self._pinning = pinning
        self._tick = tick

    @contextlib.contextmanager
    def start(self, experiment: Experiment, arm: Arm, at: Path) -> Iterator[Host]:
        """Start an arm's node and wait until it answers."""
        settings = settings_of(experiment, arm, self._mode)
        binding = self._pinning.binding(self._pinning.broker)
        queue = queue_of(experiment, arm)
        options = () if queue is None else queue.jvm_options(at)
        site = Site(at=at, binding=binding, tick=self._tick, jvm_options=options)
        started = self._mode.node(site, settings, control_plane=has_control_plane(arm))
        with contextlib.ExitStack() as stack:
            try:
                node = stack.enter_context(started)
            except (apache_kafka.NoKafka, NoJava, NoZooKeeper) as missing:
                raise WorldError(str(missing)) from missing
            yield _Host(version=self._mode.version, node=node)


@dataclass(frozen=True, slots=True)
class _Host:
    version: str
    node: Running

    @property
    def processes(self) -> tuple[Child, ...]:
        return (self.node.broker, *self.node.companions)

    def target(self) -> Target:
        return Target(
            data=self.node.data,
            control=self.node.control,
            controller_epoch=CONTROLLER_EPOCH,
        )

    def cpu_time(self) -> CpuTime:
        return CpuTime(used_s=process_cpu_s(self.node.broker.pid))

    def stop(self) -> Ended:
        with _READING_METRICS:
            measured = kafka_phases.read_or_fail(self.version, self.node.jmx)
        fault = self.node.broker.stop(STOP_TIMEOUT_S, TERMINATED)
        return Ended(fault=fault, phases_ms=measured)
