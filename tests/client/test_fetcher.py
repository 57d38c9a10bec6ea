"""The fetcher when a partition's leader changes while a response is due."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from broker.client.client_metadata import Leader, Metadata
from broker.client.consumer.consumer_config import consumer_config
from broker.client.consumer.fetcher import Fetcher
from broker.client.consumer.subscription_state import SubscriptionState
from broker.client.network_client import Address, NetworkClient
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from broker.protocol.topic_partition import TopicPartition
from tests.broker.log import witness

ONE = TopicPartition("t", 0)
BATCH: Any = witness


@dataclass
class Node:
    """A broker that answers at the test's command."""

    asked: list[Callable[[Any], None]] = field(default_factory=list)
    throttled_until_s: float = 0.0

    @property
    def in_flight(self) -> int:
        return len(self.asked)

    def ready(self) -> bool:
        return True

    def submit(
        self, request: FetchRequest, done: Callable[[Any], None], timeout_s: float
    ) -> None:
        self.asked.append(done)

    def answers(self, code: ErrorCode, records: bytes = b"") -> None:
        found = PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=records,
        )
        topic = FetchableTopicResponse(topic="t", partitions=[found])
        self.asked.pop(0)(FetchResponse(responses=[topic]))


class Brokers:
    """Two brokers, as network client and metadata of a fetcher."""

    def __init__(self) -> None:
        self.nodes = {1: Node(), 2: Node()}
        self.leads = 1

    def leader(self, partition: TopicPartition) -> Leader:
        return Leader(self.leads, 0)

    def address(self, node_id: int, purpose: str) -> Address:
        return Address("host", node_id)

    def node(self, address: Address) -> Node:
        return self.nodes[address.port]

    def request_update(self) -> None:
        """Do nothing: the metadata is current."""


def batch(count: int) -> bytes:
    """Return a batch of ``count`` records, from offset 0 on."""
    return cast(bytes, BATCH.batch([b"%d" % number for number in range(count)]))


def moved() -> tuple[Brokers, SubscriptionState, list[Any]]:
    """Return a state with Fetch requests to the former and to the new leader."""
    brokers, subscriptions, strays = Brokers(), SubscriptionState(), []
    fetcher = Fetcher(
        consumer_config({}),
        cast(NetworkClient, brokers),
        cast(Metadata, brokers),
        subscriptions,
        random.Random(1),
    )
    fetcher.on_out_of_range = strays.append
    subscriptions.assign([ONE])
    subscriptions.state(ONE).seek(0)
    for leader in (1, 2):
        brokers.leads = leader
        fetcher._step(0.0)
    assert [node.in_flight for node in brokers.nodes.values()] == [1, 1]
    return brokers, subscriptions, strays


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_two_brokers_that_are_asked_for_the_same_give_it_once(
    first: int, second: int
) -> None:
    """Swarm seed 11353: a poll returned records 184 to 245, and then 184 again."""
    brokers, subscriptions, _ = moved()
    brokers.nodes[first].answers(ErrorCode.none, batch(5))
    brokers.nodes[second].answers(ErrorCode.none, batch(3))
    found = [each.offset for each in subscriptions.take(100)]
    assert found == [0, 1, 2, 3, 4]
    assert subscriptions.state(ONE).position == 5


def test_an_old_leader_does_not_put_a_position_out_of_range_that_has_moved_on() -> None:
    brokers, subscriptions, strays = moved()
    brokers.nodes[2].answers(ErrorCode.none, batch(5))
    assert len(subscriptions.take(100)) == 5
    brokers.nodes[1].answers(ErrorCode.offset_out_of_range)
    assert strays == []
    assert subscriptions.state(ONE).position == 5
