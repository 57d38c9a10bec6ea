"""Groups in admin clients and in the broker's log output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as Target
from confluent_kafka.admin import AdminClient

from tests.live.broker_process import BrokerProcess
from tests.live.group_clients import PARTITIONS
from tests.live.group_members import (
    Join,
    Member,
    committed,
    produce,
    sizes,
    wait_until,
)

pytestmark = pytest.mark.live


def move(admin: AdminClient, topic: str) -> bool:
    """Commit offset 3 for the group; return False while its coordinator loads.

    librdkafka returns the partition's error without marking it as retriable.
    """
    moving = ConsumerGroupTopicPartitions("group", [Target(topic, 0, 3)])
    (future,) = admin.alter_consumer_group_offsets([moving]).values()
    (moved,) = future.result(10).topic_partitions
    loading = KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    assert moved.error is None or moved.error.code() == loading, moved.error
    return moved.error is None


def test_an_operator_sees_moves_and_deletes_groups(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    produce(broker, topic, range(60))
    member = join()
    wait_until(lambda: committed(broker, topic) == sizes(60))
    listed = admin.list_consumer_groups().result(10)
    assert [(one.group_id, one.state.name) for one in listed.valid] == [
        ("group", "STABLE")
    ]
    described = admin.describe_consumer_groups(["group"])["group"].result(10)
    assert described.partition_assignor == "range"
    (seen,) = described.members
    assigned = {target.partition for target in seen.assignment.topic_partitions}
    assert (seen.client_id, assigned) == ("rdkafka", set(range(PARTITIONS)))
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["group"])["group"].result(10)
    member.close()
    wait_until(lambda: move(admin, topic))
    assert committed(broker, topic)[0] == 3
    admin.delete_consumer_groups(["group"])["group"].result(10)
    assert committed(broker, topic) == [-1] * PARTITIONS


def test_offsets_go_with_their_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: move(admin, topic))
    assert committed(broker, topic)[0] == 3
    admin.delete_topics([topic])[topic].result(10)
    assert committed(broker, topic) == [-1] * PARTITIONS


def test_the_log_reports_the_history_of_a_group(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path, doorkeeper_log_level="info", doorkeeper_log_format="json"
    )
    produce(broker, "topic", range(6))
    member = Member(broker, "topic")
    wait_until(lambda: bool(member.seen))
    member.close()
    broker.stop()
    events = [json.loads(line) for line in broker.errors().splitlines()]
    assert events[0]["event"] == "started"
    story = [
        (event["event"], event.get("generation"), event.get("members"))
        for event in events
        if event.get("group") == "group"
    ]
    assert story == [
        ("group prepares to rebalance", 0, 1),
        ("group begins a generation", 1, 1),
        ("group is stable", 1, None),
        ("group loses a member", None, None),
        ("group prepares to rebalance", 1, 0),
        ("group begins a generation", 2, 0),
    ]
    assert [event["event"] for event in events[-2:]] == ["stopping", "stopped"]
