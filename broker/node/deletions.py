"""What a deleted topic leaves to others: offsets of groups, and names in directories.

A deletion may be forgotten only once no loss of power can undo it: else a topic of the
same name would find the old one's offsets, or the old log would be back. So it is noted
here which logs of ``__consumer_offsets`` were given tombstones, and `settle` flushes
them and the directories.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from broker.cluster.topics import GROUP_METADATA_TOPIC
from broker.groups.coordinator import GroupCoordinator
from broker.log.flushing import flush
from broker.log.log import Log
from broker.log.steps import run
from broker.log.upkeep.manager import LogManager
from broker.node.blocking import Blocking, carried_out
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from planes.slices import preempt


class Deletions:
    """The traces of deleted topics that may not be durably gone yet."""

    def __init__(
        self,
        logs: LogManager,
        groups: GroupCoordinator,
        flush: Callable[[Log], Awaitable[None]],
        blocking: Blocking,
    ) -> None:
        self._logs = logs
        self._groups = groups
        self._flush = flush
        self._blocking = blocking
        self._to_forget: deque[Sequence[TopicPartition]] = deque()
        self._with_tombstones: set[TopicPartition] = set()

    def note(self, deleted: Sequence[TopicPartition]) -> None:
        """Note partitions whose offsets are to be forgotten, by `forget`."""
        self._to_forget.append(deleted)

    async def forget(self) -> None:
        """Have groups forget the partitions that were noted."""
        for _ in self._forgetting():
            await preempt()

    def forget_now(self) -> None:
        """Do the same at once, at a start or a stop."""
        for _ in self._forgetting():
            pass

    def _forgetting(self) -> Iterator[None]:
        """Forget step by step; note which logs say so.

        Two requests may be at it: each goes on until all is done that it has noted.
        """
        while self._to_forget:
            deleted = self._to_forget[0]
            # What is still being read would keep the offsets that it finds later.
            while self._groups.load_some():
                yield
            for partition in self._groups.offsets.delete_topics(deleted):
                if partition is not None:
                    self._with_tombstones.add(
                        TopicPartition(GROUP_METADATA_TOPIC, partition)
                    )
                yield
            if self._to_forget and self._to_forget[0] is deleted:
                self._to_forget.popleft()

    async def settle(self) -> None:
        """Forget, and make it all durable; raise KAFKA_STORAGE_ERROR."""
        await self.forget()
        for key in sorted(self._with_tombstones):
            if key in self._logs.logs:
                await self._flush(self._logs.logs[key])
            self._with_tombstones.discard(key)
        try:
            await carried_out(self._logs.syncing_names(), self._blocking)
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error

    def settle_now(self) -> None:
        """Do the same on this thread, at a start; raise OSError, too."""
        self.forget_now()
        for key in self._with_tombstones & self._logs.logs.keys():
            flush(self._logs.logs[key])
        self._with_tombstones.clear()
        run(self._logs.syncing_names())
