"""Offsets by timestamp, from the leaders.

Kafka's ``OffsetFetcher``. ListOffsets is sent to each leader, so one round may return
only some of the requested offsets.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.consumer.consumer_config import (
    DEFAULT_API_TIMEOUT_MS,
    ISOLATION_LEVEL,
)
from broker.client.network_client import Address, NetworkClient
from broker.client.retriable_errors import (
    STALE_METADATA,
    check,
    is_retriable,
    timed_out,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from broker.protocol.topic_partition import TopicPartition


class OffsetAndTimestamp(NamedTuple):
    """An offset, and the timestamp of its record (-1 at an end of the log)."""

    offset: int
    timestamp_ms: int


class OffsetCalls:
    """Requests of offsets from leaders."""

    def __init__(
        self,
        config: ClientConfig,
        client: NetworkClient,
        metadata: Metadata,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._isolation = int(config[ISOLATION_LEVEL] == "read_committed")
        self._timeout_s = config.seconds(DEFAULT_API_TIMEOUT_MS)
        self._backoff = retry_backoff(config, rng)

    async def insist(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return all requested offsets, with retries; raises `KafkaError`."""
        until_s = trio.current_time() + self._timeout_s
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        failures = 0
        while True:
            missing = {name: at for name, at in wanted.items() if name not in found}
            found |= await self.list_offsets(missing)
            if len(found) == len(wanted):
                return found
            if trio.current_time() >= until_s:
                raise timed_out(f"the offsets of {', '.join(map(str, missing))}")
            failures += 1
            with trio.move_on_after(self._backoff.after(failures)):
                await self._metadata.changes.next()

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by timestamp, -1 if no record is that late.

        Partitions with an unknown leader or a retriable error are left out. Raises
        `KafkaError` for any other error.
        """
        self._metadata.add({topic for topic, _ in wanted})
        # Addresses are read before the first await, after which leaders may change.
        by_address: dict[Address, dict[TopicPartition, int]] = {}
        for partition, timestamp in wanted.items():
            leader = self._metadata.leader(partition)
            if leader is None:
                self._metadata.request_update()
            else:
                address = self._metadata.address(leader.node_id)
                by_address.setdefault(address, {})[partition] = timestamp
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        for address, partitions in by_address.items():
            found |= await self._call(address, partitions)
        return found

    async def _call(
        self, address: Address, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for (topic, number), timestamp in wanted.items():
            row = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
            topics.setdefault(topic, []).append(row)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._isolation,
            topics=[
                ListOffsetsTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
        )
        try:
            answer = await self._client.call(address, request)
        except KafkaError as error:
            self._forgive(error.code)
            return {}
        found = {}
        for topic_answer in answer.topics:
            for each in topic_answer.partitions:
                name = TopicPartition(topic_answer.name, each.partition_index)
                if each.error_code is ErrorCode.none:
                    found[name] = OffsetAndTimestamp(each.offset, each.timestamp)
                else:
                    self._forgive(each.error_code)
        return found

    def _forgive(self, code: ErrorCode) -> None:
        """Ignore a retriable error; raise any other."""
        if code in STALE_METADATA:
            self._metadata.request_update()
        if not is_retriable(code):
            check(code, "offsets cannot be listed")
