"""Group members in virtual time that record the values they receive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import trio

from broker.client.consumer.consumer import KafkaConsumer
from broker.protocol.topic_partition import TopicPartition
from tests.client.cluster import Cluster

PARTITIONS = 6
QUICK = {
    "session_timeout_ms": 1_000,
    "heartbeat_interval_ms": 100,
    "retry_backoff_ms": 20,
}
# With KIP-848 the broker assigns partitions and determines the intervals.
KIP_848 = {"group_protocol": "consumer", "retry_backoff_ms": 20}
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
PROTOCOLS: dict[str, dict[str, Any]] = {
    **{name: {"partition_assignment_strategy": name, **QUICK} for name in STRATEGIES},
    "KIP-848": KIP_848,
}


class Listener:
    """Records the callbacks; commits when partitions are revoked."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []

    async def on_partitions_revoked(
        self, partitions: frozenset[TopicPartition]
    ) -> None:
        assert partitions <= self.consumer.assignment
        self.events.append(("revoked", partitions))
        await self.consumer.commit()

    async def on_partitions_assigned(
        self, partitions: frozenset[TopicPartition]
    ) -> None:
        assert partitions <= self.consumer.assignment
        self.events.append(("assigned", partitions))

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("lost", partitions))


class Member:
    """A consumer in a task: polls until it has to leave, and records the values."""

    def __init__(self, cluster: Cluster, seen: list[tuple[str, int, int]], name: str):
        self.cluster = cluster
        self.seen = seen
        self.name = name
        self.scope = trio.CancelScope()
        self.leaving = False
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.listener: Any = None

    async def run(self, **settings: Any) -> None:
        with self.scope:
            quick = {} if "group_protocol" in settings else QUICK
            options = {"group_id": "g", "enable_auto_commit": False, **quick}
            async with self.cluster.consumer(**{**options, **settings}) as consumer:
                self.listener = Listener(consumer)
                consumer.subscribe(["t"], self.listener)
                while not self.leaving:
                    records = await consumer.poll(7, timeout_s=0.05)
                    self.assignment = consumer.assignment
                    for each in records:
                        self.seen.append((self.name, each.partition, each.offset))
                        await trio.sleep(1e-4)
                self.assignment = frozenset()


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - time is virtual, a look is cheap
        await trio.sleep(0.02)


def complete(members: list[Member]) -> bool:
    """Return whether the members have every partition once, in equal shares."""
    have = [each.assignment for each in members]
    together = Counter(partition for each in have for partition in each)
    sizes = {len(each) for each in have}
    return (
        len(together) == PARTITIONS
        and max(together.values()) == 1
        and max(sizes) - min(sizes) <= 1
    )
