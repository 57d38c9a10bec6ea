"""Traces of a deleted topic: offsets of groups, and names in directories.

The record of a deletion may be erased only after the deletion is durable. Otherwise,
after a power loss, a new topic of the same name could find the old topic's offsets, or
the old log could reappear. This module records the logs of ``__consumer_offsets`` that
received tombstones; `settle` flushes them and the directories.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from broker.cluster.blocking import Blocking, carried_out
from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC
from broker.groups.group_coordinator import GroupCoordinator
from broker.log.flushing import flush
from broker.log.log import Log
from broker.log.steps import run
from broker.log.upkeep.manager import LogManager
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from planes.slices import asleep, preempt


class Deletions:
    """The traces of deleted topics that may not be durably removed yet.

    ``moved`` is called when `next_ns` has become earlier.
    """

    def __init__(
        self,
        logs: LogManager,
        groups: GroupCoordinator,
        flush: Callable[[Log], Awaitable[None]],
        blocking: Blocking,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._logs = logs
        self._groups = groups
        self._flush = flush
        self._blocking = blocking
        self._moved = moved
        self._recorded: deque[Sequence[TopicPartition]] = deque()
        # The remaining steps of the first entry.
        self._steps: Iterator[int | None] | None = None
        self._with_tombstones: set[TopicPartition] = set()

    def note(self, deleted: Sequence[TopicPartition]) -> None:
        """Record partitions whose offsets `step` or `remove_offsets` will remove."""
        self._recorded.append(deleted)
        self._moved()

    def next_ns(self) -> int | None:
        """Return 0 if `step` has work, else None."""
        return 0 if self._recorded else None

    def step(self) -> bool:
        """Remove some offsets of recorded topics; return False if there are none."""
        if not self._recorded:
            return False
        if self._steps is None:
            self._steps = self._groups.offsets.delete_topics(self._recorded[0])
        try:
            partition = next(self._steps)
        except StopIteration:
            self._steps = None
            self._recorded.popleft()
        except Exception:
            # Restart this entry from the beginning.
            self._steps = None
            raise
        else:
            if partition is not None:
                key = TopicPartition(GROUP_METADATA_TOPIC, partition)
                self._with_tombstones.add(key)
        return True

    async def remove_offsets(self) -> None:
        """Remove all offsets of recorded topics; loading groups do so after loading."""
        while self.step():
            await preempt()

    def remove_offsets_now(self) -> None:
        """Remove all offsets at once, at a start or a stop."""
        while self.step():
            pass

    async def settle(self) -> None:
        """Remove all offsets durably; raise KAFKA_STORAGE_ERROR.

        Waits for partitions that are being loaded, whose groups remove offsets then.
        """
        await self.remove_offsets()
        while self._groups.loading.has_deletions():
            await asleep(self._groups.loading.register)
        for key in sorted(self._with_tombstones):
            if key in self._logs.logs:
                await self._flush(self._logs.logs[key])
            self._with_tombstones.discard(key)
        try:
            await carried_out(self._logs.syncing_names(), self._blocking)
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error

    def settle_now(self) -> None:
        """Settle on this thread, at a start; may also raise OSError."""
        self._groups.load_all()
        self.remove_offsets_now()
        for key in sorted(self._with_tombstones & self._logs.logs.keys()):
            flush(self._logs.logs[key])
        self._with_tombstones.clear()
        run(self._logs.syncing_names())
