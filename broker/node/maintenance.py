"""Periodic work on logs: retention, cleaning, checkpoints, flushes, moves.

These are the scheduled tasks of Kafka's ``LogManager`` and its ``LogCleaner``, with
their intervals and their initial delay. The coordinator's file is also compacted here
when it has become long. The caller drives the tasks: `next_ns` is the time of the next
step, and `work` does one small step, so that requests run in between. Blocking calls
are passed to ``calls``.

After a failure a log is skipped for one round: the failure is logged and counted, and
the next round tries again. Appends to the log report the error to their clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Final

from broker.cluster.replica_manager import ReplicaManager
from broker.config import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_CLEANER_THREADS,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    LOG_INITIAL_TASK_DELAY_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    NUM_REPLICA_ALTER_LOG_DIRS_THREADS,
    REPLICA_FETCH_BACKOFF_MS,
    BrokerConfig,
)
from broker.coordination.coordinator_roles import Coordinator
from broker.log.log import Log
from broker.log.segments.log_config import LONG_MAX
from broker.log.steps import Steps
from broker.log.upkeep import rounds
from broker.log.upkeep.log_cleaner import CleanerConfig, LogCleaner
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.moves import Moves, Throttle
from broker.log.upkeep.offsets import LOGS_PER_STEP
from broker.log.upkeep.periodic_task import Calls, PeriodicTask
from broker.observation.logs import fields
from broker.protocol.config_key import Key as ConfigKey
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition

logger = getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
_NEVER_NS: Final = 1 << 62
# Kafka allows 0 for some intervals; without a pause upkeep would always be due.
_PAUSE_MIN_MS: Final = 10


class Maintenance:
    """The periodic tasks of one broker; ``config`` returns the present settings.

    ``moved`` is called when `next_ns` has become earlier.
    """

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        coordinator: Coordinator,
        config: Callable[[], BrokerConfig],
        throttle: Throttle,
        *,
        now_ns: Callable[[], int],
        calls: Calls,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._coordinator = coordinator
        self._config = config
        self._calls = calls
        self._moved = moved
        # Number of failed pieces of upkeep since the start.
        self.failures = 0
        self._now_ns = now_ns
        self._first_ns = now_ns() + config()[LOG_INITIAL_TASK_DELAY_MS] * _NS_PER_MS
        self._cleaner = LogCleaner(
            logs, self._cleaner_config, self._stable_below, self._log_failed
        )
        self._retention = self._task(
            lambda: rounds.retention(logs, self._safe_below, self._log_failed),
            LOG_RETENTION_CHECK_INTERVAL_MS,
        )
        self._checkpoint = self._task(
            self._checkpointing, LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS
        )
        self._flush = self._task(
            lambda: rounds.flush(logs, self._log_failed),
            LOG_FLUSH_SCHEDULER_INTERVAL_MS,
        )
        self._removal = self._at_need(lambda: rounds.removal(logs, self._log_failed))
        self._compaction = self._at_need(self._compacting)
        self._cleaners: list[PeriodicTask] = []
        self._moves = Moves(
            logs,
            throttle,
            replicas.take_log,
            self._log_failed,
            now_ns=now_ns,
            pause_ns=lambda: self._moves_pause_ms() * _NS_PER_MS,
        )
        self._movers: list[PeriodicTask] = []

    def _task(
        self, begin: Callable[[], Steps[None]], interval: ConfigKey[int]
    ) -> PeriodicTask:
        return PeriodicTask(
            begin,
            lambda: max(self._config()[interval], _PAUSE_MIN_MS),
            first_ns=self._first_ns,
            failed=self._round_failed,
            calls=self._calls,
            moved=self._moved,
        )

    def _checkpointing(self) -> Steps[None]:
        """Write checkpoints, then retry replicas that were refused on a full disk."""
        yield from rounds.checkpoint(
            self._logs, self._replicas.high_watermark, _is_mended, self._log_failed
        )
        yield from self._showing()
        if self._replicas.without_room:
            self._coordinator.membership.start_again(
                sorted(self._replicas.without_room)
            )

    def _compacting(self) -> Steps[None]:
        if self._coordinator.local is not None:
            yield from self._coordinator.local.compaction()

    def _showing(self) -> Steps[None]:
        """Expose batches that were withheld until a failed flush was repeated."""
        for number, partition in enumerate(self._replicas.led(), 1):
            if partition.log.flushes:
                self._replicas.note_flush(partition)
            if not number % LOGS_PER_STEP:
                yield None

    def _at_need(self, begin: Callable[[], Steps[None]]) -> PeriodicTask:
        """Return a task without an interval, for work on demand."""
        return PeriodicTask(
            begin,
            lambda: 0,
            first_ns=self._now_ns(),
            failed=self._round_failed,
            calls=self._calls,
            moved=self._moved,
        )

    def _cleaning(self) -> PeriodicTask:
        """Return the counterpart of a Kafka cleaner thread, which compacts logs."""
        found = False

        def begin() -> Steps[None]:
            nonlocal found
            found = yield from self._cleaner.round()

        return PeriodicTask(
            begin,
            lambda: 0 if found else self._cleaner_config().backoff_ms,
            first_ns=self._first_ns,
            failed=self._round_failed,
            calls=self._calls,
            moved=self._moved,
            not_before_ns=self._cleaner.not_before_ns,
        )

    def _mover(self) -> PeriodicTask:
        """Return the counterpart of Kafka's thread for moves between directories."""
        found = False

        def begin() -> Steps[None]:
            nonlocal found
            found = yield from self._moves.round()

        return PeriodicTask(
            begin,
            lambda: 0 if found else self._moves_pause_ms(),
            first_ns=self._now_ns(),
            failed=self._round_failed,
            calls=self._calls,
            moved=self._moved,
        )

    def _moves_pause_ms(self) -> int:
        return max(self._config()[REPLICA_FETCH_BACKOFF_MS], _PAUSE_MIN_MS)

    def _tasks(self) -> Iterator[PeriodicTask]:
        """Iterate over the tasks that have or will have work."""
        yield self._retention
        yield self._checkpoint
        local = self._coordinator.local
        if local is not None and (
            local.needs_compaction or not self._compaction.is_idle
        ):
            yield self._compaction
        config = self._config()
        if config[LOG_FLUSH_SCHEDULER_INTERVAL_MS] < LONG_MAX:
            yield self._flush
        if config[LOG_CLEANER_ENABLE]:
            threads = config[LOG_CLEANER_THREADS]
            while len(self._cleaners) < threads:
                self._cleaners.append(self._cleaning())
            yield from self._cleaners[:threads]
        if self._moves.any or self._movers:
            movers = config[NUM_REPLICA_ALTER_LOG_DIRS_THREADS]
            movers = len(self._logs.log_dirs.all) if movers is None else max(movers, 1)
            while self._moves.any and len(self._movers) < movers:
                self._movers.append(self._mover())
            if not self._moves.any and all(each.is_idle for each in self._movers):
                self._movers.clear()
            yield from self._movers

    def next_ns(self) -> int:
        """Return when the next step of `work` is due; the time may be in the past."""
        due_ns = map(self._due_ns, self._tasks())
        return min(self._due_ns(self._removal), min(due_ns, default=_NEVER_NS))

    def _due_ns(self, task: PeriodicTask) -> int:
        at_ns = self._removal_ns() if task is self._removal else task.next_ns()
        return _NEVER_NS if at_ns is None else at_ns

    def _removal_ns(self) -> int | None:
        """Return when the next path is due for removal."""
        at_ns = self._removal.next_ns()
        wait_ms = self._logs.doomed.wait_ms(self._logs.now_ms())
        if at_ns is None or wait_ms is None:
            return None if self._removal.is_idle else at_ns
        return max(at_ns, self._now_ns() + wait_ms * _NS_PER_MS) if wait_ms else at_ns

    def work(self, now_ns: int) -> None:
        """Do one step of the task that has been due for longest, if any."""
        # After its step a task is due now at the earliest, so all tasks take turns.
        task = min((*self._tasks(), self._removal), key=self._due_ns)
        if self._due_ns(task) <= now_ns:
            task.step(now_ns)

    def _cleaner_config(self) -> CleanerConfig:
        config = self._config()
        return CleanerConfig(
            enable=config[LOG_CLEANER_ENABLE],
            backoff_ms=max(config[LOG_CLEANER_BACKOFF_MS], _PAUSE_MIN_MS),
            io_max_bytes_per_second=config[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
            dedupe_buffer_size=config[LOG_CLEANER_DEDUPE_BUFFER_SIZE],
            io_buffer_load_factor=config[LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
            threads=config[LOG_CLEANER_THREADS],
        )

    def _safe_below(self, key: TopicPartition) -> int:
        partition = self._replicas.partitions.get(key)
        return 0 if partition is None else partition.high_watermark

    def _stable_below(self, key: TopicPartition) -> int:
        partition = self._replicas.partitions.get(key)
        return 0 if partition is None else partition.last_stable_offset

    def _log_failed(self, path: str, error: Exception) -> None:
        self.failures += 1
        logger.error(
            "upkeep of a log is put off until the next round",
            extra=fields(log=path, fault=error),
            exc_info=None if isinstance(error, (OSError, KafkaError)) else error,
        )

    def _round_failed(self, error: Exception) -> None:
        self.failures += 1
        logger.error("a round of upkeep ended early", exc_info=error)


def _is_mended(log: Log) -> None:
    logger.info("a log is in service again", extra=fields(log=log.directory))
