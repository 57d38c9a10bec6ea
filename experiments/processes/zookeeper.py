"""A ZooKeeper server as a process, from the jars in pyspark's wheel."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Final

from experiments.processes.child import Binding
from experiments.processes.children import Child, bound_child
from experiments.processes.java import java
from experiments.processes.loopback import HOST, wait_for_answer

_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JVM: Final = ("-Xmx256M", "-Xms256M")
_JARS: Final = ("zookeeper", "netty", "slf4j", "log4j", "metrics-core", "snappy-java")
_LOG4J: Final = """\
appender.stderr.type=Console
appender.stderr.name=stderr
appender.stderr.target=SYSTEM_ERR
appender.stderr.layout.type=PatternLayout
appender.stderr.layout.pattern=%m (%c)%n
rootLogger.level=error
rootLogger.appenderRef.stderr.ref=stderr
"""


class NoZooKeeper(Exception):
    """This machine lacks ZooKeeper's jars."""


def start_zookeeper(
    at: Path,
    port: int,
    binding: Binding,
    tick: Callable[[], None],
    *,
    tick_ms: int = 3000,
) -> Child:
    """Start a server that listens on the loopback and keeps its data below ``at``.

    Sessions expire at multiples of ``tick_ms``; a session may last from 2 to 20 ticks.

    :raises NoZooKeeper: without pyspark.
    :raises NoJava: without Java.
    """
    config, log4j = at / "zoo.cfg", at / "zookeeper-log4j2.properties"
    config.write_text(
        f"dataDir={at / 'zookeeper'}\n"
        f"clientPort={port}\n"
        f"clientPortAddress={HOST}\n"
        f"tickTime={tick_ms}\n"
        "admin.enableServer=false\n"
        "maxClientCnxns=0\n",
        encoding="utf-8",
    )
    log4j.write_text(_LOG4J, encoding="utf-8")
    command = [
        str(java()),
        *_JVM,
        *("-cp", ":".join(map(str, _jars()))),
        f"-Dlog4j2.configurationFile={log4j}",
        *(_MAIN, str(config)),
    ]
    return bound_child("zookeeper", command, at, binding, tick)


def wait_for_zookeeper(node: Child, port: int, timeout_s: float) -> None:
    """Wait until the server answers ``srvr``, its only command that is on by default.

    :raises RunFailed: if the process ends, or on a time-out.
    """
    wait_for_answer(node, port, b"srvr", timeout_s)


def _jars() -> list[Path]:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise NoZooKeeper(
            "ZooKeeper's jars come with pyspark: pip install 'doorkeeper[analysis]'"
        )
    directory = Path(pyspark.origin).parent / "jars"
    return sorted(jar for name in _JARS for jar in directory.glob(f"{name}-*.jar"))
