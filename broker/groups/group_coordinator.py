"""The group coordinator of one broker: Kafka's ``GroupCoordinator``, a method per API.

A method finds the group, and checks the fields that do not depend on the group's state.
It then calls the pure core, and passes the effects to the log and the parked requests.
Methods never wait: an answer that is not available yet is returned as `Waiting`.
``work`` runs a step of the due work (time-outs, expiry of offsets), and
``next_event_ns`` returns the time of the next step. ``loading`` loads and unloads
partitions in the same way.

Requests for groups of a partition that this broker does not lead, or has not loaded
yet, are refused (NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS).
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker.groups.classic_members import ClassicMembers
from broker.groups.committed_offsets import OFFSETS_PER_STEP, Commits
from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.consumer.consumer_group_messages import (
    ConsumerHeartbeat,
    HeartbeatAnswer,
)
from broker.groups.consumer.subscribed_topics import ClusterTopics, NoTopics
from broker.groups.consumer_heartbeats import Heartbeats
from broker.groups.group_loading import GroupLoading
from broker.groups.group_shards import Counters, GroupShards
from broker.groups.joining import Joining
from broker.groups.membership import Membership
from broker.groups.migration import Migration
from broker.groups.rebalance import Rebalance, TimerKey, TimerKind
from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group import Group, join_refusal
from broker.groups.state.group_messages import (
    JoinAnswer,
    JoinRequest,
    LeftMember,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.state.group_settings import GroupConfig, OwnSettings
from broker.groups.state.transitions import GroupState
from broker.observation.metric import PIECE
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import NS_PER_MS, Effects, Instant
from broker.shards.parked_answer import Waiting
from broker.shards.shard import InSteps, Shard
from broker.shards.shard_log import ShardLog
from broker.shards.shards import Clock
from broker.shards.timers import Timers

# The delay of a deadline's retry after an error.
_RETRY_NS = 1000 * NS_PER_MS

# The cost of examining a group for expired offsets, in offsets.
_GROUP_AS_OFFSETS: Final = 8

# The states of consumer groups.
CONSUMER_STATES: Final = ("Empty", "Assigning", "Reconciling", "Stable")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """The values of the metrics (``GroupMetadataManager`` and others)."""

    groups: int
    groups_by_state: dict[GroupState, int]
    consumer_groups_by_state: dict[str, int]
    consumer_rebalances: int
    offsets: int
    completed_rebalances: int
    unreadable_batches: int
    partition_loads: int
    counters: Counters


class GroupCoordinator:
    """Coordinates the groups of the partitions of ``__consumer_offsets`` led here.

    ``on_earlier_deadline`` is called when ``next_event_ns`` has become earlier.
    """

    def __init__(
        self,
        config: GroupConfig,
        *,
        log: ShardLog,
        clock: Clock,
        rng: random.Random,
        topics: ClusterTopics | None = None,
        own_settings: OwnSettings = lambda group_id: None,
        on_earlier_deadline: Callable[[], None] = lambda: None,
    ) -> None:
        topics = NoTopics() if topics is None else topics
        self._config = config
        self._clock = clock
        self._on_earlier_deadline = on_earlier_deadline
        self._timers = Timers[TimerKey](on_earlier_deadline)
        self._cleanups = Timers[int](on_earlier_deadline)
        # Groups whose offsets have yet to be examined in this round of expiry, and the
        # remaining steps for the first one.
        self._to_expire: deque[AnyGroup] = deque()
        self._expiring: Iterator[int] | None = None
        # Transactions whose offsets are being published or dropped.
        self._completing: deque[tuple[Iterator[None], Callable[[], None]]] = deque()
        self._shards = GroupShards(config, log, clock, on_earlier_deadline)
        rebalance = Rebalance(config, self._timers)
        self._rebalance = rebalance
        self._joining = Joining(rebalance, rng)
        self._membership = Membership(rebalance)
        self.offsets = Commits(self._shards, self._membership)
        self._migration = Migration(self._shards, rebalance, topics)
        self._heartbeats = Heartbeats(
            self._shards, self._timers, topics, rng, self._migration, own_settings
        )
        self._classic_members = ClassicMembers(
            self._shards, self._timers, topics, self._heartbeats, self._migration
        )
        self.loading = GroupLoading(
            self._shards,
            rebalance,
            self._membership,
            self._heartbeats,
            on_loaded=self._schedule_first_cleanup,
            on_work=on_earlier_deadline,
        )

    # ---- partitions -------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` that a group belongs to."""
        return self._shards.partition(group_id)

    def elect(self, partition: int) -> None:
        """Coordinate a partition's groups, after ``loading`` has read them."""
        self.loading.elect(partition)

    def resign(self, partition: int) -> None:
        """Stop coordinating a partition's groups; ``loading`` refuses their members."""
        self._cleanups.cancel(partition)
        self.loading.resign(partition)

    def load_all(self) -> None:
        """Load every elected partition now: at the start, before the first request."""
        while self.loading.work():
            pass

    # ---- due work ---------------------------------------------------------------

    def next_event_ns(self) -> int | None:
        """Return the time of the next ``work``; None: not before the next request.

        Unfinished work is always due.
        """
        is_busy = self._shards.unsettled or self._to_expire or self._completing
        if is_busy or self._heartbeats.running:
            return 0
        due = (self._timers.next_ns(), self._cleanups.next_ns())
        return min((at_ns for at_ns in due if at_ns is not None), default=None)

    def work(self) -> bool:
        """Run a small step of due work; return whether there was any."""
        settled = self._shards.settle_some()
        if self._completing:
            self._complete_some()
            return True
        now = self._clock()
        key = self._timers.pop_due(now.ns)
        if key is None and self._heartbeats.running:
            self._heartbeats.run_some()
            return True
        if key is not None:
            try:
                self._expire(key, now)
            except Exception:
                # The caller logs and counts the error; the timer is kept for a retry.
                self._timers.schedule(key, now.ns + _RETRY_NS)
                raise
            return True
        partition = self._cleanups.pop_due(now.ns)
        if partition is not None:
            self._schedule_cleanup(partition)
            self._to_expire.extend(self._shards.by_partition[partition].by_id.values())
            return True
        if self._to_expire:
            self._expire_offsets()
            return True
        return settled

    def _expire_offsets(self) -> None:
        """Examine some offsets, of one group or of several."""
        looked_at = 0
        while self._to_expire and looked_at < OFFSETS_PER_STEP:
            if self._expiring is None:
                self._expiring = self.offsets.expiring(self._to_expire[0])
            try:
                looked_at += next(self._expiring)
            except StopIteration:
                self._next_to_expire()
                looked_at += _GROUP_AS_OFFSETS
            except Exception:
                # After an error, expiry continues with the next group.
                self._next_to_expire()
                raise

    def _next_to_expire(self) -> None:
        self._to_expire.popleft()
        self._expiring = None

    def _expire(self, key: TimerKey, now: Instant) -> None:
        shard = self._shards.by_partition.get(self.partition_for(key.group_id))
        if shard is None or shard.partition in self._shards.unloading:
            # The group is being unloaded, and its members with it.
            return
        if shard.loading:
            self._timers.schedule(key, now.ns + _RETRY_NS)
            return
        group = shard.by_id.get(key.group_id)
        assert group is not None, key
        if isinstance(group, ConsumerGroup):
            self._heartbeats.due(group, key)
            return
        assert isinstance(group, Group), group
        self._perform(group, self._membership.due(group, key, now))
        self._shards.drop_if_unused(group)

    def _schedule_first_cleanup(self, shard: Shard[AnyGroup]) -> None:
        self._schedule_cleanup(shard.partition)

    def _schedule_cleanup(self, partition: int) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._cleanups.schedule(partition, self._clock().ns + interval_ms * NS_PER_MS)

    # ---- transactions -----------------------------------------------------------

    def takes_markers(self, partition: int) -> bool:
        """Return whether a partition is loaded; a load might miss a new marker."""
        shard = self._shards.by_partition.get(partition)
        return shard is not None and not shard.loading

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        *,
        is_commit: bool,
        done: Callable[[], None],
    ) -> None:
        """Publish or drop a transaction's offsets, after its marker is in the log.

        ``done`` is called afterwards: at once, unless there are many offsets.
        """
        steps = self.offsets.completing(partition, producer_id, is_commit=is_commit)
        self._completing.append((steps, done))
        if len(self._completing) == 1:
            self._complete_some()
        if self._completing:
            self._on_earlier_deadline()

    def _complete_some(self) -> None:
        steps, done = self._completing[0]
        try:
            next(steps)
        except StopIteration:
            self._completing.popleft()
            done()

    # ---- members ----------------------------------------------------------------

    def join(self, request: JoinRequest) -> Waiting[JoinAnswer]:
        """JoinGroup: answered at once, or when the join phase ends."""
        waiting = Waiting[JoinAnswer]()
        try:
            group = self._group_to_join(request)
        except KafkaError as refused:
            waiting.settle(join_refusal(request.member_id, refused.code))
            return waiting
        if isinstance(group, ConsumerGroup):
            self._classic_members.join(group, request, waiting)
            return waiting
        effects = self._joining.join(group, request, waiting, self._clock())
        self._perform(group, effects)
        self._shards.drop_if_unused(group)
        return waiting

    def _group_to_join(self, request: JoinRequest) -> Group | ConsumerGroup:
        if not request.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        shortest_ms = self._config.group_min_session_timeout_ms
        longest_ms = self._config.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise KafkaError(ErrorCode.invalid_session_timeout)
        group = self._shards.find(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.members:
            group = self._emptied(group)
        if isinstance(group, Group | ConsumerGroup):
            return group
        if request.member_id:
            raise KafkaError(ErrorCode.unknown_member_id)
        group = self._shards.find_or_new(request.group_id)
        assert isinstance(group, Group), group
        return group

    def _emptied(self, group: ConsumerGroup) -> Group:
        """Replace an empty consumer group by a classic group."""
        classic = self._migration.emptied(group)
        self._shards.put(classic)

        def then(error: ErrorCode, effects: Effects) -> None:
            if error is not ErrorCode.none:
                self._migration.keep_records(group)

        self._heartbeats.write(group, then)
        return classic

    def sync(self, request: SyncRequest) -> Waiting[SyncAnswer]:
        """SyncGroup: answered at once, or when the leader's assignment is stored."""
        waiting = Waiting[SyncAnswer]()
        try:
            group = self._known_group(request.group_id)
        except KafkaError as refused:
            waiting.settle(SyncAnswer(error=refused.code))
            return waiting
        if isinstance(group, ConsumerGroup):
            self._classic_members.sync(group, request, waiting)
            return waiting
        effects = self._membership.sync(group, request, waiting, self._clock())
        self._perform(group, effects)
        return waiting

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Heartbeat: return NONE if the member's generation continues."""
        try:
            group = self._known_group(group_id)
        except KafkaError as refused:
            if refused.code is ErrorCode.coordinator_load_in_progress:
                return ErrorCode.none
            return refused.code
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(
                group, member_id, instance_id, generation
            )
        now = self._clock()
        return self._membership.heartbeat(
            group, member_id, instance_id, generation, now
        )

    def leave(
        self, group_id: str, leavers: Sequence[MemberIdentity]
    ) -> list[LeftMember]:
        """LeaveGroup: return each member's outcome; raise errors of the request."""
        try:
            group = self._known_group(group_id)
        except KafkaError as refused:
            if refused.code is not ErrorCode.unknown_member_id:
                raise
            return [LeftMember(*leaver, refused.code) for leaver in leavers]
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(group, leavers)
        left, effects = self._membership.leave(group, leavers, self._clock())
        self._perform(group, effects)
        self._shards.drop_if_unused(group)
        return left

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat
    ) -> InSteps[Waiting[HeartbeatAnswer]]:
        """ConsumerGroupHeartbeat, in steps; raise `KafkaError` if it is refused."""
        return self._heartbeats.heartbeat(request)

    def _known_group(self, group_id: str) -> Group | ConsumerGroup:
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        group = self._shards.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        assert isinstance(group, Group | ConsumerGroup), group
        return group

    # ---- queries ----------------------------------------------------------------

    def describe(self, group_id: str) -> AnyGroup | None:
        """Return the group, or None; raise if it is not coordinated here."""
        return self._shards.find(group_id)

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Return the name of the assignor that a group uses."""
        return group.preferred_assignor() or self._config.consumer_assignors[0]

    def list_groups(self) -> tuple[ErrorCode, Iterator[AnyGroup]]:
        """Iterate over the loaded groups.

        The error is COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded.
        """
        error = ErrorCode.none
        if self._shards.is_loading():
            error = ErrorCode.coordinator_load_in_progress
        return error, self._shards.all()

    def statistics(self) -> GroupStatistics:
        """Return the current statistics. Cost: O(groups)."""
        counting = self.count()
        try:
            while True:
                next(counting)
        except StopIteration as done:
            counted: GroupStatistics = done.value
            return counted

    def count(self) -> Generator[None, None, GroupStatistics]:
        """Compute the statistics in steps of some groups."""
        by_state: Counter[GroupState] = Counter()
        of_consumers: Counter[str] = Counter()
        groups = offsets = 0
        for shard in tuple(self._shards.by_partition.values()):
            for group in tuple(shard.by_id.values()):
                groups += 1
                if isinstance(group, Group):
                    by_state[group.state] += 1
                else:
                    of_consumers[group.state_name] += 1
                offsets += len(group.offsets)
                if not groups % PIECE:
                    yield None
        return GroupStatistics(
            groups=groups,
            groups_by_state={state: by_state[state] for state in GroupState},
            consumer_groups_by_state={it: of_consumers[it] for it in CONSUMER_STATES},
            consumer_rebalances=self._heartbeats.rebalances,
            offsets=offsets,
            completed_rebalances=self._rebalance.completed,
            unreadable_batches=self._shards.log.unreadable_batches,
            partition_loads=self._shards.partition_loads,
            counters=self._shards.counters,
        )

    def committed(self) -> Iterator[tuple[str, TopicPartition, int] | None]:
        """Iterate over groups, partitions and their committed offsets.

        None: other tasks may run before the next item. Groups created or removed
        meanwhile may be missing.
        """
        number = 0
        for shard in tuple(self._shards.by_partition.values()):
            for group in tuple(shard.by_id.values()):
                for partition in tuple(group.offsets):
                    commit = group.offsets.get(partition)
                    if commit is not None:
                        yield group.group_id, partition, commit.offset
                    number += 1
                    if not number % PIECE:
                        yield None

    def check(self) -> None:
        """Assert every invariant of groups and timers."""
        self._shards.check()
        self._timers.check()
        self._cleanups.check()
        for key in self._timers:
            partition = self.partition_for(key.group_id)
            if partition in self._shards.unloading:
                continue
            group = self._shards.by_partition[partition].by_id.get(key.group_id)
            assert group is not None, key
            if isinstance(group, ConsumerGroup):
                assert key.member_id in group.members, key
                continue
            assert isinstance(group, Group), group
            if key.kind is TimerKind.SESSION:
                known = (*group.roster.members, *group.roster.pending)
                assert key.member_id in known, key
            elif key.kind is TimerKind.SYNC:
                assert group.roster.unsynced, key
            else:
                assert group.state is GroupState.PREPARING_REBALANCE, key

    def _perform(self, group: Group, effects: Effects) -> None:
        self._shards.perform(group.group_id, effects)
