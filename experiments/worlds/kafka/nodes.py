"""A node of Apache Kafka for one run: its ports, its Java, and its readiness.

Kafka 3.9 with ZooKeeper (`zookeeper_mode`) and Kafka 4 without (`kraft`) start a node
differently; the world treats both alike. All programs are started as by their shell
scripts, keep their files in the run's directory, and end with the run.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from experiments.load.generator import Address
from experiments.processes.child import Binding
from experiments.processes.children import Child, RunFailed, bound_child
from experiments.processes.loopback import HOST, free_ports, wait_for_answer
from experiments.worlds.kafka import apache_kafka

START_TIMEOUT_S: Final = 60.0
# JVM options of Kafka's own start scripts, except for paths and logging.
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
    """The loopback ports of a node.

    ``control`` is a control plane's, or that of a KRaft controller; ``zookeeper`` is
    used where there is one.
    """

    zookeeper: int
    data: int
    control: int
    jmx: int

    @classmethod
    def free(cls) -> Ports:
        """Choose ports that were free a moment ago, all different."""
        zookeeper, data, control, jmx = free_ports(4)
        return cls(zookeeper=zookeeper, data=data, control=control, jmx=jmx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A broker that answers, its companion processes, and its addresses.

    ``control`` is the listener of its control plane, if it has one.
    """

    broker: Child
    companions: tuple[Child, ...]
    data: Address
    control: Address | None
    jmx: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Environment of a node: directory, CPU, additional JVM options, progress callback.

    ``log4j`` are further lines of its log4j.properties, which Kafka 4 does not read.
    """

    at: Path
    binding: Binding
    tick: Callable[[], None]
    jvm_options: tuple[str, ...] = ()
    log4j: str = ""


class Mode(Protocol):
    """A kind of Kafka: its version, its supported schedulers, and its start."""

    version: str
    schedulers: tuple[str, ...]

    def node(
        self, site: Site, settings: Mapping[str, str], *, control_plane: bool
    ) -> AbstractContextManager[Running]:
        """Start a node and wait until it answers; end it on leaving.

        :raises experiments.processes.children.RunFailed: if it does not start.
        """


def broker(version: str, site: Site, ports: Ports, keys: Mapping[str, str]) -> Child:
    """Start a broker with these keys, and with JMX for its metrics."""
    jmx = "-Dcom.sun.management.jmxremote"
    options = (
        *_KAFKA_JVM,
        *site.jvm_options,
        *(jmx, f"{jmx}.port={ports.jmx}", f"{jmx}.host={HOST}"),
        *(f"{jmx}.authenticate=false", f"{jmx}.ssl=false"),
        *("kafka.Kafka", str(write_properties(site.at, keys))),
    )
    command = _java(version, site, options)
    return bound_child("kafka", command, site.at, site.binding, site.tick)


def write_properties(at: Path, keys: Mapping[str, str]) -> Path:
    """Write a broker's keys into its directory; return the file."""
    path = at / "server.properties"
    lines = (f"{key}={value}\n" for key, value in keys.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path


def complete(version: str, site: Site, options: Sequence[str]) -> None:
    """Run a class of Kafka's to completion.

    :raises RunFailed: if it fails, or does not end.
    """
    try:
        subprocess.run(
            _java(version, site, options),
            check=True,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        output = error.stderr or error.stdout
        raise RunFailed(f"{options[0]} failed: {output}") from error
    except subprocess.TimeoutExpired as error:
        raise RunFailed(str(error)) from error


def wait_for_broker(node: Child, ports: Ports, timeout_s: float) -> None:
    """Wait until the broker answers ApiVersions v0 on its data listener.

    :raises RunFailed: if the process ends, or on a time-out.
    """
    wait_for_answer(node, ports.data, _API_VERSIONS, timeout_s)


def _java(version: str, site: Site, options: Sequence[str]) -> list[str]:
    log4j = site.at / "log4j.properties"
    log4j.write_text(_LOG4J + site.log4j, encoding="utf-8")
    return [
        str(apache_kafka.java()),
        *("-cp", f"{apache_kafka.jars(version)}/*"),
        f"-Dlog4j.configuration={log4j.as_uri()}",
        *options,
    ]
