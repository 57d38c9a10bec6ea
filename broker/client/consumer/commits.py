"""Offsets of a group: committed to its coordinator, and fetched from there.

The second half of Kafka's ``ConsumerCoordinator``. Passing errors are tried again until
``default.api.timeout.ms`` is over; a commit of a member that the group has moved on
without fails at once (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS),
because its offsets may be outdated. For the same reason a commit keeps the generation
in which it was requested, however often and late it is tried.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import trio

from broker.client.backoff import retry_backoff
from broker.client.config import ClientConfig
from broker.client.consumer.consumer_config import DEFAULT_API_TIMEOUT_MS
from broker.client.consumer.group_member import Generation, GroupMember
from broker.client.failures import check, is_retriable
from broker.client.partitions import by_topic
from broker.protocol.errors import KafkaError
from broker.protocol.messages.message import RequestMessage
from broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from broker.protocol.topic_partition import TopicPartition

_NONE = -1


_R = TypeVar("_R", OffsetCommitResponse, OffsetFetchResponse)


class OffsetAndMetadata(NamedTuple):
    """A committed offset, the next one to read, and a note."""

    offset: int
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """A member of a group, by which its commits in a transaction are fenced."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Commits:
    """Commits and fetches offsets for one member."""

    def __init__(
        self, config: ClientConfig, member: GroupMember, rng: random.Random
    ) -> None:
        self._member = member
        self._timeout_s = config.seconds(DEFAULT_API_TIMEOUT_MS)
        self._backoff = retry_backoff(config, rng)

    @property
    def generation(self) -> Generation:
        """The member's present generation."""
        return self._member.current

    def group_metadata(self) -> GroupMetadata:
        """Return the member's present identity."""
        member, (generation, member_id) = self._member, self.generation
        return GroupMetadata(member.group, generation, member_id, member.instance_id)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation: Generation | None = None,
    ) -> None:
        """Commit ``offsets`` as of a generation, by default this one.

        Raises `KafkaError`.
        """
        generation = generation or self.generation
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, number), (offset, metadata) in offsets.items():
            row = OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, []).append(row)
        member = self._member
        await self._insist(
            member.ask,
            OffsetCommitRequest(
                group_id=member.group,
                generation_id_or_member_epoch=generation.number,
                member_id=generation.member_id,
                group_instance_id=member.instance_id,
                topics=[
                    OffsetCommitRequestTopic(name=name, partitions=rows)
                    for name, rows in topics.items()
                ],
            ),
        )

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; partitions without one are left out."""
        grouped = by_topic(partitions)
        answer = await self._insist(
            self._member.call,
            OffsetFetchRequest(
                group_id=self._member.group,
                topics=[
                    OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                    for name, numbers in grouped.items()
                ],
                require_stable=True,
            ),
        )
        return {
            TopicPartition(topic.name, each.partition_index): OffsetAndMetadata(
                each.committed_offset, each.metadata or ""
            )
            for topic in answer.topics
            for each in topic.partitions
            if each.committed_offset != _NONE
        }

    async def _insist(
        self,
        ask: Callable[[RequestMessage[_R]], Awaitable[_R]],
        request: RequestMessage[_R],
    ) -> _R:
        """Ask until the answer is whole, or the error final, or time is up."""
        until_s = trio.current_time() + self._timeout_s
        failures = 0
        while True:
            try:
                answer = await ask(request)
                for topic in answer.topics:
                    for each in topic.partitions:
                        name = request.api_key.name
                        what = f"{name} of {topic.name}-{each.partition_index}"
                        check(each.error_code, what)
            except KafkaError as error:
                self._member.mind(error.code)
                failures += 1
                wait_s = self._backoff.after(failures)
                late = trio.current_time() + wait_s >= until_s
                if late or not is_retriable(error.code):
                    raise
                await trio.sleep(wait_s)
            else:
                return answer
