"""Records that a leader shows to consumers only once they are durable.

Where ``flush.messages`` or ``flush.ms`` requires a flush, Kafka's append does it before
the high watermark moves: a record that was read is still there after a loss of power.
Here other requests go on during a flush, so records that wait for one are withheld from
the high watermark. Followers may have them: they flush for themselves.
"""

from __future__ import annotations

from broker.log.flushing import flush_due
from broker.log.log import Log


class FlushBarrier:
    """Up to where a log has to be flushed before all of it is shown."""

    __slots__ = ("_log", "_to_offset")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._to_offset = 0

    def note(self, now_ms: int) -> None:
        """Check whether the log now has to be flushed.

        The code that flushes notifies the partition afterwards.
        """
        if self._log.flushes and flush_due(self._log, now_ms):
            self._to_offset = self._log.log_end_offset

    def moved(self, log: Log) -> None:
        """Withhold as much of the log that has taken the place of this one."""
        self._log = log

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
