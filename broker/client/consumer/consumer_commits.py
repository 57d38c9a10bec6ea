"""Offsets of a group: committed to its coordinator, and fetched from there.

The second half of Kafka's ``ConsumerCoordinator``. Retriable errors are retried until
``default.api.timeout.ms`` has passed. A commit of a member that is no longer in the
current generation fails at once (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
REBALANCE_IN_PROGRESS), because its offsets may be outdated. For the same reason all
attempts at a commit use the generation of its request.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import ClientConfig
from broker.client.consumer.consumer_config import DEFAULT_API_TIMEOUT_MS
from broker.client.consumer.coordinated_member import (
    NO_GENERATION,
    CoordinatedMember,
    Generation,
)
from broker.client.partitions import by_topic
from broker.client.retriable_errors import check, is_retriable
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.protocol.topic_partition import TopicPartition

_NONE: Final = -1
# A fetch of offsets may be sent before the heartbeat response with the new epoch.
_EPOCH_CHANGES: Final = frozenset(
    {ErrorCode.stale_member_epoch, ErrorCode.unknown_member_id}
)


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is the next one to read, and its metadata."""

    offset: int
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """The identity of a member, which fences its commits in transactions."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Commits:
    """Commits and fetches offsets for one member."""

    def __init__(
        self, config: ClientConfig, member: CoordinatedMember, rng: random.Random
    ) -> None:
        self._member = member
        self._timeout_s = config.seconds(DEFAULT_API_TIMEOUT_MS)
        self._backoff = retry_backoff(config, rng)

    @property
    def generation(self) -> Generation:
        """The member's current generation."""
        return self._member.current

    def group_metadata(self) -> GroupMetadata:
        """Return the member's last identity.

        A member that the group has removed keeps this identity, so that its commits are
        refused; commits without a generation would be accepted.
        """
        member, (generation, member_id) = self._member, self._member.last
        return GroupMetadata(member.group, generation, member_id, member.instance_id)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation: Generation | None = None,
    ) -> None:
        """Commit ``offsets`` in a generation, by default the current one.

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
        request = OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=generation.number,
            member_id=generation.member_id,
            group_instance_id=member.instance_id,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
        )

        async def commit() -> None:
            answer = await member.send(request)
            for topic in answer.topics:
                for each in topic.partitions:
                    what = f"OFFSET_COMMIT of {topic.name}-{each.partition_index}"
                    check(each.error_code, what)

        await self._insist(commit)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; partitions without one are left out."""
        grouped = by_topic(partitions)
        found: dict[TopicPartition, OffsetAndMetadata] = {}

        async def fetch() -> None:
            for topic in await self._fetch(grouped):
                for each in topic.partitions:
                    what = f"OFFSET_FETCH of {topic.name}-{each.partition_index}"
                    check(each.error_code, what)
                    if each.committed_offset != _NONE:
                        key = TopicPartition(topic.name, each.partition_index)
                        note = each.metadata or ""
                        found[key] = OffsetAndMetadata(each.committed_offset, note)

        await self._insist(fetch, _EPOCH_CHANGES)
        return found

    async def _fetch(
        self, grouped: Mapping[str, Sequence[int]]
    ) -> Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics]:
        """Return the topics of a response in any version.

        Up to version 7 a request has one group; version 9 has the member's identity.
        """
        member, (epoch, member_id) = self._member, self.generation
        is_member = epoch != NO_GENERATION and member.has_epochs
        answer = await member.call(
            OffsetFetchRequest(
                group_id=member.group,
                topics=[
                    OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                    for name, numbers in grouped.items()
                ],
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=member.group,
                        member_id=member_id if is_member else None,
                        member_epoch=epoch if is_member else _NONE,
                        topics=[
                            OffsetFetchRequestTopics(
                                name=name, partition_indexes=numbers
                            )
                            for name, numbers in grouped.items()
                        ],
                    )
                ],
                require_stable=True,
            )
        )
        for group in answer.groups:
            member.note_error(group.error_code)
            check(group.error_code, f"OFFSET_FETCH of {group.group_id}")
            return group.topics
        return answer.topics

    async def _insist(
        self,
        attempt: Callable[[], Awaitable[None]],
        passing: AbstractSet[ErrorCode] = frozenset(),
    ) -> None:
        """Retry until success, a final error, or the time limit."""
        until_s = trio.current_time() + self._timeout_s
        failures = 0
        while True:
            try:
                await attempt()
            except KafkaError as error:
                self._member.note_error(error.code)
                failures += 1
                wait_s = self._backoff.after(failures)
                late = trio.current_time() + wait_s >= until_s
                if late or not (is_retriable(error.code) or error.code in passing):
                    raise
                await trio.sleep(wait_s)
            else:
                return
