"""The classic group protocol's state machine as data.

There are two tables. ``BEFORE`` holds the legal transitions between states (Kafka:
``ClassicGroupState.validPreviousStates``). ``STEPS`` holds the action for each event
and state. Checks that apply in every state come before the lookup: the member is known,
its instance is not fenced, the generation matches. A missing pair is impossible; its
lookup fails an assertion.

A JoinGroup of a known member is one of three events, since Stable distinguishes the
leader, a changed member and an unchanged follower. Cooperative rebalancing depends on
this distinction (KIP-429).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.protocol.errors import ErrorCode


class GroupState(enum.Enum):
    """Kafka's states; the values are Kafka's names on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(enum.Enum):
    """The events of a group."""

    JOIN = "a new member, or a pending one, joins"
    REJOIN = "an unchanged follower joins again"
    REJOIN_AS_LEADER = "the unchanged leader joins again"
    REJOIN_CHANGED = "a member joins again with other protocols or metadata"
    REPLACE = "a static member returns; the next protocol stays the same"
    REPLACE_CHANGED = "a static member returns; the next protocol would differ"
    SYNC = "a follower asks for its assignment"
    SYNC_AS_LEADER = "the leader brings the assignment"
    STORED = "the assignment of this generation is in the log"
    HEARTBEAT = "a member of this generation is alive"
    GONE = "a member left, expired or was refused"
    SYNC_OVERDUE = "members have not asked for their assignment in time"
    COMMIT = "a member of this generation, or no member, commits offsets"
    DELETE = "an operator deletes the group"


class Action(enum.Enum):
    """The actions on events."""

    REFUSE = "answer with the error"
    ADMIT = "add the member, park its request, rebalance"
    REJOIN = "update the member, park its request, rebalance"
    ANSWER = "answer at once with the current state"
    PARK = "park the request"
    STORE = "park the request and write the assignment to the log"
    KEEP = "write the new member id to the log, then answer with the current state"
    PUBLISH = "hand every member its assignment"
    TOUCH = "put off the session's end; answer with the error, if there is one"
    REBALANCE = "begin a rebalance"
    COMPLETE = "end the join phase if everyone has joined"
    ACCEPT = "do it"
    IGNORE = "do nothing"


class Step(NamedTuple):
    """An action, and the error code of the answer."""

    action: Action
    error: ErrorCode = ErrorCode.none


def _refuse(error: ErrorCode) -> Step:
    return Step(Action.REFUSE, error)


_EMPTY: Final = GroupState.EMPTY
_PREPARING: Final = GroupState.PREPARING_REBALANCE
_COMPLETING: Final = GroupState.COMPLETING_REBALANCE
_STABLE: Final = GroupState.STABLE
_DEAD: Final = GroupState.DEAD

BEFORE: Final[Mapping[GroupState, frozenset[GroupState]]] = MappingProxyType(
    {
        _EMPTY: frozenset({_PREPARING}),
        _PREPARING: frozenset({_STABLE, _COMPLETING, _EMPTY}),
        _COMPLETING: frozenset({_PREPARING}),
        _STABLE: frozenset({_COMPLETING}),
        _DEAD: frozenset(GroupState),
    }
)

_IGNORE = Step(Action.IGNORE)
_UNKNOWN = _refuse(ErrorCode.unknown_member_id)
_REBALANCING = _refuse(ErrorCode.rebalance_in_progress)
_UNAVAILABLE = _refuse(ErrorCode.coordinator_not_available)
_NON_EMPTY = _refuse(ErrorCode.non_empty_group)

# Columns: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead; None:
# impossible.
_ROWS: Final[Mapping[Event, tuple[Step | None, ...]]] = {
    Event.JOIN: (*[Step(Action.ADMIT)] * 4, _UNAVAILABLE),
    Event.REJOIN: (
        _UNKNOWN,
        Step(Action.REJOIN),
        Step(Action.ANSWER),
        Step(Action.ANSWER),
        _UNAVAILABLE,
    ),
    Event.REJOIN_AS_LEADER: (
        _UNKNOWN,
        Step(Action.REJOIN),
        Step(Action.ANSWER),
        Step(Action.REJOIN),
        _UNAVAILABLE,
    ),
    Event.REJOIN_CHANGED: (_UNKNOWN, *[Step(Action.REJOIN)] * 3, _UNAVAILABLE),
    Event.REPLACE: (
        None,
        Step(Action.COMPLETE),
        Step(Action.REBALANCE),
        Step(Action.KEEP),
        None,
    ),
    Event.REPLACE_CHANGED: (
        None,
        Step(Action.COMPLETE),
        Step(Action.REBALANCE),
        Step(Action.REBALANCE),
        None,
    ),
    Event.SYNC: (
        _UNKNOWN,
        _REBALANCING,
        Step(Action.PARK),
        Step(Action.ANSWER),
        _UNAVAILABLE,
    ),
    Event.SYNC_AS_LEADER: (
        _UNKNOWN,
        _REBALANCING,
        Step(Action.STORE),
        Step(Action.ANSWER),
        _UNAVAILABLE,
    ),
    Event.STORED: (_IGNORE, _IGNORE, Step(Action.PUBLISH), _IGNORE, _IGNORE),
    Event.HEARTBEAT: (
        _UNKNOWN,
        Step(Action.TOUCH, ErrorCode.rebalance_in_progress),
        Step(Action.TOUCH),
        Step(Action.TOUCH),
        _UNAVAILABLE,
    ),
    Event.GONE: (
        _IGNORE,
        Step(Action.COMPLETE),
        Step(Action.REBALANCE),
        Step(Action.REBALANCE),
        _IGNORE,
    ),
    Event.SYNC_OVERDUE: (
        None,
        None,
        Step(Action.REBALANCE),
        Step(Action.REBALANCE),
        None,
    ),
    Event.COMMIT: (
        Step(Action.ACCEPT),
        Step(Action.TOUCH),
        _REBALANCING,
        Step(Action.TOUCH),
        _UNAVAILABLE,
    ),
    Event.DELETE: (
        Step(Action.ACCEPT),
        _NON_EMPTY,
        _NON_EMPTY,
        _NON_EMPTY,
        _refuse(ErrorCode.group_id_not_found),
    ),
}

STEPS: Final[Mapping[tuple[Event, GroupState], Step]] = MappingProxyType(
    {
        (event, state): entry
        for event, row in _ROWS.items()
        for state, entry in zip(GroupState, row, strict=True)
        if entry is not None
    }
)


def step(event: Event, state: GroupState) -> Step:
    """Return the action for ``event`` in ``state``."""
    found = STEPS.get((event, state))
    assert found is not None, f"{event.name} cannot happen in {state.value}"
    return found
