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

    def note_fetch(
        self, log_end_offset: int, log_start_offset: int, leader_end: int, now_ns: int
    ) -> None:
        """Note how far it has come, while the leader's log ends at ``leader_end``."""
        if log_end_offset >= leader_end:
            self.caught_up_ns = now_ns
        elif log_end_offset >= self.end_at_last_fetch:
            # It has all that there was then: Kafka's ``lastCaughtUpTimeMs``.
            self.caught_up_ns = max(self.caught_up_ns, self.last_fetch_ns)
        self.end_at_last_fetch = leader_end
        self.log_end_offset = log_end_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_ns = now_ns

    def keeps_up(self, leader_end: int, now_ns: int, lag_ns: int) -> bool:
        """Tell whether it has all, or had all within ``lag_ns``."""
        if self.caught_up_ns < 0:
            # Its time begins with the first look since this leadership began.
            self.caught_up_ns = now_ns
        has_all = self.log_end_offset == leader_end
        return has_all or now_ns - self.caught_up_ns <= lag_ns
