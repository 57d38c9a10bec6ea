"""The shards that this broker coordinates, and the execution of effects.

A coordinator's verbs find their object here and return the core's `Effects`. Only this
module sets responses and appends records. The clock is a parameter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from broker.protocol.errors import ErrorCode, KafkaError
from broker.shards.effects import Answered, Effects, Instant, Write
from broker.shards.group_partition import partition_for
from broker.shards.shard import Shard
from broker.shards.shard_log import ShardLog, coordinator_error

E = TypeVar("E")

# Responses set in one step.
ANSWERS_PER_STEP: Final = 128

Clock = Callable[[], Instant]


class Shards(Generic[E]):
    """Shards by partition of an internal topic with ``partitions`` partitions.

    ``on_unsettled`` is called when `settle_some` has work.
    """

    def __init__(
        self,
        partitions: int,
        log: ShardLog,
        clock: Clock,
        on_unsettled: Callable[[], None] = lambda: None,
    ) -> None:
        self.partitions = partitions
        self.log = log
        self.clock = clock
        self.partition_loads = 0
        self.by_partition: dict[int, Shard[E]] = {}
        # Partitions with objects of a former term that are not yet unloaded.
        self.unloading: set[int] = set()
        # The rest of large sets of responses; `settle_some` sets them.
        self.unsettled: deque[Iterator[Answered]] = deque()
        self._on_unsettled = on_unsettled

    def add(self, partition: int, epoch: int) -> Shard[E]:
        """Add a shard, to be loaded."""
        shard = Shard[E](partition, lambda it: self.partition(it) == partition, epoch)
        self.by_partition[partition] = shard
        return shard

    def is_loading(self) -> bool:
        """Return whether any shard is still loading."""
        return any(shard.loading for shard in self.by_partition.values())

    def partition(self, name: str) -> int:
        """Return the partition of the object with this id."""
        return partition_for(name, self.partitions)

    def shard(self, name: str) -> Shard[E]:
        """Return the loaded shard of an object; raise `KafkaError` if none is here."""
        shard = self.by_partition.get(self.partition(name))
        if shard is None:
            raise KafkaError(ErrorCode.not_coordinator)
        if shard.loading:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return shard

    def find(self, name: str) -> E | None:
        """Return the object, None if it does not exist; raise as `shard`."""
        return self.shard(name).by_id.get(name)

    def all(self) -> Iterator[E]:
        """Iterate over all objects of loaded shards, in the order of partitions."""
        for _, shard in sorted(self.by_partition.items()):
            if not shard.loading:
                yield from tuple(shard.by_id.values())

    def perform(self, name: str, effects: Effects) -> None:
        """Append the writes, then set the responses."""
        for write in effects.writes:
            self.append(name, write)
        for waiting, answer in effects.answers:
            waiting.settle(answer)
        for answers in effects.in_turn:
            if self._settle_some(answers):
                self.unsettled.append(answers)
                self._on_unsettled()

    def wake(self) -> None:
        """Wake the caller of `settle_some`, which also does other work."""
        self._on_unsettled()

    def settle_some(self) -> bool:
        """Set some of the remaining responses; return False if none remain."""
        if not self.unsettled:
            return False
        answers = self.unsettled.popleft()
        if self._settle_some(answers):
            self.unsettled.append(answers)
        return True

    def _settle_some(self, answers: Iterator[Answered]) -> bool:
        """Set some responses; return whether more may remain."""
        given = 0
        for waiting, answer in islice(answers, ANSWERS_PER_STEP):
            waiting.settle(answer)
            given += 1
        return given == ANSWERS_PER_STEP

    def append(self, name: str, write: Write) -> None:
        """Append an object's records; perform the effects of the outcome afterwards.

        An object of a partition in unloading appends nothing: this broker may lead the
        partition again already.
        """

        def done(error: ErrorCode) -> None:
            effects = write.done(coordinator_error(error), self.clock())
            self.perform(name, effects)

        partition = self.partition(name)
        if partition in self.unloading:
            done(ErrorCode.not_coordinator)
        else:
            self.log.append(partition, write.records, done, write.transaction)

    def has(self, name: str, one: E) -> bool:
        """Return whether this broker still coordinates this very object."""
        shard = self.by_partition.get(self.partition(name))
        return shard is not None and shard.by_id.get(name) is one

    def remove(self, name: str, one: E) -> None:
        """Remove an object."""
        if self.has(name, one):
            del self.by_partition[self.partition(name)].by_id[name]
