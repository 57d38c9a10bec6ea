"""What a leader shows to consumers only once it is durable.

Where ``flush.messages`` or ``flush.ms`` asks for a flush, Kafka's append does it before
the high watermark moves: who has read a record will find it after a loss of power. Here
a flush goes on while others are served, so what waits for one is withheld from the high
watermark. Followers may have it: theirs flush for themselves.
"""

from __future__ import annotations

from broker.log.flushing import flush_due
from broker.log.log import Log


class Withheld:
    """Up to where a log has to be flushed before all of it is shown."""

    __slots__ = ("_log", "_to_offset")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._to_offset = 0

    def note(self, now_ms: int) -> None:
        """See whether what the log holds now has to be flushed.

        Whoever notes a flush tells the partition afterwards.
        """
        if self._log.flushes and flush_due(self._log, now_ms):
            self._to_offset = self._log.log_end_offset

    @property
    def any(self) -> bool:
        """Return whether anything is withheld; a truncation may have taken it."""
        if not self._to_offset:
            return False
        log = self._log
        return log.recovery_point < min(self._to_offset, log.log_end_offset)

    def shown(self, end_offset: int) -> int:
        """Return ``end_offset``, or up to where the log is durable."""
        return min(end_offset, self._log.recovery_point) if self.any else end_offset
