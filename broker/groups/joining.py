"""JoinGroup: a member enters a group, or joins again.

Kafka: ``classicGroupJoin*`` of ``GroupMetadataManager``. There are three cases:

- A dynamic member without an id first receives an id (KIP-394), so that a client whose
  response is lost does not remain as an abandoned member.
- A static member (KIP-345) replaces the member of the same ``group.instance.id``.
- A known member joins again. That starts a rebalance only if it is the leader, or if
  its protocols have changed.
"""

from __future__ import annotations

import random
import uuid
from typing import Final, NamedTuple

from broker.groups.rebalance import Rebalance, TimerKey, TimerKind
from broker.groups.state.group import Group, join_refusal
from broker.groups.state.group_messages import (
    UNKNOWN_MEMBER_ID,
    GroupProtocol,
    JoinAnswer,
    JoinRequest,
)
from broker.groups.state.roster import Member
from broker.groups.state.snapshot import group_metadata_record
from broker.groups.state.transitions import Action, Event, GroupState
from broker.protocol.errors import ErrorCode, KafkaError
from broker.shards.effects import NS_PER_MS, Effects, Instant, Write
from broker.shards.parked_answer import Waiting

JoinWaiting = Waiting[JoinAnswer]

_STRING_BYTES_MAX: Final = 2**15 - 1


