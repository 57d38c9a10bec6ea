"""Records that are readable by consumers only once they are durable.

Where ``flush.messages`` or ``flush.ms`` requires a flush, Kafka's append flushes before
the high watermark advances: a consumed record survives a loss of power. Here other
requests are served during a flush, so the high watermark stays below records that wait
for one. Followers may fetch them, since each replica flushes its own log.
"""

from __future__ import annotations

from broker.log.flushing import flush_due
from broker.log.log import Log


class FlushBarrier:
    """The offset up to which a log has to be flushed before consumers may read it."""

    __slots__ = ("_log", "_to_offset")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._to_offset = 0

    def note(self, now_ms: int) -> None:
        """Withhold the log up to its end, if a flush is due.

        The code that flushes notifies the partition afterwards.
        """
        if self._log.flushes and flush_due(self._log, now_ms):
            self._to_offset = self._log.log_end_offset

    def moved(self, log: Log) -> None:
        """Apply the barrier to a log that has replaced this one."""
        self._log = log

    @property
    def any(self) -> bool:
        """Return whether records are withheld and have not been truncated."""
        if not self._to_offset:
            return False
        log = self._log
        return log.recovery_point < min(self._to_offset, log.log_end_offset)

    def shown(self, end_offset: int) -> int:
        """Return ``end_offset``, or the durable end if records are withheld."""
        return min(end_offset, self._log.recovery_point) if self.any else end_offset
