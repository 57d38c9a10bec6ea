"""Commits of a member while its group moves on, with responses from a table."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

from trio.testing import MockClock, wait_all_tasks_blocked

from broker.client.client_metadata import Metadata
from broker.client.consumer.auto_commit import AutoCommit
from broker.client.consumer.consumer_commits import Commits, OffsetAndMetadata
from broker.client.consumer.consumer_config import consumer_config
from broker.client.consumer.group_member import GroupMember
from broker.client.consumer.subscription_state import SubscriptionState
from broker.client.network_client import Address, NetworkClient
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from broker.protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)
CONFIG = consumer_config(
    {"group_id": "g", "auto_commit_interval_ms": 100, "default_api_timeout_ms": 5_000}
)


class Coordinator:
    """Coordinator of ``g``; it answers commits with ``codes`` first, then correctly.

    ``before_answer`` runs while a commit is in flight.
    """

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.commits: list[tuple[int, str, int]] = []
        self.before_answer = lambda: None
        self.generation = 1

    async def call(self, address: Address, request: Any, timeout_s: float = 0.0) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(host="h", port=1)
        assert isinstance(request, OffsetCommitRequest)
        (topic,) = request.topics
        (partition,) = topic.partitions
        generation = request.generation_id_or_member_epoch
        offset = partition.committed_offset
        self.commits.append((generation, request.member_id, offset))
        self.before_answer()
        code = self.codes.pop(0) if self.codes else ErrorCode.none
        if code is ErrorCode.none and generation != self.generation:
            code = ErrorCode.illegal_generation
        answered = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = OffsetCommitResponseTopic(name="t", partitions=[answered])
        return OffsetCommitResponse(topics=[topic])


def member_of(coordinator: Coordinator) -> GroupMember:
    metadata = SimpleNamespace(any_address=lambda: Address("h", 1, "any"))
    member = GroupMember(
        CONFIG, cast(NetworkClient, coordinator), cast(Metadata, metadata)
    )
    member.generation, member.member_id = 1, "m"
    return member


async def test_a_commit_that_is_tried_again_is_still_one_of_its_generation(
    autojump_clock: MockClock,
) -> None:
    coordinator = Coordinator(ErrorCode.coordinator_load_in_progress)
    member = member_of(coordinator)

    def rebalance() -> None:
        member.generation = coordinator.generation = 2

    coordinator.before_answer = rebalance
    commits = Commits(CONFIG, member, random.Random(1))
    code = ErrorCode.none
    try:
        await commits.commit({T0: OffsetAndMetadata(7)})
    except KafkaError as error:
        code = error.code
    # In generation 2 another member may own the partition and have committed more.
    assert coordinator.commits == [(1, "m", 7), (1, "m", 7)]
    assert code is ErrorCode.illegal_generation


async def test_positions_are_committed_as_of_the_generation_they_were_noted_in(
    autojump_clock: MockClock, nursery: Any
) -> None:
    coordinator = Coordinator()
    member = member_of(coordinator)
    subscriptions = SubscriptionState()
    subscriptions.assign([T0])
    subscriptions.state(T0).seek(7)
    commits = Commits(CONFIG, member, random.Random(1))
    auto_commit = AutoCommit(CONFIG, commits, subscriptions)
    auto_commit.polled(0.0)
    auto_commit.polled(1.0)
    # The committing task runs only after the group has moved on.
    member.generation = coordinator.generation = 2
    nursery.start_soon(auto_commit.run)
    await wait_all_tasks_blocked()
    assert coordinator.commits == [(1, "m", 7)]
