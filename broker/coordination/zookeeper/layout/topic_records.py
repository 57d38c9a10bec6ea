"""Znodes of topics: assignments, leaders, and requests to the controller.

Layouts and versions are those of Kafka 3.9's ``ZkData``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.controller.leadership import NOT_WRITTEN, RECOVERED, Leadership
from broker.coordination.zookeeper.layout.json_text import reads, write_json
from broker.disk.identity import kafka_uuid, parse_kafka_uuid
from broker.protocol.topic_partition import TopicPartition

Replicas = tuple[int, ...]


def write_topic(topic: TopicAssignment) -> bytes:
    """Return the data of /brokers/topics/T: version 3, or 2 without an id."""

    def by_index(part: str, *, all_of_them: bool = False) -> dict[str, list[int]]:
        return {
            str(index): list(getattr(each, part))
            for index, each in sorted(topic.partitions.items())
            if all_of_them or getattr(each, part)
        }

    fields: dict[str, Any] = {
        "version": 2,
        "partitions": by_index("replicas", all_of_them=True),
        "adding_replicas": by_index("adding"),
        "removing_replicas": by_index("removing"),
    }
    if topic.topic_id is not None:
        fields |= {"version": 3, "topic_id": kafka_uuid(topic.topic_id)}
    return write_json(fields)


@reads("a topic's assignment", 1, 2, 3)
def read_topic(found: dict[str, Any]) -> TopicAssignment:
    """Return a topic.

    It has no id before version 3, and no reassignments before version 2.
    """
    adding = found.get("adding_replicas", {})
    removing = found.get("removing_replicas", {})
    topic_id = found.get("topic_id")
    return TopicAssignment(
        None if topic_id is None else parse_kafka_uuid(topic_id),
        {
            int(index): ReplicaAssignment(
                _replicas(replicas),
                _replicas(adding.get(index, ())),
                _replicas(removing.get(index, ())),
            )
            for index, replicas in found["partitions"].items()
        },
    )


def write_leadership(wanted: Leadership) -> bytes:
    """Return the data of a partition's state, version 1."""
    fields: dict[str, Any] = {
        "version": 1,
        "leader": wanted.leader,
        "leader_epoch": wanted.leader_epoch,
        "controller_epoch": wanted.controller_epoch,
        "isr": list(wanted.isr),
    }
    if wanted.recovery_state:
        fields["leader_recovery_state"] = wanted.recovery_state
    return write_json(fields)


def read_leadership(data: bytes, version: int) -> Leadership:
    """Return a leadership; ``version`` is the znode's. Raises `MalformedZnode`."""
    return replace(_read_leadership(data), version=version)


@reads("a partition's leader and ISR", 1)
def _read_leadership(found: dict[str, Any]) -> Leadership:
    return Leadership(
        leader=int(found["leader"]),
        leader_epoch=int(found["leader_epoch"]),
        isr=_replicas(found["isr"]),
        controller_epoch=int(found["controller_epoch"]),
        version=NOT_WRITTEN,
        recovery_state=int(found.get("leader_recovery_state", RECOVERED)),
    )


@reads("partitions with the replicas that they shall have", 1)
def read_reassignment(found: dict[str, Any]) -> dict[TopicPartition, Replicas]:
    """Return the reassignments requested in /admin/reassign_partitions."""
    return {
        TopicPartition(each["topic"], int(each["partition"])): _replicas(
            each["replicas"]
        )
        for each in found["partitions"]
    }


def write_reassignment(wanted: Mapping[TopicPartition, Replicas]) -> bytes:
    """Return the data of /admin/reassign_partitions."""
    rows = [
        {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
        for key, replicas in wanted.items()
    ]
    return write_json({"version": 1, "partitions": rows})


@reads("partitions", 1)
def read_partitions(found: dict[str, Any]) -> list[TopicPartition]:
    """Return the partitions of a requested election, or of changed ISRs."""
    rows = found["partitions"]
    return [TopicPartition(each["topic"], int(each["partition"])) for each in rows]


def write_partitions(keys: Iterable[TopicPartition]) -> bytes:
    """Return the data that `read_partitions` reads."""
    rows = [{"topic": key.topic, "partition": key.partition} for key in keys]
    return write_json({"version": 1, "partitions": rows})


def _replicas(found: Iterable[Any]) -> Replicas:
    return tuple(int(each) for each in found)
