"""Consumers of a simulated cluster: group members, standalone readers, an auditor."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from broker.client.consumer.consumer import KafkaConsumer, open_consumer
from broker.client.consumer.consumer_record import ConsumerRecord
from broker.client.consumer.rebalance_listener import SilentListener
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition
from simulation.clients.client_context import ClientContext
from simulation.histories import Commit, Committed, Outcome, Read

_REQUEST_TIMEOUT_MS: Final = 2_000
CONSUMER_SETTINGS: Final = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "request_timeout_ms": _REQUEST_TIMEOUT_MS,
    "default_api_timeout_ms": 4_000,
    "metadata_max_age_ms": 5_000,
}
_CLASSIC: Final = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
_MAX_POLL: Final = {"max_poll_interval_ms": 8_000}
POLL_S: Final = 0.5
# An operation of this length may have had an attempt without an answer.
GIVEN_UP_NS: Final = _REQUEST_TIMEOUT_MS * 1_000_000


def member_settings(protocol: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a member that speaks a protocol, classic if empty."""
    return {**_MAX_POLL, **(protocol or _CLASSIC)}


@dataclass(slots=True)
class RecordingConsumer:
    """Records a consumer's reads and commits; ``name`` is unique.

    ``committed_only`` is its isolation level.
    """

    context: ClientContext
    name: str
    rng: random.Random
    committed_only: bool = False
    protocol: Mapping[str, Any] = field(default_factory=dict)
    _polls: int = 0
    _sessions: dict[TopicPartition, int] = field(default_factory=dict)
    # Next offset of each partition.
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    async def be_member(self, group: str, topic: str) -> None:
        """Read a topic as a member of a group, and commit, until cancelled."""
        settings = member_settings(self.protocol)
        async with self._consumer(group_id=group, **settings) as consumer:
            consumer.subscribe([topic], _Sessions(self))
            while True:
                await self._poll(consumer)
                if self.positions and self.rng.random() < 0.5:
                    await self._commit(consumer, group)

    async def read(self, partitions: Sequence[TopicPartition]) -> None:
        """Read partitions from their beginnings, until cancelled."""
        async with self._consumer() as consumer:
            self.begin(partitions)
            consumer.assign(partitions)
            while True:
                await self._poll(consumer)

    async def read_to(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read partitions from their beginnings to these offsets."""
        async with self._consumer() as consumer:
            self.begin(ends)
            consumer.assign(ends)
            for partition, end in ends.items():
                while await self._position(consumer, partition) < end:
                    await self._poll(consumer)

    @staticmethod
    async def _position(consumer: KafkaConsumer, partition: TopicPartition) -> int:
        """Return a consumer's position, which may be after markers; -1 if unknown."""
        try:
            return await consumer.position(partition)
        except KafkaError:
            return -1

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that reading starts at new positions."""
        for partition in partitions:
            self._sessions[partition] = self._sessions.get(partition, -1) + 1
            self.positions.pop(partition, None)

    def _consumer(self, **settings: Any) -> Any:
        if self.committed_only:
            settings["isolation_level"] = "read_committed"
        return open_consumer(
            self.context.bootstrap,
            connect=self.context.host.connect,
            rng=self.rng,
            client_id=self.name,
            **{**CONSUMER_SETTINGS, **settings},
        )

    async def _poll(self, consumer: KafkaConsumer) -> None:
        try:
            records = await consumer.poll(timeout_s=POLL_S)
        except KafkaError:
            # The next poll fails too if the consumer cannot continue.
            return
        self._polls += 1
        for record in records:
            self._note(record)

    def _note(self, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        assert record.value is not None
        self.positions[partition] = record.offset + 1
        self.context.history.reads.append(
            Read(
                consumer=self.name,
                session=self._sessions[partition],
                poll=self._polls,
                partition=partition,
                offset=record.offset,
                value=record.value,
                at_ns=self.context.now_ns(),
                committed_only=self.committed_only,
            )
        )

    async def keep(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets for a group, once."""
        self.positions = dict(offsets)
        async with self._consumer(group_id=group) as consumer:
            await self._commit(consumer, group)

    async def _commit(self, consumer: KafkaConsumer, group: str) -> None:
        offsets, invoked_ns = dict(self.positions), self.context.now_ns()
        outcome: Outcome = "unknown"
        try:
            await consumer.commit(offsets)
            outcome = "ok"
        except KafkaError:
            # An attempt whose answer was lost may have been carried out.
            pass
        finally:
            answered_ns = self.context.now_ns()
            for partition, offset in offsets.items():
                self.context.history.commits.append(
                    Commit(
                        group=group,
                        partition=partition,
                        offset=offset,
                        invoked_ns=invoked_ns,
                        answered_ns=answered_ns,
                        outcome=outcome,
                        repeated=answered_ns - invoked_ns >= GIVEN_UP_NS,
                    )
                )

    async def audit(self, group: str, partitions: Sequence[TopicPartition]) -> bool:
        """Query a group's committed offsets once; False without an answer."""
        async with self._consumer(group_id=group) as consumer:
            invoked_ns = self.context.now_ns()
            try:
                found = await consumer.committed(partitions)
            except KafkaError:
                return False
        for partition in partitions:
            self.context.history.committed.append(
                Committed(
                    group=group,
                    partition=partition,
                    offset=found[partition].offset if partition in found else -1,
                    invoked_ns=invoked_ns,
                    answered_ns=self.context.now_ns(),
                )
            )
        return True


class _Sessions(SilentListener):
    """Starts a new session for partitions that are assigned to a consumer."""

    def __init__(self, consumer: RecordingConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_assigned(
        self, partitions: frozenset[TopicPartition]
    ) -> None:
        """Start a session for newly assigned partitions."""
        self._consumer.begin(sorted(partitions))

    async def on_partitions_revoked(
        self, partitions: frozenset[TopicPartition]
    ) -> None:
        """Forget these partitions; other members commit for them from now on."""
        for partition in partitions:
            self._consumer.positions.pop(partition, None)

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget these partitions."""
        await self.on_partitions_revoked(partitions)
