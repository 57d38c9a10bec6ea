"""SyncGroup, Heartbeat, LeaveGroup, and the time-outs of members.

Kafka: the remaining classic part of ``GroupMetadataManager``. Each method first checks
the conditions of every state: the member is known, its instance is not fenced, its
generation is current. The table of the state then determines the action.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.groups.rebalance import Rebalance, TimerKey, TimerKind
from broker.groups.state.group import Group
from broker.groups.state.group_messages import (
    UNKNOWN_MEMBER_ID,
    LeftMember,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.state.group_records import MEMBERS_PER_STEP
from broker.groups.state.transitions import Action, Event, GroupState
from broker.protocol.errors import ErrorCode, KafkaError
from broker.shards.effects import Effects, Instant
from broker.shards.parked_answer import Waiting


class Membership:
    """The requests of members that have joined."""

    def __init__(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance

    def sync(
        self,
        group: Group,
        request: SyncRequest,
        waiting: Waiting[SyncAnswer],
        now: Instant,
    ) -> Effects:
        """Answer with a member's assignment once the leader's is in the log."""
        effects = Effects()
        try:
            self._sync(group, request, waiting, effects)
        except KafkaError as refused:
            effects.answer(waiting, SyncAnswer(error=refused.code))
        return effects

    def _sync(
        self,
        group: Group,
        request: SyncRequest,
        waiting: Waiting[SyncAnswer],
        effects: Effects,
    ) -> None:
        if group.state in (GroupState.DEAD, GroupState.EMPTY):
            group.require(Event.SYNC)
        member = group.roster.validated(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise KafkaError(ErrorCode.illegal_generation)
        types = (request.protocol_type, group.protocol_type)
        names = (request.protocol_name, group.protocol_name)
        if any(None not in pair and len(set(pair)) > 1 for pair in (types, names)):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        leads = group.roster.leader == request.member_id
        step = group.require(Event.SYNC_AS_LEADER if leads else Event.SYNC)
        self._rebalance.synced(group, member)
        if step.action is Action.ANSWER:
            effects.answer(waiting, group.sync_answer(member))
            return
        # The member has sent a new request, so its old one is abandoned.
        replaced = SyncAnswer(error=ErrorCode.rebalance_in_progress)
        effects.answer(member.syncing, replaced)
        member.syncing = waiting
        if step.action is Action.STORE:
            self._rebalance.store(group, dict(request.assignments), effects)

    def heartbeat(
        self,
        group: Group,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Instant,
    ) -> ErrorCode:
        """Extend a member's session; REBALANCE_IN_PROGRESS if it has to rejoin."""
        if group.state is GroupState.DEAD:
            return group.step(Event.HEARTBEAT).error
        try:
            member = group.roster.validated(member_id, instance_id)
        except KafkaError as refused:
            return refused.code
        if generation != group.generation:
            return ErrorCode.illegal_generation
        step = group.step(Event.HEARTBEAT)
        if step.action is Action.TOUCH:
            self._rebalance.touch(group, member, now)
        return step.error

    def leave(
        self, group: Group, leavers: Sequence[MemberIdentity], now: Instant
    ) -> tuple[list[LeftMember], Effects]:
        """Remove members at their own or at an operator's request (KIP-345)."""
        effects = Effects()
        left = []
        for leaver in leavers:
            error = ErrorCode.none
            try:
                self._rebalance.lose(
                    group, _leaving(group, leaver), "it has left", effects
                )
            except KafkaError as refused:
                error = refused.code
            left.append(LeftMember(leaver.member_id, leaver.instance_id, error))
        if any(one.error is ErrorCode.none for one in left):
            action = group.step(Event.GONE).action
            if action is Action.REBALANCE:
                self._rebalance.prepare(group, effects, now)
            elif action is Action.COMPLETE:
                self._rebalance.complete_if_all_joined(group, effects, now)
        return left, effects

    def validate_commit(
        self,
        group: Group,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Instant,
    ) -> None:
        """Raise `KafkaError` if the caller may not commit offsets.

        A caller that is not a member (an operator's tool, a consumer with manual
        assignment) sends no generation, and may commit while the group has no members.
        """
        step = group.step(Event.COMMIT)
        is_no_member = generation < 0
        if group.state is GroupState.DEAD or (
            is_no_member and group.state is GroupState.EMPTY
        ):
            group.require(Event.COMMIT)
            return
        if is_no_member and member_id == UNKNOWN_MEMBER_ID and instance_id is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        member = group.roster.validated(member_id, instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.illegal_generation)
        group.require(Event.COMMIT)
        if step.action is Action.TOUCH:
            self._rebalance.touch(group, member, now)

    def validate_transactional_commit(
        self, group: Group, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Raise `KafkaError` if a transaction may not commit offsets.

        Without a member id a producer always may, since its own epoch fences it. With a
        member id the generation fences it, too; commits are allowed during a rebalance.
        The commit does not extend the session. Kafka: ``validateOffsetCommit``.
        """
        if group.state is GroupState.DEAD:
            group.require(Event.COMMIT)
        if generation < 0 and group.state is GroupState.EMPTY:
            return
        names_member = member_id != UNKNOWN_MEMBER_ID or instance_id is not None
        if generation < 0 and not names_member:
            return
        group.roster.validated(member_id, instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.illegal_generation)

    def due(self, group: Group, key: TimerKey, now: Instant) -> Effects:
        """Act on a deadline that has passed."""
        effects = Effects()
        if group.state is GroupState.DEAD:
            return effects
        if key.kind is TimerKind.SESSION:
            self._session_over(group, key.member_id, effects, now)
        elif key.kind is TimerKind.INITIAL_JOIN:
            self._rebalance.initial_join_due(group, effects, now)
        elif key.kind is TimerKind.JOIN:
            self._rebalance.join_overdue(group, effects, now)
        else:
            self._rebalance.sync_overdue(group, effects, now)
        return effects

    def _session_over(
        self, group: Group, member_id: str, effects: Effects, now: Instant
    ) -> None:
        """Remove a member without heartbeats, or an id that was never used."""
        if member_id in group.roster.pending:
            self._rebalance.lose(group, member_id, "its session has ended", effects)
            if group.step(Event.GONE).action is Action.COMPLETE:
                self._rebalance.after_loss(group, effects, now)
            return
        member = group.roster.members.get(member_id)
        if member is not None and not member.heartbeat_excused():
            self._rebalance.lose(group, member_id, "its session has ended", effects)
            self._rebalance.after_loss(group, effects, now)

    def unloading(self, group: Group, now: Instant) -> Iterator[Effects]:
        """End a group that another broker coordinates, in steps of some members."""
        # In reverse, since the leader is usually the first member, and each removal of
        # a leader would search for the next one.
        leaving = [*sorted(group.roster.pending), *reversed(group.roster.members)]
        effects = Effects()
        for number, member_id in enumerate(leaving, 1):
            self._rebalance.lose(
                group,
                member_id,
                "the group is not coordinated here any more",
                effects,
                ErrorCode.not_coordinator,
            )
            if not number % MEMBERS_PER_STEP:
                yield effects
                effects = Effects()
        self.end(group, now)
        yield effects

    def end(self, group: Group, now: Instant) -> None:
        """End a group that has no members."""
        self._rebalance.cancel_deadlines(group)
        group.move_to(GroupState.DEAD, now)


def _leaving(group: Group, leaver: MemberIdentity) -> str:
    """Return the id of the member to remove; raise `KafkaError` if there is none."""
    if leaver.member_id == UNKNOWN_MEMBER_ID:
        member_id = None
        if leaver.instance_id is not None:
            member_id = group.roster.static_member_id(leaver.instance_id)
        if member_id is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return member_id
    if leaver.member_id in group.roster.pending:
        return leaver.member_id
    return group.roster.validated(leaver.member_id, leaver.instance_id).member_id
