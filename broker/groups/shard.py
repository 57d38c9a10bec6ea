"""The groups of one partition of ``__consumer_offsets``, and how they are read back.

Kafka: ``GroupCoordinatorShard`` and ``CoordinatorLoaderImpl``. The broker that leads
the partition coordinates its groups. A shard that is new here reads the partition from
the start, a piece per ``load_some``; until it is done its groups cannot be asked for. A
record replaces what came before it under the same key; what is left at the end is the
state, so offsets and generations never go back over a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from logging import getLogger

from broker.groups.state.group import Group
from broker.groups.state.messages import Instant, Record
from broker.groups.state.offset_store import OffsetStore
from broker.groups.state.records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    UnreadableRecord,
    read_group,
    read_key,
    read_offset,
)
from broker.groups.state.snapshot import group_from_value
from broker.observation.logs import fields
from broker.protocol.topic_partition import TopicPartition

logger = getLogger(__name__)


class Shard:
    """Groups by id, complete once ``loading`` is False.

    ``owns`` says whether a group belongs to the partition.
    """

    __slots__ = ("_offsets", "_owns", "_pieces", "_values", "groups", "partition")

    def __init__(
        self,
        partition: int,
        pieces: Iterator[Sequence[Record]],
        owns: Callable[[str], bool],
    ) -> None:
        self.partition = partition
        self._owns = owns
        self.groups: dict[str, Group] = {}
        self._pieces: Iterator[Sequence[Record]] | None = pieces
        self._values: dict[str, GroupValue] = {}
        self._offsets: dict[str, OffsetStore] = {}

    @property
    def loading(self) -> bool:
        """Say whether the partition is still being read."""
        return self._pieces is not None

    def load_some(self, now: Instant) -> list[Group]:
        """Read one piece; return the groups when that was the last one, else none."""
        assert self._pieces is not None, "loaded already"
        piece = next(self._pieces, None)
        if piece is None:
            self._pieces = None
            return self._build(now)
        for record in piece:
            try:
                self._replay(record)
            except UnreadableRecord as fault:
                # Kafka goes on as well: one bad record must not cost all groups.
                logger.error(
                    "a record of __consumer_offsets is passed over",
                    extra=fields(partition=self.partition, fault=fault),
                )
        return []

    def _replay(self, record: Record) -> None:
        key = read_key(record.key)
        if key is not None and not self._owns(key.group_id):
            raise UnreadableRecord(f"group {key.group_id!r} is another partition's")
        if isinstance(key, GroupKey):
            if record.value is None:
                self._values.pop(key.group_id, None)
            else:
                self._values[key.group_id] = _checked(read_group(record.value))
        elif isinstance(key, OffsetKey):
            store = self._offsets.setdefault(key.group_id, OffsetStore())
            target = TopicPartition(key.topic, key.partition)
            if record.value is None:
                store.drop(target)
            else:
                store.put(target, read_offset(record.value))

    def _build(self, now: Instant) -> list[Group]:
        for group_id, value in self._values.items():
            self.groups[group_id] = group_from_value(group_id, value, now)
        for group_id, store in self._offsets.items():
            if group_id not in self.groups and len(store):
                self.groups[group_id] = Group(group_id, now)
            if group_id in self.groups:
                self.groups[group_id].offsets = store
        self._values.clear()
        self._offsets.clear()
        return list(self.groups.values())

    def check(self) -> None:
        """Assert that every group is sound and under its own name."""
        for group_id, group in self.groups.items():
            assert group.group_id == group_id, (group_id, group)
            group.check()


def _checked(value: GroupValue) -> GroupValue:
    """Return what a group may be; raise `UnreadableRecord` if two members are one."""
    members = [member.member_id for member in value.members]
    instances = [m.instance_id for m in value.members if m.instance_id is not None]
    for ids in (members, instances):
        if len(set(ids)) < len(ids):
            raise UnreadableRecord("found two members of one id, expected each once")
    return value
