"""Apache Kafka from `make kafka-tools`: its programs, and one node.

Kafka's shell scripts only start a class with some options of the JVM, and so does this
module. The node is its own controller (KRaft). It has Kafka's defaults, except that it
has no replicas, one partition of offsets, and no delay for new groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.processes.java import NoJava
from experiments.processes.java import java as find_java

VERSIONS = ("3.9.1", "4.4.0")
JARS = Path(__file__).parents[3] / ".tools"
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"

_TOOLS = "org.apache.kafka.tools."
# Names of the shell scripts -> classes; a tuple for a class that Kafka 4 has moved.
_CLASSES: dict[str, str | tuple[str, str]] = {
    "kafka-broker-api-versions": (
        "kafka.admin.BrokerApiVersionsCommand",
        _TOOLS + "BrokerApiVersionsCommand",
    ),
    "kafka-cluster": ("kafka.tools.ClusterTool", _TOOLS + "ClusterTool"),
    "kafka-acls": ("kafka.admin.AclCommand", _TOOLS + "AclCommand"),
    "kafka-configs": ("kafka.admin.ConfigCommand", _TOOLS + "ConfigCommand"),
    "kafka-console-consumer": _TOOLS + "consumer.ConsoleConsumer",
    "kafka-console-producer": (
        "kafka.tools.ConsoleProducer",
        _TOOLS + "ConsoleProducer",
    ),
    "kafka-consumer-groups": _TOOLS + "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": _TOOLS + "ConsumerPerformance",
    "kafka-delete-records": _TOOLS + "DeleteRecordsCommand",
    "kafka-dump-log": ("kafka.tools.DumpLogSegments", _TOOLS + "DumpLogSegments"),
    "kafka-features": _TOOLS + "FeatureCommand",
    "kafka-get-offsets": _TOOLS + "GetOffsetShell",
    "kafka-leader-election": _TOOLS + "LeaderElectionCommand",
    "kafka-log-dirs": _TOOLS + "LogDirsCommand",
    "kafka-metadata-quorum": _TOOLS + "MetadataQuorumCommand",
    "kafka-producer-perf-test": _TOOLS + "ProducerPerformance",
    "kafka-reassign-partitions": _TOOLS + "reassign.ReassignPartitionsCommand",
    "kafka-server-start": "kafka.Kafka",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": _TOOLS + "TopicCommand",
    "kafka-verifiable-consumer": _TOOLS + "VerifiableConsumer",
    "kafka-verifiable-producer": _TOOLS + "VerifiableProducer",
    # Missing in Kafka 4.
    "zookeeper-shell": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
}


class NoKafka(Exception):
    """This machine lacks Apache Kafka, or a Java to run it."""


def jars(version: str) -> Path:
    """Return the directory of one version's jars; raise `NoKafka`."""
    directory = JARS / f"kafka-{version}"
    if not (directory / f"kafka_2.13-{version}.jar").exists():
        raise NoKafka(f"Apache Kafka {version} is not here: `make kafka-tools`")
    return directory


def java() -> Path:
    """Return the path of ``java``; raise `NoKafka`."""
    try:
        return find_java()
    except NoJava as error:
        raise NoKafka(f"Apache Kafka cannot run: {error}") from error


def class_of(program: str, version: str) -> str:
    """Return the class that the shell script ``program`` of a version starts."""
    known = _CLASSES[program]
    return known[version >= "4"] if isinstance(known, tuple) else known


def server_properties(
    directory: Path, port: int, controller_port: int, settings: Mapping[str, str]
) -> str:
    """Return the configuration file of one node; Doorkeeper accepts it too."""
    address = f"PLAINTEXT://127.0.0.1:{port}"
    controller = f"127.0.0.1:{controller_port}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"{address},CONTROLLER://{controller}",
        "advertised.listeners": address,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(directory),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())
