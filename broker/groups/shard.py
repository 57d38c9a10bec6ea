"""The groups of one partition of ``__consumer_offsets``, and their loading.

Kafka: ``GroupCoordinatorShard`` and ``CoordinatorLoaderImpl``. The broker that leads
the partition coordinates its groups. A new shard reads the partition from the start, in
steps; until that is done its groups cannot be queried. A record replaces the earlier
one under the same key, and the last ones are the state, so offsets and generations
never go back over a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from logging import getLogger
from typing import Final

from broker.groups.group_log import Records
from broker.groups.state.group import Group
from broker.groups.state.messages import Instant
from broker.groups.state.offset_store import Commits, OffsetStore
from broker.groups.state.records import (
    PARTITION_BYTES,
    GroupKey,
    GroupValue,
    OffsetKey,
    UnreadableRecord,
    is_plain_commit,
    partition_in,
    read_key,
    read_offset,
    reading_group,
    shared_part,
)
from broker.groups.state.snapshot import building_group
from broker.observation.logs import fields
from broker.protocol.topic_partition import TopicPartition

logger = getLogger(__name__)

# A step of loading ends once its records cost what so many commits of partitions that
# are known cost, or are of so many bytes.
COST_PER_STEP: Final = 96
BYTES_PER_STEP: Final = 64 << 10
# The cost of any other record, and of a batch.
_COST_OF_OTHER: Final = 6
_COST_OF_LIST: Final = 3
# Groups that are built in one step, and topics of which a group takes the offsets.
GROUPS_PER_STEP: Final = 32

Steps = Iterator[None]


class Shard:
    """Groups by id, complete once ``loading`` is False.

    ``owns`` says whether a group belongs to the partition. ``deleted`` are partitions
    of topics that were deleted while the shard loads: their offsets are to go.
    """

    __slots__ = ("_owns", "deleted", "groups", "loading", "partition", "steps")

    def __init__(self, partition: int, owns: Callable[[str], bool]) -> None:
        self.partition = partition
        self._owns = owns
        self.groups: dict[str, Group] = {}
        self.loading = True
        # The rest of the load, once it has begun.
        self.steps: Steps | None = None
        self.deleted: deque[Sequence[TopicPartition]] = deque()

    def read(self, replay: Iterator[Records], clock: Callable[[], Instant]) -> Steps:
        """Read the groups from the records."""
        found = _Found(self._owns)
        commits_by_key = found.commits_by_key
        cost = size = 0
        for records in replay:
            cost += _COST_OF_LIST + len(records)
            for key, value in records:
                commits = commits_by_key.get(key[:-PARTITION_BYTES])
                if commits is not None and value and is_plain_commit(value):
                    commits[partition_in(key)] = value
                    continue
                cost += _COST_OF_OTHER
                size += len(key) + len(value or b"")
                try:
                    yield from found.take(key, value)
                except UnreadableRecord as fault:
                    # Kafka goes on as well: one bad record must not cost all groups.
                    logger.error(
                        "a record of __consumer_offsets is passed over",
                        extra=fields(partition=self.partition, fault=fault),
                    )
                if cost >= COST_PER_STEP or size >= BYTES_PER_STEP:
                    yield
                    cost = size = 0
            if cost >= COST_PER_STEP:
                yield
                cost = size = 0
        yield
        yield from self._build(found, clock())

    def _build(self, found: _Found, now: Instant) -> Steps:
        for number, (group_id, value) in enumerate(found.groups.items(), 1):
            self.groups[group_id] = yield from building_group(group_id, value, now)
            if not number % GROUPS_PER_STEP:
                yield
        number = 0
        for group_id, topics in found.offsets.items():
            store = OffsetStore()
            for topic, commits in topics.items():
                store.add_topic(topic, commits)
                number += 1
                if not number % GROUPS_PER_STEP:
                    yield
            if group_id not in self.groups and len(store):
                self.groups[group_id] = Group(group_id, now)
            if group_id in self.groups:
                self.groups[group_id].offsets = store

    def check(self) -> None:
        """Assert that every group is sound and under its own name."""
        for group_id, group in self.groups.items():
            assert group.group_id == group_id, (group_id, group)
            group.check()


class _Found:
    """Groups and offsets that the records of a partition leave behind.

    ``commits_by_key`` has the commits of each topic of a group by what their keys have
    in common (`shared_part`).
    """

    __slots__ = ("_owns", "commits_by_key", "groups", "offsets")

    def __init__(self, owns: Callable[[str], bool]) -> None:
        self._owns = owns
        self.groups: dict[str, GroupValue] = {}
        self.offsets: dict[str, dict[str, Commits]] = {}
        self.commits_by_key: dict[bytes, Commits] = {}

    def take(self, key: bytes, value: bytes | None) -> Steps:
        """Take any record; raise `UnreadableRecord`."""
        target = read_key(key)
        if target is None:
            return
        group_id = target.group_id
        if group_id not in self.offsets and not self._owns(group_id):
            raise UnreadableRecord(f"group {group_id!r} is another partition's")
        if isinstance(target, OffsetKey):
            commits = self.offsets.setdefault(group_id, {}).setdefault(target.topic, {})
            if (shared := shared_part(key, target)) is not None:
                self.commits_by_key[shared] = commits
            if value is None:
                commits.pop(target.partition, None)
            else:
                read_offset(value)
                commits[target.partition] = value
        elif isinstance(target, GroupKey):
            if value is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = yield from reading_group(value)
