"""Arguments and results of the core of consumer groups; no wire entities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.groups.consumer.members import Held
from broker.groups.consumer.reconciliation import Owned
from broker.protocol.errors import ErrorCode


def _allowed(topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A valid ConsumerGroupHeartbeat request; None: unchanged since the last one.

    ``may_describe`` returns whether the sender's regular expression may match a topic.
    """

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Owned = None
    may_describe: Callable[[str], bool] = _allowed

    @property
    def wants_assignment(self) -> bool:
        """Return whether the sender joins, or sends all fields, as after an error."""
        has_topics = self.topics is not None or self.regex is not None
        is_full = self.rebalance_timeout_ms != -1 and has_topics
        return self.epoch == 0 or (is_full and self.owned is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The response; without an assignment the member keeps its partitions."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: Held | None = None
    error: ErrorCode = ErrorCode.none
