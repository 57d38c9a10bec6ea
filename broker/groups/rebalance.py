"""Rebalances: the transition of a group from one generation to the next."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import replace
from logging import getLogger
from typing import NamedTuple

from broker.groups.state.group import Group, join_refusal
from broker.groups.state.group_messages import (
    UNKNOWN_MEMBER_ID,
    GroupProtocol,
    JoinAnswer,
    JoinedMember,
    SyncAnswer,
)
from broker.groups.state.group_records import MEMBERS_PER_STEP
from broker.groups.state.group_settings import GroupConfig
from broker.groups.state.roster import Member, metadata_of
from broker.groups.state.snapshot import group_metadata_record
from broker.groups.state.transitions import Action, Event, GroupState
from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode
from broker.shards.effects import NS_PER_MS, Answered, Effects, Instant, Write
from broker.shards.parked_answer import Waiting
from broker.shards.timers import Timers

logger = getLogger(__name__)


class TimerKind(enum.Enum):
    """The purpose of a deadline."""

    SESSION = "a member's heartbeat is overdue"
    JOIN = "the join phase is over"
    INITIAL_JOIN = "a new group has waited for more members"
    SYNC = "the sync phase is over"
    REVOCATION = "a member has not given up its partitions in time"
    CLASSIC_JOIN = "a member of the classic protocol did not join in time"
    CLASSIC_SYNC = "a member of the classic protocol did not sync in time"


class TimerKey(NamedTuple):
    """A deadline of a group, or of one member of it."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Rebalance:
    """Moves groups through the phases; ``completed`` counts transitions to Stable."""

    def __init__(self, config: GroupConfig, timers: Timers[TimerKey]) -> None:
        self.config = config
        self.timers = timers
        self.completed = 0

    # ---- sessions ---------------------------------------------------------------

    def touch(
        self, group: Group, member: Member, now: Instant, timeout_ms: int | None = None
    ) -> None:
        """Restart a member's session timeout."""
        length_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
        self.timers.schedule(key, now.ns + length_ms * NS_PER_MS)

    def end_session(self, group: Group, member_id: str) -> None:
        """Cancel a member's session timeout."""
        self.timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member_id))

    def lose(
        self,
        group: Group,
        member_id: str,
        why: str,
        effects: Effects,
        error: ErrorCode = ErrorCode.unknown_member_id,
    ) -> None:
        """Remove a member or a pending id, and answer its parked requests."""
        self.end_session(group, member_id)
        member = group.roster.remove(member_id)
        if member is None:
            return
        logger.info(
            "group loses a member",
            extra=fields(group=group.group_id, member=member_id, why=why),
        )
        effects.answer(member.joining, join_refusal(UNKNOWN_MEMBER_ID, error))
        effects.answer(member.syncing, SyncAnswer(error=error))
        member.joining = member.syncing = None

    def fence_sync(self, member: Member, effects: Effects) -> None:
        """Answer the parked SyncGroup of a static member's replaced process."""
        effects.answer(member.syncing, SyncAnswer(error=ErrorCode.fenced_instance_id))
        member.syncing = None

    def cancel_deadlines(self, group: Group) -> None:
        """Cancel the group's own deadlines."""
        self._cancel_join(group)
        self.timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))

    # ---- the join phase ---------------------------------------------------------

    def prepare(self, group: Group, effects: Effects, now: Instant) -> None:
        """Begin a rebalance; a group's first one is delayed for more members."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_sync(group, ErrorCode.rebalance_in_progress, effects, now)
        group.roster.unsynced.clear()
        self.timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        initial = group.state is GroupState.EMPTY
        group.move_to(GroupState.PREPARING_REBALANCE, now)
        logger.info(
            "group prepares to rebalance",
            extra=fields(
                group=group.group_id,
                generation=group.generation,
                members=len(group.roster),
            ),
        )
        if initial:
            delay_ms = self.config.group_initial_rebalance_delay_ms
            timeout_ms = group.roster.rebalance_timeout_ms()
            group.initial_remaining_ms = max(timeout_ms - delay_ms, 0)
            group.new_member_added = False
            self._put_off(group, delay_ms, effects, now)
        elif group.roster.all_joined():
            self.complete_join(group, effects, now)
        else:
            self._schedule(group, TimerKind.JOIN, now)

    def rebalance_or_complete(
        self, group: Group, effects: Effects, now: Instant
    ) -> None:
        """Begin a rebalance, or end the join phase if all members have joined."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_all_joined(group, effects, now)
        else:
            self.prepare(group, effects, now)

    def complete_if_all_joined(
        self, group: Group, effects: Effects, now: Instant
    ) -> None:
        """End the join phase if all have joined and it is not the group's first."""
        if group.previous is not GroupState.EMPTY and group.roster.all_joined():
            self.complete_join(group, effects, now)

    def after_loss(self, group: Group, effects: Effects, now: Instant) -> None:
        """Begin a rebalance, or end the join phase, after members were removed."""
        action = group.step(Event.GONE).action
        if action is Action.REBALANCE:
            self.prepare(group, effects, now)
        elif action is Action.COMPLETE and group.roster.all_joined():
            self.complete_join(group, effects, now)

    def initial_join_due(self, group: Group, effects: Effects, now: Instant) -> None:
        """Extend the delay if members have joined meanwhile, or end the join phase."""
        remaining_ms = group.initial_remaining_ms
        if not group.new_member_added or remaining_ms == 0:
            self.complete_join(group, effects, now)
            return
        group.new_member_added = False
        delay_ms = min(self.config.group_initial_rebalance_delay_ms, remaining_ms)
        group.initial_remaining_ms = remaining_ms - delay_ms
        self._put_off(group, delay_ms, effects, now)

    def join_overdue(self, group: Group, effects: Effects, now: Instant) -> None:
        """Remove some absent members; after the last one, end the join phase."""
        absent = _absent(group)
        for member in reversed(absent[-MEMBERS_PER_STEP:]):
            self.lose(group, member.member_id, "it did not join in time", effects)
        if len(absent) > MEMBERS_PER_STEP:
            self.timers.schedule(TimerKey(TimerKind.JOIN, group.group_id), now.ns)
        else:
            self.complete_join(group, effects, now)

    def complete_join(self, group: Group, effects: Effects, now: Instant) -> None:
        """End the join phase: remove absent members, begin the next generation."""
        roster = group.roster
        self._cancel_join(group)
        for member in _absent(group):
            self.lose(group, member.member_id, "it did not join in time", effects)
        if roster and not roster.elect_joined_leader():
            # Only static members remain and none has joined: wait for their sessions.
            self._schedule(group, TimerKind.JOIN, now)
            return
        group.begin_generation(now)
        logger.info(
            "group begins a generation",
            extra=fields(
                group=group.group_id,
                generation=group.generation,
                members=len(roster),
                leader=roster.leader,
                protocol=group.protocol_name,
            ),
        )
        if not roster:
            effects.writes.append(_write(group, {}))
            return
        effects.in_turn.append(self._answer_joins(group, now))
        roster.unsynced.update(roster.members)
        self._schedule(group, TimerKind.SYNC, now)

    def _answer_joins(self, group: Group, now: Instant) -> Iterator[Answered]:
        """Answer all members with the current generation, even if answered later."""
        answer = JoinAnswer(
            member_id=UNKNOWN_MEMBER_ID,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.roster.leader or "",
        )
        waiting = [
            (member, member.member_id, member.protocols, member.joining)
            for member in group.roster
        ]
        for member in group.roster:
            member.is_next = True
            member.is_new = False
        group.roster.none_waits()
        return self._join_answers(group, answer, waiting, now)

    def _join_answers(
        self,
        group: Group,
        answer: JoinAnswer,
        waiting: Sequence[
            tuple[Member, str, tuple[GroupProtocol, ...], Waiting[JoinAnswer] | None]
        ],
        now: Instant,
    ) -> Iterator[Answered]:
        """Answer the leader last, since its response lists all members."""
        name = answer.protocol_name or ""
        shown = []
        leads: Waiting[JoinAnswer] | None = None
        for member, member_id, protocols, parked in waiting:
            metadata = metadata_of(protocols, name)
            if member.protocols is protocols:
                member.row(name)
            shown.append(JoinedMember(member_id, member.instance_id, metadata))
            self._mark_answered(group, member, now)
            if member_id == answer.leader:
                leads = parked
            elif parked is not None:
                yield parked, replace(answer, member_id=member_id)
        if leads is not None:
            yield leads, replace(answer, member_id=answer.leader, members=tuple(shown))

    def _mark_answered(self, group: Group, member: Member, now: Instant) -> None:
        """Start the session of an answered member, unless it has been removed."""
        member.is_next = False
        if group.roster.members.get(member.member_id) is member:
            self.touch(group, member, now)

    def _cancel_join(self, group: Group) -> None:
        self.timers.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        self.timers.cancel(TimerKey(TimerKind.INITIAL_JOIN, group.group_id))

    def _put_off(
        self, group: Group, delay_ms: int, effects: Effects, now: Instant
    ) -> None:
        if delay_ms == 0:
            self.complete_join(group, effects, now)
            return
        key = TimerKey(TimerKind.INITIAL_JOIN, group.group_id)
        self.timers.schedule(key, now.ns + delay_ms * NS_PER_MS)

    def _schedule(self, group: Group, kind: TimerKind, now: Instant) -> None:
        length_ns = group.roster.rebalance_timeout_ms() * NS_PER_MS
        self.timers.schedule(TimerKey(kind, group.group_id), now.ns + length_ns)

    # ---- the sync phase ---------------------------------------------------------

    def synced(self, group: Group, member: Member) -> None:
        """Record that a member has sent its SyncGroup."""
        group.roster.unsynced.discard(member.member_id)
        if not group.roster.unsynced:
            self.timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))

    def sync_overdue(self, group: Group, effects: Effects, now: Instant) -> None:
        """Remove some members that have not synced; after the last one, rebalance."""
        assert group.step(Event.SYNC_OVERDUE).action is Action.REBALANCE
        assert group.roster.unsynced, "the timer outlived its reason"
        overdue = [m for m in group.roster.members if m in group.roster.unsynced]
        for member_id in reversed(overdue[-MEMBERS_PER_STEP:]):
            self.lose(group, member_id, "it did not sync in time", effects)
        if len(overdue) > MEMBERS_PER_STEP:
            self.timers.schedule(TimerKey(TimerKind.SYNC, group.group_id), now.ns)
        else:
            self.prepare(group, effects, now)

    def store(
        self, group: Group, assignments: dict[str, bytes], effects: Effects
    ) -> None:
        """Write the leader's assignment; it takes effect once it is in the log."""
        generation = group.generation

        def done(error: ErrorCode, now: Instant) -> Effects:
            return self._stored(group, generation, assignments, error, now)

        effects.writes.append(_write(group, assignments)._replace(done=done))

    def _stored(
        self,
        group: Group,
        generation: int,
        assignments: dict[str, bytes],
        error: ErrorCode,
        now: Instant,
    ) -> Effects:
        """Publish the assignment, unless the group has rebalanced meanwhile."""
        effects = Effects()
        overtaken = generation != group.generation
        if overtaken or group.step(Event.STORED).action is not Action.PUBLISH:
            return effects
        if error is not ErrorCode.none:
            self.fail_sync(group, error, effects, now)
            self.prepare(group, effects, now)
            return effects
        group.move_to(GroupState.STABLE, now)
        self.completed += 1
        logger.info(
            "group is stable",
            extra=fields(group=group.group_id, generation=generation),
        )
        for member in group.roster:
            member.assignment = assignments.get(member.member_id, b"")
        answer = SyncAnswer(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name
        )
        effects.in_turn.append(self._answer_syncs(group, answer, now))
        return effects

    def fail_sync(
        self, group: Group, error: ErrorCode, effects: Effects, now: Instant
    ) -> None:
        """Clear the assignments, and answer all parked SyncGroups with an error."""
        for member in group.roster:
            member.assignment = b""
        answer = SyncAnswer(error=error)
        effects.in_turn.append(self._answer_syncs(group, answer, now))

    def _answer_syncs(
        self, group: Group, answer: SyncAnswer, now: Instant
    ) -> Iterator[Answered]:
        """Answer all parked SyncGroups, each with the member's current assignment."""
        waiting = [
            (member, member.assignment, member.syncing)
            for member in group.roster
            if member.syncing is not None
        ]
        for member, _, _ in waiting:
            member.is_next = True
            member.syncing = None
        return self._sync_answers(group, answer, waiting, now)

    def _sync_answers(
        self,
        group: Group,
        answer: SyncAnswer,
        waiting: Sequence[tuple[Member, bytes, Waiting[SyncAnswer]]],
        now: Instant,
    ) -> Iterator[Answered]:
        for member, assignment, parked in waiting:
            # Session timeouts are ignored while a request is parked.
            self._mark_answered(group, member, now)
            yield parked, replace(answer, assignment=assignment)


def _absent(group: Group) -> list[Member]:
    """Return the dynamic members that have not joined."""
    return [m for m in group.roster if m.joining is None and m.instance_id is None]


def _write(group: Group, assignments: dict[str, bytes]) -> Write:
    """Return the write of the group with ``assignments``, which ignores the outcome.

    If the record of an empty generation is lost, the next start restores the previous
    generation, and its members' sessions expire.
    """
    return Write((group_metadata_record(group, assignments),), _done)


def _done(error: ErrorCode, now: Instant) -> Effects:
    return Effects()
