"""Apache Kafka in ZooKeeper mode for one run: ZooKeeper, and one broker of 3.9.

Only this mode has the control plane of KIP-291, which Kafka 4 removed with ZooKeeper.
Both programs are started as their shell scripts would start them, keep what they write
in the run's directory, and end with it.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.processes.child import Binding
from experiments.processes.children import Child
from experiments.worlds.kafka import apache_kafka

VERSION = apache_kafka.VERSIONS[0]
# What Kafka's own start scripts give to the JVM, but for paths and logging.
_ZOOKEEPER_JVM = ("-Xmx256M", "-Xms256M")
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
_ATTEMPT_S, _PAUSE_S = 1.0, 0.05


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
        sockets = [socket.socket() for _ in range(4)]
        try:
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            zookeeper, data, control, jmx = (it.getsockname()[1] for it in sockets)
        finally:
            for each in sockets:
                each.close()
        return cls(zookeeper=zookeeper, data=data, control=control, jmx=jmx)


def zookeeper(
    at: Path, ports: Ports, binding: Binding, tick: Callable[[], None]
) -> Child:
    """Start a ZooKeeper server that keeps its data below ``at``."""
    config = at / "zoo.cfg"
    config.write_text(
        f"dataDir={at / 'zookeeper'}\n"
        f"clientPort={ports.zookeeper}\n"
        "clientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
        "maxClientCnxns=0\n",
        encoding="utf-8",
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = _java(at, (*_ZOOKEEPER_JVM, main, str(config)))
    return _child("zookeeper", command, at, binding, tick)


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
    return _child("kafka", _java(at, options), at, binding, tick)


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


def wait_for_zookeeper(node: Child, ports: Ports, timeout_s: float) -> None:
    """Wait until ZooKeeper answers ``srvr``, the one command it allows unasked.

    :raises RunFailed: if the process ends, or time is up.
    """
    _wait_for_answer(node, ports.zookeeper, timeout_s, b"srvr")


def wait_for_broker(node: Child, ports: Ports, timeout_s: float) -> None:
    """Wait until the broker answers ApiVersions v0 on its data listener.

    :raises RunFailed: if the process ends, or time is up.
    """
    _wait_for_answer(node, ports.data, timeout_s, _API_VERSIONS)


def _wait_for_answer(node: Child, port: int, timeout_s: float, probe: bytes) -> None:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        node.expect_alive()
        try:
            with socket.create_connection(("127.0.0.1", port), _ATTEMPT_S) as client:
                client.sendall(probe)
                if client.recv(4):
                    return
        except OSError:
            # Not listening yet, or not answering within the attempt.
            time.sleep(_PAUSE_S)
    raise node.failure(f"did not answer within {timeout_s:.0f} s")


def _java(at: Path, options: Sequence[str]) -> list[str]:
    log4j = at / "log4j.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    return [
        str(apache_kafka.java()),
        *("-cp", f"{apache_kafka.jars(VERSION)}/*"),
        f"-Dlog4j.configuration={log4j.as_uri()}",
        *options,
    ]


def _child(
    name: str,
    command: Sequence[str],
    at: Path,
    binding: Binding,
    tick: Callable[[], None],
) -> Child:
    bound = [sys.executable, "-m", "experiments.processes.child", binding.text()]
    return Child(name, [*bound, *command], at / f"{name}.err", tick=tick)