class Joining:
    """Serves JoinGroup; ``rng`` generates member ids."""

    def __init__(self, rebalance: Rebalance, rng: random.Random) -> None:
        self._rebalance = rebalance
        self._config = rebalance.config
        self._rng = rng

    def join(
        self, group: Group, request: JoinRequest, waiting: JoinWaiting, now: Instant
    ) -> Effects:
        """Add a member; ``waiting`` is answered now or when the join phase ends."""
        effects = Effects()
        try:
            if not self._has_room_for(group, request.member_id):
                # A member that rejoins above a lowered bound is removed.
                self._rebalance.lose(
                    group, request.member_id, "the group is full", effects
                )
                if group.state is GroupState.PREPARING_REBALANCE:
                    self._rebalance.complete_if_all_joined(group, effects, now)
                raise KafkaError(ErrorCode.group_max_size_reached)
            if request.member_id == UNKNOWN_MEMBER_ID:
                self._join_unknown(group, request, waiting, effects, now)
            else:
                self._join_known(group, request, waiting, effects, now)
        except KafkaError as refused:
            member_id = request.member_id
            if refused.code is ErrorCode.group_max_size_reached:
                member_id = UNKNOWN_MEMBER_ID
            effects.answer(waiting, join_refusal(member_id, refused.code))
        return effects

    def _has_room_for(self, group: Group, member_id: str) -> bool:
        """Return whether ``group.max.size`` allows this member to join or stay.

        During a rebalance only members that have joined count. A group above a lowered
        bound thus loses the last members to join.
        """
        member = group.roster.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            joined = member is not None and member.joining is not None
            return joined or group.roster.joined_count() < self._config.group_max_size
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(group.roster) < self._config.group_max_size
        return True

    # ---- without an id ----------------------------------------------------------

    def _join_unknown(
        self,
        group: Group,
        request: JoinRequest,
        waiting: JoinWaiting,
        effects: Effects,
        now: Instant,
    ) -> None:
        """Assign an id to a dynamic member; add or replace a static member."""
        group.require(Event.JOIN)
        _require_support(group, request)
        member_id = self._new_member_id(request)
        if request.instance_id is not None:
            old_member_id = group.roster.static_member_id(request.instance_id)
            if old_member_id is None:
                self._admit(group, request, member_id, waiting, effects, now)
            else:
                old = group.roster.members[old_member_id]
                self._replace(group, request, old, member_id, waiting, effects, now)
        elif request.requires_known_member_id:
            group.roster.pending.add(member_id)
            key = TimerKey(TimerKind.SESSION, group.group_id, member_id)
            end_ns = now.ns + request.session_timeout_ms * NS_PER_MS
            self._rebalance.timers.schedule(key, end_ns)
            effects.answer(
                waiting, join_refusal(member_id, ErrorCode.member_id_required)
            )
        else:
            self._admit(group, request, member_id, waiting, effects, now)

    def _new_member_id(self, request: JoinRequest) -> str:
        """Return a new id that begins with the client's or the instance's name."""
        name = request.client_id if request.instance_id is None else request.instance_id
        unique = f"-{uuid.UUID(int=self._rng.getrandbits(128), version=4)}"
        # The id has to fit into a string of the protocol.
        room = _STRING_BYTES_MAX - len(unique)
        return name.encode()[:room].decode(errors="ignore") + unique

    def _admit(
        self,
        group: Group,
        request: JoinRequest,
        member_id: str,
        waiting: JoinWaiting,
        effects: Effects,
        now: Instant,
    ) -> None:
        """Add a member, with a time limit for its first join."""
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            is_new=True,
            joining=waiting,
        )
        if group.state is GroupState.PREPARING_REBALANCE:
            group.new_member_added = True
        group.admit(member)
        timeout_ms = self._config.new_member_join_timeout_ms
        self._rebalance.touch(group, member, now, timeout_ms)
        self._rebalance.rebalance_or_complete(group, effects, now)

    # ---- a static member returns ------------------------------------------------

    def _replace(
        self,
        group: Group,
        request: JoinRequest,
        member: Member,
        member_id: str,
        waiting: JoinWaiting,
        effects: Effects,
        now: Instant,
    ) -> None:
        """Replace a static member's process, and fence the old one."""
        before = _Identity(
            member.member_id,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            group.roster.leader or "",
        )
        fenced = ErrorCode.fenced_instance_id
        effects.answer(member.joining, join_refusal(member.member_id, fenced))
        if member.syncing is not None:
            self._rebalance.fence_sync(member, effects)
        self._rebalance.end_session(group, member.member_id)
        group.roster.rename(member, member_id)
        _update(group, member, request)
        group.roster.joins(member, waiting)
        chosen = group.roster.select_protocol()
        same = chosen == group.protocol_name
        action = group.step(Event.REPLACE if same else Event.REPLACE_CHANGED).action
        if action is Action.KEEP:
            self._keep(group, member, before, request, effects)
        elif action is Action.REBALANCE:
            self._rebalance.prepare(group, effects, now)
        else:
            self._rebalance.complete_if_all_joined(group, effects, now)

    def _keep(
        self,
        group: Group,
        member: Member,
        before: _Identity,
        request: JoinRequest,
        effects: Effects,
    ) -> None:
        """Store the new member id; the generation and its assignment continue."""
        waiting = member.joining
        assignments = {known.member_id: known.assignment for known in group.roster}
        record = group_metadata_record(group, assignments)

        def done(error: ErrorCode, now: Instant) -> Effects:
            effects = Effects()
            if member.joining is not waiting:
                return effects  # Answered by a rebalance, or removed.
            group.roster.joins(member, None)
            if error is not ErrorCode.none:
                effects.answer(waiting, join_refusal(UNKNOWN_MEMBER_ID, error))
                self._revert(group, member, before, now)
                return effects
            self._rebalance.touch(group, member, now)
            effects.answer(waiting, _kept(group, member, before, request))
            return effects

        effects.writes.append(Write((record,), done))

    def _revert(
        self, group: Group, member: Member, before: _Identity, now: Instant
    ) -> None:
        """Restore the old member id, since the new one could not be stored."""
        self._rebalance.end_session(group, member.member_id)
        group.roster.rename(member, before.member_id)
        group.roster.update(
            member,
            before.protocols,
            rebalance_timeout_ms=before.rebalance_timeout_ms,
            session_timeout_ms=before.session_timeout_ms,
        )
        self._rebalance.touch(group, member, now)

    # ---- with an id -------------------------------------------------------------

    def _join_known(
        self,
        group: Group,
        request: JoinRequest,
        waiting: JoinWaiting,
        effects: Effects,
        now: Instant,
    ) -> None:
        """Join a member that has an id, for the first time or again."""
        member_id = request.member_id
        if group.state is GroupState.DEAD:
            group.require(Event.JOIN)
        _require_support(group, request)
        if member_id in group.roster.pending:
            if request.instance_id is not None:
                # Pending ids belong to dynamic members only. Kafka fails likewise.
                raise KafkaError(ErrorCode.unknown_server_error)
            self._admit(group, request, member_id, waiting, effects, now)
            return
        member = group.roster.validated(member_id, request.instance_id)
        if member.protocols != request.protocols:
            event = Event.REJOIN_CHANGED
        elif group.roster.leader == member_id:
            event = Event.REJOIN_AS_LEADER
        else:
            event = Event.REJOIN
        if group.require(event).action is Action.ANSWER:
            effects.answer(waiting, group.join_answer(member))
            return
        # The member has sent a new request, so its old one is abandoned.
        replaced = join_refusal(member_id, ErrorCode.rebalance_in_progress)
        effects.answer(member.joining, replaced)
        _update(group, member, request)
        group.roster.joins(member, waiting)
        self._rebalance.rebalance_or_complete(group, effects, now)


class _Identity(NamedTuple):
    """The state of a static member before another process replaced it."""

    member_id: str
    protocols: tuple[GroupProtocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int
    leader: str


def _require_support(group: Group, request: JoinRequest) -> None:
    if not group.supports(request.protocol_type, request.protocols):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)


def _update(group: Group, member: Member, request: JoinRequest) -> None:
    group.roster.update(
        member,
        request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )


def _kept(
    group: Group, member: Member, before: _Identity, request: JoinRequest
) -> JoinAnswer:
    """Answer a static member that has returned to a stable group.

    A client that cannot skip the assignment (KIP-814) receives the former leader's id,
    so that it does not compute an assignment as the leader.
    """
    leads = group.roster.leader == member.member_id
    if request.supports_skipping_assignment:
        return group.join_answer(member, skip_assignment=leads)
    return JoinAnswer(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=before.leader,
    )
