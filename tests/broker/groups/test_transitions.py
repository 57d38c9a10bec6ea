"""The state tables, compared with Kafka's documentation of each state.

The expected words are copied by hand from the comments on ``ClassicGroupState``, in the
order of states. The tables are in the order of events, so the copy is independent.
"""

from __future__ import annotations

import pytest

from broker.groups.state.transitions import (
    BEFORE,
    STEPS,
    Action,
    Event,
    GroupState,
    step,
)
from broker.protocol.errors import ErrorCode

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

DOCUMENTED = {
    EMPTY: {
        Event.JOIN: "ADMIT",
        Event.REJOIN: "unknown_member_id",
        Event.REJOIN_AS_LEADER: "unknown_member_id",
        Event.REJOIN_CHANGED: "unknown_member_id",
        Event.SYNC: "unknown_member_id",
        Event.SYNC_AS_LEADER: "unknown_member_id",
        Event.STORED: "IGNORE",
        Event.HEARTBEAT: "unknown_member_id",
        Event.GONE: "IGNORE",
        Event.COMMIT: "ACCEPT",
        Event.DELETE: "ACCEPT",
    },
    PREPARING: {
        Event.JOIN: "ADMIT",
        Event.REJOIN: "REJOIN",
        Event.REJOIN_AS_LEADER: "REJOIN",
        Event.REJOIN_CHANGED: "REJOIN",
        Event.REPLACE: "COMPLETE",
        Event.REPLACE_CHANGED: "COMPLETE",
        Event.SYNC: "rebalance_in_progress",
        Event.SYNC_AS_LEADER: "rebalance_in_progress",
        Event.STORED: "IGNORE",
        Event.HEARTBEAT: "TOUCH rebalance_in_progress",
        Event.GONE: "COMPLETE",
        Event.COMMIT: "TOUCH",
        Event.DELETE: "non_empty_group",
    },
    COMPLETING: {
        Event.JOIN: "ADMIT",
        Event.REJOIN: "ANSWER",
        Event.REJOIN_AS_LEADER: "ANSWER",
        Event.REJOIN_CHANGED: "REJOIN",
        Event.REPLACE: "REBALANCE",
        Event.REPLACE_CHANGED: "REBALANCE",
        Event.SYNC: "PARK",
        Event.SYNC_AS_LEADER: "STORE",
        Event.STORED: "PUBLISH",
        Event.HEARTBEAT: "TOUCH",
        Event.GONE: "REBALANCE",
        Event.SYNC_OVERDUE: "REBALANCE",
        Event.COMMIT: "rebalance_in_progress",
        Event.DELETE: "non_empty_group",
    },
    STABLE: {
        Event.JOIN: "ADMIT",
        Event.REJOIN: "ANSWER",
        Event.REJOIN_AS_LEADER: "REJOIN",
        Event.REJOIN_CHANGED: "REJOIN",
        Event.REPLACE: "KEEP",
        Event.REPLACE_CHANGED: "REBALANCE",
        Event.SYNC: "ANSWER",
        Event.SYNC_AS_LEADER: "ANSWER",
        Event.STORED: "IGNORE",
        Event.HEARTBEAT: "TOUCH",
        Event.GONE: "REBALANCE",
        Event.SYNC_OVERDUE: "REBALANCE",
        Event.COMMIT: "TOUCH",
        Event.DELETE: "non_empty_group",
    },
    DEAD: {
        Event.JOIN: "coordinator_not_available",
        Event.REJOIN: "coordinator_not_available",
        Event.REJOIN_AS_LEADER: "coordinator_not_available",
        Event.REJOIN_CHANGED: "coordinator_not_available",
        Event.SYNC: "coordinator_not_available",
        Event.SYNC_AS_LEADER: "coordinator_not_available",
        Event.STORED: "IGNORE",
        Event.HEARTBEAT: "coordinator_not_available",
        Event.GONE: "IGNORE",
        Event.COMMIT: "coordinator_not_available",
        Event.DELETE: "group_id_not_found",
    },
}


def test_every_step_is_what_kafka_documents() -> None:
    spelt = {
        (event, state): word
        for state, row in DOCUMENTED.items()
        for event, word in row.items()
    }
    assert {pair: _spell(*pair) for pair in STEPS} == spelt


def _spell(event: Event, state: GroupState) -> str:
    action, error = step(event, state)
    if action is Action.REFUSE:
        return error.name
    return action.name if error is ErrorCode.none else f"{action.name} {error.name}"


def test_the_legal_moves_are_those_of_kafka() -> None:
    moves = {(before, state) for state in GroupState for before in BEFORE[state]}
    assert moves == {
        (PREPARING, EMPTY),
        (EMPTY, PREPARING),
        (COMPLETING, PREPARING),
        (STABLE, PREPARING),
        (PREPARING, COMPLETING),
        (COMPLETING, STABLE),
        *((state, DEAD) for state in GroupState),
    }


def test_an_impossible_pair_is_an_assertion() -> None:
    with pytest.raises(AssertionError, match="SYNC_OVERDUE cannot happen in Empty"):
        step(Event.SYNC_OVERDUE, EMPTY)
