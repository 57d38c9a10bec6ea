"""Writers and readers of our client, to exchange records with another client."""

from __future__ import annotations

import random
from typing import Any

import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka import ConsumerGroupTopicPartitions as GroupPartitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from broker.client.admin import LATEST, KafkaAdmin, open_admin
from broker.client.admin_changes import BROKER, TOPIC
from broker.client.consumer.consumer import open_consumer
from broker.client.producer.producer import open_producer
from broker.protocol.topic_partition import TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 5
Headers = list[tuple[str, bytes | None]]
Keyed = tuple[bytes, bytes, Headers]


def keyed_records(rng: random.Random) -> list[Keyed]:
    """Return keyed records of many sizes, some of them compressible."""
    records: list[Keyed] = []
    for number in range(60):
        key = rng.randbytes(rng.randrange(1, 20))
        value = rng.randbytes(rng.randrange(300)) + b"%d " % number * rng.randrange(500)
        headers: Headers = [("number", b"%d" % number), ("none", None)]
        records.append((key, value, headers if number % 3 == 0 else []))
    return records


async def write_with_ours(
    bootstrap: str, topic: str, codec: str, records: list[Keyed]
) -> None:
    """Produce the records, and wait for all acknowledgements."""
    with trio.fail_after(60):
        async with open_producer(bootstrap, compression_type=codec) as producer:
            receipts = [
                await producer.send(topic, value, key=key, headers=headers)
                for key, value, headers in records
            ]
            for receipt in receipts:
                assert (await receipt.wait()).offset >= 0


async def read_with_ours(
    bootstrap: str, topic: str, count: int
) -> list[tuple[int, bytes | None, bytes | None, Headers]]:
    """Return (partition, key, value, headers) of ``count`` records, by partition."""
    found = []
    with trio.fail_after(60):
        async with open_consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
            while len(found) < count:
                found += await consumer.poll()
    found.sort(key=lambda each: (each.partition, each.offset))
    return [(each.partition, each.key, each.value, [*each.headers]) for each in found]


# ---- administration -----------------------------------------------------------------


def compare_admins(bootstrap: str) -> None:
    """Compare the results of librdkafka's admin client and ours on one broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("seen", 2, config={"retention.ms": "777"})
    admin.create_topics([topic])["seen"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce("seen", b"x", partition=number % 2)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "client.id": "c",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["seen"])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[Place("seen", 1, 3)], asynchronous=False)
    try:
        ours, theirs = trio.run(_answers, bootstrap), _answers_of_librdkafka(admin)
        for name, found in theirs.items():
            assert ours[name] == found, (name, ours[name], found)
    finally:
        consumer.close()


async def _answers(bootstrap: str) -> dict[str, Any]:
    with trio.fail_after(60):
        async with open_admin(bootstrap) as admin:
            return await _ask(admin)


async def _ask(admin: KafkaAdmin) -> dict[str, Any]:
    cluster = await admin.describe_cluster()
    (node,) = (it.id for it in cluster.brokers)
    (topic,) = await admin.describe_topics(["seen"])
    partitions = [TopicPartition("seen", it) for it in range(2)]
    ends = await admin.list_offsets(node, partitions, LATEST)
    (group,) = await admin.describe_groups(node, ["g"])
    committed = await admin.committed(node, "g")
    listed = sorted(await admin.list_groups(node), key=lambda it: it.group_id)
    configs = {
        kind: {
            it.name: (it.value, it.config_source, it.is_sensitive, it.read_only)
            for it in await admin.describe_configs(kind, name)
        }
        for kind, name in ((TOPIC, "seen"), (BROKER, str(node)))
    }
    return {
        "cluster": cluster.cluster_id,
        "controller": cluster.controller_id,
        "brokers": [(it.id, it.host, it.port) for it in cluster.brokers],
        "partitions": {
            it.partition_index: (it.leader_id, [*it.replica_nodes], [*it.isr_nodes])
            for it in topic.partitions
        },
        "ends": {it.partition: row.offset for it, row in ends.items()},
        "groups": [(it.group_id, it.group_state) for it in listed],
        "members": [
            (it.client_id, it.client_host, it.member_id) for it in group.members
        ],
        "committed": [
            (*it, row.committed_offset, row.metadata) for it, row in committed.items()
        ],
        "topic configs": configs[TOPIC],
        "broker configs": configs[BROKER],
    }


def _answers_of_librdkafka(admin: AdminClient) -> dict[str, Any]:
    cluster = admin.describe_cluster().result(30)
    (node,) = cluster.nodes
    found = admin.list_topics("seen", timeout=30).topics["seen"].partitions
    places = [Place("seen", it) for it in range(2)]
    ends = admin.list_offsets({it: OffsetSpec.latest() for it in places})
    (group,) = admin.describe_consumer_groups(["g"]).values()
    (committed,) = admin.list_consumer_group_offsets([GroupPartitions("g")]).values()
    groups = admin.list_consumer_groups().result(30).valid
    listed = sorted(groups, key=lambda it: it.group_id)
    return {
        "cluster": cluster.cluster_id,
        "controller": cluster.controller.id,
        "brokers": [(node.id, node.host, node.port)],
        "partitions": {
            it.id: (it.leader, [*it.replicas], [*it.isrs]) for it in found.values()
        },
        "ends": {it.partition: end.result(30).offset for it, end in ends.items()},
        "groups": [(it.group_id, it.state.name.capitalize()) for it in listed],
        "members": [
            (it.client_id, it.host, it.member_id) for it in group.result(30).members
        ],
        "committed": [
            (it.topic, it.partition, it.offset, it.metadata or "")
            for it in committed.result(30).topic_partitions
        ],
        "topic configs": _configs(admin, ResourceType.TOPIC, "seen"),
        "broker configs": _configs(admin, ResourceType.BROKER, str(node.id)),
    }


def _configs(admin: AdminClient, kind: Any, name: str) -> dict[str, Any]:
    (described,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {
        it.name: (it.value, it.source, it.is_sensitive, it.is_read_only)
        for it in described.result(30).values()
    }
