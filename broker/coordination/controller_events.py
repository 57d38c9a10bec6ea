"""Events of a controller: its state, and the waiting and handling times of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from enum import IntEnum
from logging import getLogger
from typing import Final, NamedTuple

from broker.observation.histogram import Histogram
from broker.observation.logs import fields
from broker.observation.supervisor import breaks_a_plane

logger = getLogger(__name__)


class ControllerState(IntEnum):
    """The kind of an event, with Kafka's names and numbers."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16
    UPDATE_FEATURES = 17


# States that Kafka does not time.
_UNTIMED: Final = frozenset(
    {ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED}
)
# Work whose failure is logged and counted, and which is retried later.
_MAY_FAIL: Final = (
    "altered configs",
    "controller event",
    "controller start",
    "session",
)
_OLD_NAMES: Final = {
    ControllerState.BROKER_CHANGE: "LeaderElection",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "PartitionReassignment",
}


def timer_name(state: ControllerState) -> str:
    """Return Kafka's name of the timer of a state."""
    camel = state.name.title().replace("_", "")
    return f"{_OLD_NAMES.get(state, camel)}RateAndTimeMs"


class ControllerEvent(NamedTuple):
    """A pending event of a controller: its kind, its arrival time and its handler."""

    state: ControllerState
    since_ns: int
    handle: Callable[[], Awaitable[None]]


class ControllerMeters:
    """The meters of a broker's terms as controller; ``now_ns`` is their clock.

    ``failures`` counts work that failed because of a bug in this broker or an
    unexpected znode.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.state = ControllerState.IDLE
        self.waited_ns = Histogram()
        self.took_ns = {
            state: Histogram() for state in ControllerState if state not in _UNTIMED
        }
        self.failures: Counter[str] = Counter(dict.fromkeys(_MAY_FAIL, 0))

    def failed(self, what: str, fault: Exception) -> None:
        """Log and count failed work; raise a fault that breaks a plane."""
        assert what in _MAY_FAIL, what
        if breaks_a_plane(fault):
            raise fault
        self.failures[what] += 1
        logger.error(
            "work as a member of the cluster has failed",
            exc_info=fault,
            extra=fields(what=what, fault=repr(fault)),
        )

    async def handle(self, event: ControllerEvent) -> None:
        """Handle an event, and record its waiting and handling time."""
        began_ns = self.now_ns()
        self.state = event.state
        self.waited_ns.add(began_ns - event.since_ns)
        try:
            await event.handle()
        finally:
            self.state = ControllerState.IDLE
            self.took_ns[event.state].add(self.now_ns() - began_ns)
