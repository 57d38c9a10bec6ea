"""Scheduling and throttling of compaction: Kafka's ``LogCleaner`` and its manager.

A round compacts the log with the largest share of dirty bytes among the logs that are
due. As long as a log is due, the next round follows at once; otherwise the cleaner
sleeps for ``log.cleaner.backoff.ms``. Bytes read and written stay below
``log.cleaner.io.max.bytes.per.second``. A log that fails is skipped for some time, so
that other logs are compacted (in Kafka it is uncleanable until a restart).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.disk.disk_failures import LogUnavailable
from broker.log.log import Log
from broker.log.steps import Steps
from broker.log.upkeep.cleaner import compaction, compaction_due, dirty_ratio
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.rounds import Failed
from broker.protocol.topic_partition import TopicPartition

_TRY_AGAIN_MS: Final = 300_000
_LOGS_PER_STEP: Final = 32
_NS_PER_S: Final = 1_000_000_000
# Memory of a key and its offset in the map; measured: at least 120 bytes.
_ENTRY_BYTES: Final = 150
# Largest credit of the throttle, as time.
_BURST_NS: Final = 300_000_000


class CleanerConfig(NamedTuple):
    """Kafka's ``log.cleaner.*``, in its units."""

    enable: bool = True
    backoff_ms: int = 15_000
    io_max_bytes_per_second: float = float("inf")
    dedupe_buffer_size: int = 128 << 20
    io_buffer_load_factor: float = 0.9
    threads: int = 1

    @property
    def keys_max(self) -> int:
        """Return the largest number of keys in the map of one round."""
        share = self.dedupe_buffer_size / max(self.threads, 1)
        return max(int(share * self.io_buffer_load_factor / _ENTRY_BYTES), 1)


class LogCleaner:
    """The cleaner of one broker; ``config`` is read at each use, as it is dynamic.

    ``up_to`` returns the last stable offset, below which records may be removed.
    """

    def __init__(
        self,
        manager: LogManager,
        config: Callable[[], CleanerConfig],
        up_to: Callable[[TopicPartition], int],
        failed: Failed,
    ) -> None:
        self._manager = manager
        self._config = config
        self._up_to = up_to
        self._failed = failed
        self._busy: set[TopicPartition] = set()
        # Start and duration for which a log is skipped.
        self._left_alone: dict[Log, tuple[int, int]] = {}
        # The time from which the throttle admits more bytes.
        self._paid_up_to_ns = 0
        self.cleaned_bytes = 0

    def round(self) -> Steps[bool]:
        """Compact the dirtiest log that is due; return whether there was one."""
        key = yield from self._filthiest()
        log = self._manager.logs.get(key) if key else None
        if key is None or log is None:
            return False
        self._busy.add(key)
        try:
            yield from self._compact(key, log)
        finally:
            self._busy.discard(key)
        return True

    def _compact(self, key: TopicPartition, log: Log) -> Steps[None]:
        now_ms = self._manager.now_ms()
        keys_max = self._config().keys_max
        before = log.cleaner_offset
        try:
            yield from compaction(
                log, now_ms, self._up_to(key), keys_max, self._note_bytes
            )
        except LogUnavailable as reason:
            if log.closed is None:
                self._leave_alone(log, reason)
        except Exception as error:
            self._leave_alone(log, error)
        else:
            if log.cleaner_offset == before:
                # Otherwise repeated truncations would make rounds follow endlessly.
                self._left_alone[log] = now_ms, self._config().backoff_ms

    def _leave_alone(self, log: Log, error: Exception) -> None:
        self._left_alone[log] = self._manager.now_ms(), _TRY_AGAIN_MS
        self._failed(log.directory, error)

    def _filthiest(self) -> Steps[TopicPartition | None]:
        """Return the key of the dirtiest log that is due."""
        best: TopicPartition | None = None
        most = -1.0
        now_ms = self._manager.now_ms()
        self._left_alone = {
            log: (since_ms, for_ms)
            for log, (since_ms, for_ms) in self._left_alone.items()
            # The wall clock may have been put back meanwhile.
            if 0 <= now_ms - since_ms < for_ms
        }
        for number, (key, log) in enumerate(list(self._manager.logs.items()), 1):
            if not number % _LOGS_PER_STEP:
                yield None
            ratio = self._ratio(key, log, now_ms)
            if ratio > most:
                best, most = key, ratio
        return best

    def _ratio(self, key: TopicPartition, log: Log, now_ms: int) -> float:
        """Return the share of dirty bytes of a log that is due, else -1."""
        # A log that is moving must not become cleaner than its copy.
        left_alone = (
            key in self._busy or log in self._left_alone or key in self._manager.futures
        )
        if left_alone or not log.config.compacts or log.closed is not None:
            return -1.0
        up_to = self._up_to(key)
        try:
            due = compaction_due(log, now_ms, up_to)
        except Exception as error:
            self._leave_alone(log, error)
            return -1.0
        return dirty_ratio(log, now_ms, up_to) if due else -1.0

    # ---- throttle ----

    def _note_bytes(self, size: int) -> None:
        self.cleaned_bytes += size
        rate = self._config().io_max_bytes_per_second
        self._paid_up_to_ns += int(size * _NS_PER_S / rate)

    def not_before_ns(self, now_ns: int) -> int:
        """Return when the next step may be done."""
        self._paid_up_to_ns = max(self._paid_up_to_ns, now_ns - _BURST_NS)
        return self._paid_up_to_ns
