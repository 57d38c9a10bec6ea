"""ListOffsets goes to one leader after the other; the cluster may change meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, cast

import trio

from broker.client.client_metadata import Leader, Metadata
from broker.client.consumer.consumer_config import consumer_config
from broker.client.consumer.offset_calls import OffsetAndTimestamp, OffsetCalls
from broker.client.network_client import Address, NetworkClient
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from broker.protocol.topic_partition import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Known:
    """Metadata of two brokers that lead one partition each."""

    def __init__(self) -> None:
        self.addresses = {1: Address("one", 1), 2: Address("two", 2)}
        self.asked = 0

    def add(self, topics: Iterable[str]) -> None:
        """Do nothing: the topics are known."""

    def request_update(self) -> None:
        self.asked += 1

    def leader(self, partition: TopicPartition) -> Leader | None:
        number = partition.partition + 1
        return Leader(number, 0) if number in self.addresses else None

    def address(self, node_id: int) -> Address:
        return self.addresses[node_id]


class Calls:
    """A client; once the first broker has answered, the other one is gone."""

    def __init__(self, known: Known) -> None:
        self.known = known

    async def call(self, address: Address, request: ListOffsetsRequest) -> Any:
        if address.host == "two":
            raise KafkaError(ErrorCode.network_exception, "it is gone")
        del self.known.addresses[2]
        partitions = [
            ListOffsetsPartitionResponse(
                partition_index=0, error_code=ErrorCode.none, offset=7
            )
        ]
        topic = ListOffsetsTopicResponse(name="t", partitions=partitions)
        return ListOffsetsResponse(topics=[topic])


def test_a_broker_that_goes_while_another_one_answers_is_left_out() -> None:
    """Swarm seed 721: the member ended with a KeyError."""
    known = Known()
    calls = OffsetCalls(
        consumer_config({}),
        cast(NetworkClient, Calls(known)),
        cast(Metadata, known),
        random.Random(1),
    )
    found = trio.run(calls.list_offsets, {ONE: -1, TWO: -1})
    assert found == {ONE: OffsetAndTimestamp(7, -1)}
    assert known.asked
