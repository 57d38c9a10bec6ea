"""Kafka 3.9 with ZooKeeper: the last version with the control plane of KIP-291."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from experiments.processes.loopback import HOST
from experiments.processes.zookeeper import start_zookeeper, wait_for_zookeeper
from experiments.worlds.kafka import apache_kafka, nodes
from experiments.worlds.kafka.nodes import START_TIMEOUT_S, Ports, Running, Site
from experiments.worlds.kafka.request_queue import ORDERS

VERSION = apache_kafka.VERSIONS[0]


class ZooKeeperMode:
    """A new ZooKeeper and a new broker for each run."""

    version = VERSION
    schedulers: tuple[str, ...] = (*ORDERS, "planes")

    @contextlib.contextmanager
    def node(
        self, site: Site, settings: Mapping[str, str], *, control_plane: bool
    ) -> Iterator[Running]:
        """Start both, see `nodes.Mode`."""
        ports = Ports.free()
        keys = properties(site.at, ports, settings, control_plane=control_plane)
        started = start_zookeeper(site.at, ports.zookeeper, site.binding, site.tick)
        with started as zookeeper:
            wait_for_zookeeper(zookeeper, ports.zookeeper, START_TIMEOUT_S)
            with nodes.broker(VERSION, site, ports, keys) as broker:
                nodes.wait_for_broker(broker, ports, START_TIMEOUT_S)
                yield Running(
                    broker=broker,
                    companions=(zookeeper,),
                    data=(HOST, ports.data),
                    control=(HOST, ports.control) if control_plane else None,
                    jmx=ports.jmx,
                )


def properties(
    at: Path, ports: Ports, settings: Mapping[str, str], *, control_plane: bool
) -> dict[str, str]:
    """Return a broker's keys: the run's own, then the experiment's."""
    listeners = {"PLAINTEXT": ports.data}
    if control_plane:
        listeners["CONTROLLER"] = ports.control
    addresses = ",".join(f"{it}://{HOST}:{port}" for it, port in listeners.items())
    control = {"control.plane.listener.name": "CONTROLLER"} if control_plane else {}
    return {
        "broker.id": "0",
        "zookeeper.connect": f"{HOST}:{ports.zookeeper}",
        "listeners": addresses,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        **control,
        # As in the live world: all connections of a load are opened at once.
        "socket.listen.backlog.size": "1024",
        "offsets.topic.replication.factor": "1",
        **settings,
        "log.dirs": str(at / "data"),
    }
