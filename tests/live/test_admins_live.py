"""Topics and groups through the admin clients of kafka-python and aiokafka.

`test_clients_seek_live.py` and `test_groups_admin_live.py` cover librdkafka's.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.live.broker_process import BrokerProcess
from tests.live.group_clients import PARTITIONS
from tests.live.group_members import Join, produce, sizes, wait_until

pytestmark = [
    pytest.mark.live,
    # kafka-python uses a function that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
]

COUNT = 60
RETENTION = {"retention.ms": "12345678"}


def test_kafka_pythons_admin_sees_and_cuts_a_topic(
    broker: BrokerProcess, topic: str
) -> None:
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as Target
    from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec

    produce(broker, topic, range(COUNT))
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, RETENTION)])
    asked = ConfigResource(ConfigResourceType.TOPIC, topic)
    (by_name,) = admin.describe_configs([asked]).values()
    shown = by_name[topic]["retention.ms"]
    assert shown["value"] == RETENTION["retention.ms"]

    target = Target(topic, 0)

    def offset(spec: Any) -> int:
        found: int = admin.list_partition_offsets({target: spec})[target].offset
        return found

    assert offset(OffsetSpec.LATEST) == sizes(COUNT)[0]
    admin.delete_records({target: 4})
    assert offset(OffsetSpec.EARLIEST) == 4
    admin.close()


def test_kafka_pythons_admin_sees_moves_and_deletes_a_group(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    from kafka import KafkaAdminClient, OffsetAndMetadata
    from kafka import TopicPartition as Target
    from kafka.errors import CoordinatorNotAvailableError

    produce(broker, topic, range(COUNT))
    member = join()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)

    def offsets() -> list[int]:
        try:
            found = admin.list_group_offsets(["group"])["group"]
        except CoordinatorNotAvailableError:  # the offsets topic is being created
            return []
        kept = {target.partition: row.offset for target, row in found.items()}
        return [kept.get(partition, -1) for partition in range(PARTITIONS)]

    wait_until(lambda: offsets() == sizes(COUNT))
    assert [group["group_id"] for group in admin.list_groups()] == ["group"]
    described = admin.describe_groups(["group"])["group"]
    assert (described["group_state"], len(described["members"])) == ("Stable", 1)
    member.close()
    admin.alter_group_offsets("group", {Target(topic, 0): OffsetAndMetadata(3, "", -1)})
    assert offsets() == [3, *sizes(COUNT)[1:]]
    admin.delete_groups(["group"])
    assert admin.list_groups() == []
    admin.close()


def test_aiokafkas_admin_sees_a_group(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    produce(broker, topic, range(COUNT))
    member = join()
    wait_until(lambda: len(member.seen) == COUNT)
    asyncio.run(asyncio.wait_for(_see_with_aiokafka(broker.bootstrap, topic), 60))


async def _see_with_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        assert await admin.list_consumer_groups() == [("group", "consumer")]
        (answer,) = await admin.describe_consumer_groups(["group"])
        ((error, group, state, _, assignor, members, *_),) = answer.groups
        assert (error, group, state, assignor) == (0, "group", "Stable", "range")
        assert len(members) == 1
        kept: list[int] = []
        while kept != sizes(COUNT):
            found = await admin.list_consumer_group_offsets("group")
            kept = [row.offset for _, row in sorted(found.items())]
    finally:
        await admin.close()
