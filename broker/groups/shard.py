"""The groups of one partition of ``__consumer_offsets``, and how they are read back.

Kafka: ``GroupCoordinatorShard`` and ``CoordinatorLoaderImpl``. The broker that leads
the partition coordinates its groups. A new shard reads the partition from the start, in
steps; until that is done its groups cannot be asked for. A record replaces the earlier
one under the same key, and the last ones are the state, so offsets and generations
never go back over a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from logging import getLogger
from typing import Final

from broker.groups.state.group import Group
from broker.groups.state.messages import Instant, Record
from broker.groups.state.offset_store import OffsetStore
from broker.groups.state.records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    UnreadableRecord,
    read_key,
    read_offset,
    reading_group,
)
from broker.groups.state.snapshot import building_group
from broker.observation.logs import fields
from broker.protocol.topic_partition import TopicPartition

logger = getLogger(__name__)

# A step of loading reads so many records, or builds so many groups, and no more bytes.
RECORDS_PER_STEP: Final = 16
BYTES_PER_STEP: Final = 64 << 10
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
        # What is left of the load, once it has begun.
        self.steps: Steps | None = None
        self.deleted: deque[Sequence[TopicPartition]] = deque()

    def read(
        self, records: Iterator[Record | None], clock: Callable[[], Instant]
    ) -> Steps:
        """Read the groups from the records, of which None is one without a key."""
        values: dict[str, GroupValue] = {}
        offsets: dict[str, OffsetStore] = {}
        count = size = 0
        for record in records:
            count += 1
            if record is not None:
                size += len(record.key) + len(record.value or b"")
                try:
                    yield from self._replay(record, values, offsets)
                except UnreadableRecord as fault:
                    # Kafka goes on as well: one bad record must not cost all groups.
                    logger.error(
                        "a record of __consumer_offsets is passed over",
                        extra=fields(partition=self.partition, fault=fault),
                    )
            if count >= RECORDS_PER_STEP or size >= BYTES_PER_STEP:
                yield
                count = size = 0
        yield
        yield from self._build(values, offsets, clock())

    def _replay(
        self,
        record: Record,
        values: dict[str, GroupValue],
        offsets: dict[str, OffsetStore],
    ) -> Generator[None, None, None]:
        key = read_key(record.key)
        if key is None:
            return
        if key.group_id not in offsets and not self._owns(key.group_id):
            raise UnreadableRecord(f"group {key.group_id!r} is another partition's")
        if isinstance(key, OffsetKey):
            store = offsets.get(key.group_id)
            if store is None:
                store = offsets[key.group_id] = OffsetStore()
            target = TopicPartition(key.topic, key.partition)
            if record.value is None:
                store.drop(target)
            else:
                store.put(target, read_offset(record.value))
        elif isinstance(key, GroupKey):
            if record.value is None:
                values.pop(key.group_id, None)
            else:
                values[key.group_id] = yield from reading_group(record.value)

    def _build(
        self,
        values: dict[str, GroupValue],
        offsets: dict[str, OffsetStore],
        now: Instant,
    ) -> Steps:
        for number, (group_id, value) in enumerate(values.items(), 1):
            self.groups[group_id] = yield from building_group(group_id, value, now)
            if not number % GROUPS_PER_STEP:
                yield
        for number, (group_id, store) in enumerate(offsets.items(), 1):
            if group_id not in self.groups and len(store):
                self.groups[group_id] = Group(group_id, now)
            if group_id in self.groups:
                self.groups[group_id].offsets = store
            if not number % GROUPS_PER_STEP:
                yield

    def check(self) -> None:
        """Assert that every group is sound and under its own name."""
        for group_id, group in self.groups.items():
            assert group.group_id == group_id, (group_id, group)
            group.check()
