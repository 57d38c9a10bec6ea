"""The world of Apache Kafka 4.4: no ZooKeeper, and no requests of a controller.

Brokers of Kafka 4 receive the content of LeaderAndIsr from their controllers' log, and
close a connection that sends this request. The controller's requests of a trace
therefore fail here. The other requests are compared, in one plane, with Kafka 3.9 and
with this broker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from experiments.processes.loopback import HOST
from experiments.worlds.kafka import apache_kafka, nodes
from experiments.worlds.kafka.kafka_world import Kafka
from experiments.worlds.kafka.nodes import START_TIMEOUT_S, Ports, Running, Site
from experiments.worlds.kafka.request_queue import ORDERS


def make(tick: Callable[[], None]) -> Kafka:
    """Return this world."""
    return Kafka("kraft", KRaftMode(), tick)


class KRaftMode:
    """A broker for each run that is its own controller."""

    version = apache_kafka.VERSIONS[1]
    schedulers: tuple[str, ...] = ORDERS

    @contextlib.contextmanager
    def node(
        self, site: Site, settings: Mapping[str, str], *, control_plane: bool
    ) -> Iterator[Running]:
        """Format a log directory and start a node on it, see `nodes.Mode`."""
        assert not control_plane, "the world lets only the schedulers pass that it has"
        ports = Ports.free()
        owned = {"socket.listen.backlog.size": "1024", **settings}
        text = apache_kafka.server_properties(
            site.at / "data", ports.data, ports.control, owned
        )
        keys = dict(line.split("=", 1) for line in text.splitlines())
        self._format(site, keys)
        with nodes.broker(self.version, site, ports, keys) as broker:
            nodes.wait_for_broker(broker, ports, START_TIMEOUT_S)
            yield Running(
                broker=broker,
                companions=(),
                data=(HOST, ports.data),
                control=None,
                jmx=ports.jmx,
            )

    def _format(self, site: Site, keys: Mapping[str, str]) -> None:
        file = str(nodes.write_properties(site.at, keys))
        tool = apache_kafka.class_of("kafka-storage", self.version)
        options = ("format", "-t", apache_kafka.CLUSTER_ID, "-c", file)
        nodes.complete(self.version, site, (tool, *options))
