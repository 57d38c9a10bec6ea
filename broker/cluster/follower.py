"""What a leader knows of another replica of its partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Follower:
    """Kafka's ``Replica``; -1: not yet anything."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    last_fetch_ns: int = -1
    # The leader's end at that fetch, and when the follower last had all there was.
    end_at_last_fetch: int = -1
    caught_up_ns: int = -1
