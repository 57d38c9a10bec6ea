"""A leader's state of another replica of its partition, and the rules of the ISR."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

NEVER: Final = -1


@dataclass(slots=True, kw_only=True)
class Follower:
    """Kafka's ``Replica``; offsets are -1 before the first fetch.

    ``caught_up_ns`` is the start of the leader's epoch for a replica that is in sync at
    that time. Any other replica has never caught up, and the high watermark does not
    wait for it.
    """

    log_end_offset: int = -1
    log_start_offset: int = -1
    last_fetch_ns: int = NEVER
    # The leader's end at the last fetch, and the last time without a lag.
    end_at_last_fetch: int = -1
    caught_up_ns: int = NEVER

    def note_fetch(
        self, log_end_offset: int, log_start_offset: int, leader_end: int, now_ns: int
    ) -> bool:
        """Record the offsets of a fetch, while the leader's log ends at ``leader_end``.

        Returns whether the log start offset has advanced.
        """
        if log_end_offset >= leader_end:
            self.caught_up_ns = now_ns
        elif log_end_offset >= self.end_at_last_fetch:
            # Caught up with the end of the last fetch: Kafka's ``lastCaughtUpTimeMs``.
            self.caught_up_ns = max(self.caught_up_ns, self.last_fetch_ns)
        self.end_at_last_fetch = leader_end
        self.log_end_offset = log_end_offset
        self.last_fetch_ns = now_ns
        has_deleted = log_start_offset > self.log_start_offset
        self.log_start_offset = log_start_offset
        return has_deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRules:
    """Rules of the ISR: one object for all partitions of a broker.

    ``now_ns`` is the clock of fetches, ``lag_ns`` is ``replica.lag.time.max.ms``, and
    ``is_alive`` returns whether a broker is live, by the controller's metadata.
    """

    now_ns: Callable[[], int]
    lag_ns: Callable[[], int]
    is_alive: Callable[[int], bool]

    def keeps_up(self, follower: Follower, leader_end: int) -> bool:
        """Return whether a follower had no lag within ``lag_ns``: ``isCaughtUp``."""
        if follower.log_end_offset == leader_end:
            return True
        since_ns = follower.caught_up_ns
        return since_ns != NEVER and self.now_ns() - since_ns <= self.lag_ns()

    def common_end(
        self, leader_end: int, followers: Mapping[int, Follower], isr: Collection[int]
    ) -> int:
        """Return the smallest log end of the ISR and of replicas that may join it.

        Replicas outside the ISR that keep up are included: otherwise the leader could
        stay ahead of a joining replica for ever (``shouldWaitForReplicaToJoinIsr``).
        """
        end = leader_end
        for replica, follower in followers.items():
            if follower.log_end_offset < end and (
                replica in isr
                or (self.keeps_up(follower, leader_end) and self.is_alive(replica))
            ):
                end = follower.log_end_offset
        return end

    def common_start(self, leader_start: int, followers: Mapping[int, Follower]) -> int:
        """Return the smallest log start of live replicas; -1 if one is unknown."""
        starts = [
            follower.log_start_offset
            for replica, follower in followers.items()
            if self.is_alive(replica)
        ]
        return min([leader_start, *starts])


# For replicas that are not served: there are no other brokers.
NO_OTHERS: Final = SyncRules(
    now_ns=lambda: 0, lag_ns=lambda: 0, is_alive=lambda broker: False
)
