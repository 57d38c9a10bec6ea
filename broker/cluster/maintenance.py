"""What is done to logs now and then: retention, compaction, checkpoints, flushes.

Kafka's scheduled tasks of ``LogManager``, with its intervals and its delay before
the first. Nothing runs by itself: `next_ns` says when, `work` does one small piece, and
a long clean-up is many of them, so that requests go on in between.

A log whose disk fails is passed over until the next round: what it holds is untouched,
appends to it tell their clients, and space may come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from logging import getLogger
from typing import Final

from broker.cluster.partition import Key
from broker.cluster.replica_manager import ReplicaManager
from broker.config import (
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    LOG_INITIAL_TASK_DELAY_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    BrokerConfig,
)
from broker.errors import KafkaError
from broker.log.config import LONG_MAX
from broker.log.log import Log
from broker.log.manager import LogManager
from broker.logs import fields

logger = getLogger(__name__)

_NS_PER_MS: Final = 1_000_000


class Maintenance:
    """The rounds of one broker; ``config`` is asked anew each time, being dynamic."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        config: Callable[[], BrokerConfig],
        *,
        now_ns: int,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._config = config
        self._started_ns = now_ns
        self._cleaning: Iterator[None] | None = None
        first_ns = now_ns + config()[LOG_INITIAL_TASK_DELAY_MS] * _NS_PER_MS
        self._clean_ns = first_ns
        self._checkpoint_ns = first_ns
        self._flush_ns = first_ns

    def next_ns(self) -> int:
        """Return when `work` has something to do; perhaps a time long past."""
        if self._cleaning is not None:
            return self._started_ns
        due_ns = [self._clean_ns, self._checkpoint_ns]
        if self._config()[LOG_FLUSH_SCHEDULER_INTERVAL_MS] < LONG_MAX:
            due_ns.append(self._flush_ns)
        return min(due_ns)

    def work(self, now_ns: int) -> None:
        """Do one piece of what has come due."""
        config = self._config()
        if self._cleaning is not None:
            self._clean_some(now_ns)
        elif now_ns >= self._clean_ns:
            self._cleaning = self._logs.clean_up(self._safe_below)
        elif now_ns >= self._checkpoint_ns:
            interval_ms = config[LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS]
            self._checkpoint_ns = now_ns + interval_ms * _NS_PER_MS
            self._attempt(self._checkpoint)
        elif now_ns >= self._flush_ns:
            interval_ms = config[LOG_FLUSH_SCHEDULER_INTERVAL_MS]
            self._flush_ns = now_ns + interval_ms * _NS_PER_MS
            for log in self._logs.due_for_flush():
                self._attempt(log.flush)

    def _clean_some(self, now_ns: int) -> None:
        assert self._cleaning is not None
        try:
            next(self._cleaning)
        except StopIteration:
            pass
        except (OSError, KafkaError) as error:
            logger.error("a clean-up ended early", extra=fields(fault=error))
        else:
            return
        self._cleaning = None
        interval_ms = self._config()[LOG_RETENTION_CHECK_INTERVAL_MS]
        self._clean_ns = now_ns + interval_ms * _NS_PER_MS

    def _attempt(self, piece: Callable[[], None]) -> None:
        try:
            piece()
        except (OSError, KafkaError) as error:
            logger.error(
                "upkeep is put off until the next round", extra=fields(fault=error)
            )

    def _checkpoint(self) -> None:
        for log in list(self._logs.logs.values()):
            if log.durability.out_of_service:
                self._attempt(partial(_mend, log))
        self._logs.checkpoint(self._replicas.high_watermarks())

    def _safe_below(self, key: Key) -> int:
        partition = self._replicas.partitions.get(key)
        return 0 if partition is None else partition.high_watermark


def _mend(log: Log) -> None:
    """Bring a log back into service, or say once a round that it is out of it."""
    if log.mend():
        logger.info("a log is in service again", extra=fields(log=log.directory))
    log.durability.check_in_service()
