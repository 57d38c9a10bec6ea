"""One classic group: its state, generation, members and committed offsets.

Kafka: ``ClassicGroup``. The group checks its state transitions and has queries about
its state; ``rebalance`` and ``membership`` decide on transitions. A group without a
protocol type and without members only stores offsets (Kafka's "simple group").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group_messages import (
    CONSUMER_PROTOCOL_TYPE,
    GroupProtocol,
    JoinAnswer,
    SyncAnswer,
)
from broker.groups.state.group_records import group_tombstone
from broker.groups.state.roster import Member, Roster
from broker.groups.state.transitions import (
    BEFORE,
    Action,
    Event,
    GroupState,
    Step,
    step,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.shards.effects import Instant, Record

_INT32_MAX: Final = 2**31 - 1


class Group(AnyGroup):
    """The state of one group; ``since_ms`` is the wall clock at its last transition."""

    __slots__ = (
        "generation",
        "initial_remaining_ms",
        "new_member_added",
        "previous",
        "protocol_name",
        "protocol_type",
        "roster",
        "since_ms",
        "state",
        "topics",
    )

    kind: ClassVar[str] = "classic"

    def __init__(self, group_id: str, now: Instant) -> None:
        super().__init__(group_id)
        self.state = GroupState.EMPTY
        self.previous = GroupState.DEAD
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.since_ms = now.wall_ms
        self.roster = Roster()
        # Topics that the members subscribe to; None: unknown to the broker.
        self.topics: frozenset[str] | None = None
        # A group's first rebalance is delayed while new members join.
        self.new_member_added = False
        self.initial_remaining_ms = 0

    def __repr__(self) -> str:
        return (
            f"<group {self.group_id!r}: {self.state.value}, generation "
            f"{self.generation}, {len(self.roster)} members>"
        )

    # ---- transitions ------------------------------------------------------------

    def move_to(self, state: GroupState, now: Instant) -> None:
        """Move to ``state``, which must be a legal transition."""
        assert self.state in BEFORE[state], f"{self!r} cannot become {state.value}"
        self.previous, self.state = self.state, state
        self.since_ms = now.wall_ms

    def admit(self, member: Member) -> None:
        """Add a member; the first one determines the protocol type."""
        if not self.roster:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type, member
        self.roster.add(member)

    def begin_generation(self, now: Instant) -> None:
        """Increment the generation, and select its protocol if there are members."""
        # The generation is an int32 on the wire and in the log.
        self.generation = (self.generation + 1) & _INT32_MAX
        self.roster.unsynced.clear()
        if self.roster:
            self.protocol_name = self.roster.select_protocol()
            self.move_to(GroupState.COMPLETING_REBALANCE, now)
        else:
            self.protocol_name = None
            self.move_to(GroupState.EMPTY, now)
        self.note_topics()

    def note_topics(self) -> None:
        """Update the subscribed topics, if they can be read from member metadata."""
        self.topics = None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return
        if not self.roster:
            self.topics = frozenset()
        elif self.protocol_name is not None:
            self.topics = self.roster.topics(self.protocol_name)

    # ---- queries ----------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.state.value

    def is_stored(self) -> bool:
        """Return whether the log may hold a generation."""
        return self.generation != 0

    def step(self, event: Event) -> Step:
        """Return the action for ``event`` in the current state."""
        return step(event, self.state)

    def require(self, event: Event) -> Step:
        """Return the action for ``event``; raise its error if the action is REFUSE."""
        found = step(event, self.state)
        if found.action is Action.REFUSE:
            raise KafkaError(found.error)
        return found

    def supports(
        self, protocol_type: str, protocols: tuple[GroupProtocol, ...]
    ) -> bool:
        """Return whether a member with these protocols may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and self.roster.supports_any(
            protocols
        )

    def subscribes_to(self, topic: str) -> bool:
        """Return whether members may use the topic; True for unknown subscriptions."""
        if self.topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.topics

    def has_no_members(self) -> bool:
        """Return whether no member exists, joins or commits."""
        return (
            self.state is GroupState.EMPTY
            and not self.roster.pending
            and not self.offsets.any_pending()
        )

    def require_deletable(self) -> None:
        """Raise `KafkaError` if the group cannot be deleted."""
        self.require(Event.DELETE)

    def require_deletable_offsets(self) -> None:
        """Raise `KafkaError` if no offset of the group can be deleted (KIP-496)."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.group_id_not_found)
        is_consumer = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        if self.state is not GroupState.EMPTY and not is_consumer:
            raise KafkaError(ErrorCode.non_empty_group)

    def may_expire(self) -> bool:
        """Return whether offsets may expire in the group's state."""
        if self.protocol_type is None or self.state is GroupState.EMPTY:
            return True
        return self.state is GroupState.STABLE and self.topics is not None

    def empty_since_ms(self) -> int | None:
        """Return the start of the offsets' retention; None: each commit's time."""
        is_empty = self.protocol_type is not None and self.state is GroupState.EMPTY
        return self.since_ms if is_empty and self.since_ms >= 0 else None

    def tombstones(self) -> Iterable[Record]:
        """Return the record that deletes the group."""
        return (group_tombstone(self.group_id),)

    def join_answer(
        self, member: Member, *, skip_assignment: bool = False
    ) -> JoinAnswer:
        """Return a member's answer to JoinGroup; the leader's lists all members."""
        assert self.protocol_name is not None
        leads = self.roster.leader == member.member_id
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader or "",
            skip_assignment=skip_assignment,
            members=self.roster.described(self.protocol_name) if leads else (),
        )

    def sync_answer(self, member: Member) -> SyncAnswer:
        """Return a member's answer to SyncGroup, with its assignment."""
        return SyncAnswer(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def check(self) -> None:
        """Assert the invariants between events."""
        self.roster.check()
        self.offsets.check()
        preparing = self.state is GroupState.PREPARING_REBALANCE
        completing = self.state is GroupState.COMPLETING_REBALANCE
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not self.roster, self
        elif not preparing:
            assert self.roster, self
            assert self.protocol_name is not None
            self.roster.select_protocol()
        for member in self.roster:
            assert member.syncing is None or completing, (self, member)
            assert member.is_new is False or preparing, (self, member)
            assert member.rebalance_timeout_ms >= 0, member
        if preparing or self.state is GroupState.EMPTY:
            assert not self.roster.unsynced, self


def join_refusal(member_id: str, error: ErrorCode) -> JoinAnswer:
    """Return an answer to JoinGroup with an error only."""
    return JoinAnswer(member_id=member_id, error=error)
