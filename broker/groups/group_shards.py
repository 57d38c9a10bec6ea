"""Shards of ``__consumer_offsets``: groups by id, complete after their load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.groups.state.config import GroupConfig
from broker.groups.state.group import Group
from broker.shards.shard_log import ShardLog
from broker.shards.shards import Clock, Shards


@dataclass(slots=True)
class Counters:
    """The counters of Kafka's ``GroupCoordinatorMetrics``."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0


class GroupShards(Shards[Group]):
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
        # By partition: the groups of each producer with an open transaction.
        self.groups_of_producers: dict[int, dict[int, set[str]]] = {}

    def find_or_new(self, group_id: str) -> Group:
        """Return the group, a new empty one if there is none."""
        groups = self.shard(group_id).by_id
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = Group(group_id, self.clock())
        return group

    def drop_if_unused(self, group: Group) -> None:
        """Drop a group that was never stored and has no members."""
        if group.generation == 0 and group.is_unused():
            self.remove(group.group_id, group)

    def check(self) -> None:
        """Assert that every group is sound, under its name and in its partition."""
        for partition, shard in self.by_partition.items():
            for group_id, group in shard.by_id.items():
                assert group.group_id == group_id, (group_id, group)
                assert self.partition(group_id) == partition, group
                group.check()
