"""Members of a consumer group that use the classic protocol.

Kafka: ``classicGroupJoinToConsumerGroup`` and related methods. Such a member receives
its epoch as a generation, and its partitions by SyncGroup. No member leads, since the
broker assigns. When a member has to take a step towards its target, its heartbeat is
answered with REBALANCE_IN_PROGRESS. The step follows with its next JoinGroup, which
lists the partitions that it still owns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.consumer.consumer_group_messages import HeartbeatAnswer
from broker.groups.consumer.members import (
    LEAVING_EPOCH,
    ClassicProtocols,
    ConsumerMember,
    MemberState,
)
from broker.groups.consumer.subscribed_topics import ClusterTopics
from broker.groups.consumer_heartbeats import Heartbeats, as_replacement
from broker.groups.group_shards import GroupShards
from broker.groups.migration import Migration
from broker.groups.rebalance import TimerKey, TimerKind
from broker.groups.state.classic_consumer_messages import (
    Subscription,
    read_subscription,
)
from broker.groups.state.group import join_refusal
from broker.groups.state.group_messages import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
    JoinRequest,
    LeftMember,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.shards.effects import NS_PER_MS, Effects
from broker.shards.parked_answer import Waiting
from broker.shards.timers import Timers


class ClassicMembers:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup to a consumer group."""

    def __init__(
        self,
        shards: GroupShards,
        timers: Timers[TimerKey],
        topics: ClusterTopics,
        heartbeats: Heartbeats,
        migration: Migration,
    ) -> None:
        self._shards = shards
        self._config = shards.config
        self._timers = timers
        self._topics = topics
        self._heartbeats = heartbeats
        self._migration = migration

    # ---- JoinGroup --------------------------------------------------------------

    def join(
        self, group: ConsumerGroup, request: JoinRequest, waiting: Waiting[JoinAnswer]
    ) -> None:
        """Add a member, or take its next step."""
        self._heartbeats.run(self._joining(group, request, waiting))

    def _joining(
        self, group: ConsumerGroup, request: JoinRequest, waiting: Waiting[JoinAnswer]
    ) -> Iterator[None]:
        try:
            yield from self._join(group, request, waiting)
        except _MemberIdRequired as refused:
            waiting.settle(join_refusal(refused.member_id, refused.code))
        except KafkaError as refused:
            member_id = request.member_id
            if refused.code is ErrorCode.group_max_size_reached:
                member_id = UNKNOWN_MEMBER_ID
            waiting.settle(join_refusal(member_id, refused.code))

    def _join(
        self, group: ConsumerGroup, request: JoinRequest, waiting: Waiting[JoinAnswer]
    ) -> Iterator[None]:
        member_id = request.member_id or self._heartbeats.new_member_id()
        self._require_room(group, request)
        names = [name for name, _ in request.protocols]
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        if group.members and not group.supports_any(names):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        subscription = read_subscription(request.protocols[0].metadata)
        if subscription is None:
            # Kafka fails (UNKNOWN_SERVER_ERROR).
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        is_unknown = request.member_id == UNKNOWN_MEMBER_ID
        is_dynamic = request.instance_id is None
        if is_unknown and is_dynamic and request.requires_known_member_id:
            raise _MemberIdRequired(member_id)
        owner = group.static_member(request.instance_id)
        if not is_dynamic and not is_unknown:
            _require_owner(owner, member_id)
        former, replaced = self._former(group, member_id, owner)
        member = _updated(former, request, subscription)
        downgrades = (
            owner is not None
            and replaced is not None
            and self._migration.may_downgrade_with(group, owner)
        )
        if downgrades:
            assert replaced is not None
            self._downgrade(group, replaced, member, waiting)
            return
        if replaced is not None:
            self._heartbeats.replace(group, replaced, former)
        has_new_subscription = self._heartbeats.take_over(group, former, member)
        yield from self._heartbeats.assign_if_due(group)
        if not self._shards.has(group.group_id, group):
            raise KafkaError(ErrorCode.not_coordinator)
        member = group.member(member_id)
        owned = self._owned(subscription)
        member = self._heartbeats.reconcile(group, member, owned, has_new_subscription)
        self._answer_join(group, member, request, waiting)

    def _require_room(self, group: ConsumerGroup, request: JoinRequest) -> None:
        is_known = (
            request.member_id in group.members
            or group.static_member(request.instance_id) is not None
        )
        if len(group.members) >= self._config.consumer_max_size and not is_known:
            raise KafkaError(ErrorCode.group_max_size_reached)

    def _former(
        self, group: ConsumerGroup, member_id: str, owner: ConsumerMember | None
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member before the request, and the static member it replaces."""
        if owner is not None and owner.member_id != member_id:
            return as_replacement(owner, member_id), owner
        known = group.members.get(member_id)
        return known or ConsumerMember(member_id=member_id), None

    def _owned(self, subscription: Subscription) -> dict[UUID, frozenset[int]]:
        known = [
            (self._topics.find(name), partitions)
            for name, partitions in subscription.owned.items()
        ]
        return {
            topic.topic_id: partitions
            for topic, partitions in known
            if topic is not None
        }

    def _answer_join(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        request: JoinRequest,
        waiting: Waiting[JoinAnswer],
    ) -> None:
        member_id = member.member_id
        answer = _join_answer(member)

        def then(error: ErrorCode, effects: Effects) -> None:
            if error is not ErrorCode.none:
                refusal = join_refusal(UNKNOWN_MEMBER_ID, error)
                effects.answer(waiting, refusal)
                return
            if member_id in group.members:
                self._cancel(TimerKind.CLASSIC_JOIN, group, member_id)
                self._heartbeats.schedule(
                    TimerKind.CLASSIC_SYNC,
                    group,
                    member_id,
                    request.rebalance_timeout_ms,
                )
            effects.answer(waiting, answer)

        self._heartbeats.touch(group, member_id, request.session_timeout_ms)
        self._heartbeats.write(group, then)

    def _downgrade(
        self,
        group: ConsumerGroup,
        replaced: ConsumerMember,
        member: ConsumerMember,
        waiting: Waiting[JoinAnswer],
    ) -> None:
        """Make the group classic: its last member of the new protocol is replaced."""
        for member_id in group.members:
            self._heartbeats.cancel(group, member_id)
        is_changed = member.topics != replaced.topics or bool(replaced.regex)
        classic = self._migration.downgraded(
            group, {replaced.member_id}, replaced_by=member
        )
        self._shards.put(classic)

        def then(error: ErrorCode, effects: Effects) -> None:
            if error is not ErrorCode.none:
                self._migration.keep_records(group)
                effects.answer(waiting, join_refusal(UNKNOWN_MEMBER_ID, error))
                return
            answer = replace(_join_answer(member), generation=classic.generation)
            effects.answer(waiting, answer)

        self._heartbeats.write(group, then)
        self._migration.begin_classic(
            classic, self._shards.clock(), rebalances=is_changed
        )

    # ---- SyncGroup, Heartbeat, LeaveGroup ---------------------------------------

    def sync(
        self, group: ConsumerGroup, request: SyncRequest, waiting: Waiting[SyncAnswer]
    ) -> None:
        """Return a member's partitions."""
        try:
            answer = self._sync(group, request)
        except KafkaError as refused:
            answer = SyncAnswer(error=refused.code)
        waiting.settle(answer)

    def _sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        member, classic = self._member(group, request.member_id, request.instance_id)
        if member.epoch != request.generation:
            raise KafkaError(ErrorCode.illegal_generation)
        name = classic.protocols[0].name
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        if request.protocol_name not in (None, name):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        is_behind = group.epoch > member.epoch
        if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(group, member)
            raise KafkaError(ErrorCode.rebalance_in_progress)
        self._cancel(TimerKind.CLASSIC_SYNC, group, member.member_id)
        self._heartbeats.touch(group, member.member_id, classic.session_timeout_ms)
        return SyncAnswer(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self._migration.classic_assignment(member, member.assigned),
        )

    def heartbeat(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> ErrorCode:
        """Extend a member's session; REBALANCE_IN_PROGRESS if it has to rejoin."""
        try:
            member, classic = self._member(group, member_id, instance_id)
        except KafkaError as refused:
            return refused.code
        if member.epoch != generation:
            return ErrorCode.illegal_generation
        self._heartbeats.touch(group, member_id, classic.session_timeout_ms)
        is_free = not group.waits_for_others(member)
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and is_free)
        ):
            self._await_join(group, member)
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def leave(
        self, group: ConsumerGroup, leavers: Sequence[MemberIdentity]
    ) -> list[LeftMember]:
        """Remove members at their own or at an operator's request."""
        left = []
        leaving: dict[str, ConsumerMember] = {}
        for member_id, instance_id in leavers:
            error = ErrorCode.none
            try:
                member = self._leaving(group, member_id, instance_id)
                if member.member_id in leaving:
                    raise KafkaError(ErrorCode.unknown_member_id)
                leaving[member.member_id] = member
                member_id = member.member_id
            except KafkaError as refused:
                error = refused.code
            left.append(LeftMember(member_id, instance_id, error))
        if leaving:
            answer = HeartbeatAnswer(member_id="", epoch=LEAVING_EPOCH)
            self._heartbeats.fence(group, leaving.values(), answer, "it has left")
        return left

    def _leaving(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        """Return the member to remove.

        An operator removes a static member of either protocol by its instance id.
        """
        owner = group.static_member(instance_id)
        if instance_id is not None and member_id == UNKNOWN_MEMBER_ID:
            if owner is None:
                raise KafkaError(ErrorCode.unknown_member_id)
            return owner
        member, _ = self._member(group, member_id, instance_id)
        return member

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicProtocols]:
        """Return a member of the classic protocol; raise if unknown or fenced."""
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = _require_owner(group.static_member(instance_id), member_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return member, member.classic

    def _await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start a member's time limit for a JoinGroup, unless it is running."""
        key = TimerKey(TimerKind.CLASSIC_JOIN, group.group_id, member.member_id)
        if key not in self._timers:
            end_ns = self._shards.clock().ns + member.rebalance_timeout_ms * NS_PER_MS
            self._timers.schedule(key, end_ns)

    def _cancel(self, kind: TimerKind, group: ConsumerGroup, member_id: str) -> None:
        self._timers.cancel(TimerKey(kind, group.group_id, member_id))


class _MemberIdRequired(KafkaError):
    """A dynamic member receives its id, and joins again with it (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.member_id_required)
        self.member_id = member_id


def _require_owner(owner: ConsumerMember | None, member_id: str) -> ConsumerMember:
    if owner is None:
        raise KafkaError(ErrorCode.unknown_member_id)
    if owner.member_id != member_id:
        raise KafkaError(ErrorCode.fenced_instance_id)
    return owner


def _updated(
    member: ConsumerMember, request: JoinRequest, subscription: Subscription
) -> ConsumerMember:
    """Return the member with the fields of the request."""
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=subscription.topics,
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicProtocols(
            session_timeout_ms=request.session_timeout_ms, protocols=request.protocols
        ),
    )


def _join_answer(member: ConsumerMember) -> JoinAnswer:
    assert member.classic is not None, member
    return JoinAnswer(
        member_id=member.member_id,
        generation=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0].name,
    )
