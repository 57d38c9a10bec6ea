"""What a deleted topic leaves to others: offsets of groups, and names in directories.

A deletion may be forgotten only once no loss of power can undo it: else a topic of the
same name would find the old one's offsets, or the old log would be back. So it is noted
here which logs of ``__consumer_offsets`` were given tombstones, and `settle` flushes
them and the directories.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from broker.cluster.partition import Key
from broker.cluster.replica_manager import ReplicaManager
from broker.cluster.topics import GROUP_METADATA_TOPIC
from broker.groups.coordinator import GroupCoordinator
from broker.groups.state.offset_store import TopicPartition
from broker.log.flushing import flush
from broker.log.log import Log
from broker.log.upkeep.manager import LogManager
from broker.protocol.errors import ErrorCode, KafkaError


class Deletions:
    """The traces of deleted topics that may not be durably gone yet."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        flush: Callable[[Log], Awaitable[None]],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._groups = groups
        self._flush = flush
        self._with_tombstones: set[Key] = set()

    def forget_offsets(self, deleted: Sequence[Key]) -> None:
        """Have groups forget partitions, and note which logs say so."""
        # What is still being read would keep the offsets that it finds later.
        self._groups.load_all()
        ends = {
            each: each.log.log_end_offset
            for each in self._replicas.led()
            if each.key[0] == GROUP_METADATA_TOPIC
        }
        self._groups.offsets.delete_topics(TopicPartition(*key) for key in deleted)
        self._with_tombstones |= {
            each.key for each, end in ends.items() if each.log.log_end_offset > end
        }

    async def settle(self) -> None:
        """Make it all durable; raise KAFKA_STORAGE_ERROR."""
        for key in sorted(self._with_tombstones):
            if key in self._logs.logs:
                await self._flush(self._logs.logs[key])
            self._with_tombstones.discard(key)
        try:
            self._logs.sync_names()
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error

    def settle_now(self) -> None:
        """Do the same on this thread, at a start; raise OSError, too."""
        for key in self._with_tombstones:
            flush(self._logs.logs[key])
        self._with_tombstones.clear()
        self._logs.sync_names()
