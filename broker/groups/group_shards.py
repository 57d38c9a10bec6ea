"""Shards of ``__consumer_offsets``: groups by id, complete after their load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group import Group
from broker.groups.state.group_settings import GroupConfig
from broker.protocol.errors import ErrorCode
from broker.shards.effects import Effects, Instant, Record, Write
from broker.shards.shard_log import ShardLog
from broker.shards.shards import Clock, Shards


@dataclass(slots=True)
class Counters:
    """The counters of Kafka's ``GroupCoordinatorMetrics``."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0


class GroupShards(Shards[AnyGroup]):
    """Shards by partition of ``__consumer_offsets``."""

    def __init__(
        self,
        config: GroupConfig,
        log: ShardLog,
        clock: Clock,
        on_unsettled: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config.offsets_topic_num_partitions, log, clock, on_unsettled)
        self.config = config
        self.counters = Counters()
        # Groups of each producer with an open transaction, by partition.
        self.groups_of_producers: dict[int, dict[int, set[str]]] = {}
        # Unwritten records of a group's former protocol, by group id.
        self._owed: dict[str, tuple[Record, ...]] = {}

    def find_or_new(self, group_id: str) -> AnyGroup:
        """Return the group, or a new empty classic group."""
        groups = self.shard(group_id).by_id
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = Group(group_id, self.clock())
        return group

    def owe(self, group_id: str, records: tuple[Record, ...]) -> None:
        """Keep records that are written before the next ones of the group."""
        if records:
            self._owed[group_id] = self._owed.get(group_id, ()) + records

    def append(self, name: str, write: Write) -> None:
        """Append a group's records, after its owed records."""
        owed = () if write.transaction is not None else self._owed.pop(name, ())
        if not owed:
            super().append(name, write)
            return

        def done(error: ErrorCode, now: Instant) -> Effects:
            if error is not ErrorCode.none:
                self._owed[name] = owed + self._owed.get(name, ())
            return write.done(error, now)

        super().append(name, Write(owed + write.records, done))

    def drop_owed(self, partition: int) -> None:
        """Drop the owed records of a partition that is no longer led here."""
        dropped = [name for name in self._owed if self.partition(name) == partition]
        for name in dropped:
            del self._owed[name]

    def put(self, group: AnyGroup) -> None:
        """Add a group, or replace its former value of another protocol."""
        self.shard(group.group_id).by_id[group.group_id] = group

    def holds(self, group: AnyGroup) -> bool:
        """Return whether the group's offsets are still in this shard.

        The group may have another protocol by now, with the same offsets.
        """
        shard = self.by_partition.get(self.partition(group.group_id))
        found = None if shard is None else shard.by_id.get(group.group_id)
        return found is not None and found.offsets is group.offsets

    def drop_if_unused(self, group: AnyGroup) -> None:
        """Drop a group that was never stored and has no members."""
        if not group.is_stored() and group.is_unused():
            self.remove(group.group_id, group)

    def check(self) -> None:
        """Assert that every group is consistent, and in its partition."""
        for partition, shard in self.by_partition.items():
            for group_id, group in shard.by_id.items():
                assert group.group_id == group_id, (group_id, group)
                assert self.partition(group_id) == partition, group
                group.check()
