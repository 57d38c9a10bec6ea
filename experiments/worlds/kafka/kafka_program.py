"""Apache Kafka 3.9 as the program of a cluster's brokers.

Each broker has the arm's request queue. ZooKeeper and the controller are those of the
live world, so the worlds differ only in the brokers with replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from experiments.cluster.member_keys import member_keys
from experiments.processes.children import Child, CpuTime, process_cpu_s
from experiments.processes.java import TERMINATED, NoJava
from experiments.processes.loopback import free_ports
from experiments.worlds.kafka import apache_kafka, nodes, request_log
from experiments.worlds.kafka.nodes import Ports, Site
from experiments.worlds.kafka.request_queue import queue_of
from experiments.worlds.kafka.settings import settings_of, without_ours
from experiments.worlds.kafka.zookeeper_mode import VERSION, ZooKeeperMode
from experiments.worlds.live.broker_program import Member
from experiments.worlds.world import MachineTrial, WorldError

# Follows Kafka's own options: two brokers share a machine, and have megabytes of data.
_HEAP: Final = ("-Xmx512M", "-Xms512M")


class KafkaProgram:
    """Starts members, see `worlds.live.broker_program.BrokerProgram`.

    :raises WorldError: if Kafka does not support the trial's arm.
    """

    stopped = TERMINATED

    def __init__(self, trial: MachineTrial, tick: Callable[[], None]) -> None:
        settings_of(trial.experiment, trial.arm, ZooKeeperMode())
        self._queue = queue_of(trial.experiment, trial.arm)
        self._trial = trial
        self._tick = tick

    def start(self, member: Member) -> Child:
        """Start a broker that logs its requests."""
        queue = self._queue
        options = () if queue is None else queue.jvm_options(member.at)
        site = Site(
            at=member.at,
            binding=member.binding,
            tick=self._tick,
            jvm_options=(*_HEAP, *options),
            log4j=request_log.log4j(_log(member.record)),
        )
        try:
            return nodes.broker(VERSION, site, _ports(member), self.keys(member))
        except (apache_kafka.NoKafka, NoJava) as missing:
            raise WorldError(str(missing)) from missing

    def keys(self, member: Member) -> dict[str, str]:
        """Return the keys of a Doorkeeper broker, without Doorkeeper's own."""
        experiment, arm = self._trial.experiment, self._trial.arm
        keys = member_keys(
            experiment, arm, member.number, member.endpoints, experiment.kafka.set
        )
        return {
            # As in the live world: all connections of a load are opened at once.
            "socket.listen.backlog.size": "1024",
            **without_ours(keys),
            "log.dirs": str(member.at / "data"),
        }

    def wait(self, member: Member, child: Child, timeout_s: float) -> None:
        """Wait until a started broker answers."""
        nodes.wait_for_broker(child, _ports(member), timeout_s)

    def cpu_time(self, child: Child) -> CpuTime:
        """Return the CPU time of all threads."""
        return CpuTime(used_s=process_cpu_s(child.pid))

    def complete(self, record: Path) -> None:
        """Create the record from the log."""
        apart_ns = time.time_ns() - time.monotonic_ns()
        request_log.convert(_log(record), record, apart_ns)


def _log(record: Path) -> Path:
    return record.with_suffix(".log")


def _ports(member: Member) -> Ports:
    data, control = member.endpoints.data, member.endpoints.control
    (jmx,) = free_ports(1)
    return Ports(zookeeper=0, data=data, control=control, jmx=jmx)
