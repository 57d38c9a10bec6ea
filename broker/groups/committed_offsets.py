"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, and expiry.

Kafka: ``OffsetMetadataManager``. A commit becomes visible, and is acknowledged, once it
is in the log and replicated as with acks=all. Commits to one partition take effect in
the order of the log. The caller checks that the topics exist, as Kafka's ``KafkaApis``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.group_shards import GroupShards
from broker.groups.membership import Membership
from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group import Group
from broker.groups.state.group_messages import OffsetCommit
from broker.groups.state.group_records import (
    OffsetKey,
    offset_record,
    offset_tombstone,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Effects, Instant, InTransaction, Write
from broker.shards.parked_answer import Waiting

Outcomes = Mapping[TopicPartition, ErrorCode]
# Tombstones per step.
OFFSETS_PER_STEP: Final = 256

# Adds effects after the outcome of a write.
Then = Callable[[ErrorCode, Effects], None]


class Position(NamedTuple):
    """A consumer's position in one partition."""

    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """An OffsetCommit request whose partitions exist."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None
    retention_ms: int
    positions: Mapping[TopicPartition, Position]
    # From v9 on GROUP_ID_NOT_FOUND.
    missing_group_error: ErrorCode = ErrorCode.illegal_generation
    # From v9 on ``generation`` may be a member epoch.
    supports_member_epochs: bool = True
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalCommit:
    """A TxnOffsetCommit request whose partitions exist and are verified."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None
    positions: Mapping[TopicPartition, Position]
    transaction: InTransaction


class FetchedOffset(NamedTuple):
    """The result for one partition; without a commit: offset -1 and no error."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.none


class Commits:
    """The offset half of the coordinator."""

    def __init__(self, shards: GroupShards, membership: Membership) -> None:
        self._shards = shards
        self._membership = membership

    # ---- commit -----------------------------------------------------------------

    def commit(self, request: CommitRequest) -> Waiting[Outcomes]:
        """Commit offsets; raise an error that concerns all partitions."""
        now = self._shards.clock()
        group = self._shards.find(request.group_id)
        if group is None:
            if request.generation >= 0:
                raise KafkaError(request.missing_group_error)
            group = self._shards.find_or_new(request.group_id)
        if isinstance(group, ConsumerGroup):
            group.validate_commit(request)
        else:
            assert isinstance(group, Group), group
            self._membership.validate_commit(
                group, request.member_id, request.instance_id, request.generation, now
            )
        expire_ms = -1
        if request.retention_ms != -1:
            expire_ms = now.wall_ms + request.retention_ms
        sorted_out = self._sort_out(request.positions, now.wall_ms, expire_ms)
        return self._commit(group, *sorted_out, None)

    def commit_in_transaction(self, request: TransactionalCommit) -> Waiting[Outcomes]:
        """Commit offsets that become visible when the transaction commits.

        Raises an error that concerns all partitions.
        """
        group = self._shards.find(request.group_id)
        if group is None:
            if request.generation >= 0:
                raise KafkaError(ErrorCode.group_id_not_found)
            group = self._shards.find_or_new(request.group_id)
        if isinstance(group, ConsumerGroup):
            group.validate_transactional_commit(request)
        else:
            assert isinstance(group, Group), group
            self._membership.validate_transactional_commit(
                group, request.member_id, request.instance_id, request.generation
            )
        now_ms = self._shards.clock().wall_ms
        sorted_out = self._sort_out(request.positions, now_ms, -1)
        return self._commit(group, *sorted_out, request.transaction)

    def _commit(
        self,
        group: AnyGroup,
        outcomes: dict[TopicPartition, ErrorCode],
        commits: Mapping[TopicPartition, OffsetCommit],
        transaction: InTransaction | None,
    ) -> Waiting[Outcomes]:
        waiting = Waiting[Outcomes]()
        if commits:
            self._append(group, commits, outcomes, waiting, transaction)
        else:
            waiting.settle(outcomes)
            self._shards.drop_if_unused(group)
        return waiting

    def _sort_out(
        self,
        positions: Mapping[TopicPartition, Position],
        now_ms: int,
        expire_ms: int,
    ) -> tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, OffsetCommit]]:
        """Return the outcomes of refused positions, and the commits to write."""
        outcomes: dict[TopicPartition, ErrorCode] = {}
        commits: dict[TopicPartition, OffsetCommit] = {}
        longest = self._shards.config.offset_metadata_max_bytes
        for target, position in positions.items():
            metadata = position.metadata or ""
            if len(metadata) > longest:
                outcomes[target] = ErrorCode.offset_metadata_too_large
                continue
            commits[target] = OffsetCommit(
                offset=position.offset,
                leader_epoch=max(position.leader_epoch, -1),
                metadata=metadata,
                commit_ms=now_ms,
                expire_ms=expire_ms,
            )
        return outcomes, commits

    def _append(
        self,
        group: AnyGroup,
        commits: Mapping[TopicPartition, OffsetCommit],
        outcomes: dict[TopicPartition, ErrorCode],
        waiting: Waiting[Outcomes],
        transaction: InTransaction | None,
    ) -> None:
        records = []
        for target, commit in commits.items():
            group.offsets.begin(target)
            key = OffsetKey(group.group_id, target.topic, target.partition)
            records.append(offset_record(key, commit))

        def done(error: ErrorCode, now: Instant) -> Effects:
            stored = error is ErrorCode.none
            counts = stored and transaction is None
            for target, commit in commits.items():
                group.offsets.finish(target, commit if counts else None)
                outcomes[target] = error
                if stored and transaction is not None:
                    self._note_open(group, transaction.producer_id, target, commit)
            if stored:
                self._shards.counters.offset_commits += len(commits)
            else:
                self._shards.drop_if_unused(group)
            effects = Effects()
            effects.answer(waiting, outcomes)
            return effects

        self._shards.append(group.group_id, Write(tuple(records), done, transaction))

    # ---- transactions -----------------------------------------------------------

    def _note_open(
        self,
        group: AnyGroup,
        producer_id: int,
        target: TopicPartition,
        commit: OffsetCommit,
    ) -> None:
        if not self._shards.holds(group):
            # Also skips offsets of an earlier term of this coordinator.
            return
        group.offsets.transactions.add(producer_id, target, commit)
        partition = self._shards.partition(group.group_id)
        groups_of = self._shards.groups_of_producers.setdefault(partition, {})
        groups_of.setdefault(producer_id, set()).add(group.group_id)

    def completing(
        self, partition: int, producer_id: int, *, is_commit: bool
    ) -> Iterator[None]:
        """Publish or drop a transaction's offsets, in steps, after its marker."""
        shard = self._shards.by_partition.get(partition)
        if shard is None or shard.loading:
            # Not loaded in this term: the load will read the marker.
            return
        groups_of = self._shards.groups_of_producers.get(partition, {})
        number = 0
        for group_id in sorted(groups_of.pop(producer_id, ())):
            group = shard.by_id.get(group_id)
            if group is None:
                continue
            for _ in group.offsets.end_transaction(producer_id, is_commit=is_commit):
                number += 1
                if not number % OFFSETS_PER_STEP:
                    yield
                    if not self._shards.holds(group):
                        return
            self._shards.drop_if_unused(group)

    # ---- fetch ------------------------------------------------------------------

    def fetch(
        self,
        group_id: str,
        targets: Iterable[TopicPartition],
        *,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the committed offsets of partitions, in the order of ``targets``.

        ``member`` is a member of a consumer group and its epoch, which must be current.
        """
        group = self._shards.find(group_id)
        if group is None:
            return dict.fromkeys(targets, FetchedOffset())
        if isinstance(group, ConsumerGroup):
            group.validate_fetch(*member)
        return {target: _fetched(group, target, require_stable) for target in targets}

    def pages(self, group_id: str) -> Iterator[Sequence[TopicPartition]]:
        """Iterate over batches of a group's partitions with offsets."""
        group = self._shards.find(group_id)
        if group is not None:
            yield from _pages(group.offsets)

    # ---- deletion ---------------------------------------------------------------

    def delete(
        self, group_id: str, targets: Iterable[TopicPartition]
    ) -> Waiting[Outcomes]:
        """Delete offsets of topics that no member subscribes to (KIP-496)."""
        group = self._shards.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.group_id_not_found)
        group.require_deletable_offsets()
        outcomes = {
            target: (
                ErrorCode.group_subscribed_to_topic
                if group.subscribes_to(target.topic)
                else ErrorCode.none
            )
            for target in targets
        }
        waiting = Waiting[Outcomes]()
        stored = [
            target
            for target, error in outcomes.items()
            if error is ErrorCode.none and group.offsets.get(target) is not None
        ]

        def then(error: ErrorCode, effects: Effects) -> None:
            if error is ErrorCode.none:
                self._shards.counters.offset_deletions += len(stored)
            effects.answer(waiting, outcomes | dict.fromkeys(stored, error))

        if stored:
            self.bury(group, stored, whole=False, then=then)
        else:
            waiting.settle(outcomes)
        return waiting

    def thin_out(self, group_id: str) -> Waiting[ErrorCode] | None:
        """Delete some offsets of a group that is to be deleted; None if it has few.

        The final `delete_group` is then short. Raises the same errors.
        """
        group = self._to_delete(group_id)
        some = list(islice(group.offsets.of_all_kinds(), OFFSETS_PER_STEP + 1))
        if len(some) <= OFFSETS_PER_STEP:
            return None
        waiting = Waiting[ErrorCode]()

        def then(error: ErrorCode, effects: Effects) -> None:
            effects.answer(waiting, error)

        self.bury(group, some, whole=False, then=then)
        return waiting

    def delete_group(self, group_id: str) -> Waiting[ErrorCode]:
        """Delete an empty group with its offsets; raise if it cannot be deleted."""
        group = self._to_delete(group_id)
        waiting = Waiting[ErrorCode]()

        def then(error: ErrorCode, effects: Effects) -> None:
            effects.answer(waiting, error)

        targets = list(group.offsets.of_all_kinds())
        self.bury(group, targets, whole=True, then=then)
        return waiting

    def _to_delete(self, group_id: str) -> AnyGroup:
        group = self._shards.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.group_id_not_found)
        group.require_deletable()
        return group

    def delete_topics(self, targets: Sequence[TopicPartition]) -> Iterator[int | None]:
        """Delete all groups' offsets of deleted partitions, in steps.

        Yields the partition of ``__consumer_offsets`` that a step writes to. Groups
        created after the start are not covered. Shards that are being loaded delete the
        offsets after their load.
        """
        for shard in tuple(self._shards.by_partition.values()):
            if shard.loading:
                shard.afterwards.append(partial(self.delete_topics_of, targets))
                yield shard.partition
        yield from self.delete_topics_of(targets, self._shards.all())

    def delete_topics_of(
        self, targets: Sequence[TopicPartition], groups: Iterable[AnyGroup]
    ) -> Iterator[int | None]:
        """Delete offsets of deleted partitions in some groups, in steps.

        Cost: O(groups x topics), and O(1) per existing offset.
        """
        gone: dict[str, set[int]] = {}
        for number, (topic, partition) in enumerate(targets, 1):
            gone.setdefault(topic, set()).add(partition)
            if not number % OFFSETS_PER_STEP:
                yield None
        looked_at = 0
        for group in groups:
            for topic, partitions in gone.items():
                looked_at += 1
                if not looked_at % OFFSETS_PER_STEP:
                    yield None
                for some in _pages(group.offsets.of(topic)):
                    stored = [
                        target for target in some if target.partition in partitions
                    ]
                    if not stored or not self._shards.has(group.group_id, group):
                        yield None
                        continue
                    self.bury(group, stored, whole=False)
                    yield self._shards.partition(group.group_id)

    def expiring(self, group: AnyGroup) -> Iterator[int]:
        """Delete expired offsets, and the group if it is unused afterwards.

        Yields after each step the number of examined offsets.
        """
        for some in _pages(group.offsets):
            if self._shards.has(group.group_id, group):
                self._expire(group, some)
            yield len(some)
        if self._shards.has(group.group_id, group) and group.is_unused():
            self._expire(group, ())

    def _expire(self, group: AnyGroup, targets: Sequence[TopicPartition]) -> None:
        """Delete the expired ones of some offsets."""
        config, now = self._shards.config, self._shards.clock()
        overdue: list[TopicPartition] = []
        if group.may_expire():
            empty_since_ms = group.empty_since_ms()
            overdue = [
                target
                for target in targets
                if not group.subscribes_to(target.topic)
                and group.offsets.is_expired(
                    target,
                    now.wall_ms,
                    config.offsets_retention_ms,
                    empty_since_ms=empty_since_ms,
                )
            ]
        whole = len(overdue) == len(group.offsets) and group.has_no_members()
        if overdue or whole:
            self._shards.counters.offset_expirations += len(overdue)
            self.bury(group, overdue, whole=whole)

    def bury(
        self,
        group: AnyGroup,
        targets: Sequence[TopicPartition],
        *,
        whole: bool,
        then: Then | None = None,
    ) -> None:
        """Write tombstones for offsets, and for the ``whole`` group.

        The state in memory follows the log: commits after the tombstones are kept, and
        so is a group that is in use again.
        """
        buried = [(target, group.offsets.get(target)) for target in targets]
        records = [
            offset_tombstone(OffsetKey(group.group_id, target.topic, target.partition))
            for target in targets
        ]
        if whole:
            records += group.tombstones()

        def done(error: ErrorCode, now: Instant) -> Effects:
            effects = Effects()
            if error is ErrorCode.none:
                for target, commit in buried:
                    if group.offsets.get(target) is commit:
                        group.offsets.drop(target)
                if whole and group.is_unused():
                    if isinstance(group, Group):
                        self._membership.end(group, now)
                    self._shards.remove(group.group_id, group)
            if then is not None:
                then(error, effects)
            return effects

        self._shards.append(group.group_id, Write(tuple(records), done))


def _fetched(
    group: AnyGroup, target: TopicPartition, require_stable: bool
) -> FetchedOffset:
    if require_stable and group.offsets.is_pending(target):
        return FetchedOffset(error=ErrorCode.unstable_offset_commit)
    commit = group.offsets.get(target)
    if commit is None:
        return FetchedOffset()
    return FetchedOffset(commit.offset, commit.leader_epoch, commit.metadata)


def _pages(
    targets: Iterable[TopicPartition],
) -> Iterator[Sequence[TopicPartition]]:
    rest = iter(targets)
    while some := list(islice(rest, OFFSETS_PER_STEP)):
        yield some
