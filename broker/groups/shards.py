"""The shards this broker coordinates, and the way effects take from group to log.

The one place where answers are given and records appended, whatever verb asked for it:
the verbs of ``coordinator`` and ``commits`` find their group here and hand back the
core's `Effects`. The clock is handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from broker.groups.group_log import GroupLog, coordinator_error
from broker.groups.partitioner import partition_for
from broker.groups.shard import Shard
from broker.groups.state.config import GroupConfig
from broker.groups.state.group import Group
from broker.groups.state.messages import Answered, Effects, Instant, Write
from broker.protocol.errors import ErrorCode, KafkaError

# Answers that are given in one step.
ANSWERS_PER_STEP: Final = 128

Clock = Callable[[], Instant]


@dataclass(slots=True)
class Counters:
    """The counters of Kafka's ``GroupCoordinatorMetrics``."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    partition_loads: int = 0


@dataclass(slots=True, kw_only=True)
class Shards:
    """Shards by partition of ``__consumer_offsets``."""

    config: GroupConfig
    log: GroupLog
    clock: Clock
    counters: Counters = field(default_factory=Counters)
    by_partition: dict[int, Shard] = field(default_factory=dict)
    # Partitions whose groups, of a term that is over, are not all gone yet.
    unloading: set[int] = field(default_factory=set)
    # The rest of answers to very many members; `settle_some` gives them.
    unsettled: deque[Iterator[Answered]] = field(default_factory=deque)
    on_unsettled: Callable[[], None] = lambda: None

    def add(self, partition: int) -> None:
        """Add a shard that is to be loaded."""
        self.by_partition[partition] = Shard(
            partition, lambda group_id: self.partition(group_id) == partition
        )

    def is_loading(self) -> bool:
        """Return whether some partition's groups cannot be asked for yet."""
        return any(shard.loading for shard in self.by_partition.values())

    def partition(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` that a group belongs to."""
        return partition_for(group_id, self.config.offsets_topic_num_partitions)

    def shard(self, group_id: str) -> Shard:
        """Return the loaded shard of a group, or raise why there is none here."""
        shard = self.by_partition.get(self.partition(group_id))
        if shard is None:
            raise KafkaError(ErrorCode.not_coordinator)
        if shard.loading:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return shard

    def group(self, group_id: str) -> Group | None:
        """Return the group, None if there is none; raise if it is not ours to know."""
        return self.shard(group_id).groups.get(group_id)

    def group_or_new(self, group_id: str) -> Group:
        """Return the group, a new empty one if there is none."""
        groups = self.shard(group_id).groups
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = Group(group_id, self.clock())
        return group

    def groups(self) -> Iterator[Group]:
        """Iterate over all groups of loaded shards, in the order of partitions."""
        for _, shard in sorted(self.by_partition.items()):
            if not shard.loading:
                yield from tuple(shard.groups.values())

    def perform(self, group_id: str, effects: Effects) -> None:
        """Append the writes, then give the due answers."""
        for write in effects.writes:
            self.append(group_id, write)
        for waiting, answer in effects.answers:
            waiting.settle(answer)
        for answers in effects.in_turn:
            if self._settle_some(answers):
                self.unsettled.append(answers)
                self.on_unsettled()

    def settle_some(self) -> bool:
        """Give some of the answers that are left; False if there are none."""
        if not self.unsettled:
            return False
        answers = self.unsettled.popleft()
        if self._settle_some(answers):
            self.unsettled.append(answers)
        return True

    def _settle_some(self, answers: Iterator[Answered]) -> bool:
        """Give some answers; return whether there may be more."""
        given = 0
        for waiting, answer in islice(answers, ANSWERS_PER_STEP):
            waiting.settle(answer)
            given += 1
        return given == ANSWERS_PER_STEP

    def append(self, group_id: str, write: Write) -> None:
        """Append a group's records; what follows from the outcome is done then.

        A group that is being unloaded appends nothing: the log may be led here again.
        """

        def done(error: ErrorCode) -> None:
            effects = write.done(coordinator_error(error), self.clock())
            self.perform(group_id, effects)

        partition = self.partition(group_id)
        if partition in self.unloading:
            done(ErrorCode.not_coordinator)
        else:
            self.log.append(partition, write.records, done)

    def has(self, group: Group) -> bool:
        """Return whether this very group is still one of ours."""
        shard = self.by_partition.get(self.partition(group.group_id))
        return shard is not None and shard.groups.get(group.group_id) is group

    def remove(self, group: Group) -> None:
        """Forget a group."""
        if self.has(group):
            shard = self.by_partition[self.partition(group.group_id)]
            del shard.groups[group.group_id]

    def drop_if_unused(self, group: Group) -> None:
        """Drop a group that was never stored and has no members."""
        if group.generation == 0 and group.is_unused():
            self.remove(group)

    def check(self) -> None:
        """Assert that every group is sound and in its own partition."""
        for partition, shard in self.by_partition.items():
            shard.check()
            for group in shard.groups.values():
                assert self.partition(group.group_id) == partition, group
