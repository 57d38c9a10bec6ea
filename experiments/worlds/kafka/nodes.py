"""Apache Kafka in ZooKeeper mode for one run: one broker of 3.9, and its ports.

Only this mode has the control plane of KIP-291, which Kafka 4 removed with ZooKeeper.
The broker is started as its shell script would start it, keeps what it writes in the
run's directory, and ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.processes.child import Binding
from experiments.processes.children import Child, bound_child
from experiments.processes.loopback import free_ports, wait_for_answer
from experiments.worlds.kafka import apache_kafka

VERSION = apache_kafka.VERSIONS[0]
# What Kafka's own start scripts give to the JVM, but for paths and logging.
_KAFKA_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:MaxGCPauseMillis=20"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
_LOG4J = """\
log4j.rootLogger=ERROR, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%m (%c)%n
"""
_API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 0000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The loopback ports of a node; ``control`` is used if there is a control plane."""

    zookeeper: int
    data: int
    control: int
    jmx: int

    @classmethod
    def free(cls) -> Ports:
        """Choose ports that were free a moment ago, all different."""
        zookeeper, data, control, jmx = free_ports(4)
        return cls(zookeeper=zookeeper, data=data, control=control, jmx=jmx)


def broker(
    at: Path,
    ports: Ports,
    keys: Mapping[str, str],
    binding: Binding,
    tick: Callable[[], None],
) -> Child:
    """Start a broker with these keys; its logs lie below ``at``."""
    properties = at / "server.properties"
    lines = (f"{key}={value}\n" for key, value in keys.items())
    properties.write_text("".join(lines), encoding="utf-8")
    jmx = "-Dcom.sun.management.jmxremote"
    options = (
        *_KAFKA_JVM,
        *(jmx, f"{jmx}.port={ports.jmx}", f"{jmx}.host=127.0.0.1"),
        *(f"{jmx}.authenticate=false", f"{jmx}.ssl=false"),
        *("kafka.Kafka", str(properties)),
    )
    return bound_child("kafka", _java(at, options), at, binding, tick)


def properties(
    at: Path, ports: Ports, settings: Mapping[str, str], *, control_plane: bool
) -> dict[str, str]:
    """Return a broker's keys: what the run owns, then the experiment's own."""
    listeners = {"PLAINTEXT": ports.data}
    if control_plane:
        listeners["CONTROLLER"] = ports.control
    addresses = ",".join(f"{it}://127.0.0.1:{port}" for it, port in listeners.items())
    control = {"control.plane.listener.name": "CONTROLLER"} if control_plane else {}
    return {
        "broker.id": "0",
        "zookeeper.connect": f"127.0.0.1:{ports.zookeeper}",
        "listeners": addresses,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        **control,
        # As in the live world: all connections of a load come at once.
        "socket.listen.backlog.size": "1024",
        "offsets.topic.replication.factor": "1",
        **settings,
        "log.dirs": str(at / "data"),
    }


def wait_for_broker(node: Child, ports: Ports, timeout_s: float) -> None:
    """Wait until the broker answers ApiVersions v0 on its data listener.

    :raises RunFailed: if the process ends, or time is up.
    """
    wait_for_answer(node, ports.data, _API_VERSIONS, timeout_s)


def _java(at: Path, options: Sequence[str]) -> list[str]:
    log4j = at / "log4j.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    return [
        str(apache_kafka.java()),
        *("-cp", f"{apache_kafka.jars(VERSION)}/*"),
        f"-Dlog4j.configuration={log4j.as_uri()}",
        *options,
    ]
