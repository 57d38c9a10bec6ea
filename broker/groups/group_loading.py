"""Loading and unloading of groups: reading records, and starting sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.consumer_heartbeats import Heartbeats
from broker.groups.group_reading import read_groups
from broker.groups.group_shards import GroupShards
from broker.groups.membership import Membership
from broker.groups.rebalance import Rebalance
from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group import Group
from broker.groups.state.group_records import MEMBERS_PER_STEP
from broker.shards.effects import Effects
from broker.shards.shard import Shard, Steps
from broker.shards.shard_loading import OBJECTS_PER_STEP, Loading


class GroupLoading(Loading[AnyGroup]):
    """Loading of partitions of ``__consumer_offsets`` after a change of leader."""

    _shards: GroupShards

    def __init__(
        self,
        shards: GroupShards,
        rebalance: Rebalance,
        membership: Membership,
        heartbeats: Heartbeats,
        *,
        on_loaded: Callable[[Shard[AnyGroup]], None],
        on_work: Callable[[], None],
    ) -> None:
        super().__init__("groups", shards, on_loaded=on_loaded, on_work=on_work)
        self._rebalance = rebalance
        self._membership = membership
        self._heartbeats = heartbeats

    def resign(self, partition: int) -> None:
        """Stop coordinating a partition's groups."""
        self._shards.groups_of_producers.pop(partition, None)
        self._shards.drop_owed(partition)
        super().resign(partition)

    def _end(self, group: AnyGroup) -> Iterable[Effects]:
        if isinstance(group, ConsumerGroup):
            return self._heartbeats.unloading(group)
        assert isinstance(group, Group), group
        return self._membership.unloading(group, self._shards.clock())

    def _read(self, shard: Shard[AnyGroup]) -> Steps:
        shards, partition = self._shards, shard.partition
        groups_of = shards.groups_of_producers[partition] = {}
        replay = shards.log.replay_all(partition)
        yield from read_groups(shard, replay, shards.clock, groups_of)
        for number, group in enumerate(shard.by_id.values(), 1):
            yield from self._revive(group)
            if not number % OBJECTS_PER_STEP:
                yield

    def _revive(self, group: AnyGroup) -> Steps:
        """Start the sessions of a group's members."""
        now = self._shards.clock()
        if isinstance(group, ConsumerGroup):
            yield from self._heartbeats.revive(group, now)
            return
        assert isinstance(group, Group), group
        for number, member in enumerate(group.roster, 1):
            self._rebalance.touch(group, member, now)
            if not number % MEMBERS_PER_STEP:
                yield
        if len(group.roster) > self._shards.config.group_max_size:
            # The bound was lowered: a rebalance removes the last members to rejoin,
            # after they could commit.
            effects = Effects()
            self._rebalance.prepare(group, effects, now)
            self._shards.perform(group.group_id, effects)
