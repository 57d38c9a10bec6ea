"""Znodes that Kafka 3.9 has written are read, and written back unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.coordination.zookeeper.layout.broker_records import (
    ProducerIdBlock,
    read_broker,
    read_cluster_id,
    read_config,
    read_config_change,
    read_controller,
    read_log_dir_event,
    read_producer_ids,
    write_broker,
    write_cluster_id,
    write_config,
    write_config_change,
    write_controller,
    write_log_dir_event,
    write_producer_ids,
)
from broker.coordination.zookeeper.layout.json_text import MalformedZnode
from broker.coordination.zookeeper.layout.topic_records import (
    read_leadership,
    read_partitions,
    read_reassignment,
    read_topic,
    write_leadership,
    write_partitions,
    write_reassignment,
    write_topic,
)
from broker.protocol.topic_partition import TopicPartition

BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT",'
    b'"CONTROLLER":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:35187",'
    b'"CONTROLLER://127.0.0.1:40001"],"jmx_port":-1,"port":35187,'
    b'"host":"127.0.0.1","version":5,"timestamp":"1763807000000"}'
)
TOPIC = (
    b'{"removing_replicas":{"1":[0]},"partitions":{"0":[0,1],"1":[2,1,0]},'
    b'"topic_id":"lkAkJ8BfSDmZJaNBKfJ9LA","adding_replicas":{"1":[2]},"version":3}'
)
STATE = b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":12,"isr":[1,0]}'
PRODUCER_IDS = b'{"version":1,"broker":2,"block_start":"5000","block_end":"5999"}'
CONFIG = b'{"version":1,"config":{"retention.ms":"1","cleanup.policy":"compact"}}'
REASSIGNMENT = (
    b'{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[2,1]}]}'
)
PARTITIONS = b'{"version":1,"partitions":[{"topic":"t","partition":3}]}'


@pytest.mark.parametrize(
    ("data", "again"),
    [
        (BROKER, lambda it: write_broker(read_broker(it), 1_763_807_000_000)),
        (TOPIC, lambda it: write_topic(read_topic(it))),
        (STATE, lambda it: write_leadership(read_leadership(it, 4))),
        (
            STATE.replace(b"}", b',"leader_recovery_state":1}'),
            lambda it: write_leadership(read_leadership(it, 4)),
        ),
        (PRODUCER_IDS, lambda it: write_producer_ids(read_producer_ids(it))),
        (CONFIG, lambda it: write_config(read_config(it))),
        (REASSIGNMENT, lambda it: write_reassignment(read_reassignment(it))),
        (PARTITIONS, lambda it: write_partitions(read_partitions(it))),
        (
            b'{"version":2,"brokerid":3,"timestamp":"5","kraftControllerEpoch":-1}',
            lambda it: write_controller(read_controller(it), 5),
        ),
        (
            b'{"version":"1","id":"4VqKIhl3QoeYXkmOeVFLMA"}',
            lambda it: write_cluster_id(read_cluster_id(it)),
        ),
        (
            b'{"version":2,"entity_path":"topics/t"}',
            lambda it: write_config_change(read_config_change(it)),
        ),
        (
            b'{"version":1,"broker":3,"event":1}',
            lambda it: write_log_dir_event(read_log_dir_event(it)),
        ),
    ],
)
def test_znodes_are_written_back_as_read(
    data: bytes, again: Callable[[bytes], bytes]
) -> None:
    assert json.loads(again(data)) == json.loads(data)


def test_meaning_of_the_layout_of_znodes() -> None:
    assert [str(each) for each in read_broker(BROKER).listeners] == [
        "PLAINTEXT://127.0.0.1:35187",
        "CONTROLLER://127.0.0.1:40001",
    ]
    assert read_topic(TOPIC) == TopicAssignment(
        UUID(bytes=bytes.fromhex("96402427c05f48399925a34129f27d2c")),
        {
            0: ReplicaAssignment((0, 1)),
            1: ReplicaAssignment((2, 1, 0), adding=(2,), removing=(0,)),
        },
    )
    state = read_leadership(STATE, 4)
    assert (state.leader, state.leader_epoch, state.isr) == (1, 12, (1, 0))
    assert (state.controller_epoch, state.version) == (7, 4)
    assert read_producer_ids(PRODUCER_IDS) == ProducerIdBlock(2, 5000, 5999)
    key = TopicPartition("t", 3)
    assert read_reassignment(REASSIGNMENT) == {key: (2, 1)}
    assert read_partitions(PARTITIONS) == [key]


def test_znodes_of_older_brokers() -> None:
    only = read_broker(b'{"version":1,"host":"h","port":9,"jmx_port":-1}')
    assert [str(each) for each in only.listeners] == ["PLAINTEXT://h:9"]
    third = read_broker(
        b'{"version":3,"host":"h","port":9,"endpoints":["SSL://h:9"],"rack":"r"}'
    )
    assert (third.rack, third.listeners[0].security_protocol) == ("r", "SSL")
    first = read_topic(b'{"version":1,"partitions":{"0":[4]}}')
    assert first == TopicAssignment(None, {0: ReplicaAssignment((4,))})
    assert json.loads(write_topic(first))["version"] == 2
    notified = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert read_config_change(notified) == "topics/t"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"null", b'{"version":9}', b'{"version":3}', b'{"version":1}'],
)
@pytest.mark.parametrize("read", [read_broker, read_topic, read_reassignment])
def test_malformed_znodes_are_reported_with_the_expected_form(
    data: bytes, read: Callable[[bytes], Any]
) -> None:
    with pytest.raises(MalformedZnode, match="expected"):
        read(data)
