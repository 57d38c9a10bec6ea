"""Groups of one partition of ``__consumer_offsets``, read from its records.

Kafka: ``CoordinatorLoaderImpl``. A new shard reads the partition from the start, in
steps; until that is done its groups cannot be queried. A record replaces the earlier
one under the same key, and the last ones are the state, so offsets and generations
never go back over a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Final

from broker.groups.state.group import Group
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
from broker.shards.effects import Instant
from broker.shards.loading import OBJECTS_PER_STEP
from broker.shards.shard import Shard, Steps
from broker.shards.shard_log import Records

logger = getLogger(__name__)

# A step of loading ends once its records cost what so many commits of partitions that
# are known cost, or are of so many bytes.
COST_PER_STEP: Final = 96
BYTES_PER_STEP: Final = 64 << 10
# The cost of any other record, and of a batch.
_COST_OF_OTHER: Final = 6
_COST_OF_LIST: Final = 3


def read_groups(
    shard: Shard[Group], replay: Iterator[Records], clock: Callable[[], Instant]
) -> Steps:
    """Read the groups of a shard from the records."""
    found = _Found(shard.owns)
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


def _build(shard: Shard[Group], found: _Found, now: Instant) -> Steps:
    for number, (group_id, value) in enumerate(found.groups.items(), 1):
        shard.by_id[group_id] = yield from building_group(group_id, value, now)
        if not number % OBJECTS_PER_STEP:
            yield
    number = 0
    for group_id, topics in found.offsets.items():
        store = OffsetStore()
        for topic, commits in topics.items():
            store.add_topic(topic, commits)
            number += 1
            if not number % OBJECTS_PER_STEP:
                yield
        if group_id not in shard.by_id and len(store):
            shard.by_id[group_id] = Group(group_id, now)
        if group_id in shard.by_id:
            shard.by_id[group_id].offsets = store


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
