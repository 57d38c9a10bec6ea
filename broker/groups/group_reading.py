"""Groups of one partition of ``__consumer_offsets``, read from its records.

Kafka: ``CoordinatorLoaderImpl``. A new shard reads the partition from the start, in
steps; its groups cannot be queried before the end. A record replaces the earlier one of
the same key, and the last records are the state, so offsets and generations never go
back after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Final, TypeAlias

from broker.groups.consumer.consumer_reading import FoundConsumerGroup
from broker.groups.consumer.consumer_records import read_consumer_key
from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group import Group
from broker.groups.state.group_messages import OffsetCommit
from broker.groups.state.group_records import (
    PARTITION_BYTES,
    GroupKey,
    GroupValue,
    OffsetKey,
    is_plain_commit,
    partition_in,
    read_key,
    read_offset,
    reading_group,
    shared_part,
)
from broker.groups.state.offset_store import Commits, OffsetStore
from broker.groups.state.open_transactions import OpenTransactions
from broker.groups.state.snapshot import building_group
from broker.observation.logs import fields
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Instant
from broker.shards.record_fields import UnreadableRecord
from broker.shards.shard import Shard, Steps
from broker.shards.shard_loading import OBJECTS_PER_STEP
from broker.shards.shard_log import (
    Replayed,
    TransactionalRecords,
    TransactionEnd,
)

logger = getLogger(__name__)

NO_PRODUCER: Final = -1
# The groups for which each producer's open transaction has committed offsets.
GroupsOfProducers: TypeAlias = dict[int, set[str]]

# Limits of a step of loading. A commit to a known partition costs 1.
COST_PER_STEP: Final = 96
BYTES_PER_STEP: Final = 64 << 10
# The additional cost of any other record, and of a batch.
_COST_OF_OTHER: Final = 6
_COST_OF_LIST: Final = 3


def read_groups(
    shard: Shard[AnyGroup],
    replay: Iterator[Replayed],
    clock: Callable[[], Instant],
    groups_of: GroupsOfProducers,
) -> Steps:
    """Read the groups of a shard from the records.

    ``groups_of`` is filled with the groups of each open transaction.
    """
    found = _Found(shard.owns, groups_of)
    commits_by_key = found.commits_by_key
    cost = size = 0
    for records in replay:
        producer_id = NO_PRODUCER
        if isinstance(records, TransactionEnd):
            yield from found.end(records)
            continue
        if isinstance(records, TransactionalRecords):
            producer_id, records = records
        cost += _COST_OF_LIST + len(records)
        # During open transactions, a commit may replace an offset of one of them.
        is_plain = not groups_of and producer_id == NO_PRODUCER
        for key, value in records:
            commits = commits_by_key.get(key[:-PARTITION_BYTES])
            if is_plain and commits is not None and value and is_plain_commit(value):
                commits[partition_in(key)] = value
                continue
            cost += _COST_OF_OTHER
            size += len(key) + len(value or b"")
            try:
                yield from found.take(key, value, producer_id)
            except UnreadableRecord as fault:
                # The load continues, as in Kafka: other groups are not affected.
                logger.error(
                    "a record of __consumer_offsets is passed over",
                    extra=fields(partition=shard.partition, fault=fault),
                )
            if cost >= COST_PER_STEP or size >= BYTES_PER_STEP:
                yield
                cost = size = 0
        if cost >= COST_PER_STEP:
            yield
            cost = size = 0
    yield
    yield from _build(shard, found, clock())


def _build(shard: Shard[AnyGroup], found: _Found, now: Instant) -> Steps:
    for number, (group_id, value) in enumerate(found.groups.items(), 1):
        shard.by_id[group_id] = yield from building_group(group_id, value, now)
        if not number % OBJECTS_PER_STEP:
            yield
    for group_id, consumers in found.consumer_groups.items():
        if consumers.exists:
            shard.by_id[group_id] = yield from consumers.building(group_id)
    number = 0
    for group_id, topics in found.offsets.items():
        store = OffsetStore()
        for topic, commits in topics.items():
            store.add_topic(topic, commits)
            number += 1
            if not number % OBJECTS_PER_STEP:
                yield
        store.transactions = found.transactions.get(group_id, store.transactions)
        is_used = len(store) or len(store.transactions)
        if group_id not in shard.by_id and is_used:
            shard.by_id[group_id] = Group(group_id, now)
        if group_id in shard.by_id:
            shard.by_id[group_id].offsets = store


class _Found:
    """Groups and offsets found in the records of a partition.

    ``commits_by_key`` has the commits of each topic of a group by the common part of
    their keys (`shared_part`).
    """

    __slots__ = (
        "_groups_of",
        "_owns",
        "commits_by_key",
        "consumer_groups",
        "groups",
        "offsets",
        "transactions",
    )

    def __init__(
        self, owns: Callable[[str], bool], groups_of: GroupsOfProducers
    ) -> None:
        self._owns = owns
        self._groups_of = groups_of
        self.transactions: dict[str, OpenTransactions[OffsetCommit | bytes]] = {}
        self.groups: dict[str, GroupValue] = {}
        self.consumer_groups: dict[str, FoundConsumerGroup] = {}
        self.offsets: dict[str, dict[str, Commits]] = {}
        self.commits_by_key: dict[bytes, Commits] = {}

    def take(self, key: bytes, value: bytes | None, producer_id: int) -> Steps:
        """Apply any record; raise `UnreadableRecord`.

        ``producer_id`` is that of its transaction, or `NO_PRODUCER`.
        """
        target = read_key(key)
        if target is None:
            self._take_of_consumers(key, value)
            return
        group_id = target.group_id
        if group_id not in self.offsets and not self._owns(group_id):
            raise UnreadableRecord(f"group {group_id!r} is another partition's")
        if isinstance(target, OffsetKey):
            self._take_offset(key, target, value, producer_id)
        elif isinstance(target, GroupKey):
            if value is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = yield from reading_group(value)

    def _take_of_consumers(self, key: bytes, value: bytes | None) -> None:
        target = read_consumer_key(key)
        if target is None:
            return
        group_id = target.group_id
        if group_id not in self.consumer_groups and not self._owns(group_id):
            raise UnreadableRecord(f"group {group_id!r} is another partition's")
        found = self.consumer_groups.setdefault(group_id, FoundConsumerGroup())
        found.take(target, value)

    def _take_offset(
        self, key: bytes, target: OffsetKey, value: bytes | None, producer_id: int
    ) -> None:
        group_id = target.group_id
        commits = self.offsets.setdefault(group_id, {}).setdefault(target.topic, {})
        if (shared := shared_part(key, target)) is not None:
            self.commits_by_key[shared] = commits
        if value is not None:
            read_offset(value)
        if producer_id != NO_PRODUCER and value is not None:
            self._add(producer_id, target, value)
        elif value is not None:
            commits[target.partition] = value
            self._note_replaced(target)
        else:
            commits.pop(target.partition, None)
            if group_id in self.transactions:
                self.transactions[group_id].remove(_partition_of(target))

    def _add(self, producer_id: int, target: OffsetKey, value: bytes) -> None:
        found = self.transactions.setdefault(target.group_id, OpenTransactions())
        found.add(producer_id, _partition_of(target), value)
        self._groups_of.setdefault(producer_id, set()).add(target.group_id)

    def _note_replaced(self, target: OffsetKey) -> None:
        found = self.transactions.get(target.group_id)
        if found is not None:
            found.replaced(_partition_of(target))

    def end(self, ended: TransactionEnd) -> Steps:
        """Publish or drop the offsets of a transaction, in steps."""
        number = 0
        for group_id in self._groups_of.pop(ended.producer_id, ()):
            ending = self.transactions[group_id].end(
                ended.producer_id, is_commit=ended.is_commit
            )
            for target, value in ending:
                if value is not None:
                    self.offsets[group_id][target.topic][target.partition] = value
                number += 1
                if not number % COST_PER_STEP:
                    yield


def _partition_of(target: OffsetKey) -> TopicPartition:
    return TopicPartition(target.topic, target.partition)
